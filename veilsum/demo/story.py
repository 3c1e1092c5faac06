"""The report's sentences: HTML, every name in it escaped."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from veilsum.demo.facts import Facts
from veilsum.demo.wording import kibibytes, percent, power


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
