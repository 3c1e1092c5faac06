"""The demo's report: one self-contained HTML file."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from html import escape
from importlib.resources import files
from string import Template
from typing import TypeVar

import numpy as np

from veilsum import plots
from veilsum.demo.comparison import Heads
from veilsum.demo.facts import (
    NUMBER_TO_BEAT,
    PHASE_NAMES,
    Facts,
    fate,
    kibibytes,
    percent,
    power,
    rare_classes,
    seconds,
)
from veilsum.protocol.rest import TRUST


@dataclass(frozen=True)
class StoryEvent:
    """Something that happened.

    Attributes:
        text: HTML.
        seconds: how long it took, where that was measured.
        killed: a process died.
    """

    text: str
    seconds: float | None = None
    killed: bool = False


def lead(facts: Facts) -> str:
    """What the run shows, in three sentences."""
    heads = facts.accuracies
    return (
        f"{len(facts.members)} members hold handwritten digits, {'one of them rare' if facts.holders else 'very unevenly'}, and "
        "share a frozen feature extractor. "
        f"Together they fitted its classifier head: <strong>{percent(heads.before)} became "
        f"{percent(heads.masked)}</strong> on {facts.test_records} test records. The coordinator added up their "
        "statistics and saw only masked uploads and the total."
    )


def steps(facts: Facts) -> Iterator[StoryEvent]:
    """What happened in the run, step by step, with the seconds that each took."""
    rules, took = facts.rules, facts.seconds
    lost = {loss.after: escape(loss.member) for loss in facts.lost}
    whole = len(facts.survivors)
    yield StoryEvent(
        f"<strong>Training.</strong> The members trained a small network together, {len(facts.training)} rounds of "
        "SphereFed: the extractor travels, the head is fixed from the start and never sent. FedAvg trained the same "
        "network beside it, with a head that is learned and sent, for comparison only.",
        took["training"],
    )
    yield StoryEvent(
        f"<strong>Enrolment.</strong> {len(facts.members)} processes started, checked the admin's signature on the "
        f"list of members and sent key cards. A sum needs {rules.survivors_min} of them, and "
        f"{rules.colluders} may collude with the coordinator and still learn only the sum.",
        took["enrolment"],
    )
    yield StoryEvent(
        f"<strong>{lost['card']} was killed</strong> after its key card. It never uploads.", killed=True
    )
    if facts.holders:
        yield StoryEvent(
            "<strong>Counts.</strong> A first, small round counted how many members hold each digit, by masked uploads of ones and "
            f"zeros. Each member checked the count. {len(facts.withheld)} of {len(facts.holders)} digits were left out of the sum."
        )
    yield StoryEvent(
        f"<strong>Uploads.</strong> {whole} members summed their own records into {facts.elements:,} numbers, masked "
        f"them and sent {kibibytes(facts.upload_bytes)} each, with the masks' seeds in shares sealed for the others.",
        took["collecting"],
    )
    yield StoryEvent(
        f"<strong>{lost['upload']} was killed</strong> once its upload was complete. It can no longer help, and its "
        "records still count.",
        killed=True,
    )
    yield StoryEvent(
        "<strong>Receipts.</strong> The remaining members opened their sealed shares and checked each against its "
        "dealer's commitment.",
        took.get("checking"),
    )
    yield StoryEvent(
        f"<strong>Votes.</strong> {rules.votes} members signed the same list of {whole} survivors. "
        f"A certificate needs {rules.threshold} signatures, so no second list can be certified. The members of the sum are now fixed.",
        took.get("freezing"),
    )
    yield StoryEvent(
        f"<strong>Shares.</strong> Members checked that certificate, then revealed shares of the survivors' own masks and of "
        f"the masks between survivors and {lost['card']}. The masks between survivors cancel and stay secret.",
        took.get("revealing"),
    )
    yield StoryEvent(
        f"<strong>Sum.</strong> The coordinator removed these masks from the total of {facts.records:,} records, checked it, "
        f"solved for the head and signed the result. {len(facts.verified)} members verified it and saved it.",
        took.get("recovered"),
    )


def knowledge(facts: Facts) -> Mapping[str, Sequence[str]]:
    """What each party saw."""
    survivors, classes = len(facts.survivors), facts.label_counts.shape[1] - len(facts.withheld)
    bias = " and the bias" if facts.bias else ""
    uploads = (
        f"{survivors} masked uploads: each a vector of numbers modulo 2<sup>{facts.ring_bits}</sup> that looks random, "
        "and sealed boxes that it can't open"
    )
    total = (
        f"the sum over {survivors} survivors: V = Σ zzᵀ, U = Σ z·onehot(y)ᵀ and how many records each of the "
        f"{classes} classes has, {facts.records:,} in all"
    )
    single = (
        "nothing more about any one member's statistics, as long as at most "
        f"{facts.rules.colluders} members collude with it"
    )
    counts = (
        ("how many members hold each digit, rare ones included, but not which members",)
        if facts.holders
        else ()
    )
    return {
        "The coordinator": (
            uploads,
            total,
            *counts,
            "which members took part, when, and which dropped out",
            single,
        ),
        "Every member": (
            f"the head: weights W{bias}, with λ and its error curve",
            f"which members are in the sum, and that it holds {facts.records:,} records",
            *counts,
            "proofs: the certificate, the signed record and, for a survivor, that its own upload was counted",
            "nothing about another member's statistics; only the operator can read the sums themselves",
        ),
        "No party": (
            "features, labels and images stayed in each member's folder",
            "the seeds of masks between two survivors were never rebuilt",
            "uploads and rebuilt seeds were deleted when the round ended",
        ),
    }


def uneven(facts: Facts) -> str:
    """How the digits were dealt."""
    records = facts.label_counts.sum(axis=1)
    sizes = f"The smallest member holds {records.min()} records, the largest {records.max()}"
    killed = "The demo kills the two members in the middle by number of records."
    if not facts.holders:
        return (
            f"scikit-learn's digits, dealt very unevenly: each class is spread over the members by a Dirichlet distribution with "
            f"concentration 0.1. {sizes}, and most of what a member holds is of a few classes. {killed}"
        )
    return (
        f"scikit-learn's digits, dealt evenly except the last one, which two members share. {sizes}. {killed}"
    )


def method(facts: Facts) -> str:
    """What FFC adds, and what it does not."""
    return (
        "The extractor was trained under a fixed head with orthonormal rows, as SphereFed does, and that head is what "
        "“before” means. Training moves the features of each class toward that head's row, and after a short training "
        "they are not all there yet. Fast Federated Calibration (FFC) keeps the extractor and fits the head to the "
        "features as they are, in closed form: (V + λI)W = U."
        + (
            " Training is short on purpose: over eight seeds FFC raises 84.9 % to 96.7 % after 10 rounds, and 94.4 % to 97.7 % "
            "after 20."
            if not facts.holders
            else ""
        )
        + (" This head also has a bias; the trained one has none." if facts.bias else "")
    )


def exactness(facts: Facts) -> str:
    """How far masking moved the head, against the same fit in the clear."""
    bound = (
        ""
        if facts.error_bound is None
        else f" The signed record holds an upper bound for it: no weight is off by more than {power(facts.error_bound)}."
    )
    return (
        f"The same fit was made in the clear, on the pooled records of the same {len(facts.survivors)} survivors over the "
        f"same {len(facts.grid)} ridges. Both chose λ = {facts.ridge:.4g}. The largest difference of a weight is "
        f"{power(facts.max_rel_diff)} of the largest weight. It comes from rounding to the ring's fixed point; "
        f"masks cancel exactly.{bound}"
    )


T = TypeVar("T")

_IDENTITIES = {
    "federation": "federation: the admin's public key",
    "round": "round",
    "cohort": "cohort",
    "context": "context of every signature",
    "study": "study",
    "extractor": "extractor and preprocessing",
    "head": "head, SHA-256",
}


def render(facts: Facts) -> str:
    """The demo's report, as one HTML page that loads nothing else."""
    template = Template(files("veilsum.demo").joinpath("report.html").read_text("utf-8"))
    return template.substitute(
        title=escape(f"veilsum demo, seed {facts.seed}"),
        seed=facts.seed,
        members=len(facts.members),
        trust=escape(TRUST.replace("`", "")),
        lead=lead(facts),
        bars="".join(_bars(facts)),
        to_beat=NUMBER_TO_BEAT,
        figures="".join(_figures(facts)),
        steps="".join(
            f'<li{_killed(step.killed)}><p>{step.text}</p><span class="time">{_time(step.seconds)}</span></li>'
            for step in steps(facts)
        ),
        knowledge="".join(
            f'<div class="panel"><h3>{title}</h3><ul>{"".join(f"<li>{line}</li>" for line in lines)}</ul></div>'
            for title, lines in knowledge(facts).items()
        ),
        method=method(facts),
        exact=exactness(facts),
        uneven=uneven(facts),
        rare=rare_classes(facts),
        holders=_holders(facts),
        cost=_cost(facts),
        plot_classes=_plot_classes(facts),
        plot_ridge=_plot_ridge(facts),
        plot_labels=_plot_labels(facts),
        plot_phases=_plot_phases(facts),
        classes="".join(_classes(facts)),
        fates="".join(_fates(facts)),
        times="".join(_times(facts)),
        identities="".join(
            f'<tr><th scope="row">{escape(_IDENTITIES[name])}</th><td class="mono">{escape(value)}</td></tr>'
            for name, value in asdict(facts.identities).items()
        ),
        verify=escape(f"veilsum verify result --admin-key {facts.identities.federation}"),
        again=escape(f"veilsum demo --seed {facts.seed}" + (" --withhold" if facts.holders else "")),
        versions=escape(" · ".join(f"{name} {value}" for name, value in facts.versions.items())),
    )


