"""The REST interface without the messages: paths, limits and JSON models, independent of any HTTP library.

Messages are sent as `application/octet-stream`, as `veilsum.protocol.messages` encodes them; everything for people or scripts is
JSON. Hashes and keys in JSON and in paths are lower-case hexadecimal. 64-bit numbers of messages (rosters, counters, sequences) are strings
of decimal digits in JSON; counts, versions and times are numbers.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, ClassVar, Literal, Self, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, FailFast, Field, model_validator

from veilsum.protocol.forms import LABEL_PATTERN, LINE_PATTERN, MEMBER_PATTERN, ROUND_PATTERN, Hex32, U64Text

OCTETS_TYPE = "application/octet-stream"
PROBLEM_TYPE = "application/problem+json"
PROBLEM_BASE = "/problems/"
"""Base of problem types, relative to the responding coordinator (RFC 9457 §3.1.1), which serves a page for each cause there."""
SAFETENSORS_TYPE = "application/x-safetensors"
TRANSCRIPT_TYPE = "application/vnd.veilsum.transcript+json"
HEAD_METADATA = "veilsum-head"
"""Metadata entry in the file of a head or another document: JSON notes on the arrays, such as the head's form, its classes without
records, and the withheld ones among them."""

MAX_MESSAGE_BYTES = 64 << 20
MAX_ANSWER_BYTES = 1 << 20
"""Most bytes of a JSON answer, and of a refusal."""
MAX_LISTING_BYTES = 5 << 20
"""Most bytes of one that lists members or runs: 10,000 members with ids of 64 characters stand up to five times in a round's view, and an invitation
holds their roster too."""
MAX_ANSWER_VALUES = 1 << 17
"""Most commas of a JSON answer, for each may cost a kilobyte of memory; 10,000 members take up to 50,000."""
MAX_OBJECT_KEYS = 256
"""Most keys of an object in JSON, beside which later releases may add some."""
MAX_PROBE_BYTES = 8 << 20
"""Most bytes of a probe: a chunk of 64-bit words."""
MAX_TRANSCRIPT_BYTES = 1 << 29
MAX_DISCLOSURE_BYTES = 256 << 20
MAX_HEADS_BYTES = 1 << 30
REPORTED_BYTES_MAX = (1 << 53) - 1
"""Largest size that a site reports. Numbers in JSON are below 2^53, and the operator's table could not show any integer."""
MAX_WAIT_S = 60.0
VERSION_HEADER = "veilsum-version"
STATE_HEADER, ROSTER_HEADER = "veilsum-state", "veilsum-roster"
"""Headers of a request for a member's answer: the round's state and, while it collects, the number of the federation's newest roster."""
REQUEST_ID_HEADER = "veilsum-request"
"""Identifies a response in the coordinator's log."""

