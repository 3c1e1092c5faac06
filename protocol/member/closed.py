"""M3 and M5: the attempt is over for this member; its keys have moved on (protocol §4.7, §4.8)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, ClassVar

from protocol.attempt import Attempt, Closing
from protocol.causes import Cause
from protocol.codec import Digest, Many, Nested, SecretBytes
from protocol.due import due_secrets, shares_due
from protocol.errors import PeerFault
from protocol.evicting import check_proof
from protocol.identity import SigningKey
from protocol.member.attempting import Dealt
from protocol.member.base import MemberPhase, PhaseKind, Step
from protocol.member.history import Counted, History
from protocol.member.ready import Ready
from protocol.messages import (
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
from protocol.messages.base import MAX_MEMBERS
from protocol.recount import recount


class Closed(MemberPhase):
    """Holds what the member revealed and what it needs to verify the result, but no key of the closed attempt.

    Attributes:
        ready: where the next opening is taken.
        opening: the attempt that was closed.
        certificate: its outcome.
        own: this member as the certificate should name it, if it uploaded.
        held: its shares of the survivors' secrets, for as long as a dealer may still be evicted.
        evicted: dealers proved false to it.
        reveals: its last reveal, to be sent again as it is; none for VOID or where it opened no boxes.
        revealed: the outcome that it ever made a reveal for, also once shares and reveal are erased; zero for none.
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
        """The attempt that was closed."""
        return Attempt(self.ready.roster, self.ready.study, self.ready.manifest, self.opening)

    @property
    def member(self) -> str:
        """This member's id."""
        return self.ready.member

    @property
    def history(self) -> History:
        """What this member knows of the federation's rounds."""
        return self.ready.history

    @property
    def staying(self) -> tuple[Survivor, ...]:
        """S∖E: the certified survivors without the dealers that proved false."""
        evicted = set(self.evicted)
        return tuple(s for s in self.certificate.survivors if s not in evicted)

    @property
    def counted(self) -> bool:
        """Whether this member's upload is in the certified sum."""
        return bool(self.own) and self.own[0] in self.certificate.survivors

    def knowing(self, history: History) -> "Closed":
        """The same with what it learned in other cohorts of the federation since."""
        return replace(self, ready=self.ready.knowing(history))

    def revealing(self, key: SigningKey) -> "Closed":
        """The same with this decryptor's shares of what the certified set, less the evicted, needs (protocol §4.7).

        Which shares are due follows from certificate and proofs alone, never from a request.
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
        """Answer as every phase does; after the terms' latest end nothing is revealed, nor revealed again."""
        return super(Closed, self.lapse(now_s)).receive(message, key, now_s)

    def lapse(self, now_s: float) -> "Closed":
        """After the terms' latest end no key waits for a retry, and nothing is revealed again."""
        following = self.opening.sequence + 1
        if not self._over(now_s):
            return self
        moved = self.ready.sequence == following
        ready = self.ready if moved else self.ready.advanced(following, 0, self.history)
        return replace(self, ready=ready).settled()

    def _over(self, now_s: float) -> bool:
        return now_s >= self.opening.terms.latest_end_s

    def settled(self) -> "Closed":
        """The result is out, or can't be had: the shares are erased."""
        return replace(self, held=(), reveals=()) if self.held or self.reveals else self

    def outbox(self) -> tuple[Message, ...]:
        """The reveal, if there is one."""
        return self.reveals

    def handlers(self) -> dict[type[Message], Callable[..., Step]]:
        """The certificate again, evictions, an indicator's disclosure; and what is taken between rounds."""
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
        # What takes the place of this attempt's certificate leaves nothing of it.
        own = document.context == self.attempt.context
        return (self.ready if own else self).knowing(history), ()

    def _erase(self, request: ErasureRequest, key: SigningKey, now_s: float) -> Step:
        """Tell what was revealed; `receive` has erased the rest."""
        self.attempt.check_context(request.context, "coordinator")
        self.attempt.check_decryptor(self.member)
        if not self._over(now_s):
            raise PeerFault(
                Cause.WRONG_PHASE, "nothing is erased before the terms' latest end", ["coordinator"]
            )
        report = Erased.make(key, context=request.context, member=self.member, revealed=self.revealed)
        return self, (report,)

    def _evictions(self, message: Evictions, key: SigningKey, _now_s: float) -> Step:
        """Take proofs that dealers are false, in this order, and reveal again as if they were lost.

        1. the context is this attempt's; 2. each proof holds (`check_proof`); 3. no dealer that was evicted is let
        back in, and no more than a are evicted (eviction-invalid).
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
        """Recount an indicator for oneself (protocol §8.2)."""
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
