"""Replay a transcript to find which party broke which rule (analysis: Transcripts)."""

from collections import Counter, defaultdict
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto
from typing import Any, ClassVar

from veilsum.protocol.attempt import (
    Attempt,
    Closing,
    check_cards,
    check_manifest,
    check_mlkem_keys,
    check_study,
)
from veilsum.protocol.causes import Cause
from veilsum.protocol.disputes import Dispute
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.evidence import check_bad_run, check_proof
from veilsum.protocol.identity import verify_signature
from veilsum.protocol.keys import check_order
from veilsum.protocol.messages import (
    NOTHING_REVEALED,
    BadRun,
    Cards,
    Certificate,
    Erased,
    Erasure,
    Evictions,
    Freeze,
    Lost,
    Message,
    Opening,
    Receipt,
    Refusal,
    RevealSummary,
    Roster,
    Study,
    Survivor,
    SurvivorSet,
    UploadSummary,
    VoidRequest,
    Vote,
    parse_message,
    survivors_hash,
    void_hash,
)
from veilsum.protocol.opening_rules import check_opening
from veilsum.protocol.proposal import (
    check_proposal,
    choose_survivors,
    contested_disputes,
    covers_uploads,
    disputes_among,
    may_be_proposed,
)
from veilsum.protocol.shelf import Announced, Committed
from veilsum.protocol.transcript import Transcript, transcript_digest

COORDINATOR_PARTY = "coordinator"


@dataclass(frozen=True)
class Finding:
    """A broken rule, or an undecidable dispute.

    Attributes:
        parties: the parties at fault; for a dispute two, at least one of them false.
        entry: index of the transcript's entry that shows it, from 0; None if the transcript as a whole does.
    """

    parties: tuple[str, ...]
    cause: Cause
    detail: str
    entry: int | None = None

    @property
    def is_dispute(self) -> bool:
        """Whether this is a dispute: which party is false cannot be decided."""
        return len(self.parties) > 1


class UploadStanding(StrEnum):
    """The outcome of a member's upload, in words."""

    COUNTED = "counted: the certificate names the upload that it signed"
    EVICTED = "not counted: certified, then proved false"
    LEFT_OUT = "not counted: announced, and not among the certified survivors"
    UNCERTIFIED = "not counted: announced, and the attempt ended without a sum"
    UNREVEALED = "not counted: certified, and too few decryptors revealed for a sum"
    UNSIGNED = "not shown: the coordinator did not sign the file as it is, and what it noted may be left out"
    ABSENT = "not counted: the transcript holds no upload of this member"


@dataclass(frozen=True)
class Verdict:
    """The result of replaying a transcript.

    Attributes:
        findings: in order; only disputes if all parties kept the rules.
        closing: the document that ended the attempt, if shown; an Erasure or Lost replaces a certificate.
        uploads: announced uploads by member.
        disputes: disputes that dropped members from the proposed set.
        evicted: dealers proved false, in order; the sum excludes them.
        revealed: whether a threshold of decryptors revealed for each survivor that was not evicted; otherwise there is no sum.
        refusals: refusals that a transcript cannot judge, in order.
        signed: whether the coordinator's signature is valid. If not, only documents signed by other parties are proved; the rest
            may be forged.
    """

    attempt: Attempt
    findings: tuple[Finding, ...]
    closing: Closing | None
    uploads: dict[str, Announced]
    disputes: tuple[Dispute, ...]
    evicted: tuple[str, ...]
    revealed: bool
    refusals: tuple[Refusal, ...]
    signed: bool

    @property
    def is_faultless(self) -> bool:
        """Whether all findings are disputes."""
        return all(finding.is_dispute for finding in self.findings)

    @property
    def certificate(self) -> Certificate | None:
        """The certificate, if the attempt ended with one."""
        return self.closing if isinstance(self.closing, Certificate) else None

    @property
    def survivors(self) -> tuple[str, ...]:
        """The certified members in order; empty without a certificate."""
        return tuple(survivor.member for survivor in self.certificate.survivors) if self.certificate else ()

    def upload_standing(self, member: str) -> UploadStanding:
        """Return the outcome of this member's upload."""
        if member in self.evicted:
            return UploadStanding.EVICTED
        if not self.signed:
            return UploadStanding.UNSIGNED
        upload = self.uploads.get(member)
        if upload is None:
            return UploadStanding.ABSENT
        if self.certificate is None or self.certificate.is_void:
            return UploadStanding.UNCERTIFIED
        if Survivor.from_header(upload.header) not in self.certificate.survivors:
            return UploadStanding.LEFT_OUT
        return UploadStanding.COUNTED if self.revealed else UploadStanding.UNREVEALED

    def counts_upload(self, member: str) -> bool:
        """Whether the sum includes the member's upload: certified as signed, not evicted, and revealed by a threshold."""
        return self.upload_standing(member) is UploadStanding.COUNTED


