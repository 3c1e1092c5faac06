"""What the phases inside an attempt share: how it may end for a member (protocol §4.6, §4.7)."""

from collections.abc import Callable
from functools import cached_property
from typing import Annotated

from protocol.attempt import Attempt
from protocol.causes import Cause
from protocol.codec import Bytes, Many, Nested, SecretBytes, Struct
from protocol.errors import PeerFault
from protocol.identity import SigningKey
from protocol.member.base import MemberPhase, Step
from protocol.member.ready import Ready
from protocol.messages import (
    SHARE_BYTES,
    Certificate,
    Message,
    Opening,
    Reveal,
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
    """A dealer's shares for this decryptor: opened, and each true to its commitment."""

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
        """Roster, manifest and opening as one."""
        return Attempt(self.ready.roster, self.ready.manifest, self.opening)

    @property
    def member(self) -> str:
        """This member's id."""
        return self.ready.member

    @property
    def own(self) -> tuple[Survivor, ...]:
        """This member as a certificate names it, if it has uploaded."""
        return tuple(Survivor.of(upload.header) for upload in self.uploads)

    @property
    def contexts(self) -> tuple[bytes, ...]:
        """What the history must not omit: this attempt, if this member has uploaded to it."""
        return (self.attempt.context,) if self.uploads else ()

    def receive(self, message: Message, key: SigningKey, now_s: float) -> Step:
        """Answer as every phase does; after the terms' latest end only a certificate, and that without a reveal."""
        if self._over(now_s) and not isinstance(message, Certificate):
            raise PeerFault(
                Cause.TERMS_EXPIRED, "the terms' latest end has passed: nothing more is signed or opened"
            )
        return super().receive(message, key, now_s)

    def lapse(self, now_s: float) -> MemberPhase:
        """Erase the round's keys and shares once the terms' latest end has passed, certificate or not."""
        if not self._over(now_s):
            return self
        return self.ready.advanced(self.opening.sequence + 1, 0, self.contexts)

    def _over(self, now_s: float) -> bool:
        return now_s >= self.opening.terms.latest_end_s

    def handlers(self) -> dict[type[Message], Callable[..., Step]]:
        """In every phase of an attempt: a void request, and a certificate."""
        return {VoidRequest: self._void, Certificate: self._certificate}

    def vote(self, outcome: bytes, key: SigningKey) -> Step:
        """Store and sign one outcome; no other is ever signed in this context."""
        from protocol.member.voted import Voted  # noqa: PLC0415 - the phases form a cycle

        self.attempt.check_decryptor(self.member)
        vote = Vote.make(key, context=self.attempt.context, member=self.member, outcome=outcome)
        voted = Voted(self.ready, self.opening, self.uploads, self.own_shares, self.dealt(), vote)
        return voted, (vote,)

    def dealt(self) -> tuple[Dealt, ...]:
        """The other dealers' shares that this decryptor opened and checked."""
        return ()

    def _void(self, request: VoidRequest, key: SigningKey, _now_s: float) -> Step:
        self.attempt.check_context(request.context, "coordinator")
        return self.vote(void_hash(request.context, request.reason), key)

    def _certificate(self, certificate: Certificate, key: SigningKey, now_s: float) -> Step:
        from protocol.member.closed import Closed  # noqa: PLC0415 - the phases form a cycle

        self.attempt.check_certificate(certificate)
        named = tuple(s for s in certificate.survivors if s.member == self.member)
        if named and named != self.own:
            raise PeerFault(
                Cause.OWN_UPLOAD_CHANGED, "the certificate names another upload than this member's"
            )
        sequence, attempt = self.opening.place
        # The keys of a round serve its retries, and nothing after its last VOID or the terms' latest end.
        retry = certificate.void and attempt + 1 < MAX_ATTEMPTS and not self._over(now_s)
        place = (sequence, attempt + 1) if retry else (sequence + 1, 0)
        following = self.ready.advanced(*place, self.contexts, (self.attempt.link(certificate.hash),))
        reveals = () if certificate.void or self._over(now_s) else self._reveal(certificate, key)
        return Closed(following, self.opening, certificate, self.own, reveals), reveals

    def _reveal(self, certificate: Certificate, key: SigningKey) -> tuple[Reveal, ...]:
        """This decryptor's shares of b_u for u in S and of r_uw for w outside; none where it opened no boxes."""
        shares = {Survivor.of(upload.header): self.own_shares for upload in self.uploads}
        shares |= {dealt.survivor: dealt.shares for dealt in self.dealt()}
        if not self.dealt() or not set(certificate.survivors) <= set(shares):
            return ()
        # protocol §4.7: which share of each dealer is due follows from the certified set alone, never from a request.
        survivors = {survivor.member for survivor in certificate.survivors}
        revealed = bytearray()
        for survivor in certificate.survivors:
            held = shares[survivor]
            neighbours = self.attempt.neighbours(survivor.member)
            due = [0, *(1 + i for i, other in enumerate(neighbours) if other not in survivors)]
            for index in due:
                revealed += held[index * SHARE_BYTES : (index + 1) * SHARE_BYTES]
        reveal = Reveal.make(
            key,
            context=self.attempt.context,
            member=self.member,
            outcome=certificate.outcome,
            shares=SecretBytes(revealed),
        )
        return (reveal,)
