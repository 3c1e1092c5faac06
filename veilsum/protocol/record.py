"""Signed records of results and combinations, which the coordinator publishes (analysis: Results)."""

from typing import Annotated, ClassVar, Literal, TypeVar

import rfc8785
from pydantic import Field, RootModel

from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.forms import Hex32
from veilsum.protocol.identity import SigningKey, verify_signature
from veilsum.protocol.rest import MAX_LISTING_BYTES, Listed, MemberId, Model, NoiseView, RoundId
from veilsum.protocol.tags import Tag, hash_fields

MAX_DOCUMENTS = 16
"""Maximum number of documents besides the head; each is fetched separately."""


class SolutionView(Model):
    """How the classifier head was computed.

    Attributes:
        chosen_by: the method that chose λ, or computed a head without λ: "gcv", "given", "shrinkage", "gradient",
            "virtual features"; "" if the round has no new head.
        ridge: λ.
        grid: the compared values of λ.
        errors: the criterion at each value of `grid`.
        empty_classes: classes without records in the sum.
    """

    chosen_by: str = "gcv"
    ridge: float | None = None
    grid: Listed[float] = ()
    errors: Listed[float | None] = ()
    dof: float | None = None
    condition: float | None = None
    residual: float | None = None
    rank: int | None = None
    empty_classes: Listed[int] = ()


class DocumentView(Model):
    """A document that a round publishes in addition to its head."""

    name: MemberId
    sha256: Hex32


class SurvivorView(Model):
    """A survivor's entry in the certificate."""

    member: MemberId
    digest: Hex32


class DisputeView(Model):
    """A dispute between the ends of an edge, or between a dealer and a complaining decryptor."""

    cause: Literal["edge-disagreement", "box-refused"]
    parties: tuple[MemberId, MemberId]


class ResultRecord(Model):
    """The signed record of a finished round (analysis: Results).

    The signature is Ed25519 over H("result", body), where the body is this object without `signature` as canonical JSON (RFC 8785).

    Attributes:
        study, name, version: hash, name and version of the study.
        terms, survivors_hash: hashes of terms and survivors, as in the context and the chain.
        disputes: disputes that dropped members before the survivors were signed.
        dropped: the members dropped by those disputes, in order.
        evicted: certified survivors that proved false; the sum excludes them.
        withheld: classes left out under the terms.
        holders: the sums of the count, which decide `withheld`; empty without a count.
        reached: the sums of the count of rows; empty if no class is withheld.
        counts: contexts of all certified counts of this question before this attempt, its own among them.
        rows: number of rows in the sum; of a noisy sum, an estimate from the sum.
        noise: the differential privacy guarantee; None for an exact sum.
        head: SHA-256 of the head's file; None if the step has no head.
        sums: SHA-256 of the sum's file.
        documents: documents published in addition to the head.
        error_bound: bound on the rounding error of a weight, or None.
        transcript: the head of the round's transcript (analysis: Transcripts).
    """

    MAX_BYTES: ClassVar[int] = MAX_LISTING_BYTES
    format: Literal["veilsum-result/5"] = "veilsum-result/5"
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
    survivors: Listed[SurvivorView]
    disputes: Listed[DisputeView] = ()
    dropped: Listed[MemberId] = ()
    evicted: Listed[MemberId] = ()
    withheld: Listed[int] = ()
    holders: Listed[int] = ()
    reached: Listed[int] = ()
    counts: Listed[Hex32] = ()
    rows: int
    noise: NoiseView | None = None
    head: Hex32 | None
    sums: Hex32
    documents: Annotated[Listed[DocumentView], Field(max_length=MAX_DOCUMENTS)] = ()
    error_bound: float | None
    solution: SolutionView
    transcript: Hex32
    signature: Annotated[str, Field(pattern=r"^([0-9a-f]{128})?$")] = ""


class CombineRequest(Model):
    """A request to add the exact sums of several periods of one question, and solve again."""

    rounds: Annotated[Listed[RoundId], Field(min_length=2, max_length=256)]


class PartView(Model):
    """One round of a combination, as in its own record."""

    round: RoundId
    context: Hex32
    period: MemberId
    sums: Hex32
    rows: int


class CombinedRecord(Model):
    """The record of a combination of several periods, signed like a `ResultRecord`.

    Attributes:
        combination: the combination's id.
        study, name, version: hash, name and version of the newest part's study.
        question: digest of the question that all parts share.
        vectors: number of vectors, one per member and period.
    """

    format: Literal["veilsum-combined/2"] = "veilsum-combined/2"
    combination: RoundId
    federation: Hex32
    study: Hex32
    name: MemberId
    version: int
    question: Hex32
    parts: Listed[PartView]
    withheld: Listed[int] = ()
    vectors: int
    rows: int
    head: Hex32 | None
    sums: Hex32
    error_bound: float | None
    solution: SolutionView
    signature: Annotated[str, Field(pattern=r"^([0-9a-f]{128})?$")] = ""


class CombinationIds(RootModel[Listed[RoundId]]):
    """A federation's combinations, newest round first."""


Record = TypeVar("Record", ResultRecord, CombinedRecord)


def record_body(record: ResultRecord | CombinedRecord) -> bytes:
    """Encode the record without its signature as canonical JSON (RFC 8785). Raises PeerFault(malformed) for too large an integer."""
    try:
        return rfc8785.dumps(record.model_dump(mode="json", exclude={"signature"}))
    except rfc8785.IntegerDomainError as error:
        raise PeerFault(Cause.MALFORMED, f"the record: {error}", ["coordinator"]) from error


def record_digest(record: ResultRecord | CombinedRecord) -> bytes:
    """Compute H(result tag, body), which the coordinator signs."""
    return hash_fields(Tag.RESULT, record_body(record))


def sign_record(record: Record, key: SigningKey) -> Record:
    """Sign a record with the coordinator's key."""
    return record.model_copy(update={"signature": key.sign(record_digest(record)).hex()})


def verify_record(record: ResultRecord | CombinedRecord, coordinator: bytes) -> None:
    """Verify the coordinator's signature. Raises PeerFault(bad-signature)."""
    verify_signature(coordinator, bytes.fromhex(record.signature), record_digest(record), "coordinator")


def mismatch_fault(detail: str) -> PeerFault:
    """Build the fault of a published result that does not follow from the evidence or the sums (result-mismatch)."""
    return PeerFault(Cause.RESULT_MISMATCH, detail, ["coordinator"])
