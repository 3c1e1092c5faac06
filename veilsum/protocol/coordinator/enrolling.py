"""M0: members enrol in a cohort with key cards, until the manifest closes it (protocol §4.2)."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property

from veilsum.protocol.attempt import ALL_CARDS_MAX, cohort_sizes
from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.keys import canonical_public, check_order
from veilsum.protocol.merkle import Tree
from veilsum.protocol.messages import (
    NO_CONTEXT,
    Cards,
    KeyCard,
    Manifest,
    Roster,
    Shown,
    Study,
    Survivor,
    cards_beacon,
    cards_tree,
    cohort_id,
)
from veilsum.protocol.study import Content, read_content


@dataclass(frozen=True)
class Enrolling:
    """Collects the key cards of one cohort.

    Attributes:
        counter: distinguishes the cohorts of a roster.
        repeated: the certified set of the repeated attempt; only its members may enrol. Empty for fresh records.
        repeats: the repeated attempt's context; `NO_CONTEXT` for fresh records.
    """

    roster: Roster
    study: Study
    counter: int
    period: str
    repeats: bytes = NO_CONTEXT
    repeated: tuple[Survivor, ...] = ()
    cards: dict[str, KeyCard] = field(default_factory=dict)
    taken: frozenset[bytes] = frozenset()

    @property
    def cohort(self) -> bytes:
        """Id of the cohort."""
        return cohort_id(self.roster.hash, self.counter, self.study.hash, self.period, self.repeats)

    @property
    def content(self) -> Content:
        return read_content(self.study.content)

    @property
    def invited_members(self) -> tuple[str, ...]:
        """Members that may enrol: the whole roster, or the repeated survivors."""
        if self.repeats == NO_CONTEXT:
            return tuple(entry.member for entry in self.roster.members)
        return tuple(survivor.member for survivor in self.repeated)

    @property
    def is_complete(self) -> bool:
        """Whether every invited member has sent its card."""
        return len(self.cards) == len(self.invited_members)

    def receive(self, card: KeyCard, now_s: float) -> "Enrolling":
        """Admit a card after the checks of protocol §4.2, in their order; repeating a card changes nothing."""
        member = card.member
        if card.cohort != self.cohort:
            raise PeerFault(Cause.WRONG_COHORT, f"{member}'s card is for another cohort", [member])
        card.verify(self.roster.key_of(member), member)
        if member not in self.invited_members:
            raise PeerFault(
                Cause.UNKNOWN_MEMBER, f"{member} was not in the attempt that the run repeats", [member]
            )
        expires_s = self.content.notes.expires
        if card.expires_s < expires_s or expires_s <= now_s:
            raise PeerFault(Cause.CARD_EXPIRED, f"{member}'s card expires before the study does", [member])
        if member in self.cards:
            if self.cards[member] != card:
                raise PeerFault(Cause.CARD_CONFLICT, f"{member} sent another card before", [member])
            return self
        for key in (card.mask_key, card.box_key):
            check_order(key, member)
        keys = (canonical_public(card.mask_key), canonical_public(card.box_key))
        if keys[0] == keys[1] or not self.taken.isdisjoint(keys):
            raise PeerFault(Cause.DUPLICATE, f"a key on {member}'s card is in use already", [member])
        return self.with_cards([card])

    def with_cards(self, cards: Iterable[KeyCard]) -> "Enrolling":
        """Add cards that have already been checked."""
        more = {card.member: card for card in cards}
        keys = (canonical_public(key) for card in more.values() for key in (card.mask_key, card.box_key))
        return replace(self, cards=self.cards | more, taken=self.taken.union(keys))

    def make_manifest(self) -> Manifest:
        """Close the cohort with the received cards. Raises PeerFault(cohort-too-small) if there are too few."""
        members = tuple(sorted(self.cards))
        repeats = self.repeats != NO_CONTEXT
        if repeats and not self.is_complete:
            missing = sorted({*self.invited_members} - {*members})
            raise PeerFault(
                Cause.COHORT_TOO_SMALL,
                f"a repeated run needs every member; {len(missing)} did not enrol",
                missing,
            )
        sizes = cohort_sizes(self.roster, self.content.question, members, repeats=repeats)
        root = self._card_tree.root
        return Manifest(
            cohort=self.cohort,
            roster_hash=self.roster.hash,
            counter=self.counter,
            study=self.study.hash,
            period=self.period,
            repeats=self.repeats,
            members=members,
            cards_root=root,
            decryptor_colluders=sizes.quorum.decryptor_colluders,
            survivors_min=sizes.quorum.survivors_min,
            threshold=sizes.quorum.threshold,
            degree=sizes.degree,
            window_dropped_max=sizes.window_dropped_max,
            decryptors=sizes.choose_decryptors(
                members, self.roster.decryptors, cards_beacon(self.cohort, root)
            ),
        )

    @cached_property
    def _card_tree(self) -> Tree:
        return cards_tree(self.cards[member] for member in sorted(self.cards))

    def cards_for(self, manifest: Manifest, member: str) -> Cards:
        """Return the manifest with all cards, or in a large cohort with the cards that `member` needs and their paths."""
        wanted = manifest.members
        if not needs_all(manifest, member):
            needed = {member, *manifest.graph.neighbours_of(member), *manifest.decryptors}
            wanted = tuple(sorted(needed))
        whole = len(wanted) == len(manifest.members)
        return Cards(
            manifest,
            tuple(
                Shown(
                    self.cards[other],
                    () if whole else tuple(self._card_tree.path_to(manifest.member_places[other])),
                )
                for other in wanted
            ),
        )


def needs_all(manifest: Manifest, member: str) -> bool:
    """Whether a member receives all cards of its cohort: every member of a small cohort does, and every decryptor."""
    return len(manifest.members) <= ALL_CARDS_MAX or member in manifest.decryptors