COORDINATOR_PATH = "/v1/coordinator"
FEDERATION_PATH = "/v1/federations/{federation}"
ROSTER_PATH = "/v1/federations/{federation}/roster"
STUDIES_PATH = "/v1/federations/{federation}/studies"
STUDY_PATH = "/v1/federations/{federation}/studies/{study}"
CANARIES_PATH = "/v1/federations/{federation}/canaries/{pack}"
PROBE_PATH = "/v1/federations/{federation}/probe"
RUNS_PATH = "/v1/federations/{federation}/runs"
CHAIN_PATH = "/v1/federations/{federation}/chain"
COHORTS_PATH = "/v1/federations/{federation}/cohorts"
COHORT_PATH = "/v1/cohorts/{cohort}"
INVITATION_PATH = "/v1/cohorts/{cohort}/invitation"
CARD_PATH = "/v1/cohorts/{cohort}/cards/{member}"
CLOSE_PATH = "/v1/cohorts/{cohort}/close"
PAIRING_PATH = "/v1/cohorts/{cohort}/pairings/{member}"
MANIFEST_PATH = "/v1/cohorts/{cohort}/manifest"
CARDS_PATH = "/v1/cohorts/{cohort}/manifest/{member}"
ROUNDS_PATH = "/v1/cohorts/{cohort}/rounds"
HEADS_PATH = "/v1/cohorts/{cohort}/heads/{heads}"
SITE_PATH = "/v1/cohorts/{cohort}/sites/{member}"
SITES_PATH = "/v1/cohorts/{cohort}/sites"
PREFLIGHT_PATH = "/v1/cohorts/{cohort}/rounds/preflight"
ROUND_PATH = "/v1/rounds/{round_id}"
ROUND_EVENTS_PATH = "/v1/rounds/{round_id}/events"
OPENING_PATH = "/v1/rounds/{round_id}/opening"
REQUEST_PATH = "/v1/rounds/{round_id}/requests/{member}"
ANSWERS_PATH = "/v1/rounds/{round_id}/answers"
UPLOAD_PATH = "/v1/rounds/{round_id}/uploads/{member}"
CHUNK_PATH = "/v1/rounds/{round_id}/uploads/{member}/chunks/{index}"
CANCEL_PATH = "/v1/rounds/{round_id}/cancel"
EXTEND_PATH = "/v1/rounds/{round_id}/extend"
CLOSING_PATH = "/v1/contexts/{context}/closing"
LOST_PATH = "/v1/rounds/{round_id}/lost"
LOST_CONTEXTS = "/v1/federations/{federation}/lost"
MATERIAL_PATH = "/v1/rounds/{round_id}/material"
RESULT_PATH = "/v1/rounds/{round_id}/result"
WEIGHTS_PATH = "/v1/rounds/{round_id}/result/weights"
SUMS_PATH = "/v1/rounds/{round_id}/result/sums"
DOCUMENT_PATH = "/v1/rounds/{round_id}/result/documents/{name}"
EVICTIONS_PATH = "/v1/rounds/{round_id}/result/evictions"
TRANSCRIPT_PATH = "/v1/rounds/{round_id}/transcript"
DISCLOSURE_PATH = "/v1/rounds/{round_id}/disclosure/{member}"
COMBINATIONS_PATH = "/v1/federations/{federation}/combinations"
COMBINATION_PATH = "/v1/combinations/{combination}"
COMBINED_WEIGHTS_PATH = "/v1/combinations/{combination}/weights"
AUDIT_PATH = "/v1/audit"
TOKENS_PATH = "/v1/tokens"
REVOKE_PATH = "/v1/tokens/{token}/revoke"
HEALTH_PATH = "/healthz"
READY_PATH = "/readyz"
METRICS_PATH = "/metrics"

Item = TypeVar("Item")
Listed: TypeAlias = Annotated[tuple[Item, ...], FailFast()]
"""A list in JSON that is refused at its first fault: each further one would take a kilobyte of memory for two bytes of JSON."""
HexBytes = Annotated[str, Field(pattern=r"^(?:[0-9a-f]{2})*$")]
MemberId = Annotated[str, Field(pattern=MEMBER_PATTERN)]
RoundId = Annotated[str, Field(pattern=ROUND_PATTERN)]


class Model(BaseModel):
    """An immutable JSON body without unknown keys, for requests and for hashed or signed data.

    Attributes:
        MAX_BYTES: most bytes of such a body in an answer.
    """

    MAX_BYTES: ClassVar[int] = MAX_ANSWER_BYTES
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _check_size(cls, value: object) -> object:
        """Refuse an object with too many keys before its fields are read: each one that is missing would be reported with a copy of it."""
        if isinstance(value, dict) and len(value) > MAX_OBJECT_KEYS:
            raise ValueError(f"more than {MAX_OBJECT_KEYS} keys")
        return value


class View(Model):
    """A JSON response; keys added by later releases are ignored (docs/versions.md)."""

    model_config = ConfigDict(extra="ignore")


def round_name(context: bytes) -> str:
    """Make a round's id: the first 16 digits of its context, so that readers of the chain can name its rounds."""
    return context[:8].hex()


class Problem(View):
    """RFC 9457 problem details; `cause` is the last part of `type`.

    Attributes:
        parties: the parties that the fault names.
    """

    type: str
    title: str
    status: int
    detail: str
    cause: str
    parties: Listed[str] = ()


class CoordinatorView(View):
    """The coordinator's identity, with the ids of its federations; its key belongs in the roster."""

    public_key: Hex32
    protocol_version: int
    federations: Listed[Hex32] = ()


class FederationView(View):
    """A federation as the coordinator knows it; `roster` is the roster's number."""

    MAX_BYTES: ClassVar[int] = MAX_LISTING_BYTES
    federation: Hex32
    name: str
    roster: U64Text
    members: Listed[str]
    cohorts: Listed[Hex32]
    rounds: Listed[RoundId]


class StudyView(View):
    """A published study.

    Attributes:
        study: the study's hash.
        question: digest of the question.
        approval: digest that a member approves.
        expires_s: Unix time in seconds.
        revoked: whether the newest roster revokes it, or names another study key than the one that signed it.
    """

    study: Hex32
    name: str
    version: int
    question: Hex32
    approval: Hex32
    expires_s: int
    revoked: bool


