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


class ResultRecord(Model):
    """What the coordinator signs about a finished round (protocol §4.8).

    The signature is Ed25519 over H("result", body), where the body is this object without `signature` as canonical JSON (RFC 8785).

    Attributes:
        study, name, version: hash, name and version of the study.
        terms, survivors_hash: as the context and the chain name them.
        disputes: those that had members dropped before the survivors were signed.
        dropped: the members that lost their place by them, in order.
        evicted: survivors that proved false after it: the sum is without them.
        withheld: classes left out, as the terms say.
        holders: the counts that they follow from; empty without an indicator.
        rows: in the sum; under noise what the noisy sum says of them.
        noise: what differential privacy is promised; None for an exact sum.
        head: SHA-256 of the head's file; None where the step ends in no head.
        sums: SHA-256 of the sum's file.
        documents: what is published beside the head.
        error_bound: how far rounding may have moved a weight, or None.
        transcript: the head of the round's transcript (protocol §11).
    """

    format: Literal["veilsum-result/4"] = "veilsum-result/4"
    round: RoundId
    context: Hex32
    federation: Hex32
    study: Hex32
    name: MemberId
    version: int
    period: MemberId
    step: MemberId
    cohort: Hex32
    terms: Hex32
    survivors_hash: Hex32
    survivors: tuple[SurvivorView, ...]
    disputes: tuple[DisputeView, ...] = ()
    dropped: tuple[MemberId, ...] = ()
    evicted: tuple[MemberId, ...] = ()
    withheld: tuple[int, ...] = ()
    holders: tuple[int, ...] = ()
    rows: int
    noise: NoiseView | None = None
    head: Hex32 | None
    sums: Hex32
    documents: Annotated[tuple[DocumentView, ...], Field(max_length=MAX_DOCUMENTS)] = ()
    error_bound: float | None
    solution: SolutionView
    transcript: Hex32 | None
    signature: Annotated[str, Field(pattern=r"^([0-9a-f]{128})?$")] = ""


class CombineRequest(Model):
    """Add up the exact sums of several periods of one question, and solve again."""

    rounds: Annotated[tuple[RoundId, ...], Field(min_length=2, max_length=256)]


class PartView(Model):
    """One round of a combination, as its own record names it."""

    round: RoundId
    context: Hex32
    period: MemberId
    sums: Hex32
    rows: int


class CombinedRecord(Model):
    """What the coordinator signs about the sum of several periods' sums, in the same way as a `ResultRecord`.

    Attributes:
        combination: its id.
        study, name, version: of the newest part.
        question: digest of the question that all parts share.
        vectors: how many members' vectors are in it, a member once for each period.
    """

    format: Literal["veilsum-combined/2"] = "veilsum-combined/2"
    combination: RoundId
    federation: Hex32
    study: Hex32
    name: MemberId
    version: int
    question: Hex32
    parts: tuple[PartView, ...]
    withheld: tuple[int, ...] = ()
    vectors: int
    rows: int
    head: Hex32 | None
    sums: Hex32
    error_bound: float | None
    solution: SolutionView
    signature: Annotated[str, Field(pattern=r"^([0-9a-f]{128})?$")] = ""


class CombinationIds(RootModel[tuple[RoundId, ...]]):
    """A federation's combinations, those with the newest round first."""
