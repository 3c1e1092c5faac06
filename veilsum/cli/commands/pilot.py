"""`veilsum pilot`: a throwaway federation on this machine, from a study to its verified result."""

import hashlib
import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veilsum.cli.console import JSON_OUTPUT, print_note, print_values, require_extras
from veilsum.cli.options import Standardise, add_table_options
from veilsum.protocol.errors import Misuse
from veilsum.system.intervals import DEMO_FINISH_S

if TYPE_CHECKING:
    from client_sdk import Result
    from client_sdk.comparison import ClassRecall
    from veilsum.calibration import FFCStatistics
    from veilsum.cli.demo.screen import Screen
    from veilsum.cli.features import Part
    from veilsum.cli.head_table import HeadTable
    from veilsum.cli.tables import Table, TableFormat
    from veilsum.protocol.study import Content
    from veilsum.study.canaries import CanaryPack

_PILOT_HELD_OUT_SHARE = 0.2
"""Of the records of a member: nothing else is to be learned from a pilot than how good a head is."""
_SYNTHETIC_DIM, _SYNTHETIC_CLASSES, _SYNTHETIC_ROWS = 16, 4, 60


@add_table_options
def pilot(
    form: "TableFormat",
    data: Annotated[
        list[Path] | None,
        typer.Argument(
            help="A file of features and labels for each member; or one file, split among --members.",
            show_default="synthetic data",
        ),
    ] = None,
    study: Annotated[
        Path | None,
        typer.Option(help="A study's draft (TOML) to try.", show_default="one that fits the data"),
    ] = None,
    members: Annotated[
        int, typer.Option(help="Members, unless each has a file of its own.", min=3, max=50)
    ] = 5,
    standardise: Standardise = None,
    canaries: Annotated[
        Path | None,
        typer.Option(
            help="A canary pack, to rehearse first: the files must hold its rows too, under its ids. Canaries of a single file go to all members.",
            show_default="none",
        ),
    ] = None,
    output: Annotated[
        Path, typer.Option(help="A folder used only by the pilot; an earlier pilot there is replaced.")
    ] = Path("runs/pilot"),
    keep: Annotated[
        bool,
        typer.Option(
            "--keep",
            help="Keep the members' and the coordinator's folders, with keys and records; a pilot that fails removes them too.",
        ),
    ] = False,
) -> None:
    """Run a study on this machine, with a coordinator and a process for each member, on synthetic data or your own.

    The pilot makes all keys itself and keeps them in one folder: it protects no data, and no real roster accepts its keys.

    Your records are not spent: the pilot has its own ledger.
    """
    require_extras("the pilot", "service")
    from veilsum.cli.admin import read_study_draft
    from veilsum.cli.canaries import read_pack
    from veilsum.cli.demo.folder import Folder
    from veilsum.cli.demo.processes import unwind_on_signal
    from veilsum.cli.demo.screen import Screen
    from veilsum.cli.features import class_keys, make_records, of_file
    from veilsum.cli.moments import moments_in
    from veilsum.cli.read_report import report_files

    pack = None if canaries is None else read_pack(canaries)
    files = _read_files(data or (), form)
    tables = deal_tables(files, members)
    extractor = "0" * 64
    if standardise is not None:
        moments = moments_in(standardise, tables)
        tables = [moments.standardise_table(each) for each in tables]
        extractor = hashlib.sha256(standardise.read_bytes()).hexdigest()
    inputs = [*(data or ()), *(each for each in (study, standardise, canaries) if each is not None)]
    folder = Folder.claim_folder(output, inputs)
    draft = study or folder.root / "study.toml"
    records = [*map(make_records, files or tables)]
    if study is None:
        with of_file(*data or ()):
            keys = class_keys(records)
            _check_class_keys(keys)
        draft.write_text(_draft_for(draft, tables, extractor, keys, pack), "utf-8")
    content = read_study_draft(draft)
    read = report_files(data or (), records[: len(files)], content.question.classes)
    del files, records
    _check_study(draft, content, tables)
    tables = [each.order_columns(content.question.columns, f"those of {draft}") for each in tables]
    checks = _check_canaries(draft, content, tables, pack)
    for check in checks:
        print_note(f"{check['member']}: {check['found']}")
    try:
        with unwind_on_signal():
            result, values, table = run_pilot(folder, content, tables, Screen(), pack)
    finally:
        if not keep:
            folder.remove_secrets()
    result.save(folder.result)
    folder.admin_key.write_text(f"{result.record.federation}\n", "utf-8")
    if JSON_OUTPUT.get():
        print_values(
            {
                "read": read,
                "canaries": checks,
                **values,
                **({} if table is None else table.to_json()),
                "record": result.record.model_dump(mode="json"),
                "saved": str(folder.result),
            }
        )
        return
    _print_result(result, values, table)
    print_note(f"Check it again: veilsum verify {folder.result} --admin-key $(cat {folder.admin_key})")
    if study is None:
        print_note(f"Edit {draft} and try it: veilsum pilot … --study {draft}")