def _bars(facts: Facts) -> Iterable[str]:
    heads = facts.accuracies
    for kind, label, detail, value in (
        ("fedavg", "FedAvg", "trained head: same members, model, rounds", heads.fedavg),
        ("fedavg plain", "FedAvg, plain FFC", "survivors' records pooled in the clear", heads.fedavg_plain),
        ("before", "SphereFed", "fixed head, as training left it", heads.before),
        (
            "masked",
            "SphereFed, masked FFC",
            f"from the secure sum over {len(facts.survivors)} members",
            heads.masked,
        ),
        ("plain", "SphereFed, plain FFC", "survivors' records pooled in the clear", heads.plain),
    ):
        yield (
            f'<div class="bar {kind}"><dt>{label} <small>{detail}</small></dt>'
            f'<dd class="track" aria-hidden="true"><span class="fill" style="width:{100 * value:.2f}%"></span></dd>'
            f'<dd class="value">{percent(float(value))}</dd></div>'
        )


def _figures(facts: Facts) -> Iterable[str]:
    for name, value, detail in (
        ("masked − plain W", power(facts.max_rel_diff), "of the largest weight, at the same λ"),
        (
            "in the sum",
            f"{len(facts.survivors)} of {len(facts.members)}",
            f"members; {len(facts.lost)} were killed",
        ),
        ("sent by a member", kibibytes(facts.upload_bytes), f"for {facts.elements:,} masked numbers"),
        (
            "in all",
            seconds(facts.seconds["total"]),
            f"of which {seconds(facts.seconds['training'])} training",
        ),
    ):
        yield f"<div><dt>{name}</dt><dd>{escape(value)} <small>{detail}</small></dd></div>"


