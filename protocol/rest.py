"""What both sides of the wire agree on beside the messages: paths, limits, JSON models. No HTTP library here.

Messages travel as `application/octet-stream`, exactly as `protocol.messages` encodes them; everything that is
meant for people or scripts travels as JSON. Hashes and keys in JSON and in paths are lower-case hexadecimal.
"""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from protocol.codec import NAME_PATTERN

OCTETS = "application/octet-stream"
PROBLEM = "application/problem+json"
PROBLEM_BASE = "/problems/"
"""Relative to the coordinator that answers (RFC 9457 §3.1.1): it serves the page of each cause there."""
SAFETENSORS = "application/x-safetensors"
TRANSCRIPT_JSON = "application/vnd.veilsum.transcript+json"
HEAD = "veilsum-head"
"""Entry in the metadata of a head's file, or of another document: as JSON, what its arrays do not say, such as the head's form, its
classes without records, and those of them that were withheld."""

MAX_MESSAGE_BYTES = 64 << 20
MAX_TRANSCRIPT_BYTES = 1 << 29
MAX_DISCLOSURE_BYTES = 256 << 20
MAX_WAIT_S = 60.0
VERSION_HEADER = "veilsum-version"
REQUEST_ID_HEADER = "veilsum-request"
"""Names an answer in the coordinator's log."""

COORDINATOR = "/v1/coordinator"
FEDERATION = "/v1/federations/{federation}"
ROSTER = "/v1/federations/{federation}/roster"
BUDGET = "/v1/federations/{federation}/budget"
LEDGER = "/v1/federations/{federation}/ledger"
COHORTS = "/v1/federations/{federation}/cohorts"
COHORT = "/v1/cohorts/{cohort}"
CARD = "/v1/cohorts/{cohort}/cards/{member}"
CLOSE = "/v1/cohorts/{cohort}/close"
MANIFEST = "/v1/cohorts/{cohort}/manifest"
CARDS = "/v1/cohorts/{cohort}/manifest/{member}"
ROUNDS = "/v1/cohorts/{cohort}/rounds"
PREFLIGHT = "/v1/cohorts/{cohort}/rounds/preflight"
ROUND = "/v1/rounds/{round_id}"
ROUND_EVENTS = "/v1/rounds/{round_id}/events"
OPENING = "/v1/rounds/{round_id}/opening"
REQUEST = "/v1/rounds/{round_id}/requests/{member}"
ANSWERS = "/v1/rounds/{round_id}/answers"
UPLOAD = "/v1/rounds/{round_id}/uploads/{member}"
CHUNK = "/v1/rounds/{round_id}/uploads/{member}/chunks/{index}"
CANCEL = "/v1/rounds/{round_id}/cancel"
EXTEND = "/v1/rounds/{round_id}/extend"
CLOSING = "/v1/contexts/{context}/closing"
LOST = "/v1/rounds/{round_id}/lost"
MATERIAL = "/v1/rounds/{round_id}/material"
RESULT = "/v1/rounds/{round_id}/result"
WEIGHTS = "/v1/rounds/{round_id}/result/weights"
SUMS = "/v1/rounds/{round_id}/result/sums"
DOCUMENT = "/v1/rounds/{round_id}/result/documents/{name}"
EVICTIONS = "/v1/rounds/{round_id}/result/evictions"
TRANSCRIPT = "/v1/rounds/{round_id}/transcript"
DISCLOSURE = "/v1/rounds/{round_id}/disclosure/{member}"
COMBINATIONS = "/v1/federations/{federation}/combinations"
COMBINATION = "/v1/combinations/{combination}"
COMBINED_WEIGHTS = "/v1/combinations/{combination}/weights"
AUDIT = "/v1/audit"
TOKENS = "/v1/tokens"
REVOKE = "/v1/tokens/{token}/revoke"
HEALTH = "/healthz"
READY = "/readyz"
METRICS = "/metrics"

HEX32_PATTERN = r"^[0-9a-f]{64}$"
MEMBER_PATTERN = rf"^{NAME_PATTERN}$"
SHORT_ID_PATTERN = r"^[0-9a-f]{8}$"
ROUND_PATTERN = r"^[0-9a-f]{16}$"