def _print_result(result: "Result", values: dict[str, Any], table: "HeadTable | None") -> None:
    from veilsum.cli.round_view import record_values

    print_values(record_values(result.record, result.content.class_names), "Result, verified by all members")
    for sentence in _result_sentences(values):
        print_note(sentence)
    if table is not None:
        table.print_table(
            'A study publishes what it takes by publish = ["lda", "pooled"] in [after]; Head.with_prior changes the priors.'
        )


def deal_tables(files: "Sequence[Table]", members: int) -> "list[Table]":
    """Return each member's data: synthetic data, one file dealt to all members, or one file per member."""
    import numpy as np

    from veilsum.cli.tables import Table

    if not files:
        rng = np.random.default_rng(0)
        count = members * _SYNTHETIC_ROWS
        labels = np.arange(count) % _SYNTHETIC_CLASSES
        centres = 2 * np.eye(_SYNTHETIC_CLASSES, _SYNTHETIC_DIM)
        whole = Table(rng.normal(size=(count, _SYNTHETIC_DIM)) + centres[labels], labels, np.arange(count))
    elif len(files) == 1:
        [whole] = files
    else:
        return [*files]
    canaries = whole.take_rows(whole.is_canary)
    whole = whole.take_rows(~whole.is_canary)
    # Without ids, a member's data would count as one record. Each row of a dealt file gets its own id.
    ids = np.arange(len(whole.labels)) if whole.ids is None else whole.ids
    # Deal whole ids: otherwise a member could judge the head on a person whose rows another member contributed.
    _, first, record = np.unique(ids, return_index=True, return_inverse=True)
    order = np.random.default_rng(0).permutation(len(first))
    # Deal class by class: otherwise a member could get so few rows of a class that the run withholds it.
    order = order[np.argsort(whole.labels[first[order]].astype(str), kind="stable")]
    parts = [np.flatnonzero(np.isin(record, order[number::members])) for number in range(members)]
    dealt = [Table(whole.features[part], whole.labels[part], ids[part], whole.columns) for part in parts]
    return [each.add_rows(canaries) for each in dealt]


def _read_files(paths: Sequence[Path], form: "TableFormat") -> "list[Table]":
    """Read files. Raises Misuse if their number or their records are not valid for members."""
    from veilsum.cli.features import make_records, of_file, read_tables

    if len(paths) == 2:
        raise Misuse("got 2 files: pass one for each of at least three members, or one file to split")
    tables = read_tables(paths, form)
    for path, table in zip(paths, tables, strict=True):
        with of_file(path):
            make_records(table)
    return tables


def _check_class_keys(keys: Sequence[str]) -> None:
    """Raise Misuse for a label that can't be a class key of a study."""
    from veilsum.protocol.forms import CLASS_PATTERN

    if wrong := [key for key in keys if re.search(CLASS_PATTERN, key) is None]:
        raise Misuse(
            f"label {wrong[0]!r} can't be a class key of a study: expected 1 to 64 printable ASCII characters. Rename the label; display in "
            "the study's notes shows any letters in its place"
        )


def _draft_for(
    path: Path, tables: "Sequence[Table]", extractor: str, classes: Sequence[str], pack: "CanaryPack | None"
) -> str:
    from datetime import UTC, datetime

    from veilsum import study
    from veilsum.cli.canaries import pack_fields

    return study.draft.draft_template(
        str(path),
        name="pilot",
        extractor=extractor,
        dim=tables[0].features.shape[1],
        classes=classes,
        members=len(tables),
        today=datetime.now(UTC).date(),
        why_not_listable="A pilot: its sums stay on one machine. Replace this sentence before real members approve the study.",
        **pack_fields(pack),
    )


def _check_study(draft: Path, content: "Content", tables: "Sequence[Table]") -> None:
    """Raise Misuse if these members can't run the study."""
    from veilsum.protocol.forms import count_noun

    question = content.question
    if not question.members_min <= len(tables) <= question.members_max:
        raise Misuse(
            f"{draft} allows {question.members_min} to {question.members_max} members, got {len(tables)}: edit it"
        )
    for number, table in enumerate(tables, 1):
        if table.features.shape[1] != question.dim:
            raise Misuse(
                f"member {number} has {table.features.shape[1]} features, {draft} says {question.dim}"
            )
        usable = _count_usable(table, content)
        if question.noise is None and usable < question.records.least:
            raise Misuse(
                f"member {number} has {count_noun(usable, 'row')} with a label and without NaN, {draft} needs {question.records.least}: bring "
                "more data, more members, or fewer features"
            )


