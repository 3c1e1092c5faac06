"""The base of all coordinator phases, and the phases that end an attempt: VOID, erasure or certificate (wire: Votes, wire: Ends)."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, Self

from veilsum.protocol.attempt import Attempt, Closing
from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator.statements import Answer, Statements
from veilsum.protocol.disputes import Dispute
from veilsum.protocol.errors import Misuse, PeerFault
from veilsum.protocol.messages import (
    NOTHING_REVEALED,
    Certificate,
    Deliveries,
    Disclosed,
    Disclosure,
    Erased,
    Erasure,
    ErasureRequest,
    Evictions,
    Link,
    Lost,
    Message,
    Proof,
    Receipt,
    Refusal,
    Reveal,
    Seed,
    SurvivorSet,
    VoidRequest,
    Vote,
    void_hash,
)
from veilsum.protocol.proposal import covers_uploads
from veilsum.protocol.reveal_plan import due_secrets
from veilsum.protocol.shelf import Announced, Shelf
from veilsum.protocol.study import Windows
from veilsum.protocol.unmasking import Unmasking

RECEIPT_GRACE_S = 15.0
"""Maximum wait for more receipts after a threshold of them. A later decryptor may still sign and reveal, but its complaints drop no one."""


@dataclass(frozen=True)
class Setting:
    """What all phases of an attempt share.

    Attributes:
        earlier: the certified set of the repeated attempt or of the count (`Freeze.earlier`).
        statements: what its decryptors have signed so far.
    """

    attempt: Attempt
    earlier: tuple[SurvivorSet, ...]
    shelf: Shelf
    statements: Statements = field(default_factory=Statements)

    @property
    def windows(self) -> Windows:
        """The study's minimum time for each phase; an operator may extend a phase."""
        return self.attempt.question.windows

    def with_certificate(self, certificate: Certificate) -> "Setting":
        """Return the setting of the phases after a certificate."""
        return replace(self, statements=self.statements.note_certificate(certificate.outcome))

    def end_of_window(self, now_s: float, window_s: float) -> float:
        """Return the end of a window that begins now, capped at the terms' latest end."""
        return min(now_s + window_s, self.attempt.terms.latest_end_s)


