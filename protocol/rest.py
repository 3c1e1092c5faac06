"""What both sides of the wire agree on beside the messages: paths, limits, JSON models. No HTTP library here.

Messages travel as `application/octet-stream`, exactly as `protocol.messages` encodes them; everything that is
meant for people or scripts travels as JSON. Hashes and keys in JSON and in paths are lower-case hexadecimal.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

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
STUDIES = "/v1/federations/{federation}/studies"
STUDY = "/v1/federations/{federation}/studies/{study}"
RUNS = "/v1/federations/{federation}/runs"
CHAIN = "/v1/federations/{federation}/chain"
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
    """

    type: str
    title: str
    status: int
    detail: str
    cause: str
    parties: tuple[str, ...] = ()


class CoordinatorView(View):
    """Who the coordinator is; its key belongs into the roster."""

    public_key: Hex32
    protocol_version: int


class FederationView(View):
    """A federation as the coordinator knows it; `roster` is its roster's number."""

    federation: Hex32
    name: str
    roster: int
    members: tuple[str, ...]
    cohorts: tuple[Hex32, ...]
    rounds: tuple[RoundId, ...]


class StudyView(View):
    """A study that was published.

    Attributes:
        study: its hash.
        question: digest of what is summed.
        approval: digest of what a member approves.
        expires_s: Unix time in seconds.
        revoked: whether the newest roster revokes it.
    """

    study: Hex32
    name: str
    version: int
    question: Hex32
    approval: Hex32
    expires_s: int
    revoked: bool


class RunView(View):
    """A cohort and what its run is for, as members look for runs to join.

    Attributes:
        counter: with roster, study, period and repeats it gives the cohort's id.
        repeats: context of the attempt whose records the run sums again; None for fresh records.
        over: whether the run's last step was certified or lost, or its cohort failed.
    """

    cohort: Hex32
    study: Hex32
    name: str
    version: int
    period: MemberId
    counter: int
    repeats: Hex32 | None
    state: Literal["enrolling", "formed", "failed"]
    over: bool


class RunsView(View):
    """A federation's runs, oldest first; pass `revision` as `after` to wait for the next change."""

    revision: int
    runs: tuple[RunView, ...]


class CohortRequest(Model):
    """Open a cohort for cards: one run of a study.

    Attributes:
        study: its hash.
        period: which records the run sums, for example "2026-11".
        repeats: context of a certified attempt of the period, to sum its records again; None for fresh records.
    """

    study: Hex32
    period: MemberId
    repeats: Hex32 | None = None


class QuorumView(View):
    """The numbers that follow from the cohort's size.

    Attributes:
        neighbours: `k`, with how many others each member shares a mask.
        window_dropped_max: of any `k/2` in a row on a sparse graph, how many may be lost; 0 on the complete one.
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
    caution: str | None


class CohortView(View):
    """A cohort: enrolling, formed (its manifest stands), or failed for want of cards; and its rounds, oldest first.

    Attributes:
        members: who may send a card.
        study, name, version: hash, name and version of the study.
        counter: with roster, study, period and repeats it gives the cohort's id.
        step: of the round that would be opened next; None once the run is over.
    """

    cohort: Hex32
    federation: Hex32
    study: Hex32
    name: str
    study_version: int
    period: MemberId
    counter: int
    repeats: Hex32 | None
    state: Literal["enrolling", "formed", "failed"]
    version: int
    members: tuple[str, ...]
    cards: tuple[str, ...]
    deadline_s: float | None
    quorum: QuorumView | None
    fault: Problem | None
    rounds: tuple[RoundId, ...] = ()
    step: str | None = None


class NoiseView(Model):
    """What a noisy step's differential privacy promises, at δ (protocol §4.8).

    Attributes:
        mu: μ of Gaussian differential privacy of this step.
        epsilon: ε of this step.
        spent_epsilon: ε of the chain up to this step.
        study_epsilon: ε of the whole chain.
    """

    mu: float
    epsilon: float
    spent_epsilon: float
    study_epsilon: float
    delta: float


class RoundRequest(Model):
    """Open the next step of a cohort's run. Study and chain say what it sums.

    Attributes:
        lifetime_s: seconds until the round's keys are erased whatever happens; None for an hour, or twice the study's windows where
            that is longer.
        heard_within_s: open it only if enough decryptors for its end were heard from so lately; None to have members start
            later. A member that waits for a round is heard from by each of its long polls.
    """

    lifetime_s: Annotated[float, Field(gt=0, le=30 * 86_400)] | None = None
    heard_within_s: Annotated[float, Field(ge=MAX_WAIT_S, le=30 * 86_400)] | None = None


class SpecView(View):
    """What a round sums, in words; what binds a member is the signed study and opening.

    Attributes:
        study, name, version: hash, name and version of the study.
        statistics: their kinds, in order.
        withheld: classes left out.
        indicator: context of the indicator that decided so.
        noise: what is promised; None for an exact step.
    """

    study: Hex32
    name: str
    version: int
    period: MemberId
    step: str
    statistics: tuple[str, ...]
    dim: int
    classes: int
    elements: int
    ring_bits: int
    withheld: tuple[int, ...]
    indicator: Hex32 | None
    latest_end_s: float
    noise: NoiseView | None


class RoundView(View):
    """A round in time: its phase, which members it waits for and until when, and how it ended.

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
        holders: of an indicator that is done, for each class how many members hold it.
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
    spec: SpecView
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
