"""What the coordinator publishes under its signature, as plain data: records of results and of their sums (protocol §4.8)."""

from typing import Annotated, Literal

from pydantic import Field, RootModel

from protocol.rest import Hex32, MemberId, Model, NoiseView, RoundId

MAX_DOCUMENTS = 16
"""Beside a head; each is fetched by itself."""


class SolutionView(Model):
    """How the classifier head was found.

    Attributes:
        chosen_by: what chose λ, or found the head where it has none: "gcv", "given", "shrinkage", "gradient",
            "virtual features"; "" where the round has found no new head.
        ridge: λ.
        grid: the λ that were compared.
        errors: by that criterion, at each.
        empty_classes: of which there are no records in the sum.
    """

    chosen_by: str = "gcv"
    ridge: float | None = None
    grid: tuple[float, ...] = ()
    errors: tuple[float | None, ...] = ()
    dof: float | None = None
    condition: float | None = None
    residual: float | None = None
    rank: int | None = None
    empty_classes: tuple[int, ...] = ()


class DocumentView(Model):
    """Something that a round publishes beside its head."""

    name: MemberId
    sha256: Hex32


class SurvivorView(Model):
    """A survivor as the certificate names it."""

    member: MemberId
    digest: Hex32


class DisputeView(Model):
    """Two members who contradict each other: the ends of an edge, or a dealer and the decryptor that complains."""

    cause: Literal["edge-disagreement", "box-refused"]
    parties: tuple[MemberId, MemberId]


class RareView(Model):
    """Why classes were withheld: the counts of an indicator round, which each of its members made for itself.

    Attributes:
        indicator: its context.
        margin: r, how many of those counted might be missing.
        floor: m = g + r: a class that fewer members hold is withheld.
        holders: for each class, how many members hold it.
    """

    indicator: Hex32
    margin: int
    floor: int
    holders: tuple[int, ...]


class ResultRecord(Model):
    """What the coordinator signs about a finished round.

    The signature is Ed25519 over H("result", body), where the body is this object without
    `signature` as JSON with sorted keys, no spaces, UTF-8, numbers in the form that protocol §4.8 spells out.

    Attributes:
        closing: how the chain names the round's end; follows from the certificate.
        disputes: those that had members dropped before the survivors were signed.
        dropped: whom they cost their place, in order.
        evicted: survivors that proved false after it: the sum is without them.
        withheld: classes left out of the statistics, as the terms say.
        transcript: the head of the round's transcript (protocol §11).
        rare: why those; None where the admin signed that rare classes are published.
        records: how many are summed; under noise what the noisy sum itself says of it.
        noise: what differential privacy is promised; "none" says that there is none.
        weights_sha256: of the head's file; None where the round ends in no head.
        documents: what it publishes beside it.
    """

    format: Literal["veilsum-result/4"] = "veilsum-result/4"
    round: RoundId
    federation: Hex32
    cohort: Hex32
    context: Hex32
    closing: Hex32
    terms: Hex32
    extractor: Hex32
    statistic: str
    members: int
    survivors: tuple[SurvivorView, ...]
    disputes: tuple[DisputeView, ...] = ()
    dropped: tuple[MemberId, ...] = ()
    evicted: tuple[MemberId, ...] = ()
    withheld: tuple[int, ...] = ()
    rare: RareView | None = None
    records: int
    noise: Literal["none"] | NoiseView = "none"
    weights_sha256: Hex32 | None
    sums_sha256: Hex32
    documents: Annotated[tuple[DocumentView, ...], Field(max_length=MAX_DOCUMENTS)] = ()
    transcript: Hex32 | None
    weights_error_bound: float | None
    solution: SolutionView
    signature: Annotated[str, Field(pattern=r"^([0-9a-f]{128})?$")] = ""


class CombineRequest(Model):
    """Add up the sums of finished rounds over lineages that no two of them share, and solve again.

    Attributes:
        ridges: λ grid; empty for the solver's own.
    """

    rounds: Annotated[tuple[RoundId, ...], Field(min_length=2, max_length=256)]
    ridges: Annotated[
        tuple[Annotated[float, Field(gt=0, allow_inf_nan=False)], ...], Field(max_length=4096)
    ] = ()


class PartView(Model):
    """One round of a combination, as its own record names it."""

    round: RoundId
    context: Hex32
    closing: Hex32
    sums_sha256: Hex32
    records: int


ALIKE = ("statistic", "ring_bits", "lattice", "lattice_bits", "extractor", "noise", "withheld")
"""Terms that the rounds of a combination share; their layouts are those of one question, over as many classes or fewer."""


class CombinedRecord(Model):
    """What the coordinator signs about the sum of several rounds' sums, in the same way as a `ResultRecord`.

    Attributes:
        combination: its id.
        vectors: how many members' vectors are in it, a member once for each round.
    """

    format: Literal["veilsum-combined/1"] = "veilsum-combined/1"
    combination: RoundId
    federation: Hex32
    parts: tuple[PartView, ...]
    statistic: str
    extractor: Hex32
    vectors: int
    records: int
    noise: Literal["none"] = "none"
    weights_sha256: Hex32 | None
    sums_sha256: Hex32
    weights_error_bound: float | None
    solution: SolutionView
    signature: Annotated[str, Field(pattern=r"^([0-9a-f]{128})?$")] = ""


class CombinationIds(RootModel[tuple[RoundId, ...]]):
    """A federation's combinations, those with the newest round first."""