@dataclass(frozen=True, repr=False)
class CoordinatorPhase(ABC):
    """One phase of an attempt on the coordinator's side.

    `pass_deadline` is due at `deadline_s`, in Unix time; None without a timeout.
    """

    name: ClassVar[str]
    late: ClassVar[tuple[type[Message], ...]] = ()
    """Messages that answer an earlier phase, ignored here."""
    handlers: ClassVar[dict[type[Message], Callable[[Any, Any, float], "CoordinatorPhase"]]] = {}
    """Handler of each message that the phase accepts."""
    setting: Setting
    deadline_s: float | None

    @property
    def attempt(self) -> Attempt:
        return self.setting.attempt

    def receive(self, message: Message, now_s: float) -> "CoordinatorPhase":
        """Return the phase after a message; repeating a message changes nothing.

        A decryptor's answer is checked before it is found to be late (ANSWER-1 to ANSWER-6).

        Raises:
            PeerFault: the message breaks a rule, or the phase does not accept it.
        """
        statements = self.setting.statements
        if isinstance(message, Answer):
            self.attempt.check_from_decryptor(message)
            statements.check_contradiction(message)
        if isinstance(message, self.late):
            if isinstance(message, Answer):
                statements.check_outcome(self.attempt, message)
            return self
        handler = self.handlers.get(type(message))
        if handler is None:
            said = f"the attempt is {self.name} and takes no {type(message).__name__.lower()}"
            raise PeerFault(Cause.WRONG_PHASE, said)
        return handler(self, message, now_s)

    def note_answer(self, answer: Receipt | Vote | Erased, **changes: Any) -> Self:
        """Return the phase with an admitted answer among its statements, and with other changes."""
        statements = self.setting.statements.note_answer(answer)
        return replace(self, setting=replace(self.setting, statements=statements), **changes)

    @abstractmethod
    def request_for(self, member: str) -> Message | None:
        """Return the message that `member` has to answer now, or None."""

    def waiting_for(self) -> tuple[str, ...]:
        """Return the members whose answers the attempt is waiting for."""
        return ()

    def pass_deadline(self, now_s: float) -> "CoordinatorPhase":
        """Return the phase after the deadline; `pass_latest_end` once the terms' latest end has passed."""
        if self.deadline_s is None or now_s < self.attempt.terms.latest_end_s:
            return self.go_on(now_s)
        return self.pass_latest_end()

    def go_on(self, now_s: float) -> "CoordinatorPhase":
        """Return the phase after this phase's window."""
        raise Misuse(f"an attempt that is {self.name} has no deadline to pass at {now_s}")

    def pass_latest_end(self) -> "CoordinatorPhase":
        """Return the phase after the terms' latest end."""
        said = f"the terms' latest end passed while the attempt was {self.name}"
        return Erasing(self.setting, None, PeerFault(Cause.TERMS_EXPIRED, said, self.waiting_for()))

    def extend_deadline(self, deadline_s: float) -> Self:
        """Return the phase with a later deadline, in Unix time. Raises PeerFault as `check_extension` does."""
        latest_end_s = self.attempt.terms.latest_end_s
        return replace(self, deadline_s=check_extension(self.name, self.deadline_s, deadline_s, latest_end_s))

    def cancel(self, now_s: float, reason: str = "") -> "CoordinatorPhase":
        """Return the phase after the operator cancels; an ended attempt is unchanged."""
        del now_s
        return self.give_up(cancelled_fault(reason))

    def give_up(self, fault: PeerFault) -> "CoordinatorPhase":
        """Return the phase that leads to an end without a sum; an ended attempt is unchanged."""
        return Voiding.begin(self.setting, fault)

    def chunk_damaged(self, member: str, index: int) -> "CoordinatorPhase":
        """Return the phase after a stored chunk proves damaged; this phase if no sum needs the chunk."""
        del member, index
        return self

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.attempt.context.hex()[:16]}>"


class Evicting(CoordinatorPhase):
    """A phase with proofs against false dealers, which the sum excludes."""

    if TYPE_CHECKING:  # each phase declares it itself, among its fields
        proofs: tuple[Proof, ...]

    @property
    def evictions(self) -> Evictions | None:
        """The message for members before they reveal again or recount the sum; None without false dealers."""
        return Evictions(self.attempt.context, self.proofs) if self.proofs else None

    @property
    def evicted(self) -> tuple[str, ...]:
        """Certified survivors that proved false."""
        return tuple(proof.member for proof in self.proofs)


@dataclass(frozen=True, repr=False)
class Delivering(CoordinatorPhase):
    """A phase that delivers boxes. A decryptor that fetches them late may still sign and reveal.

    Attributes:
        uploads: complete uploads, ordered by member.
        receipts: receipts by decryptor; each lists the dealers whose shares the decryptor holds.
    """

    uploads: dict[str, Announced]
    receipts: dict[str, Receipt]

    def request_for(self, member: str) -> Message | None:
        """Return the boxes for a decryptor without a receipt; for any other member, `question_for`."""
        if (deliveries := self.deliveries_for(member)) is not None:
            return Deliveries.from_bytes(b"".join(deliveries))
        return self.question_for(member)

    def deliveries_for(self, member: str) -> Iterator[bytes] | None:
        """Yield the bytes of `Deliveries` for a decryptor without a receipt, one delivery at a time; None for other members."""
        place = self.attempt.decryptor_place.get(member)
        if place is None or member in self.receipts:
            return None
        shelf, dealers = self.setting.shelf, [dealer for dealer in self.uploads if dealer != member]
        beginning = Deliveries(self.attempt.context, ()).to_bytes()[:-4] + len(dealers).to_bytes(4, "little")
        return chain([beginning], (shelf.read_delivery(dealer, place) for dealer in dealers))

    def chunk_damaged(self, member: str, index: int) -> CoordinatorPhase:
        """Give up the attempt: uploads are closed, so no member sends the chunk again."""
        return self.give_up(chunk_fault(member, index))

    @abstractmethod
    def question_for(self, member: str) -> Message | None:
        """Return the phase's message for a decryptor with a receipt, or for any other member."""

    def take_receipt(self, receipt: Receipt, now_s: float) -> Self:
        """Add a receipt; repeating it changes nothing.

        Raises:
            PeerFault: malformed if it is for other uploads.
        """
        del now_s
        member = receipt.member
        if not covers_uploads(receipt, self.uploads):
            raise PeerFault(
                Cause.MALFORMED, f"{member}'s receipt does not cover the boxes it was sent", [member]
            )
        if member in self.receipts:
            return self
        return self.note_answer(receipt, receipts={**self.receipts, member: receipt})