CohortState: TypeAlias = Literal["enrolling", "pairing", "formed", "failed"]
"""Of a cohort: it takes cards; its members pair under a manifest; all have paired; or too few came."""


class RunView(View):
    """A cohort and its run, for members that look for runs to join.

    Attributes:
        counter: determines the cohort's id, with roster, study, period and repeats.
        repeats: context of the attempt that the run repeats; None for fresh records.
        over: whether the run's last step was certified or lost, or its cohort failed.
        round: id of the newest round; None before the first.
    """

    cohort: Hex32
    study: Hex32
    name: str
    version: int
    period: MemberId
    counter: U64Text
    repeats: Hex32 | None
    state: CohortState
    over: bool
    round: RoundId | None


class RunsView(View):
    """A federation's runs, oldest first; pass `revision` as `after` to wait for the next change."""

    MAX_BYTES: ClassVar[int] = MAX_LISTING_BYTES
    revision: int
    runs: Listed[RunView]


class CohortRequest(Model):
    """A request to open a cohort for one run of a study.

    Attributes:
        study: the study's hash.
        period: the records that the run sums, for example "2026-11".
        repeats: context of a certified attempt of the period to repeat; None for fresh records.
    """

    study: Hex32
    period: MemberId
    repeats: Hex32 | None = None


class QuorumView(View):
    """The sizes derived for a cohort.

    Attributes:
        neighbours: `k`, number of members that each member shares a mask with.
        window_dropped_max: tolerated dropouts in any window of `k/2` on a sparse graph; 0 on the complete graph.
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
    """A cohort, and its rounds, oldest first.

    Attributes:
        members: members that may send a card.
        cards: members that sent one.
        left_out: of these, members that did not pair in time.
        paired: members that have paired under the newest manifest.
        deadline_s: when enrolment or the window of pairing ends, Unix time in seconds; None once the cohort is formed or failed.
        study, name, version: hash, name and version of the study.
        counter: determines the cohort's id, with roster, study, period and repeats.
        step: step of the next round; None once the run is over.
    """

    MAX_BYTES: ClassVar[int] = MAX_LISTING_BYTES
    cohort: Hex32
    federation: Hex32
    study: Hex32
    name: str
    study_version: int
    period: MemberId
    counter: U64Text
    repeats: Hex32 | None
    state: CohortState
    version: int
    members: Listed[str]
    cards: Listed[str]
    left_out: Listed[str] = ()
    paired: Listed[str] = ()
    deadline_s: float | None
    quorum: QuorumView | None
    fault: Problem | None
    rounds: Listed[RoundId] = ()
    step: str | None = None

    @property
    def forming(self) -> bool:
        """Whether the cohort still takes cards, or its members pair."""
        return self.state in {"enrolling", "pairing"}

    @property
    def pairing_members(self) -> tuple[str, ...]:
        """The members of the newest manifest, once there is one."""
        left_out = frozenset(self.left_out)
        return tuple(member for member in self.cards if member not in left_out)

    @property
    def awaited_members(self) -> tuple[str, ...]:
        """The members that a cohort that is forming waits for: those without a card, or of the manifest those that have not paired."""
        wanted, came = {
            "enrolling": (self.members, self.cards),
            "pairing": (self.pairing_members, self.paired),
        }.get(self.state, ((), ()))
        return tuple(sorted({*wanted} - {*came}))


class InvitationView(View):
    """Everything that a member needs to enrol in a cohort.

    Attributes:
        cohort: its current view.
        roster: the newest Roster, as message bytes.
        study: the Study, as message bytes.
        card: of all cards that this coordinator has of the member's key, in any federation, the KeyCard with the highest serial; None if
            there is none, or no member of the cohort's roster signed the request.
    """

    MAX_BYTES: ClassVar[int] = MAX_LISTING_BYTES
    cohort: CohortView
    roster: HexBytes
    study: HexBytes
    card: HexBytes | None = None


class NoiseView(Model):
    """The differential privacy guarantee of a noisy step, at δ (analysis: Results).

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
    """A request to open the next step of a cohort's run, which study and chain determine.

    Attributes:
        lifetime_s: seconds until the round's keys are erased in any case; None for an hour, or twice the study's windows if
            longer.
        heard_within_s: open only if enough decryptors to finish made a request within this time; None to open without a
            liveness check, and to have a preflight look back half of the study's `windows.answer`, at least 120 s. Each long
            poll of a waiting member counts as a request.
        heads: SHA-256 of the stored heads that a judgement shows; None for any other step.
    """

    lifetime_s: Annotated[float, Field(gt=0, le=30 * 86_400)] | None = None
    heard_within_s: Annotated[float, Field(ge=MAX_WAIT_S, le=30 * 86_400)] | None = None
    heads: Hex32 | None = None