def _holders(facts: Facts) -> str:
    """The counts that decided what was withheld; empty without counts."""
    if not facts.holders:
        return ""
    rows = "".join(
        f'<tr{_killed(label in facts.withheld)}><th scope="row">{label}</th><td class="number">{count}</td>'
        f"<td>{'withheld' if label in facts.withheld else 'in the sum'}</td></tr>"
        for label, count in enumerate(facts.holders)
    )
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="Holders of each class"><table class="narrow">'
        "<caption>How many members hold each digit, as every member counted</caption>"
        '<thead><tr><th scope="col">class</th><th scope="col" class="number">members that hold it</th>'
        f'<th scope="col">statistics</th></tr></thead><tbody>{rows}</tbody></table></div>'
    )


def _cost(facts: Facts) -> str:
    vector = facts.elements * facts.ring_bits // 8
    return (
        f"A member sends {facts.upload_bytes:,} bytes: {vector:,} for {facts.elements:,} numbers of "
        f"{facts.ring_bits} bits in {_chunks(facts.chunks)}, the rest for its signed announcement with commitments and "
        "sealed shares for every other member. Headers of HTTP come on top. The vector's length depends on the "
        "features and classes alone, not on how many records a member holds. The window for uploads stays open for "
        "the member that never comes."
    )