def check_extension(name: str, deadline_s: float | None, wanted_s: float, latest_end_s: int) -> float:
    """Extend a phase's deadline to `wanted_s`, in Unix time.

    Windows are not part of the terms, so an extension changes no context. The terms' latest end, at which members erase
    their keys, stays fixed. A deadline never moves earlier, because members already know it.

    Raises:
        PeerFault: wrong-phase if the phase has no deadline; conflict if its deadline is later than wanted;
            terms-refused beyond the latest end.
    """
    if deadline_s is None:
        raise PeerFault(Cause.WRONG_PHASE, f"the attempt is {name} and has no deadline")
    if wanted_s < deadline_s:
        raise PeerFault(
            Cause.CONFLICT,
            f"the deadline is {deadline_s:.0f} and can't move earlier, because members know it; cancel instead",
        )
    if wanted_s >= latest_end_s:
        raise PeerFault(
            Cause.TERMS_REFUSED,
            f"the deadline can move at most {max(0, math.ceil(latest_end_s - deadline_s) - 1)} s: members erase their keys at the "
            "round's latest end, which is fixed. Extend it by less, or cancel the round",
        )
    return wanted_s


def cancelled_fault(reason: str) -> PeerFault:
    """Build the fault of a cancelled attempt, with the operator's reason."""
    return PeerFault(Cause.CANCELLED, reason, ["operator"])


def chunk_fault(member: str, index: int) -> PeerFault:
    """Build the fault of an attempt that needs a damaged chunk."""
    said = f"the coordinator's storage is damaged: it does not hold chunk {index} as {member} sent it; no member is at fault"
    return PeerFault(Cause.STORAGE_DAMAGED, said, ["coordinator"])


@dataclass(frozen=True, repr=False)
class Ended(CoordinatorPhase):
    """An ended attempt, with the document that closes it."""

    late: ClassVar[tuple[type[Message], ...]] = (Receipt, Refusal, Vote, Reveal, Erased)
    closing: Closing

    def give_up(self, fault: PeerFault) -> CoordinatorPhase:
        """Do nothing: the attempt has ended."""
        del fault
        return self

    def request_for(self, member: str) -> Message | None:
        """Return the closing document, on which a member advances its keys."""
        del member
        return self.closing

    @property
    def link(self) -> Link:
        """The link of this attempt in the chain."""
        return self.attempt.make_link(self.closing)


@dataclass(frozen=True, repr=False)
class Certified(Ended):
    """An attempt with a certified set: its records are spent, with or without a sum."""

    closing: Certificate

    @property
    def certificate(self) -> Certificate:
        """The certificate that closes the attempt."""
        return self.closing


@dataclass(frozen=True, repr=False)
class Recovered(Certified, Evicting):
    """M4: the seeds are rebuilt and checked; unmasking remains (`veilsum.protocol.unmasking`).

    Attributes:
        disputes: disputes that dropped members before the freeze.
        self_seeds: b_u by survivor.
        edge_seeds: r_uw by survivor and dropout.
    """

    name: ClassVar[str] = "recovered"
    uploads: dict[str, Announced]
    proofs: tuple[Proof, ...]
    disputes: tuple[Dispute, ...]
    self_seeds: dict[str, bytes]
    edge_seeds: dict[tuple[str, str], bytes]

    @property
    def summed_members(self) -> tuple[str, ...]:
        """Members whose vectors are in the sum."""
        return tuple(self.self_seeds)

    def prepare_unmasking(self) -> Unmasking:
        """Prepare the sum, chunk by chunk."""
        return Unmasking(self.attempt, self.summed_members, self.self_seeds, self.edge_seeds)


