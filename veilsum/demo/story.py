"""The report's sentences: HTML, every name in it escaped."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from veilsum.demo.facts import Facts
from veilsum.demo.wording import kibibytes, percent, power


@dataclass(frozen=True)
class Step:
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
        f"{percent(heads.masked)}</strong> on {facts.test_records} test records. The coordinator that added their "
        "statistics up saw masked uploads and the total."
    )


def steps(facts: Facts) -> Iterator[Step]:
    """What happened in the run, step by step, with the seconds that each took."""
    rules, took = facts.rules, facts.seconds
    lost = {loss.after: escape(loss.member) for loss in facts.lost}
    whole = len(facts.survivors)
    yield Step(
        f"<strong>Training.</strong> The members trained a small network together, {len(facts.training)} rounds of "
        "SphereFed: the extractor travels, the head is fixed from the start and never sent. FedAvg trained the same "
        "network beside it, with a head that is learned and sent, for comparison only.",
        took["training"],
    )
    yield Step(
        f"<strong>Enrolment.</strong> {len(facts.members)} processes started, checked the admin's signature on the "
        f"list of members and sent key cards. What follows from their number: {rules.survivors_min} must stay for a sum, "
        f"and {rules.colluders} may collude with the coordinator without opening anybody.",
        took["enrolment"],
    )
    yield Step(
        f"<strong>{lost['card']} was killed</strong> after its key card. It never uploads.", killed=True
    )
    if facts.holders:
        yield Step(
            "<strong>Counts.</strong> A first, small round counted how many members hold each digit, by masked uploads of ones and "
            f"zeros. Each member recounted it: {len(facts.withheld)} of {len(facts.holders)} digits stay out of the sum."
        )
    yield Step(
        f"<strong>Uploads.</strong> {whole} members summed their own records into {facts.elements:,} numbers, masked "
        f"them and sent {kibibytes(facts.upload_bytes)} each, with the masks' seeds in shares sealed for the others.",
        took["collecting"],
    )
    yield Step(
        f"<strong>{lost['upload']} was killed</strong> once its upload was whole. It helps no more, and it is still "
        "counted.",
        killed=True,
    )
    yield Step(
        "<strong>Receipts.</strong> The members still there opened their sealed shares and checked each against its "
        "dealer's commitment.",
        took.get("checking"),
    )
    yield Step(
        f"<strong>Votes.</strong> {rules.votes} members signed one and the same list of {whole} survivors; "
        f"{rules.threshold} are needed, so that no second list can be certified. From here the sum's members are fixed.",
        took.get("freezing"),
    )
    yield Step(
        f"<strong>Shares.</strong> Against that certificate members revealed shares of the survivors' own masks, and of "
        f"those that survivors had shared with {lost['card']}. The masks between survivors cancel and stay secret.",
        took.get("revealing"),
    )
    yield Step(
        f"<strong>Sum.</strong> The coordinator took the masks off the total of {facts.records:,} records, checked it, "
        f"solved for the head and signed the result. {len(facts.verified)} members verified it and saved it.",
        took.get("recovered"),
    )


def knowledge(facts: Facts) -> Mapping[str, Sequence[str]]:
    """Who saw what, by whom."""
    survivors, classes = len(facts.survivors), facts.label_counts.shape[1] - len(facts.withheld)
    bias = " and the bias" if facts.bias else ""
    uploads = (
        f"{survivors} masked uploads: each a vector of numbers modulo 2<sup>{facts.ring_bits}</sup> that looks random, "
        "and sealed boxes it can't open"
    )
    total = (
        f"the sum over {survivors} survivors: V = Σ zzᵀ, U = Σ z·onehot(y)ᵀ and how many records each of the "
        f"{classes} classes has, {facts.records:,} in all"
    )
    single = (
        "of a single member's statistics nothing more, as long as no more than "
        f"{facts.rules.colluders} members collude with it"
    )
    counts = (
        ("how many members hold each digit, the rare ones too: not which members",) if facts.holders else ()
    )
    return {
        "The coordinator": (uploads, total, *counts, "who took part, when, and who went missing", single),
        "Every member": (
            f"the head: weights W{bias}, with λ and its error curve",
            f"who is in the sum, and that it holds {facts.records:,} records",
            *counts,
            "proofs: the certificate, the signed record, its own upload among the survivors' if it is one",
            "of another member's statistics nothing; the sums themselves are the operator's to read",
        ),
        "Nobody else": (
            "features, labels and images left no member's folder in the round",
            "the masks' seeds that two survivors share were rebuilt by nobody",
            "the uploads and what was rebuilt were deleted once the round had ended",
        ),
    }


def uneven(facts: Facts) -> str:
    """How the digits were dealt."""
    records = facts.label_counts.sum(axis=1)
    sizes = f"The smallest member holds {records.min()} records, the largest {records.max()}"
    killed = "Whom to kill follows a rule: the two members in the middle by their number of records."
    if not facts.holders:
        return (
            f"scikit-learn's digits, dealt very unevenly: each class is spread over the members by a Dirichlet distribution with "
            f"concentration 0.1. {sizes}, and most of what a member holds is of a few classes. {killed}"
        )
    return f"scikit-learn's digits, dealt evenly, but for the last one, which two members share. {sizes}. {killed}"


def method(facts: Facts) -> str:
    """What FFC adds, and what it does not."""
    return (
        "The extractor was trained under a fixed head with orthonormal rows, as SphereFed does, and that head is what "
        "“before” means. It tells features where to go, and after a short training they have not all "
        "arrived. Fast Federated Calibration (FFC) leaves the extractor as it is and fits the head to where the features "
        "are, in closed form: (V + λI)W = U."
        + (
            " Training is short on purpose: over eight seeds FFC raises 84.9 % to 96.7 % after 10 rounds, and 94.4 % to 97.7 % "
            "after 20."
            if not facts.holders
            else ""
        )
        + (" This head has a bias too, which the trained one has not." if facts.bias else "")
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
        f"same {len(facts.grid)} ridges. Both chose λ = {facts.ridge:.4g}. At the most one weight differs by "
        f"{power(facts.max_rel_diff)} of the largest: that is the rounding to the ring's fixed point, and nothing else, "
        f"for masks cancel exactly.{bound}"
    )