def refusal_follows(
    cause: str,
    member: str,
    attempt: Attempt,
    proposal: Sequence[Survivor],
    uploads: Mapping[str, Announced],
    receipts: Mapping[str, Receipt],
    earlier: Sequence[SurvivorSet] = (),
) -> bool | None:
    """Whether a refusal's cause follows from the noted proposal; None if only its sender can know.

    Only the sender can judge a cause that depends on its history or policy. A refusal does not name its proposal: if the cause does
    not follow from the noted one, the sender is false or received another proposal.

    `uploads` are the complete ones, ordered by member, and `earlier` is the certified set that was sent with the proposal.
    """
    if cause == Cause.SURVIVORS_TOO_FEW:
        return len(proposal) < attempt.survivors_min
    if cause == Cause.WINDOW_EXCEEDED:
        return _windows_exceeded(attempt, proposal)
    if cause in {Cause.MALFORMED, Cause.REPEAT_MISMATCH, Cause.COUNT_MISMATCH}:
        return not may_be_proposed(attempt, proposal, earlier)
    if cause == Cause.OWN_UPLOAD_CHANGED:
        return any(each.member == member and not _is_shown(each, uploads) for each in proposal)
    if cause == Cause.SURVIVORS_INVALID and member in receipts:
        # Its signed receipt states which uploads were delivered to it.
        shown = all(_is_shown(each, uploads) for each in proposal)
        return not (covers_uploads(receipts[member], uploads) and shown and _in_order(proposal))
    return None


def _is_shown(survivor: Survivor, uploads: Mapping[str, Announced]) -> bool:
    upload = uploads.get(survivor.member)
    return upload is not None and Survivor.from_header(upload.header) == survivor


def _windows_exceeded(attempt: Attempt, proposal: Sequence[Survivor]) -> bool:
    try:
        attempt.check_windows({each.member for each in proposal})
    except PeerFault:
        return True
    return False


def _in_order(proposal: Sequence[Survivor]) -> bool:
    names = [each.member for each in proposal]
    return names == sorted({*names})


def replay_transcript(transcript: Transcript, federation: bytes | None = None) -> Verdict:
    """Check a transcript from its first entry to its signature.

    `federation` is the pinned admin key; None trusts the key in the roster.

    Raises:
        PeerFault: the transcript does not begin with a consistent roster, study, cards and opening. The fault names the
            coordinator for any bad signature, because an honest coordinator never shows unsigned documents.
    """
    try:
        run = _Replay(_check_beginning(transcript, federation))
    except PeerFault as fault:
        raise PeerFault(fault.cause, fault.detail, [COORDINATOR_PARTY]) from fault
    for index, entry in enumerate(transcript.entries[4:], start=4):
        run.take_entry(index, entry)
    signed = run.close(transcript)
    return Verdict(
        run.attempt,
        tuple(run.findings),
        run.closing,
        run.uploads,
        run.heard,
        tuple(sorted(run.evicted)),
        run.enough_revealed(),
        tuple(run.refusals),
        signed,
    )


def _check_beginning(transcript: Transcript, federation: bytes | None) -> Attempt:
    """Check the first four entries as a member does, except clocks and approvals (AUDIT-1)."""
    opened = tuple(map(parse_message, transcript.entries[:4]))
    if tuple(map(type, opened)) != (Roster, Study, Cards, Opening):
        raise PeerFault(Cause.MALFORMED, "a transcript begins with roster, study, cards and opening")
    roster, study, cards, opening = opened
    assert isinstance(roster, Roster)
    assert isinstance(study, Study)
    assert isinstance(cards, Cards)
    assert isinstance(opening, Opening)
    roster.verify_admin(roster.federation if federation is None else federation)
    check_study(roster, study)
    check_manifest(roster, study, cards.manifest)
    if tuple(cards.by_member) != cards.manifest.members:
        raise PeerFault(Cause.MANIFEST_MISMATCH, "not every member's card is shown")
    check_cards(roster, cards)
    check_mlkem_keys(cards, ())
    for card in cards.by_member.values():
        check_order(card.x25519_key, card.member)
    attempt = Attempt(roster, study, cards.manifest, opening)
    check_opening(attempt)
    return attempt