@dataclass(frozen=True, repr=False)
class Failed(Certified, Evicting):
    """Certified but closed without a sum: cancelled, or too many dealers are false."""

    name: ClassVar[str] = "failed"
    fault: PeerFault
    proofs: tuple[Proof, ...] = ()


@dataclass(frozen=True, repr=False)
class Voided(Ended):
    """Ended without a sum by votes: nothing was opened, and the round may be retried."""

    name: ClassVar[str] = "voided"
    closing: Certificate
    fault: PeerFault


@dataclass(frozen=True, repr=False)
class VoidedByErasure(Ended):
    """Ended without a sum by reports: nothing was or can be opened, and the keys for a retry are erased."""

    name: ClassVar[str] = "erased"
    closing: Erasure
    fault: PeerFault


@dataclass(frozen=True, repr=False)
class ClosedByAdmin(Ended):
    """Closed by the admin: the uploaded records are spent."""

    name: ClassVar[str] = "lost"
    late: ClassVar[tuple[type[Message], ...]] = (*Ended.late, Lost)
    closing: Lost
    fault: PeerFault


@dataclass(frozen=True, repr=False)
class Erasing(CoordinatorPhase):
    """Waits without timeout for q reports of decryptors that revealed nothing, or for the admin's Lost.

    If too many decryptors have revealed for q such reports, a certified attempt closes without its sum and can be repeated.

    Attributes:
        fault: why the attempt reached this phase.
        certificate: the certificate, if a set was certified but too few reveals arrived.
    """

    name: ClassVar[str] = "erasing"
    late: ClassVar[tuple[type[Message], ...]] = (Receipt, Refusal, Reveal)
    fault: PeerFault
    certificate: Certificate | None = None
    proofs: tuple[Proof, ...] = ()
    revealed: frozenset[str] = frozenset()
    reports: dict[str, Erased] = field(default_factory=dict)

    @property
    def silent_decryptors(self) -> tuple[str, ...]:
        """Decryptors that reported revealing nothing."""
        return tuple(sorted(m for m, each in self.reports.items() if each.revealed == NOTHING_REVEALED))

    def waiting_for(self) -> tuple[str, ...]:
        """Return the decryptors that have not reported."""
        return tuple(member for member in self.attempt.decryptors if member not in self.reports)

    def request_for(self, member: str) -> Message | None:
        """Return the request, until this decryptor has reported."""
        return ErasureRequest(self.attempt.context) if member in self.waiting_for() else None

    def _on_erased(self, report: Erased, _now_s: float) -> CoordinatorPhase:
        if report.member in self.reports:
            return self
        return self.note_answer(report, reports={**self.reports, report.member: report}).end_if_decided()

    def _on_vote(self, vote: Vote, _now_s: float) -> CoordinatorPhase:
        """Note a late first vote: survivors and VOID may both have been asked for, and a second vote contradicts it."""
        statements = self.setting.statements
        statements.check_outcome(self.attempt, vote)
        known = self.certificate is not None or vote.member in statements.votes
        return self if known else self.note_answer(vote)

    def end_if_decided(self) -> CoordinatorPhase:
        """Return the end if there are enough reports, or a certified attempt can no longer get enough; else this phase."""
        needed, silent = self.attempt.quorum.erasures_min, self.silent_decryptors
        if len(silent) >= needed:
            erasure = Erasure(self.attempt.context, tuple(self.reports[member] for member in silent))
            return VoidedByErasure(self.setting, None, erasure, self.fault)
        unknown = [member for member in self.waiting_for() if member not in self.revealed]
        if self.certificate is not None and len(silent) + len(unknown) < needed:
            return Failed(self.setting, None, self.certificate, self.fault, self.proofs)
        return self

    def _on_lost(self, lost: Lost, _now_s: float) -> CoordinatorPhase:
        self.attempt.check_lost(lost)
        return ClosedByAdmin(self.setting, None, lost, self.fault)

    def give_up(self, fault: PeerFault) -> CoordinatorPhase:
        """Close a certified attempt without a sum. Any other attempt keeps waiting: only decryptors or the admin can end it."""
        if self.certificate is None:
            return self
        return Failed(self.setting, None, self.certificate, fault, self.proofs)

    handlers: ClassVar = {Erased: _on_erased, Vote: _on_vote, Lost: _on_lost}


