"""M3 and M5: the attempt is over for this member and its keys have advanced (protocol §4.7, §4.8)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, ClassVar

from veilsum.protocol.attempt import Attempt, Closing
from veilsum.protocol.causes import Cause
from veilsum.protocol.codec import Digest, Many, Nested, SecretBytes
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.evidence import check_proof
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.member.attempting import Dealt
from veilsum.protocol.member.base import MemberPhase, PhaseKind, Step
from veilsum.protocol.member.history import Counted, History
from veilsum.protocol.member.ready import Ready
from veilsum.protocol.messages import (
    Certificate,
    Disclosure,
    Erased,
    Erasure,
    ErasureRequest,
    Evictions,
    Lost,
    Message,
    Opening,
    Reveal,
    Survivor,
)
from veilsum.protocol.messages.base import MAX_MEMBERS
from veilsum.protocol.recount import recount
from veilsum.protocol.reveal_plan import due_secrets, shares_due


class Closed(MemberPhase):
    """A closed attempt: its reveals and the data to verify the result, but none of its keys.

    Attributes:
        ready: the phase that accepts the next opening.
        opening: the closed attempt's opening.
        certificate: the attempt's outcome.
        own: this member as the certificate should name it, if it uploaded.
        held: shares of the survivors' secrets, kept while a dealer may still be evicted.
        evicted: dealers proved false to this member.
        reveals: its last reveal, kept for retransmission; empty for VOID or without opened boxes.
        revealed: the outcome of its reveal, kept after shares and reveal are erased; zero for none.
    """

    kind: ClassVar[int] = PhaseKind.CLOSED

    ready: Annotated[Ready, Nested(Ready)]
    opening: Annotated[Opening, Nested(Opening)]
    certificate: Annotated[Certificate, Nested(Certificate)]
    own: Annotated[tuple[Survivor, ...], Many(Nested(Survivor), 1)]
    held: Annotated[tuple[Dealt, ...], Many(Nested(Dealt), MAX_MEMBERS, ascending=True)]
    evicted: Annotated[tuple[Survivor, ...], Many(Nested(Survivor), MAX_MEMBERS, ascending=True)]
    reveals: Annotated[tuple[Reveal, ...], Many(Nested(Reveal), 1)]
    revealed: Digest

    @property
    def attempt(self) -> Attempt:
        """The closed attempt's public state."""
        return Attempt(self.ready.roster, self.ready.study, self.ready.manifest, self.opening)

    @property
    def member(self) -> str:
        """This member's id."""
        return self.ready.member

    @property
    def history(self) -> History:
        """This member's history of the federation's rounds."""
        return self.ready.history

    @property
    def staying(self) -> tuple[Survivor, ...]:
        """S∖E: the certified survivors less the evicted dealers."""
        evicted = set(self.evicted)
        return tuple(s for s in self.certificate.survivors if s not in evicted)

    @property
    def counted(self) -> bool:
        """Whether this member's upload is in the certified sum."""
        return bool(self.own) and self.own[0] in self.certificate.survivors

    def knowing(self, history: History) -> "Closed":
        """Return this phase with a newer history."""
        return replace(self, ready=self.ready.knowing(history))

    def revealing(self, key: SigningKey) -> "Closed":
        """Add the reveal of this decryptor's shares for the certified set less the evicted (protocol §4.7).

        Certificate and proofs alone determine the shares due, never a request.
        """
        if not self.held:
            return self
        attempt = self.attempt
        staying = {survivor.member for survivor in self.staying}
        reveal = Reveal.make(
            key,
            context=attempt.context,
            member=self.member,
            outcome=self.certificate.outcome,
            evicted=tuple(dealer.member for dealer in self.evicted),
            runs=tuple(
                SecretBytes(shares_due(dealt.shares, due_secrets(attempt, dealt.member, staying)))
                for dealt in self.held
                if dealt.member in staying
            ),
        )
        return replace(self, reveals=(reveal,), revealed=reveal.outcome)

    def receive(self, message: Message, key: SigningKey, now_s: float) -> Step:
        """Answer a message; reveal nothing after the terms' latest end."""
        return super(Closed, self.lapse(now_s)).receive(message, key, now_s)

    def lapse(self, now_s: float) -> "Closed":
        """After the terms' latest end, erase the keys kept for a retry and the reveal."""
        following = self.opening.sequence + 1
        if not self._over(now_s):
            return self
        moved = self.ready.sequence == following
        ready = self.ready if moved else self.ready.advanced(following, 0, self.history)
        return replace(self, ready=ready).settled()

    def _over(self, now_s: float) -> bool:
        return now_s >= self.opening.terms.latest_end_s

    def settled(self) -> "Closed":
        """Erase the shares once the result is out or cannot come."""
        return replace(self, held=(), reveals=()) if self.held or self.reveals else self

    def outbox(self) -> tuple[Message, ...]:
        """The reveal, if any."""
        return self.reveals

    def handlers(self) -> dict[type[Message], Callable[..., Step]]:
        """Accept a repeated certificate, evictions, an indicator's disclosure, and the messages of Ready."""
        return {
            **self.ready.handlers(),
            Certificate: self._certificate,
            Erasure: self._settle,
            Lost: self._settle,
            ErasureRequest: self._erase,
            Evictions: self._evictions,
            Disclosure: self._disclosure,
        }

    def _certificate(self, certificate: Certificate, key: SigningKey, now_s: float) -> Step:
        if certificate.context == self.attempt.context:
            return self, self.reveals
        return self._settle(certificate, key, now_s)

    def _settle(self, document: Closing, _key: SigningKey, now_s: float) -> Step:
        history = self.history.settle(document, now_s)
        # A document that replaces this attempt's certificate also ends this phase.
        own = document.context == self.attempt.context
        return (self.ready if own else self).knowing(history), ()

    def _erase(self, request: ErasureRequest, key: SigningKey, now_s: float) -> Step:
        """Report the revealed outcome; `receive` has already erased the secrets."""
        self.attempt.check_context(request.context, "coordinator")
        self.attempt.check_decryptor(self.member)
        if not self._over(now_s):
            raise PeerFault(
                Cause.WRONG_PHASE, "nothing is erased before the terms' latest end", ["coordinator"]
            )
        report = Erased.make(key, context=request.context, member=self.member, revealed=self.revealed)
        return self, (report,)

    def _evictions(self, message: Evictions, key: SigningKey, _now_s: float) -> Step:
        """Check proofs that dealers are false, in this order, and reveal again with those dealers as dropouts.

        1. the context is this attempt's; 2. each proof holds (`check_proof`); 3. no evicted dealer is readmitted, and at most
        `a` are evicted (eviction-invalid).
        """
        attempt = self.attempt
        attempt.check_context(message.context, "coordinator")
        for proof in message.proofs:
            check_proof(attempt, self.certificate, proof)
        evicted = tuple(Survivor.of(proof.header) for proof in message.proofs)
        most = attempt.quorum.colluders
        if not set(self.evicted) <= set(evicted) or len(evicted) > most:
            raise PeerFault(
                Cause.EVICTION_INVALID,
                f"{len(evicted)} dealers evicted after {len(self.evicted)}, at most {most} may be",
                ["coordinator"],
            )
        if evicted == self.evicted:
            return self, self.reveals
        closed = replace(self, evicted=evicted).revealing(key)
        return closed, closed.reveals

    def _disclosure(self, message: Disclosure, _key: SigningKey, _now_s: float) -> Step:
        """Recount an indicator from its disclosure (protocol §8.2)."""
        if not self.attempt.spec.indicator or self.certificate.void:
            raise PeerFault(Cause.WRONG_PHASE, "only a certified indicator is recounted")
        holders = recount(self.attempt, self.staying, message)
        if (holders < 0).any() or (holders > len(self.staying)).any():
            raise PeerFault(Cause.DISCLOSURE_INVALID, "a class has fewer holders than none, or more than all")
        counted = Counted(
            self.attempt.context,
            tuple(int(count) for count in holders),
            self.staying,
            tuple(dealer.member for dealer in self.evicted),
        )
        return self.knowing(self.history.with_count(counted)), ()