_ONE_IS_FALSE = "one of the two is false"


class _Stage(Enum):
    COLLECTING = auto()
    CHECKING = auto()
    FREEZING = auto()
    VOIDING = auto()
    REVEALING = auto()
    ERASING = auto()
    CLOSED = auto()


_UNCERTIFIED_STAGES = {_Stage.COLLECTING, _Stage.CHECKING, _Stage.FREEZING, _Stage.VOIDING}
_OPEN_STAGES = _UNCERTIFIED_STAGES | {_Stage.REVEALING, _Stage.ERASING}
_RECEIPT_STAGES = {_Stage.COLLECTING, _Stage.CHECKING, _Stage.FREEZING, _Stage.REVEALING}
"""Stages of a first receipt. One after the proposal still entitles its decryptor to reveal."""


class _Summaries(dict[str, Committed]):
    """Commitments in the entries so far, by member."""

    read_commitments = dict[str, Committed].__getitem__


@dataclass
class _Replay:
    attempt: Attempt
    stage: _Stage = _Stage.COLLECTING
    seen: set[bytes] = field(default_factory=set)
    findings: list[Finding] = field(default_factory=list)
    uploads: dict[str, Announced] = field(default_factory=dict)
    summaries: _Summaries = field(default_factory=_Summaries)
    receipts: dict[str, Receipt] = field(default_factory=dict)
    whole: dict[str, Announced] = field(default_factory=dict)
    proposal: tuple[Survivor, ...] = ()
    earlier: tuple[SurvivorSet, ...] = ()
    heard: tuple[Dispute, ...] = ()
    reason: str = ""
    asked: set[bytes] = field(default_factory=set)
    votes: dict[str, Vote] = field(default_factory=dict)
    unasked: dict[str, tuple[int, Vote]] = field(default_factory=dict)
    reports: dict[str, tuple[int, Erased]] = field(default_factory=dict)
    said: dict[str, tuple[int, Refusal]] = field(default_factory=dict)
    refusals: list[Refusal] = field(default_factory=list)
    certificate: Certificate | None = None
    shown: set[str] = field(default_factory=set)
    evicted: set[str] = field(default_factory=set)
    revealed: dict[tuple[str, ...], set[str]] = field(default_factory=lambda: defaultdict(set))
    closing: Closing | None = None

    def take_entry(self, index: int, entry: bytes) -> None:
        """Replay one entry; a broken rule becomes a finding."""
        try:
            self._replay_entry(index, entry)
        except PeerFault as fault:
            # The coordinator made or admitted every entry, so it answers for this one.
            self._add_finding(index, (COORDINATOR_PARTY,), fault.cause, fault.detail)

    def close(self, transcript: Transcript) -> bool:
        """Check disputes, contradictions and the end; return whether the coordinator's signature is valid."""
        if self.receipts and not self.proposal:
            try:
                self._find_disputes()
            except PeerFault as fault:
                self._add_finding(None, (COORDINATOR_PARTY,), fault.cause, fault.detail)
        self._judge_votes()
        self._judge_refusals()
        self._check_reports()
        if self.closing is None:
            self._add_finding(
                None, (COORDINATOR_PARTY,), Cause.OUTCOME_MISSING, "it does not say how the attempt ended"
            )
        digest = transcript_digest(self.attempt.context, transcript.head)
        try:
            verify_signature(self.attempt.roster.coordinator, transcript.signature, digest, COORDINATOR_PARTY)
        except PeerFault as fault:
            self._add_finding(
                None, (COORDINATOR_PARTY,), fault.cause, "the transcript is not signed as it is"
            )
            return False
        return True

    def enough_revealed(self) -> bool:
        """Whether each u ∈ S∖E has a threshold of runs from decryptors that revealed for that E (wire: Reveals)."""
        if self.certificate is None or self.certificate.is_void:
            return False
        runs = Counter[str]()
        for member in self.revealed[tuple(sorted(self.evicted))] & self.receipts.keys():
            runs.update({member, *self.receipts[member].dealers})
        threshold = self.attempt.quorum.threshold
        staying = {survivor.member for survivor in self.certificate.survivors} - self.evicted
        return all(runs[member] >= threshold for member in staying)

    def _add_finding(self, index: int | None, parties: tuple[str, ...], cause: Cause, detail: str) -> None:
        self.findings.append(Finding(parties, cause, detail, index))

    def _replay_entry(self, index: int, entry: bytes) -> None:
        message = parse_message(entry)
        form = type(message)
        if form not in self.handlers:
            raise PeerFault(Cause.UNKNOWN_MESSAGE, f"a transcript does not contain a {form.__name__}")
        handler, stages = self.handlers[form]
        if entry in self.seen:
            raise PeerFault(Cause.DUPLICATE, f"the {form.__name__} is a repetition")
        self._require_stage(message, stages)
        self.seen.add(entry)
        handler(self, index, message)

    def _require_stage(self, message: Message, stages: Container[_Stage]) -> None:
        if self.stage not in stages:
            stage = self.stage.name.lower()
            raise PeerFault(Cause.WRONG_PHASE, f"a {type(message).__name__} while the attempt is {stage}")

    def _on_upload(self, index: int, summary: UploadSummary) -> None:
        header, attempt = summary.header, self.attempt
        attempt.check_header(header)
        known = self.uploads.get(header.member)
        if known is not None:
            if known.header.digest == header.digest:
                raise PeerFault(Cause.DUPLICATE, f"{header.member}'s upload is a repetition")
            self._add_finding(index, (header.member,), Cause.UPLOAD_CONFLICT, "it signed two uploads")
            return
        commitments = b"".join(summary.secret_commitments)
        if not attempt.has_signed_commitments(header, commitments, summary.path):
            raise PeerFault(Cause.UPLOAD_MISSHAPEN, f"{header.member}'s commitments are not those it signed")
        self.summaries[header.member] = Committed(commitments, summary.path)
        self.uploads[header.member] = Announced(header, b"", self.summaries)

    def _on_receipt(self, index: int, receipt: Receipt) -> None:
        self.attempt.check_from_decryptor(receipt)
        known = self.receipts.get(receipt.member, receipt)
        if known.digest != receipt.digest:
            self._add_finding(index, (receipt.member,), Cause.CONFLICT, "it signed two receipts")
            return
        self._require_stage(receipt, _RECEIPT_STAGES)
        named = (*receipt.dealers, *receipt.complaints)
        if len(set(named)) != len(named) or not set(named) <= self.uploads.keys() - {receipt.member}:
            raise PeerFault(Cause.MALFORMED, f"{receipt.member}'s receipt names what it was not sent")
        self.receipts[receipt.member] = known
        if self.stage in {_Stage.COLLECTING, _Stage.CHECKING}:
            self.stage = _Stage.CHECKING
        else:
            self._came_late(index, receipt)

    def _came_late(self, index: int, receipt: Receipt) -> None:
        """Check a receipt after the proposal: it covers the same uploads, and its complaints drop no member."""
        self._check_covers(receipt, self.whole)
        for dealer in receipt.complaints:
            self._add_finding(index, (dealer, receipt.member), Cause.BOX_REFUSED, _ONE_IS_FALSE)

    def _on_freeze(self, _index: int, freeze: Freeze) -> None:
        self.stage = _Stage.FREEZING
        self.attempt.check_context(freeze.context, COORDINATOR_PARTY)
        self.proposal = tuple(Survivor.from_header(header) for header in freeze.headers)
        self.asked.add(survivors_hash(self.attempt.context, self.proposal))
        self.earlier = freeze.earlier
        self.whole, disputes = self._find_disputes()
        heard = contested_disputes(self.attempt, self.receipts, disputes)
        settled, self.heard = choose_survivors(self.attempt, self.whole, self.receipts, heard, freeze.earlier)
        expected = tuple(upload.header for upload in settled.values())
        if freeze.headers != expected:
            named = sorted({each.member for each in {*freeze.headers} ^ {*expected}})
            raise PeerFault(
                Cause.SURVIVORS_INVALID,
                f"the survivors proposed are not those that uploads and receipts give: {', '.join(named)}",
            )
        check_proposal(self.attempt, self.proposal, freeze.earlier)

    def _find_disputes(self) -> tuple[dict[str, Announced], tuple[Dispute, ...]]:
        """Return the complete uploads, those that the receipts cover, and the disputes among them."""
        whole = {
            member for receipt in self.receipts.values() for member in (*receipt.dealers, *receipt.complaints)
        }
        uploads = {member: self.uploads[member] for member in sorted(whole)}
        for receipt in self.receipts.values():
            self._check_covers(receipt, uploads)
        disputes = disputes_among(self.attempt, uploads, self.receipts)
        for dispute in disputes:
            self._add_finding(None, dispute.parties, dispute.cause, _ONE_IS_FALSE)
        return uploads, disputes

    def _check_covers(self, receipt: Receipt, uploads: dict[str, Announced]) -> None:
        if not covers_uploads(receipt, uploads):
            raise PeerFault(
                Cause.SURVIVORS_INVALID, f"{receipt.member} was not shown the uploads that were announced"
            )

    def _on_void_request(self, _index: int, request: VoidRequest) -> None:
        self.stage, self.reason = _Stage.VOIDING, request.reason
        self.asked.add(void_hash(self.attempt.context, request.reason))
        self.attempt.check_context(request.context, COORDINATOR_PARTY)

    def _on_vote(self, index: int, vote: Vote) -> None:
        self.attempt.check_from_decryptor(vote)
        if not self._count_vote(index, vote):
            return
        if self.certificate is not None and vote.outcome == self.certificate.outcome:
            self._require_stage(vote, ())  # a late one is not noted
        if self.votes[vote.member] is vote and vote.outcome not in self.asked:
            self.unasked[vote.member] = index, vote

    def _judge_votes(self) -> None:
        """Find votes on outcomes that no decryptor was asked to sign."""
        for member, (index, vote) in self.unasked.items():
            if self.certificate is None or vote.outcome != self.certificate.outcome:
                # Either the sender is false, or the coordinator showed it another proposal: name both.
                said = f"{member} signed an outcome that was not noted as asked"
                self._add_finding(index, (member, COORDINATOR_PARTY), Cause.SURVIVORS_INVALID, said)

    def _count_vote(self, index: int, vote: Vote) -> bool:
        """Note a vote; return whether it agrees with its sender's first one."""
        known = self.votes.setdefault(vote.member, vote)
        if known.outcome != vote.outcome:
            self._add_finding(index, (vote.member,), Cause.ALREADY_VOTED, "it signed two outcomes")
        return known.outcome == vote.outcome

    def _on_refusal(self, index: int, refusal: Refusal) -> None:
        self.attempt.check_from_decryptor(refusal)
        if refusal.member in self.said:
            raise PeerFault(Cause.DUPLICATE, f"{refusal.member} has already refused")
        self.said[refusal.member] = index, refusal

    def _judge_refusals(self) -> None:
        """Check each refusal against the proposal and its sender's receipt."""
        for member, (index, refusal) in self.said.items():
            judged = refusal_follows(
                refusal.cause, member, self.attempt, self.proposal, self.whole, self.receipts, self.earlier
            )
            if judged is None:
                self.refusals.append(refusal)
            elif not judged:
                # Either the sender is false, or the coordinator sent it another proposal: name both.
                said = (
                    f"{member} refused for {refusal.cause}, which the proposal that was noted does not show"
                )
                self._add_finding(index, (member, COORDINATOR_PARTY), Cause(refusal.cause), said)

    def _on_certificate(self, index: int, certificate: Certificate) -> None:
        asked = self.stage
        self.stage = _Stage.CLOSED if certificate.is_void else _Stage.REVEALING
        self.attempt.check_certificate(certificate)
        self.certificate = self.closing = certificate
        unnoted = [vote.member for vote in certificate.votes if vote.member not in self.votes]
        for vote in certificate.votes:
            self._count_vote(index, vote)
        wanted = _Stage.VOIDING if certificate.is_void else _Stage.FREEZING
        if asked is not wanted or (certificate.is_void and certificate.reason != self.reason):
            raise PeerFault(
                Cause.CERTIFICATE_INVALID,
                "the certificate is for an outcome that no decryptor was asked to sign",
            )
        if not certificate.is_void and certificate.survivors != self.proposal:
            raise PeerFault(Cause.SURVIVORS_INVALID, "the certificate is for another set than was proposed")
        if unnoted:
            raise PeerFault(Cause.CERTIFICATE_INVALID, f"votes were not noted: {', '.join(unnoted)}")

    def _require_certificate(self) -> Certificate:
        if self.certificate is None:
            raise PeerFault(Cause.CERTIFICATE_INVALID, "nothing is revealed without a valid certificate")
        return self.certificate

    def _on_reveal(self, index: int, reveal: RevealSummary) -> None:
        if self._is_due(index, reveal):
            self._require_stage(reveal, {_Stage.REVEALING})
            if not self.shown.issuperset(reveal.evicted):
                raise PeerFault(
                    Cause.EVICTION_INVALID,
                    f"{reveal.member} revealed without members whose eviction was not noted",
                )
            self.revealed[reveal.evicted].add(reveal.member)

    def _is_due(self, index: int, reveal: RevealSummary) -> bool:
        self.attempt.check_from_decryptor(reveal)
        due = reveal.outcome == self._require_certificate().outcome
        if not due:
            self._add_finding(
                index, (reveal.member,), Cause.REVEAL_MISSHAPEN, "it revealed for another outcome"
            )
        return due

    def _bad_run(self, index: int, evidence: BadRun) -> None:
        reveal, dealer = evidence.reveal, evidence.header.member
        if not self._is_due(index, reveal) or reveal.member not in self.receipts:
            raise PeerFault(Cause.SHARE_INVALID, f"{reveal.member} has vouched for no such share")
        check_bad_run(self.attempt, self._require_certificate(), self.receipts[reveal.member], evidence)
        said = f"it revealed another share than {dealer} dealt"
        self._add_finding(index, (reveal.member,), Cause.SHARE_INVALID, said)

    def _on_evictions(self, index: int, evictions: Evictions) -> None:
        self.attempt.check_context(evictions.context, COORDINATOR_PARTY)
        self.shown.update(evictions.evicted)
        if not self.evicted < {*evictions.evicted}:
            raise PeerFault(
                Cause.EVICTION_INVALID, "it names no new member, or leaves out one that was evicted before"
            )
        for proof in evictions.proofs:
            check_proof(self.attempt, self._require_certificate(), proof)
            if proof.member not in self.evicted:
                self.evicted.add(proof.member)
                said = "its shares make no secret it committed to"
                self._add_finding(index, (proof.member,), Cause.DEALER_INCONSISTENT, said)

    def _on_erased(self, index: int, report: Erased) -> None:
        self.attempt.check_from_decryptor(report)
        _, known = self.reports.get(report.member, (index, report))
        if known.revealed != report.revealed:
            self._add_finding(index, (report.member,), Cause.CONFLICT, "it signed two reports")
            return
        self._require_stage(report, _OPEN_STAGES)
        self.stage = _Stage.ERASING
        self.reports.setdefault(report.member, (index, report))

    def _on_erasure(self, _index: int, erasure: Erasure) -> None:
        self.stage = _Stage.CLOSED
        self.attempt.check_erasure(erasure)
        self.closing = erasure
        if unnoted := [each.member for each in erasure.reports if each.member not in self.reports]:
            raise PeerFault(Cause.ERASURE_INVALID, f"reports were not noted: {', '.join(unnoted)}")

    def _on_lost(self, _index: int, lost: Lost) -> None:
        self.attempt.check_lost(lost)
        self.stage, self.closing = _Stage.CLOSED, lost

    def _check_reports(self) -> None:
        """Check erasure reports against reveals: a decryptor must report whether it ever revealed."""
        revealed = set[str]().union(*self.revealed.values())
        for member, (index, report) in self.reports.items():
            if member in revealed and report.revealed == NOTHING_REVEALED:
                self._add_finding(
                    index, (member,), Cause.CONFLICT, "it revealed, and reported that it did not"
                )

    handlers: ClassVar[dict[type[Message], tuple[Callable[[Any, int, Any], None], set[_Stage]]]] = {
        UploadSummary: (_on_upload, {_Stage.COLLECTING}),
        Receipt: (_on_receipt, set(_Stage)),
        Freeze: (_on_freeze, {_Stage.CHECKING}),
        VoidRequest: (_on_void_request, _UNCERTIFIED_STAGES - {_Stage.VOIDING}),
        Vote: (_on_vote, set(_Stage) - {_Stage.COLLECTING, _Stage.CHECKING}),
        Refusal: (_on_refusal, {_Stage.FREEZING}),
        Certificate: (_on_certificate, {_Stage.FREEZING, _Stage.VOIDING}),
        RevealSummary: (_on_reveal, {_Stage.REVEALING, _Stage.ERASING, _Stage.CLOSED}),
        BadRun: (_bad_run, {_Stage.REVEALING}),
        Evictions: (_on_evictions, {_Stage.REVEALING}),
        Erased: (_on_erased, set(_Stage)),
        Erasure: (_on_erasure, {_Stage.ERASING}),
        Lost: (_on_lost, _OPEN_STAGES),
    }
    """Handler of each kind of entry, and the stages in which an honest coordinator notes it. After its stage it notes only what contradicts an earlier entry."""
