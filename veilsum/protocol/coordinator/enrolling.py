"""M0: members enrol in a cohort with key cards, until the manifest closes it (wire: Cohorts)."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property

from veilsum.protocol.attempt import ALL_CARDS_MAX, cohort_sizes
from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.keys import canonical_public, check_mlkem_key, check_order, hash_mlkem_key
from veilsum.protocol.merkle import Tree
from veilsum.protocol.messages import (
    NO_CONTEXT,
    Cards,
    Enrolment,
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
from veilsum.protocol.pairing import peers_of, recipients_of
from veilsum.protocol.study import Content, read_content


@dataclass(frozen=True)
class Enrolling:
    """Collects the key cards of one cohort.

    Attributes:
        counter: distinguishes the cohorts of a roster.
        repeated: the certified set of the repeated attempt; only its members may enrol. Empty for fresh records.
        repeats: the repeated attempt's context; `NO_CONTEXT` for fresh records.
        cards: received, by member.
        mlkem_keys: received beside them.
        taken: X25519 keys, in their canonical encoding, and hashes of ML-KEM keys.
    """

    roster: Roster
    study: Study
    counter: int
    period: str
    repeats: bytes = NO_CONTEXT
    repeated: tuple[Survivor, ...] = ()
    cards: dict[str, KeyCard] = field(default_factory=dict)
    mlkem_keys: dict[str, bytes] = field(default_factory=dict)
    taken: frozenset[bytes] = frozenset()

    @property
    def cohort(self) -> bytes:
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

    def receive(self, enrolment: Enrolment, now_s: float) -> "Enrolling":
        """Admit a card after ENROL-1 to ENROL-8, in their order; repeating a card changes nothing."""
        card, member = enrolment.card, enrolment.card.member
        if card.cohort != self.cohort:
            raise PeerFault(Cause.WRONG_COHORT, f"{member}'s card is for another cohort", [member])
        card.verify(self.roster.key_of(member), member)
        if self.repeats != NO_CONTEXT and member not in self.invited_members:
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
        if hash_mlkem_key(enrolment.mlkem_key) != card.mlkem_key_hash:
            raise PeerFault(
                Cause.MLKEM_KEY_INVALID, f"{member}'s card holds the hash of another ML-KEM key", [member]
            )
        check_mlkem_key(enrolment.mlkem_key, member)
        check_order(card.x25519_key, member)
        if not self.taken.isdisjoint(_taken_by(card)):
            raise PeerFault(Cause.DUPLICATE, f"a key on {member}'s card is in use already", [member])
        return self.with_enrolments([enrolment])

    def with_enrolments(self, enrolments: Iterable[Enrolment]) -> "Enrolling":
        """Add enrolments that have already been checked."""
        more = {each.card.member: each for each in enrolments}
        return replace(
            self,
            cards=self.cards | {member: each.card for member, each in more.items()},
            mlkem_keys=self.mlkem_keys | {member: each.mlkem_key for member, each in more.items()},
            taken=self.taken.union(*(_taken_by(each.card) for each in more.values())),
        )

    def of_members(self, members: Collection[str]) -> "Enrolling":
        """Return the enrolment with the cards of these members alone."""
        return replace(self, cards={member: self.cards[member] for member in members})

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

    def all_cards(self, manifest: Manifest) -> Cards:
        """Return the manifest with all cards, as a transcript holds them: without ML-KEM keys."""
        return Cards(manifest, tuple(Shown(self.cards[other], b"", ()) for other in manifest.members))

    def cards_for(self, manifest: Manifest, member: str) -> Cards:
        """Return what `member` needs: all cards, or in a large cohort some with their paths; with the ML-KEM keys to encapsulate to."""
        wanted, recipients = manifest.members, frozenset(recipients_of(manifest, member))
        if not needs_all(manifest, member):
            wanted = tuple(sorted({member, *peers_of(manifest, member)}))
        whole = len(wanted) == len(manifest.members)
        return Cards(
            manifest,
            tuple(
                Shown(
                    self.cards[other],
                    self.mlkem_keys[other] if other in recipients else b"",
                    () if whole else tuple(self._card_tree.path_to(manifest.member_places[other])),
                )
                for other in wanted
            ),
        )


def _taken_by(card: KeyCard) -> tuple[bytes, bytes]:
    return canonical_public(card.x25519_key), card.mlkem_key_hash


def needs_all(manifest: Manifest, member: str) -> bool:
    """Whether a member receives all cards of its cohort: every member of a small cohort does, and every decryptor."""
    return len(manifest.members) <= ALL_CARDS_MAX or member in manifest.decryptors
