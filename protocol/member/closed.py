"""M3 and M5: the attempt is over for this member; its keys have moved on (protocol §4.8)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, ClassVar

from protocol.attempt import Attempt
from protocol.codec import Many, Nested
from protocol.identity import SigningKey
from protocol.member.base import MemberPhase, PhaseKind, Step
from protocol.member.ready import Ready
from protocol.messages import Certificate, Message, Opening, Reveal, Survivor


class Closed(MemberPhase):
    """Holds what the member revealed and what it needs to verify the result, but no key of the closed attempt.

    Attributes:
        ready: where the next opening is taken.
        opening: the attempt that was closed.
        certificate: its outcome.
        own: this member as the certificate should name it, if it uploaded.
        reveals: its reveal, to be sent again as it is; none for VOID or where it opened no boxes.
    """

    kind: ClassVar[int] = PhaseKind.CLOSED

    ready: Annotated[Ready, Nested(Ready)]
    opening: Annotated[Opening, Nested(Opening)]
    certificate: Annotated[Certificate, Nested(Certificate)]
    own: Annotated[tuple[Survivor, ...], Many(Nested(Survivor), 1)]
    reveals: Annotated[tuple[Reveal, ...], Many(Nested(Reveal), 1)]

    @property
    def attempt(self) -> Attempt:
        """The attempt that was closed."""
        return Attempt(self.ready.roster, self.ready.manifest, self.opening)

    @property
    def counted(self) -> bool:
        """Whether this member's upload is in the certified sum."""
        return bool(self.own) and self.own[0] in self.certificate.survivors

    def lapse(self, now_s: float) -> MemberPhase:
        """After VOID the keys wait for a retry, and the reveal is sent again, no longer than to the terms' latest end."""
        following = self.opening.sequence + 1
        moved = self.ready.sequence == following
        if now_s < self.opening.terms.latest_end_s or (moved and not self.reveals):
            return self
        return replace(self, ready=self.ready if moved else self.ready.advanced(following, 0), reveals=())

    def outbox(self) -> tuple[Message, ...]:
        """The reveal, if there is one."""
        return self.reveals

    def handlers(self) -> dict[type[Message], Callable[..., Step]]:
        """The certificate again, and the next opening."""
        return {Certificate: self._again, Opening: self.ready.handlers()[Opening]}

    def _again(self, certificate: Certificate, _key: SigningKey, _now_s: float) -> Step:
        self.attempt.check_context(certificate.context, "coordinator")
        return self, self.reveals