def _check_canaries(
    draft: Path, content: "Content", tables: "Sequence[Table]", pack: "CanaryPack | None"
) -> list[dict[str, Any]]:
    """Compare each member's canaries with the pack, as the members will. Raises Misuse if one differs, or if the study names another pack."""
    from veilsum.cli.features import make_records

    named = None if content.rehearsal is None else content.rehearsal.pack
    if named != (pack and pack.digest):
        raise Misuse(f"{draft} names canary pack {named or 'none'}: pass that pack by --canaries")
    if pack is None:
        return []
    pack.check_question(content.question)
    checks = []
    for number, table in enumerate(tables, 1):
        found = make_records(table).check_canaries(content, pack)
        if found.findings:
            raise Misuse(f"member {number}: {found.describe()}")
        checks.append({"member": f"member {number}", "largest": found.largest, "found": found.describe()})
    return checks


def _count_usable(table: "Table", content: "Content") -> int:
    from veilsum.cli.features import FileRecords

    records = FileRecords(table.features, table.labels, table.ids)
    return int(records.find_usable_rows(content.question.classes)[1].sum())


def _held_out_share(content: "Content", tables: "Sequence[Table]") -> float:
    """Return the share of records to hold out: none unless the study surely has enough rows without them."""
    fewest = min(_count_usable(table, content) for table in tables)
    drawn = _PILOT_HELD_OUT_SHARE * fewest
    exact, least = content.question.noise is None, content.question.records.least
    return 0.0 if exact and fewest - drawn - 5 * math.sqrt(drawn) < least else _PILOT_HELD_OUT_SHARE


def run_pilot(
    folder: Any, content: "Content", tables: "Sequence[Table]", screen: "Screen", pack: "CanaryPack | None"
) -> "tuple[Result, dict[str, Any], HeadTable | None]":
    """Run the study. Returns a member's result, figures on accuracy and exactness, and the heads that follow from the same sums."""
    import numpy as np

    from veilsum.cli.demo.coordinator import await_coordinator, running_coordinator
    from veilsum.cli.demo.federation import Federation
    from veilsum.cli.demo.processes import Children

    members = [f"member-{number:02}" for number in range(1, len(tables) + 1)]
    for member, table in zip(members, tables, strict=True):
        folder.member_folder(member).mkdir(mode=0o700, parents=True)
        arrays: dict[str, Any] = {"features": table.features, "labels": np.array(table.labels.tolist())}
        # Without ids all rows would be one record, of which no part can be held out.
        arrays["ids"] = np.arange(len(table.labels)) if table.ids is None else np.array(table.ids.tolist())
        np.savez(folder.features_file(member), **arrays)
    with Children() as children:
        with running_coordinator(children, folder) as (operator, url):
            await_coordinator(children, operator, url, screen)
            federation = Federation.publish_federation(
                folder.root, children, operator, url, members, content, _held_out_share(content, tables)
            )
            if pack is not None:
                operator.publish_canaries(federation.admin_key.hex(), pack)
            for member in members:
                federation.start_member(member, folder.features_file(member))
            if pack is not None:
                federation.rehearse_study(screen)
            view = federation.run_study(screen)
            children.join_children(members, DEMO_FINISH_S)
            transcript = operator.transcript(view.round)
        results = [federation.member_result(member) for member in members]  # each verified
        result = results[0]
        values = _accuracy_values(results)
        plain, held_out = _read_rows(folder, members, result)
        if result.spec.question.noise is None:
            values |= _largest_difference(plain, result)
        return replace(result, transcript_file=transcript), values, _compare_heads(plain, held_out, result)


def _accuracy_values(results: "Sequence[Result]") -> dict[str, Any]:
    """Compute the accuracy on the members' hold-out records, which no sum includes; empty without such records."""
    judged = [each.judged for each in results if each.judged is not None]
    count = sum(each.records for each in judged)
    if not count:
        return {}
    own = [each for each in judged if each.own_accuracy is not None]
    recalls = [one for each in judged for one in each.recalls]
    found: dict[str, Any] = {
        "hold_out_records": count,
        "consortium_accuracy": sum(each.records * each.accuracy for each in judged) / count,
        "consortium_balanced_accuracy": _balance(recalls, lambda one: one.recall),
    }
    if len(own) == len(judged):
        found["own_accuracy"] = sum(each.records * (each.own_accuracy or 0.0) for each in own) / count
        found["own_balanced_accuracy"] = _balance(recalls, lambda one: one.own_recall or 0.0)
    return found