def _chunks(count: int) -> str:
    return "one chunk" if count == 1 else f"{count} chunks"


def _classes(facts: Facts) -> Iterable[str]:
    heads, overall = facts.per_class, facts.accuracies
    for label, values in enumerate(zip(*_columns(heads), strict=True)):
        gone = f'<td class="number" colspan="{len(values)}">withheld</td>'
        yield f'<tr><th scope="row">{label}</th>{gone if label in facts.withheld else _cells(*values)}</tr>'
    cells = _cells(*_columns(overall))
    yield f'<tr class="sum"><th scope="row">all {facts.test_records}</th>{cells}</tr>'


def _columns(heads: Heads[T]) -> tuple[T, ...]:
    return heads.fedavg, heads.fedavg_plain, heads.before, heads.masked, heads.plain


def _cells(*values: float) -> str:
    return "".join(f'<td class="number">{percent(value)}</td>' for value in values)


def _fates(facts: Facts) -> Iterable[str]:
    killed = {lost.member for lost in facts.lost}
    for member, counts in zip(facts.members, facts.label_counts, strict=True):
        held = f"{counts.sum()} records in {np.count_nonzero(counts)} classes"
        yield (
            f'<tr{_killed(member in killed)}><th scope="row">{escape(member)}</th><td>{held}</td>'
            f"<td>{fate(facts, member)}</td></tr>"
        )


def _times(facts: Facts) -> Iterable[str]:
    for name, value in facts.seconds.items():
        total = ' class="sum"' if name == "total" else ""
        yield f'<tr{total}><th scope="row">{PHASE_NAMES[name]}</th><td class="number">{seconds(value)}</td></tr>'


def _plot_classes(facts: Facts) -> str:
    known = ~np.isnan(facts.per_class.before)
    names = [str(label) for label in np.flatnonzero(known)]
    image = plots.per_class_accuracy(
        facts.per_class.before[known], facts.per_class.masked[known], class_names=names
    )
    return _figure(
        image,
        "Accuracy by class under SphereFed's fixed head and under masked FFC's; the table below holds the numbers.",
        "SphereFed's extractor; worst class first.",
    )


def _plot_ridge(facts: Facts) -> str:
    shown = np.isfinite(facts.gcv)
    grid, gcv = facts.grid[shown], facts.gcv[shown]
    return _figure(
        plots.ridge_curve(grid, gcv, facts.ridge),
        f"Generalised cross-validation error over {len(grid)} ridges, smallest near λ = {facts.ridge:.3g}.",
        "The error of generalised cross-validation follows from the sums alone, so it needs no hold-out set. "
        "Among ridges that tie within 0.01 % the largest is chosen.",
    )


def _plot_labels(facts: Facts) -> str:
    return _figure(
        plots.label_distribution(facts.label_counts),
        "Records of each class at each member; most of a member's records belong to a few classes.",
        "The rows are the members in the order of the table below.",
    )


def _plot_phases(facts: Facts) -> str:
    shown = {name: value for name, value in facts.seconds.items() if name != "total"}
    return _figure(
        plots.phase_timeline({PHASE_NAMES[name]: value for name, value in shown.items()}),
        "When each step ran, one after another; the table below holds the numbers.",
        "Starting the coordinator, comparing and writing this page are in the total alone.",
    )


def _figure(image: str, alternative: str, caption: str) -> str:
    return (
        '<figure><div class="panel scroll" tabindex="0" role="region" aria-label="Figure">'
        f'<img src="{image}" alt="{escape(alternative)}"></div><figcaption>{escape(caption)}</figcaption></figure>'
    )


def _killed(killed: bool) -> str:  # noqa: FBT001 - one flag, one attribute
    return ' class="killed"' if killed else ""


def _time(value: float | None) -> str:
    return "" if value is None else seconds(value)