class SiteReport(View):
    """What a member's site tells the operator of a rehearsal: how its canaries and its machine do, and nothing of its records.

    Attributes:
        release: of the member's software.
        sent_s: by the member's clock, Unix time in seconds.
        free_bytes: on the disk of its folder.
        slips: what is wrong with its canaries; empty if they agree.
        difference: the largest between two rows of length 1; None if no row could be compared.
        detail: the outcome in words.
        upload_bytes, upload_s: size and duration of its largest upload in this rehearsal; None before it has uploaded. A size alone is that
            of a body that was refused on the way, and `detail` says why.
    """

    release: Annotated[str, Field(max_length=64)]
    sent_s: float
    free_bytes: Annotated[int, Field(ge=0, le=REPORTED_BYTES_MAX)]
    slips: Annotated[Listed[Annotated[str, Field(max_length=32)]], Field(max_length=64)]
    difference: float | None
    detail: Annotated[str, Field(max_length=2048)]
    upload_bytes: Annotated[int, Field(ge=0, le=REPORTED_BYTES_MAX)] | None = None
    upload_s: float | None = None


class SiteView(View):
    """A site's newest report.

    Attributes:
        clock_ahead_s: how far the member's clock is ahead of the coordinator's, with the report's time on its way.
    """

    member: MemberId
    clock_ahead_s: float
    report: SiteReport


class SitesView(View):
    """The reports of a cohort's sites, by member."""

    MAX_BYTES: ClassVar[int] = MAX_LISTING_BYTES
    sites: Listed[SiteView]


class SpecView(View):
    """A description of a round; only the signed study and opening bind a member.

    Attributes:
        study, name, version: hash, name and version of the study.
        statistics: kinds of the statistics, in order.
        withheld: classes left out.
        count: context of the count that decided them.
        rows: context of the count of the rows behind the other classes.
        noise: the privacy guarantee; None for an exact step.
    """

    study: Hex32
    name: str
    version: int
    period: MemberId
    step: str
    statistics: Listed[str]
    dim: int
    classes: int
    elements: int
    ring_bits: int
    withheld: Listed[int]
    count: Hex32 | None
    rows: Hex32 | None
    latest_end_s: float
    noise: NoiseView | None


ROUND_ENDINGS = frozenset({"done", "failed", "voided", "erased", "lost"})
"""The states of a round that has ended; "erasing" waits for reports."""


class RoundView(View):
    """The progress of a round: its phase, the members it waits for, its deadline and its end.

    Attributes:
        state: the coordinator's phase, then "done". "failed" is a certified set without a result: cancelled, or a sum that failed
            a check. "erasing" waits, after the latest end, for reports of decryptors that revealed nothing, or for the admin, and
            becomes "erased" or "lost".
        version: increases with every change; pass it as `after` to wait for the next.
        survivors_min: the minimum survivors of this round.
        sum_survivors_min: n_min of its cohort, the minimum survivors of a sum; a count needs more.
        uploaded: members with a complete upload.
        waiting_for: members that have not answered yet.
        survivors: the certified set, if any.
        evicted: survivors that proved false; the sum excludes them.
        reported: in an erasing round, decryptors that reported revealing nothing.
        reports_min: number of such reports that ends the round.
        holders: for a finished count, the number of members that hold each class.
        reached: for finished rows, the number of members that reach each level (`ROWS_LEVELS`).
        phase_seconds: duration of each phase so far.
        cost: estimated traffic, storage and computation of all parties.
        transcript: head of the ended round's transcript (analysis: Transcripts).
    """

    MAX_BYTES: ClassVar[int] = MAX_LISTING_BYTES
    round: RoundId
    federation: Hex32
    cohort: Hex32
    context: Hex32
    sequence: U64Text
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
    members: Listed[str]
    survivors_min: int
    sum_survivors_min: int = 0
    threshold: int
    uploaded: Listed[str]
    waiting_for: Listed[str]
    survivors: Listed[str]
    evicted: Listed[str] = ()
    reported: Listed[str] = ()
    reports_min: int = 0
    holders: Listed[int] = ()
    reached: Listed[int] = ()
    fault: Problem | None
    phase_seconds: Annotated[dict[str, float], Field(max_length=MAX_OBJECT_KEYS)]
    spec: SpecView
    cost: str | None = None
    transcript: Hex32 | None = None