def _balance(recalls: "Sequence[ClassRecall]", recall_of: "Callable[[ClassRecall], float]") -> float:
    """Return the mean over classes of the recall over all members' records."""
    labels = {one.label for one in recalls}
    return sum(
        sum(one.records * recall_of(one) for one in recalls if one.label == label)
        / sum(one.records for one in recalls if one.label == label)
        for label in labels
    ) / len(labels)


def _result_sentences(values: dict[str, Any]) -> Iterator[str]:
    """Describe accuracy and exactness for people."""
    if count := values.get("hold_out_records"):
        own = values.get("own_accuracy")
        beside = "" if own is None else f"their own heads {100 * own:.1f} %, "
        accuracy = f"the consortium's {100 * values['consortium_accuracy']:.1f} %"
        balanced = f"{100 * values['consortium_balanced_accuracy']:.1f} %"
        if own is not None:
            balanced = f"{100 * values['own_balanced_accuracy']:.1f} % and {balanced}"
        yield f"On the members' hold-out sets ({count:,} records): {beside}{accuracy}; at equal class shares {balanced}."
    else:
        yield (
            "The accuracy is unknown: a member has too few rows to hold some out and still contribute as many as the study needs. Bring more "
            "data, or fewer features."
        )
    if (difference := values.get("largest_difference_from_a_fit_in_the_clear")) is not None:
        yield f"Against a fit of the same records in one place, weights differ by at most {difference:.0e} of the largest."


def _read_rows(folder: Any, members: Sequence[str], result: "Result") -> "tuple[FFCStatistics, list[Part]]":
    """Read the rows from the members' folders: FFC's sums of those that the run summed, and each member's other rows."""
    import numpy as np

    from client_sdk.records import unsummed_rows
    from client_sdk.store import Store
    from veilsum.calibration import FFCStatistics
    from veilsum.cli.features import read_records
    from veilsum.protocol.statistics import FFC

    question, federation = result.spec.question, bytes.fromhex(result.record.federation)
    # Of a study without FFC, as drafts of studies with it have it.
    constant = question.constant or not isinstance(question.statistics[0], FFC)
    plain = FFCStatistics(question.dim, len(question.classes), constant=constant, normalise=True)
    held_out: list[Part] = []
    for member in members:
        ledger, ranks = Store(folder.member_folder(member)).ledger, np.zeros((0, 32), np.uint8)
        run = ledger.find_run(question.digest, result.record.period)
        if run is not None and run.state == "spent":
            features, labels, ranks = ledger.load_rows(run)
            published = ~np.isin(labels, result.spec.withheld)
            plain.update(features[published], labels[published])
        records = read_records(folder.features_file(member))
        held_out.append(unsummed_rows(records, question, ledger.marks_in(federation), ranks))
    return plain, held_out


def _largest_difference(plain: "FFCStatistics", result: "Result") -> dict[str, Any]:
    """Compute the largest difference between the weights and a fit of the same rows in the clear; empty if there is no such fit."""
    import numpy as np

    from veilsum.calibration import solve_ffc
    from veilsum.protocol.statistics import FFC

    ridge = result.record.solution.ridge
    if not isinstance(result.spec.question.statistics[0], FFC) or ridge is None or result.spec.withheld:
        return {}
    difference = np.abs(result.weights - solve_ffc(plain, ridge).weights).max()
    return {"largest_difference_from_a_fit_in_the_clear": float(difference / np.abs(result.weights).max())}


def _compare_heads(
    plain: "FFCStatistics", held_out: "Sequence[Part]", result: "Result"
) -> "HeadTable | None":
    """Compare the study's heads, and those that follow from FFC's sums, on the members' hold-out records."""
    import numpy as np

    from veilsum.calibration import solve_ffc
    from veilsum.cli.head_table import EXACT_RIDGE, NOISY, RIDGE, TABLE_NAMES, HeadTable, derive_heads

    question, head = result.spec.question, result.head
    assert head is not None  # of the last step
    first = question.statistics[0].kind
    if question.noise is None:
        heads = derive_heads(plain, head if first == "ffc" else solve_ffc(plain))
        of_study = {first: head, **{name: each.head for name, each in result.heads.items()}}
        heads |= {TABLE_NAMES[name]: each for name, each in of_study.items() if name in TABLE_NAMES}
    else:
        heads = {NOISY: head, **{f"noisy {name}": each.head for name, each in result.heads.items()}}
        heads |= {EXACT_RIDGE: solve_ffc(plain)}
    features, labels = (np.concatenate(parts) for parts in zip(*held_out, strict=True))
    return HeadTable.of_heads(
        heads,
        features,
        labels,
        result.content.class_names,
        question.positive_class,
        RIDGE if question.noise is None else NOISY,
    )
