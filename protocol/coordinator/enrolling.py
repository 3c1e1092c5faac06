"""M0: a cohort's cards come in until the manifest is made (protocol §4.2)."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property

from protocol.attempt import ALL_CARDS_MAX, cohort_sizes, colluders_assumed
from protocol.causes import Cause
from protocol.errors import PeerFault
from protocol.keys import canonical, check_order
from protocol.merkle import Tree
from protocol.messages import Cards, KeyCard, Manifest, Roster, Shown, cards_beacon, cards_tree, cohort_id
from protocol.parameters import HONEST_MIN

CARD_LIFE_MIN_S = 86_400
"""A card that expires sooner would spoil the cohort for all."""
LOSS_DEFAULT = 100
"""Members in a thousand who may vanish."""


@dataclass(frozen=True)
class Enrolling:
    """Collects key cards of one cohort.

    Attributes:
        roster: who may send one.
        counter: tells this cohort of the roster from others.
        colluders: `a`; None for a quarter of the roster.
        honest_min: `h_min`.
        cap: most records each member may contribute to a round.
        loss: members in a thousand who may vanish.
        cards: by member.
        taken: their keys, each in its one encoding.
    """

    roster: Roster
    counter: int
    cap: int
    colluders: int | None = None
    honest_min: int = HONEST_MIN
    loss: int = LOSS_DEFAULT
    cards: dict[str, KeyCard] = field(default_factory=dict)
    taken: frozenset[bytes] = frozenset()

    @property
    def cohort(self) -> bytes:
        """The cohort's id."""
        return cohort_id(self.roster.hash, self.counter)

    @property
    def complete(self) -> bool:
        """Whether every member of the roster has sent its card."""
        return len(self.cards) == len(self.roster.members)

    def receive(self, card: KeyCard, now_s: float) -> "Enrolling":
        """Admit a card, checked in this order; the same card again changes nothing.

        1. it is for this cohort (wrong-cohort), of a member (unknown-member), signed by it (bad-signature);
        2. it is valid for another day at least (card-expired);
        3. it is the member's first (card-conflict);
        4. neither key is of low order (low-order-point) or stands on another card, or twice, however it is
           encoded (duplicate).
        """
        member = card.member
        if card.cohort != self.cohort:
            raise PeerFault(Cause.WRONG_COHORT, f"{member}'s card is for another cohort", [member])
        card.verify(self.roster.key_of(member), member)
        if card.expires_s < now_s + CARD_LIFE_MIN_S:
            raise PeerFault(Cause.CARD_EXPIRED, f"{member}'s card is valid for less than a day", [member])
        if member in self.cards:
            if self.cards[member] != card:
                raise PeerFault(Cause.CARD_CONFLICT, f"{member} sent another card before", [member])
            return self
        for key in (card.mask_key, card.box_key):
            check_order(key, member)
        keys = (canonical(card.mask_key), canonical(card.box_key))
        if keys[0] == keys[1] or not self.taken.isdisjoint(keys):
            raise PeerFault(Cause.DUPLICATE, f"a key on {member}'s card is in use already", [member])
        return self.with_cards([card])

    def with_cards(self, cards: Iterable[KeyCard]) -> "Enrolling":
        """With cards that were checked when they came."""
        more = {card.member: card for card in cards}
        keys = (canonical(key) for card in more.values() for key in (card.mask_key, card.box_key))
        return replace(self, cards=self.cards | more, taken=self.taken.union(keys))

    def manifest(self) -> Manifest:
        """Close the cohort with the cards that came; PeerFault(cohort-too-small) where they are too few."""
        members = tuple(sorted(self.cards))
        colluders = colluders_assumed(self.roster) if self.colluders is None else self.colluders
        sizes = cohort_sizes(
            self.roster, members, colluders=colluders, honest_min=self.honest_min, loss=self.loss
        )
        root = self._tree.root
        beacon = cards_beacon(self.cohort, root)
        return Manifest(
            cohort=self.cohort,
            roster_hash=self.roster.hash,
            counter=self.counter,
            members=members,
            cards_root=root,
            colluders=sizes.quorum.colluders,
            decryptor_colluders=sizes.quorum.decryptor_colluders,
            honest_min=sizes.quorum.honest_min,
            survivors_min=sizes.quorum.survivors_min,
            threshold=sizes.quorum.threshold,
            degree=sizes.degree,
            window_dropped_max=sizes.window_dropped_max,
            loss=self.loss,
            decryptors=sizes.decryptors(members, self.roster.decryptors, beacon),
            caps=(self.cap,) * len(members),
        )

    @cached_property
    def _tree(self) -> Tree:
        return cards_tree(self.cards[member] for member in sorted(self.cards))

    def cards_for(self, manifest: Manifest, member: str) -> Cards:
        """The manifest with the cards that `member` needs: all of them, or in a large cohort those with their paths."""
        wanted = manifest.members
        if len(wanted) > ALL_CARDS_MAX and member not in manifest.decryptors:
            needed = {member, *manifest.graph.neighbours(member), *manifest.decryptors}
            wanted = tuple(sorted(needed))
        whole = len(wanted) == len(manifest.members)
        return Cards(
            manifest,
            tuple(
                Shown(self.cards[other], () if whole else tuple(self._tree.path(manifest.place[other])))
                for other in wanted
            ),
        )
