"""M0: a member has sent its card and waits for the other cards (protocol §4.2)."""

import os
from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

from veilsum.protocol.attempt import check_cards, check_manifest
from veilsum.protocol.causes import Cause
from veilsum.protocol.codec import Id, Secret, SecretBytes
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.keys import AgreementKey, PairKey
from veilsum.protocol.member.base import MemberPhase, Step
from veilsum.protocol.member.history import History
from veilsum.protocol.member.ready import Ready
from veilsum.protocol.messages import NO_CONTEXT, Cards, KeyCard, Message, Roster, Study, cohort_id
from veilsum.protocol.study import read_content
from veilsum.protocol.tags import Tag


class Enrolled(MemberPhase, kind=1):
    """Holds the X25519 private keys until the cards arrive and turn them into pair secrets."""

    member: Id
    roster: Roster
    study: Study
    card: KeyCard
    mask_private: Secret
    box_private: Secret
    history: History

    @classmethod
    def begin_enrolment(
        cls,
        member: str,
        roster: Roster,
        study: Study,
        key: SigningKey,
        *,
        counter: int,
        period: str,
        serial: int,
        repeats: bytes = NO_CONTEXT,
        history: History = History(),  # noqa: B008 - a frozen value
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> Step:
        """Draw the keys for a cohort and send the card, which expires with the study.

        Args:
            member: this member's id.
            roster: as accepted.
            study: as accepted.
            key: the member's identity.
            counter: the cohort's counter.
            period: the records that the run sums.
            serial: how many cards this key has ever signed, with this one.
            repeats: context of the attempt that the run repeats.
            history: the member's history from earlier cohorts of the federation.
            random_bytes: source of keys and nonce.

        Raises:
            PeerFault: unknown-member if the roster lists another key for this id.
        """
        if roster.key_of(member) != key.public:
            raise PeerFault(Cause.UNKNOWN_MEMBER, f"the roster lists another key for {member}", [member])
        mask_private, box_private = SecretBytes(random_bytes(32)), SecretBytes(random_bytes(32))
        card = KeyCard.make_signed(
            key,
            cohort=cohort_id(roster.hash, counter, study.hash, period, repeats),
            member=member,
            mask_key=AgreementKey(mask_private).public,
            box_key=AgreementKey(box_private).public,
            nonce=random_bytes(32),
            expires_s=read_content(study.content).notes.expires,
            serial=serial,
        )
        return cls(member, roster, study, card, mask_private, box_private, history), (card,)

    def with_history(self, history: History) -> "Enrolled":
        return replace(self, history=history)

    def messages_to_resend(self) -> tuple[Message, ...]:
        return (self.card,)

    def _on_cards(self, cards: Cards, _key: SigningKey, _now_s: float) -> Step:
        """Check the manifest, then the cards, then that no needed card is missing (protocol §4.2)."""
        manifest = cards.manifest
        if manifest.cohort != self.card.cohort:
            raise PeerFault(Cause.WRONG_COHORT, "the manifest is for another cohort than this member's card")
        finished = self.history.finished_of(manifest.repeats)
        # A member that was not in the repeated attempt has no records for its run.
        repeated = () if finished is None else finished.survivors
        check_manifest(self.roster, self.study, manifest, repeated)
        check_cards(self.roster, cards)
        # Otherwise a coordinator could send one victim different cards and unmask it without any colluder.
        if cards.by_member.get(self.member) != self.card:
            raise PeerFault(
                Cause.MANIFEST_MISMATCH, "the manifest does not hold this member's card as it was sent"
            )
        neighbours = manifest.graph.neighbours_of(self.member)
        peers = manifest.members if self.member in manifest.decryptors else manifest.decryptors
        masks = self._derive_pairs(Tag.PAIR_MASK, cards, neighbours)
        boxes = self._derive_pairs(Tag.PAIR_BOX, cards, tuple(peer for peer in peers if peer != self.member))
        expires_s = min(card.expires_s for card in cards.by_member.values())
        return (
            Ready(
                self.member, self.roster, self.study, manifest, expires_s, 0, 0, masks, boxes, self.history
            ),
            (),
        )

    def _derive_pairs(self, tag: Tag, cards: Cards, peers: tuple[str, ...]) -> tuple[PairKey, ...]:
        masks = tag is Tag.PAIR_MASK
        private = AgreementKey(self.mask_private if masks else self.box_private)
        pairs = []
        for peer in peers:
            card = cards.by_member.get(peer)
            if card is None:
                raise PeerFault(Cause.MANIFEST_MISMATCH, f"the card of {peer} is not shown", ["coordinator"])
            shared = private.agree_secret(card.mask_key if masks else card.box_key, peer)
            manifest = cards.manifest
            pairs.append(
                PairKey.from_shared_secret(tag, self.member, peer, shared, manifest.cohort, manifest.hash)
            )
        return tuple(pairs)

    handlers: ClassVar = {Cards: _on_cards}