Hex32 = Annotated[str, Field(pattern=HEX32_PATTERN)]
MemberId = Annotated[str, Field(pattern=MEMBER_PATTERN)]
RoundId = Annotated[str, Field(pattern=ROUND_PATTERN)]


class Model(BaseModel):
    """A JSON body: immutable, no unknown keys. What is asked for, hashed or signed is read so."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class View(Model):
    """What somebody is shown: keys that a later release has put there are left out (docs/versions.md)."""

    model_config = ConfigDict(extra="ignore")


def round_name(context: bytes) -> str:
    """A round's id: the first 16 digits of its context, so that whoever reads the chain can name its rounds."""
    return context[:8].hex()


class Problem(View):
    """RFC 9457 problem details; `cause` is the last part of `type`.

    Attributes:
        parties: whom the fault names.
        group: for `ledger-refused`, the members whose records would be exposed.
        rounds: the rounds that together would expose them.
    """

    type: str
    title: str
    status: int
    detail: str
    cause: str
    parties: tuple[str, ...] = ()
    group: tuple[str, ...] = ()
    rounds: tuple[RoundId, ...] = ()


class CoordinatorView(View):
    """Who the coordinator is; its key belongs into the roster."""

    public_key: Hex32
    protocol_version: int


class FederationView(View):
    """A federation as the coordinator knows it."""

    federation: Hex32
    roster_version: int
    members: tuple[str, ...]
    cohorts: tuple[Hex32, ...]
    rounds: tuple[RoundId, ...]


class CohortRequest(Model):
    """Open a cohort for cards.

    Attributes:
        records_cap: most records that each member may contribute to a round.
        colluders: `a`; None for a quarter of the roster.
        honest_min: `h_min`, fewest honest members that a sum hides each of them among.
        loss: members in a thousand who may vanish, which a sparse graph or a drawn committee is sized for.
        enrol_s: seconds until enrolment closes with the cards that came; it closes at once when all are in.
    """

    records_cap: Annotated[int, Field(ge=1, le=1 << 48)]
    colluders: Annotated[int, Field(ge=0, le=1000)] | None = None
    honest_min: Annotated[int, Field(ge=3, le=1000)] = 3
    loss: Annotated[int, Field(ge=0, le=374)] = 100
    enrol_s: Annotated[float, Field(gt=0, le=366 * 86_400)] = 86_400.0


class QuorumView(View):
    """The numbers that follow from the cohort's size.

    Attributes:
        neighbours: `k`, with how many others each member shares a mask.
        window_dropped_max: of any `k/2` in a row on a sparse graph, how many may be lost; 0 on the complete one.
        loss: members in a thousand who may vanish, as the cohort was sized for.
    """

    members: int
    colluders: int
    decryptors: int
    decryptor_colluders: int
    survivors_min: int
    threshold: int
    members_may_miss: int
    decryptors_may_miss: int
    neighbours: int
    window_dropped_max: int
    loss: int
    caution: str | None


class CohortView(View):
    """A cohort: enrolling, formed (its manifest stands), or failed for want of cards; and its rounds, oldest first.

    Attributes:
        next_sequence: of the round that would be opened next; what an exception to the ledger is signed for.
        withhold: whether classes that few members hold are kept out of the sums, so that an indicator round comes first.
        indicator: the finished one whose counts no result rests on yet.
    """

    cohort: Hex32
    federation: Hex32
    state: Literal["enrolling", "formed", "failed"]
    version: int
    members: tuple[str, ...]
    cards: tuple[str, ...]
    deadline_s: float | None
    quorum: QuorumView | None
    fault: Problem | None
    rounds: tuple[RoundId, ...] = ()
    next_sequence: int = 0
    withhold: bool = False
    indicator: RoundId | None = None


class WindowsModel(Model):
    """Seconds that each phase waits; `grace_s`, for more receipts once a threshold of them is in."""

    upload_s: Annotated[float, Field(gt=0, le=366 * 86_400)] = 3600.0
    check_s: Annotated[float, Field(gt=0, le=366 * 86_400)] = 300.0
    freeze_s: Annotated[float, Field(gt=0, le=366 * 86_400)] = 300.0
    grace_s: Annotated[float, Field(gt=0, le=366 * 86_400)] = 15.0


