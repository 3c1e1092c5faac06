"""The card is out: a helper waits for the one opening that its box key will serve (helpers H4)."""

from collections.abc import Callable
from typing import Annotated, ClassVar

from protocol.causes import Cause
from protocol.codec import Nested, Secret
from protocol.errors import PeerFault
from protocol.helpers.attempt import HelperAttempt
from protocol.helpers.helper.base import HelperPhase, HelperPhaseKind, Step
from protocol.helpers.helper.opened import Opened
from protocol.helpers.helper.standing import Standing
from protocol.helpers.messages import HelperCard, HelperCertificate, HelperLost, HelperOpening
from protocol.identity import SigningKey
from protocol.messages.base import Message


class Enrolled(HelperPhase):
    """Holds a fresh box key."""

    kind: ClassVar[int] = HelperPhaseKind.ENROLLED

    standing: Annotated[Standing, Nested(Standing)]
    card: Annotated[HelperCard, Nested(HelperCard)]
    private: Secret

    def outbox(self) -> tuple[Message, ...]:
        """The card."""
        return (self.card,)

    def lapse(self, now_s: float) -> HelperPhase:
        """Without the box key once the card has expired."""
        return self.standing if now_s >= self.card.expires_s else self

    def handlers(self) -> dict[type[Message], Callable[..., Step]]:
        """An opening; the end of an attempt that ran without this helper takes it back to where it stood."""
        return {
            HelperOpening: self._opening,
            HelperCertificate: self._ended,
            HelperLost: self._ended,
        }

    def _ended(self, closing: Message, key: SigningKey, now_s: float) -> Step:
        # An end that is known already is news of nothing: it costs no box key.
        standing, _ = self.standing.receive(closing, key, now_s)
        return (self if standing is self.standing else standing), ()

    def _opening(self, opening: HelperOpening, _key: SigningKey, now_s: float) -> Step:
        """Check an opening, in this order, then hold on to its context.

        1. it passes `HelperAttempt.check`;
        2. this helper's card stands in it as it was sent (manifest-mismatch): a card binds roster and counter;
        3. it goes on from the history that this helper knows (chain-broken).
        """
        HelperAttempt(self.standing.roster, opening).check(now_s)
        if self.card not in opening.manifest.cards:
            raise PeerFault(Cause.MANIFEST_MISMATCH, f"the manifest does not show {self.card.member}'s card")
        if opening.chain != self.standing.chain:
            raise PeerFault(Cause.CHAIN_BROKEN, "the opening goes on from another history", ["coordinator"])
        return Opened(self.standing, opening, self.private), ()
