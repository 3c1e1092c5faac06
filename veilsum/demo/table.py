"""The demo's table on the terminal."""

from rich.console import Console
from rich.table import Table

from veilsum.demo.facts import Facts
from veilsum.demo.folder import Folder
from veilsum.demo.wording import (
    NUMBER_TO_BEAT,
    PHASE_NAMES,
    fate,
    kibibytes,
    percent,
    power,
    rare_classes,
    seconds,
)


def print_table(facts: Facts, folder: Folder, console: Console) -> None:
    """Print the run's accuracies, survivors, cost and times."""
    table = Table(
        title="veilsum demo", title_justify="left", title_style="bold", show_header=False, pad_edge=False
    )
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in _rows(facts):
        if name is None:
            table.add_section()
        else:
            table.add_row(name, value)
    console.print(table)
    console.print(NUMBER_TO_BEAT)
    console.print(
        "SphereFed trains the extractor under a fixed head, which is never sent. FFC then fits that head in closed form from summed "
        f"statistics. The sum is exact, without noise. {rare_classes(facts)}",
        style="dim",
    )
    console.print(f"Report   {folder.report}\nSummary  {folder.summary}", soft_wrap=True)


def _rows(facts: Facts) -> list[tuple[str | None, str]]:
    accuracies = facts.accuracies
    return [
        ("FedAvg, trained head", f"{percent(accuracies.fedavg)}  same members, model and rounds"),
        (
            "FedAvg, plain FFC",
            f"{percent(accuracies.fedavg_plain)}  the survivors' records pooled in the clear",
        ),
        ("SphereFed, fixed head", f"{percent(accuracies.before)}  as training left it"),
        (
            "SphereFed, masked FFC",
            f"{percent(accuracies.masked)}  secure sum over {len(facts.survivors)} members",
        ),
        (
            "SphereFed, plain FFC",
            f"{percent(accuracies.plain)}  the survivors' records pooled in the clear",
        ),
        ("masked − plain W", f"{power(facts.max_rel_diff)} of max|W|, both with λ = {facts.ridge:.4g}"),
        (None, ""),
        (
            "survivors",
            f"{len(facts.survivors)} of {len(facts.members)}, certified by {facts.rules.votes} votes",
        ),
        *((f"lost: {lost.member}", fate(facts, lost.member)) for lost in facts.lost),
        ("results verified", f"{len(facts.verified)}, from the members' disks, all the same"),
        (None, ""),
        ("sent by a member", f"{kibibytes(facts.upload_bytes)} for {facts.elements:,} masked numbers"),
        *((PHASE_NAMES[name], seconds(value)) for name, value in facts.seconds.items()),
    ]