class NoiseRequest(Model):
    """Differential privacy of one round: how much its sum may say about a record.

    Attributes:
        epsilon: ε of this round at δ; it sets μ.
        delta: well below 1 / records.
        neighbours: what is protected: a record's presence, or its content where it is known to be there.
        nonnegative: no feature is below 0, as after a ReLU.
        member_records: protect a member as a whole, not one of its records: its sums are cut to what so many records alike come to.
        insist: open it although so much noise is expected to leave little of a head.
    """

    epsilon: Annotated[float, Field(gt=0, le=50, allow_inf_nan=False)]
    delta: Annotated[float, Field(gt=0, le=0.1, allow_inf_nan=False)] = 1e-5
    neighbours: Literal["add-remove", "replace"] = "add-remove"
    nonnegative: bool = False
    member_records: Annotated[int, Field(ge=1, lt=1 << 32)] | None = None
    insist: bool = False


class NoiseView(Model):
    """What a round's noise promises.

    Attributes:
        mu: μ of Gaussian differential privacy, of the shares as they are.
        epsilon: ε at δ that follows from it; by this project's own proof.
        published_epsilon: the same by published theorems alone.
        sigma: deviation on the sum, in units of features of length 1, that the promise rests on.
        weight: w of U against V.
        shares: how many members' shares the promise counts on, n_min − a.
        member_records: where the promise is of a member as a whole, how many records alike its vector is cut to; None where it is of one
            record.
        rests_on: context of the round that this one rests on, which took its own μ of the records in it; what both promise together is
            less.
    """

    mu: float
    epsilon: float
    delta: float
    published_epsilon: float
    sigma: float
    weight: float
    neighbours: Literal["add-remove", "replace"]
    nonnegative: bool
    shares: int
    rests_on: Hex32 | None
    member_records: int | None


Parameter = str | int | float | bool


class RoundRequest(Model):
    """Open a round that asks a question, or one that counts how many members hold each class.

    Attributes:
        statistic: the question, by its name; "indicator" counts for each class how many members hold it: where rare classes are
            withheld such a round comes first.
        parameters: of the question, by name.
        rests_on: a finished round that the question rests on.
        noise: differential privacy; None for an exact sum.
        dim: l, features of the extractor, without the bias; none in an indicator round.
        classes: C.
        bias: append a constant feature; with statistic "ffc" the same as "ffc-bias".
        ring_bits: width of an element on the wire.
        records_max: N_max; None for the sum of the members' caps.
        extractor: digest of extractor and preprocessing, from the roster's list.
        ridges: λ grid; empty for the solver's own. One value fixes λ.
        lifetime_s: seconds until the round's keys are erased whatever happens.
        exceptions: LedgerException messages that the admin signed for this cohort and sequence, in hexadecimal.
        margin: r, how many of the members counted may be missing; a class is published that g + r of them hold. None for a
            sixth of the members or all colluders, whichever is more, as far as a sum can spare them.
        heard_within_s: open it only where enough decryptors for its end were heard from so lately; None to have members start
            later. Who waits for a round is heard from by each of its long polls.
    """

    statistic: Annotated[str, Field(pattern=MEMBER_PATTERN)] = "ffc"
    parameters: Annotated[dict[str, Parameter], Field(max_length=16)] = Field(default_factory=dict)
    rests_on: RoundId | None = None
    noise: NoiseRequest | None = None
    dim: Annotated[int, Field(ge=1, le=65_535)] | None = None
    classes: Annotated[int, Field(ge=1, le=65_535)]
    bias: bool = False
    ring_bits: Annotated[int, Field(ge=8, le=64)] = 48
    records_max: Annotated[int, Field(ge=1, le=1 << 48)] | None = None
    extractor: Hex32
    ridges: Annotated[
        tuple[Annotated[float, Field(gt=0, allow_inf_nan=False)], ...], Field(max_length=4096)
    ] = ()
    chunk_elements: Annotated[int, Field(ge=8, le=1 << 22, multiple_of=8)] = 1 << 17
    lifetime_s: Annotated[float, Field(gt=0, le=366 * 86_400)] = 7 * 86_400.0
    windows: WindowsModel = WindowsModel()
    exceptions: Annotated[
        tuple[Annotated[str, Field(pattern=r"^([0-9a-f]{2})+$", max_length=1 << 20)], ...],
        Field(max_length=16),
    ] = ()
    margin: Annotated[int, Field(ge=0, le=10_000)] | None = None
    heard_within_s: Annotated[float, Field(ge=MAX_WAIT_S, le=366 * 86_400)] | None = None

    @model_validator(mode="after")
    def _check_dim(self) -> Self:
        if (self.dim is None) != (self.statistic == "indicator"):
            raise ValueError("dim goes with statistics of features, and an indicator round has none")
        return self

    @property
    def question(self) -> str:
        """The statistic as terms name it."""
        return "ffc-bias" if self.bias and self.statistic == "ffc" else self.statistic


