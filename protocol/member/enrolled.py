"""M0: a member has sent its card and waits for the manifest."""

import os
from collections.abc import Callable
from typing import Annotated, ClassVar

from protocol.attempt import check_manifest
from protocol.causes import Cause
from protocol.codec import Id, Nested, Secret, SecretBytes
from protocol.errors import PeerFault
from protocol.identity import SigningKey
from protocol.keys import AgreementKey, PairKeys
from protocol.member.base import MemberPhase, PhaseKind, Step
from protocol.member.ready import Ready
from protocol.messages import EMPTY_CHAIN, KeyCard, Manifest, Message, Roster


class Enrolled(MemberPhase):
    """Holds the X25519 private keys until the manifest turns them into pair secrets."""

    kind: ClassVar[int] = PhaseKind.ENROLLED

    member: Id
    roster: Annotated[Roster, Nested(Roster)]
    card: Annotated[KeyCard, Nested(KeyCard)]
    mask_private: Secret
    box_private: Secret

    @classmethod
    def start(
        cls,
        member: str,
        roster: Roster,
        cohort: bytes,
        key: SigningKey,
        *,
        expires_s: int,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> Step:
        """Draw the keys for a cohort; the effect is the card.

        Raises:
            PeerFault: unknown-member where the roster does not hold this identity under this id.
        """
        if roster.key_of(member) != key.public:
            raise PeerFault(Cause.UNKNOWN_MEMBER, f"the roster lists another key for {member}", [member])
        mask_private, box_private = SecretBytes(random_bytes(32)), SecretBytes(random_bytes(32))
        card = KeyCard.make(
            key,
            cohort=cohort,
            member=member,
            mask_key=AgreementKey(mask_private).public,
            box_key=AgreementKey(box_private).public,
            nonce=random_bytes(32),
            expires_s=expires_s,
        )
        return cls(member, roster, card, mask_private, box_private), (card,)

    def outbox(self) -> tuple[Message, ...]:
        """The card."""
        return (self.card,)

    def handlers(self) -> dict[type[Message], Callable[..., Step]]:
        """A manifest, and nothing else."""
        return {Manifest: self._manifest}

    def _manifest(self, manifest: Manifest, _key: SigningKey, _now_s: float) -> Step:
        # protocol §4.2: all of check_manifest, then that the own card stands in it unchanged. Otherwise a victim who
        # is shown other cards than the rest is opened without any colluder.
        check_manifest(self.roster, manifest)
        if manifest.cohort != self.card.cohort:
            raise PeerFault(Cause.WRONG_COHORT, "the manifest is for another cohort than this member's card")
        if self.card not in manifest.cards:
            raise PeerFault(
                Cause.MANIFEST_MISMATCH, "the manifest does not hold this member's card as it was sent"
            )
        mask, box = AgreementKey(self.mask_private), AgreementKey(self.box_private)
        pairs = tuple(
            PairKeys.establish(
                self.member,
                card.member,
                mask.agree(card.mask_key, card.member),
                box.agree(card.box_key, card.member),
                manifest.cohort,
                manifest.hash,
            )
            for card in manifest.cards
            if card.member != self.member
        )
        return Ready(self.member, self.roster, manifest, 0, 0, pairs, EMPTY_CHAIN, 0, ()), ()