@dataclass(frozen=True, repr=False)
class Voiding(CoordinatorPhase):
    """Waits for a threshold of votes on VOID, until the terms' latest end. A decryptor that signed the survivors may not sign VOID."""

    name: ClassVar[str] = "voiding"
    late: ClassVar[tuple[type[Message], ...]] = (Receipt, Refusal)
    fault: PeerFault
    votes: dict[str, Vote] = field(default_factory=dict)

    @classmethod
    def begin(cls, setting: Setting, fault: PeerFault) -> "Voiding":
        """Ask for VOID."""
        asked = setting.statements.note_question(void_hash(setting.attempt.context, fault.cause.value))
        return cls(replace(setting, statements=asked), setting.attempt.terms.latest_end_s, fault)

    def waiting_for(self) -> tuple[str, ...]:
        """Return the decryptors that may still sign."""
        voted = self.setting.statements.votes
        return tuple(member for member in self.attempt.decryptors if member not in voted)

    def request_for(self, member: str) -> Message | None:
        """Return the request, until this decryptor has signed."""
        return self.request if member in self.waiting_for() else None

    @property
    def request(self) -> VoidRequest:
        """The request to sign VOID."""
        return VoidRequest(self.attempt.context, self.fault.cause.value)

    def _on_vote(self, vote: Vote, _now_s: float) -> CoordinatorPhase:
        statements, reason = self.setting.statements, self.fault.cause.value
        statements.check_outcome(self.attempt, vote)
        if vote.member in statements.votes:
            return self
        if vote.outcome != void_hash(self.attempt.context, reason):
            return self.note_answer(vote)  # on the survivors, and late
        phase = self.note_answer(vote, votes={**self.votes, vote.member: vote})
        if len(phase.votes) < self.attempt.quorum.threshold:
            return phase
        votes = tuple(phase.votes[member] for member in sorted(phase.votes))
        certificate = Certificate(self.attempt.context, (), reason, votes)
        return Voided(phase.setting.with_certificate(certificate), None, certificate, self.fault)

    def pass_latest_end(self) -> CoordinatorPhase:
        """Ask decryptors to erase, because votes are missing."""
        return Erasing(self.setting, None, self.fault)

    def give_up(self, fault: PeerFault) -> CoordinatorPhase:
        """Do nothing: the attempt is already being voided."""
        del fault
        return self

    handlers: ClassVar = {Vote: _on_vote}


def disclose_vectors(recovered: Recovered, chunks: Callable[[str, int], bytes]) -> Disclosure:
    """Disclose the vectors behind the sum of a count.

    It excludes evicted members; members must have seen `recovered.evictions` before. `chunks` returns a survivor's packed chunk by
    index.

    Raises:
        Misuse: the round is not a count; disclosing it would open every member's vector.
    """
    attempt = recovered.attempt
    if not attempt.spec.is_disclosed:
        raise Misuse("only a count is disclosed")
    entries = []
    for member in recovered.summed_members:
        upload, indices = recovered.uploads[member], range(attempt.chunk_count)
        committed, due = upload.commitments, due_secrets(attempt, member, recovered.summed_members)
        entries.append(
            Disclosed(
                header=upload.header,
                commitments=committed.commitments,
                path=committed.path,
                chunk_digests=tuple(upload.chunk_digest(index) for index in indices),
                chunks=tuple(chunks(member, index) for index in indices),
                seeds=tuple(
                    Seed(
                        each.index,
                        recovered.self_seeds[member]
                        if each.lost is None
                        else recovered.edge_seeds[member, each.lost],
                    )
                    for each in due
                ),
            )
        )
    return Disclosure(attempt.context, tuple(entries))