class TermsView(View):
    """A round's terms in words; what binds a member is the signed opening.

    Attributes:
        dim: None in an indicator round.
        indicator: context of the indicator round that decided what is withheld.
        margin: r of that decision.
        withheld: classes left out of the statistics.
        parameters: of the question.
        rests_on: context of the round before.
        noise: what is promised; None for an exact sum.
    """

    statistic: str
    dim: int | None
    classes: int
    bias: bool
    elements: int
    lattice: str
    lattice_bits: int
    ring_bits: int
    chunk_elements: int
    records_max: int
    extractor: Hex32
    ridges: tuple[float, ...]
    latest_end_s: float
    indicator: Hex32 | None = None
    margin: int = 0
    withheld: tuple[int, ...] = ()
    parameters: dict[str, Parameter] = Field(default_factory=dict)
    rests_on: Hex32 | None = None
    noise: NoiseView | None = None


class RoundView(View):
    """A round in time: its phase, whom it waits for and until when, and how it ended.

    Attributes:
        state: the coordinator's phase, then "done". "failed" is a certified set without a result: given up, or a
            sum that broke a check. "erasing" waits, after the latest end, for reports of decryptors that revealed nothing, or
            for the admin, and is then "erased" or "lost".
        version: grows with every change; pass it as `after` to wait for the next.
        uploaded: members whose upload is whole.
        waiting_for: members whose answers move the round on.
        survivors: the certified set, once there is one.
        evicted: those of them that proved false: the sum is without them.
        reported: where the round is erasing, the decryptors that report that they revealed nothing.
        reports_min: how many of them end the round.
        holders: of an indicator round that is done, for each class how many members hold it.
        phase_seconds: how long each phase took so far.
        cost: what everybody sends, stores and computes, as estimated from sizes alone.
        transcript: once the round has ended, the head of its transcript (protocol §11).
    """

    round: RoundId
    federation: Hex32
    cohort: Hex32
    context: Hex32
    sequence: int
    attempt: int
    state: Literal[
        "collecting",
        "checking",
        "freezing",
        "revealing",
        "recovered",
        "done",
        "failed",
        "voiding",
        "voided",
        "erasing",
        "erased",
        "lost",
    ]
    ended: bool
    version: int
    deadline_s: float | None
    members: tuple[str, ...]
    survivors_min: int
    threshold: int
    uploaded: tuple[str, ...]
    waiting_for: tuple[str, ...]
    survivors: tuple[str, ...]
    evicted: tuple[str, ...] = ()
    reported: tuple[str, ...] = ()
    reports_min: int = 0
    holders: tuple[int, ...] = ()
    fault: Problem | None
    phase_seconds: dict[str, float]
    terms: TermsView | None = None
    cost: str | None = None
    transcript: Hex32 | None = None


class UploadView(View):
    """What of an announced upload is still to come."""

    member: MemberId
    chunks: int
    missing: tuple[int, ...]


class CancelRequest(Model):
    """Why the operator gives a round up; shown to everybody."""

    reason: Annotated[str, Field(min_length=1, max_length=500)]


class ExtendRequest(Model):
    """More time for the phase that a round is in.

    Attributes:
        deadline_s: its new deadline in Unix time: no earlier than the present one, before the terms' latest end.
    """

    deadline_s: Annotated[float, Field(gt=0, lt=1 << 48)]