class UploadView(View):
    """The missing chunks of an announced upload."""

    member: MemberId
    chunks: int
    missing: Listed[int]


class CancelRequest(Model):
    """A request to cancel a round; the reason is public."""

    reason: Annotated[str, Field(max_length=500, pattern=LINE_PATTERN)]


class ExtendRequest(Model):
    """A request to extend a round's current phase.

    Attributes:
        deadline_s: new deadline in Unix time: no earlier than the current one, before the terms' latest end.
    """

    deadline_s: Annotated[float, Field(gt=0, lt=1 << 48)]


SILENT_NAMES_MAX = 10
"""Maximum names listed in a sentence."""


def join_names(names: Sequence[str]) -> str:
    """Join names for a sentence, and cut a long list."""
    more = len(names) - SILENT_NAMES_MAX
    return (", ".join(names[:SILENT_NAMES_MAX]) or "no member") + (f" and {more} more" if more > 0 else "")


class DecryptorsView(View):
    """Liveness of decryptors, from their recent authenticated requests.

    Attributes:
        decryptors: number of decryptors.
        needed: t, the number that a round needs to end.
        within_s: window in seconds. A request counts from its signing time, by the signer's clock.
        heard: number of decryptors that made a request in the window.
        silent: ids of the others, in order.
    """

    decryptors: int
    needed: int
    within_s: float
    heard: int
    silent: Listed[str]

    @property
    def sentence(self) -> str:
        """Summarise in words, naming at most the first `SILENT_NAMES_MAX` silent decryptors."""
        return (
            f"{self.heard} of {self.decryptors} decryptors were heard from within {self.within_s:g} s, and {self.needed} are needed"
            + (f". Missing: {join_names(self.silent)}" if self.silent else "")
        )


class PreflightView(View):
    """A round that could be opened now; a preflight opens and stores nothing.

    Attributes:
        members: number of members to sum.
        cost: estimated traffic, storage and computation of all parties.
        decryptors: liveness of the decryptors.
    """

    federation: Hex32
    cohort: Hex32
    sequence: U64Text
    attempt: int
    members: int
    survivors_min: int
    spec: SpecView
    cost: str
    decryptors: DecryptorsView


YEAR_S = 366 * 86_400.0


class Scope(StrEnum):
    """The permissions of an operator; `admin` includes the others."""

    SUMS = "sums"
    """Sums, and heads that are not public."""
    AUDIT = "audit"
    """The audit log."""
    ROUNDS = "rounds"
    """Cohorts, rounds, combinations."""
    FEDERATIONS = "federations"
    """Create federations and publish their rosters."""
    ADMIN = "admin"
    """Tokens, and everything above."""


class TokenRequest(Model):
    """A new token.

    Attributes:
        name: a label for people.
        lifetime_s: seconds until it expires.
        federation: the only federation that the token works for; None for all. A coordinator has one audit log and one list of tokens,
            so `audit` and `admin` require None.
    """

    name: Annotated[str, Field(pattern=LABEL_PATTERN)]
    scopes: Annotated[frozenset[Scope], Field(min_length=1), FailFast()]
    lifetime_s: Annotated[float, Field(gt=0, le=YEAR_S)] = 90 * 86_400.0
    federation: Hex32 | None = None

    @model_validator(mode="after")
    def _check_scopes(self) -> Self:
        if self.federation is not None and (wide := self.scopes & {Scope.AUDIT, Scope.ADMIN}):
            raise ValueError(f"scope {min(wide)} can't be limited to a federation")
        return self


class TokenView(View):
    """A token's public details, without its secret.

    Attributes:
        token: the token's id, as in the audit log.
        expires_s: Unix time in seconds; None for the first token, which lasts until it is revoked.
        revoked_s: Unix time of revocation; None if still valid.
    """

    token: str
    name: str
    scopes: Listed[Scope]
    federation: str | None
    created_s: float
    expires_s: float | None
    revoked_s: float | None


class NewToken(TokenView):
    """A newly created token.

    Attributes:
        secret: goes into `Authorization: Bearer …`; shown only once.
    """

    secret: str


class TokenList(View):
    """All tokens ever created."""

    tokens: Listed[TokenView]


TRUST_SENTENCE = (
    "only the members together can remove the masks: the coordinator with up to `a` colluding members learns "
    "the sum, and no other member's statistics"
)
