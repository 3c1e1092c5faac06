"""What the phases inside an attempt share: how it may end for a member (protocol §4.6, §4.7, §4.9)."""

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Annotated, Self

from protocol.attempt import Attempt
from protocol.causes import Cause
from protocol.codec import Bytes, Many, Nested, Struct
from protocol.errors import PeerFault
from protocol.identity import SigningKey
from protocol.member.base import MemberPhase, Step
from protocol.member.history import History
from protocol.member.ready import Ready
from protocol.messages import (
    NOTHING_REVEALED,
    SHARE_BYTES,
    Certificate,
    Erasure,
    ErasureRequest,
    Lost,
    Message,
    Opening,
    Survivor,
    Upload,
    VoidRequest,
    Vote,
    void_hash,
)
from protocol.messages.base import MAX_MEMBERS
from protocol.messages.opening import MAX_ATTEMPTS

Shares = Annotated[bytes, Bytes(SHARE_BYTES * MAX_MEMBERS, secret=True)]


class Dealt(Struct):
    """A dealer's shares for this decryptor, each true to its commitment."""

    survivor: Annotated[Survivor, Nested(Survivor)]
    shares: Shares

    @property
    def member(self) -> str:
        """The dealer."""
        return self.survivor.member


class Attempting(MemberPhase):
    """A member inside an attempt.

    Attributes:
        ready: where the member returns to when the attempt ends; holds the keys.
        opening: fixes the attempt.
        uploads: this member's upload once it is made, at most one, to be sent again as it is.
        own_shares: its own shares of its own seeds, where it is a decryptor.
    """

    ready: Annotated[Ready, Nested(Ready)]
    opening: Annotated[Opening, Nested(Opening)]
    uploads: Annotated[tuple[Upload, ...], Many(Nested(Upload), 1)]
    own_shares: Shares

    @cached_property
    def attempt(self) -> Attempt:
        """Roster, study, manifest and opening as one."""
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
    def own(self) -> tuple[Survivor, ...]:
        """This member as a certificate names it, if it has uploaded."""
        return tuple(Survivor.of(upload.header) for upload in self.uploads)

    def held(self) -> tuple[Dealt, ...]:
        """The shares that this decryptor has vouched for, in order of dealer; none before its receipt."""
        return ()

    def receive(self, message: Message, key: SigningKey, now_s: float) -> Step:
        """Answer as every phase does; after the terms' latest end it only hears how it ended, and erases."""
        if self._over(now_s) and not isinstance(message, Certificate | Erasure | Lost | ErasureRequest):
            raise PeerFault(
                Cause.TERMS_EXPIRED, "the terms' latest end has passed: nothing more is signed or opened"
            )
        return super().receive(message, key, now_s)

    def lapse(self, now_s: float) -> Self | Ready:
        """Erase the round's keys and shares once the terms' latest end has passed: nothing was revealed in it, nor ever is."""
        if not self._over(now_s):
            return self
        return self.ready.erased(self.attempt, self.history)

    def knowing(self, history: History) -> Self:
        """The same with what it learned in other cohorts of the federation since."""
        return replace(self, ready=self.ready.knowing(history))

    def _over(self, now_s: float) -> bool:
        return now_s >= self.opening.terms.latest_end_s

    def handlers(self) -> dict[type[Message], Callable[..., Step]]:
        """In every phase of an attempt: its opening again, a void request, an erasure request, and how it ended."""
        return {
            Opening: self._opened_again,
            VoidRequest: self._void,
            ErasureRequest: self._erase,
            Certificate: self._certificate,
            Erasure: self._without_sum,
            Lost: self._without_sum,
        }

    def _opened_again(self, opening: Opening, _key: SigningKey, _now_s: float) -> Step:
        """Answer the same opening by what was sent last, if anything was."""
        # One opening for each place, ever: another one for it has another context.
        if opening != self.opening:
            raise PeerFault(
                Cause.WRONG_SEQUENCE,
                "another attempt is open, and no certificate has ended it",
                ["coordinator"],
            )
        return self, self.outbox()

    def vote(self, outcome: bytes, key: SigningKey) -> Step:
        """Store and sign one outcome; no other is ever signed in this context."""
        from protocol.member.voted import Voted  # noqa: PLC0415 - the phases form a cycle

        self.attempt.check_decryptor(self.member)
        vote = Vote.make(key, context=self.attempt.context, member=self.member, outcome=outcome)
        ready = self.ready.knowing(self.history.entered(self.attempt))
        attempting = (ready, self.opening, self.uploads, self.own_shares)
        return Voted(*attempting, self.held(), self._refused(), vote), (vote,)

    def _refused(self) -> tuple[Survivor, ...]:
        return ()

    def _void(self, request: VoidRequest, key: SigningKey, _now_s: float) -> Step:
        self.attempt.check_context(request.context, "coordinator")
        return self.vote(void_hash(request.context, request.reason), key)

    def _erase(self, request: ErasureRequest, key: SigningKey, now_s: float) -> Step:
        self.attempt.check_context(request.context, "coordinator")
        self.attempt.check_decryptor(self.member)
        if not self._over(now_s):
            raise PeerFault(
                Cause.WRONG_PHASE, "nothing is erased before the terms' latest end", ["coordinator"]
            )
        return self.lapse(now_s).receive(request, key, now_s)

    def _without_sum(self, document: Erasure | Lost, _key: SigningKey, now_s: float) -> Step:
        history = self.history.closed(self.attempt, document, now_s)
        return self.ready.advanced(self.opening.sequence + 1, 0, history), ()

    def _certificate(self, certificate: Certificate, key: SigningKey, now_s: float) -> Step:
        from protocol.member.closed import Closed  # noqa: PLC0415 - the phases form a cycle

        history = self.history.closed(self.attempt, certificate, now_s)
        named = tuple(s for s in certificate.survivors if s.member == self.member)
        if named and named != self.own:
            raise PeerFault(
                Cause.OWN_UPLOAD_CHANGED, "the certificate names another upload than this member's"
            )
        sequence, attempt = self.opening.place
        # The keys of a round serve its retries, and nothing after its last VOID or the terms' latest end.
        keyed = self.ready.sequence == sequence
        retry = certificate.void and attempt + 1 < MAX_ATTEMPTS and keyed and not self._over(now_s)
        place = (sequence, attempt + 1) if retry else (sequence + 1, 0)
        open_ = not certificate.void and not self._over(now_s)
        closed = Closed(
            self.ready.advanced(*place, history),
            self.opening,
            certificate,
            self.own,
            self._shares(certificate) if open_ else (),
            (),
            (),
            NOTHING_REVEALED,
        )
        closed = closed.revealing(key)
        return closed, closed.reveals

    def _shares(self, certificate: Certificate) -> tuple[Dealt, ...]:
        """What this decryptor holds of the certified survivors: its own shares too, if it has sent a receipt."""
        held = self.held()
        if held or self._refused():
            held = tuple(sorted((*held, *(Dealt(own, self.own_shares) for own in self.own)), key=_by_member))
        certified = set(certificate.survivors) if held else ()
        return tuple(dealt for dealt in held if dealt.survivor in certified)


def _by_member(dealt: Dealt) -> str:
    return dealt.member
