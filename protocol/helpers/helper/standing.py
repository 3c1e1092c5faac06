"""Between attempts: a helper knows how every earlier one has ended (helpers H9)."""

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, ClassVar

from protocol.causes import Cause
from protocol.codec import Digest, Id, Many, Nested, SecretBytes
from protocol.errors import PeerFault
from protocol.helpers.attempt import check_votes
from protocol.helpers.helper.base import HelperPhase, HelperPhaseKind, Step
from protocol.helpers.messages import Ended, HelperCard, HelperCertificate, HelperLost, HelperSums, opened_in
from protocol.identity import SigningKey
from protocol.keys import AgreementKey
from protocol.ledger import Opened
from protocol.messages.base import Message
from protocol.messages.opening import EMPTY_CHAIN, MAX_LINKS
from protocol.messages.roster import Roster, cohort_id


class Standing(HelperPhase):
    """Holds no secret.

    Attributes:
        history: how each attempt of the federation has ended, oldest first.
        chain: fold of the history; every opening must carry it.
        sums: what it returned for the last attempt, to be sent again as it is.
    """

    kind: ClassVar[int] = HelperPhaseKind.STANDING

    member: Id
    roster: Annotated[Roster, Nested(Roster)]
    history: Annotated[tuple[Ended, ...], Many(Nested(Ended), MAX_LINKS)]
    chain: Digest
    sums: Annotated[tuple[HelperSums, ...], Many(Nested(HelperSums), 1)]

    @classmethod
    def start(cls, member: str, federation: bytes, roster: Roster) -> "Standing":
        """A new helper under the admin's key that it pins; raises as `trust`."""
        cls._check_roster(member, federation, roster, version_seen=0)
        return cls(member, roster, (), EMPTY_CHAIN, ())

    def trust(self, roster: Roster) -> "Standing":
        """Go on under the admin's next roster.

        Raises:
            PeerFault: wrong-federation, bad-signature, roster-rollback; not-a-decryptor where it does not name this helper.
        """
        self._check_roster(
            self.member, self.roster.federation, roster, version_seen=self.roster.version_number
        )
        return replace(self, roster=roster)

    @staticmethod
    def _check_roster(member: str, federation: bytes, roster: Roster, *, version_seen: int) -> None:
        roster.verify_admin(federation, version_seen=version_seen)
        if member not in roster.helpers:
            raise PeerFault(Cause.NOT_A_DECRYPTOR, f"the roster does not name {member} a helper", [member])

    def enrol(
        self, key: SigningKey, *, expires_s: int, random_bytes: Callable[[int], bytes] = os.urandom
    ) -> Step:
        """Draw the box key of the next attempt; the effect is its card.

        Args:
            key: the helper's identity.
            expires_s: Unix time in seconds after which no client may seal to it.
            random_bytes: the operating system's, but in simulations.
        """
        from protocol.helpers.helper.enrolled import Enrolled  # noqa: PLC0415 - the phases form a cycle

        private = SecretBytes(random_bytes(32))
        card = HelperCard.make(
            key,
            cohort=cohort_id(self.roster.hash, len(self.history)),
            member=self.member,
            box_key=AgreementKey(private).public,
            expires_s=expires_s,
        )
        return Enrolled(replace(self, sums=()), card, private), (card,)

    def opened(self) -> tuple[Opened, ...]:
        """Every set opened before, as the ledger reads it."""
        return opened_in(self.history)

    def after(self, ended: Ended) -> "Standing":
        """The helper once an attempt has ended so."""
        return replace(self, history=(*self.history, ended), chain=ended.extend(self.chain), sums=())

    def outbox(self) -> tuple[Message, ...]:
        """The sums, if there are any."""
        return self.sums

    def handlers(self) -> dict[type[Message], Callable[..., Step]]:
        """How an attempt that it missed has ended; again, for the last one, it is answered by the sums."""
        return {HelperCertificate: self._certificate, HelperLost: self._lost}

    def _certificate(self, certificate: HelperCertificate, _key: SigningKey, _now_s: float) -> Step:
        return self._learn(
            certificate.ended,
            lambda: check_votes(self.roster, certificate.context, certificate.outcome, certificate.votes),
        )

    def _lost(self, lost: HelperLost, _key: SigningKey, _now_s: float) -> Step:
        return self._learn(lost.ended, lambda: lost.verify(self.roster.federation, "admin"))

    def _learn(self, ended: Ended, check: Callable[[], None]) -> Step:
        known = [earlier for earlier in self.history if earlier.context == ended.context]
        if not known:
            check()
            return self.after(ended), ()
        if known != [ended]:
            raise PeerFault(Cause.CHAIN_BROKEN, "this helper knows another end of that attempt")
        return self, tuple(sums for sums in self.sums if sums.context == ended.context)
