"""A cohort that a hostile coordinator forms: its manifests, and what it shows members of each other's cards and pairings."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from assurance.machines.cast import Collected, Mutable
from tests.support.forging import again
from veilsum.protocol.codec import SecretBytes
from veilsum.protocol.coordinator import Enrolling
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.keys import DecapsulationKey
from veilsum.protocol.member import Enrolled, History, Paired, Ready
from veilsum.protocol.messages import Cards, Ciphertexts, Manifest, Pairing, Shown, ShownCiphertext
from veilsum.protocol.pairing import senders_to, split_pairing

CARD_TRICKS, CIPHERTEXT_TRICKS = 6, 7
"""How many ways there are to show the cards, and the ciphertexts, otherwise than an honest coordinator does."""
DRAFTS_MAX = 5
OWN_KEY = DecapsulationKey(SecretBytes(b"\x0c" * 64)).public
"""An ML-KEM key of the coordinator."""


@dataclass(frozen=True)
class Draft:
    """A manifest and the cards under it.

    Attributes:
        enrolling: with the cards of its members.
        colluding: each colluder, as it sent the card that stands here.
    """

    manifest: Manifest
    enrolling: Enrolling
    colluding: dict[str, Enrolled]


class Cohort(Mutable):
    """A cohort, as the coordinator and the colluders know it.

    Attributes:
        collected: its members' cards.
        liars: the colluders among them, whose history is `lent`.
        drafts: its manifests, in the order in which they were made.
        pairings: by manifest hash and member, all that were ever made: colluders may make several.
        paired: a colluder's phases, in the order of its pairings.
    """

    def __init__(self, collected: Collected, liars: frozenset[str], lent: History) -> None:
        self.collected, self.liars, self.lent = collected, liars & collected.enrolled.keys(), lent
        self.drafts: list[Draft] = []
        self.pairings: dict[tuple[bytes, str], list[Pairing]] = {}
        self.paired: dict[tuple[bytes, str], list[Paired]] = {}
        self._ready: dict[tuple[bytes, str], Ready] = {}

    @property
    def id(self) -> bytes:
        return self.collected.enrolling.cohort

    def draft(self, without: frozenset[str] = frozenset(), *, second: bool = False) -> Draft:
        """Make a manifest of the members that are left, with the first colluder's second card if `second`.

        Raises:
            PeerFault: cohort-too-small, or weak-parameters.
        """
        colluding = {liar: self.collected.enrolled[liar] for liar in self.liars - without}
        if second and colluding:
            colluding[min(colluding)] = self.collected.second[min(colluding)]
        enrolling = self.collected.enrolling.with_enrolments(phase.enrolment for phase in colluding.values())
        enrolling = enrolling.of_members(enrolling.cards.keys() - without)
        made = Draft(enrolling.make_manifest(), enrolling, colluding)
        known = self.of_manifest(made.manifest.hash)
        if known is None and len(self.drafts) >= DRAFTS_MAX:
            return self.drafts[-1]
        if known is None:
            self.drafts.append(made)
        return known or made

    def of_manifest(self, manifest: bytes) -> Draft | None:
        """Return the draft with this hash."""
        return next((each for each in self.drafts if each.manifest.hash == manifest), None)

    # What colluders do

    def collude(self, liar: str, draft: Draft, key: SigningKey, kind: int) -> None:
        """Have a colluder pair: `kind` 1 with random ciphertexts, 2 with what honest members sent, otherwise as it should."""
        enrolled = draft.colluding[liar].with_history(self.lent)
        cards = draft.enrolling.cards_for(draft.manifest, liar)
        phase, _ = enrolled.pair(cards, key, 0)
        assert isinstance(phase, Paired)
        pairing = phase.pairing
        if kind == 1:
            noise = tuple(bytes([7 + place]) * len(one) for place, one in enumerate(pairing.ciphertexts))
            pairing = again(pairing, key, ciphertexts=noise)
        elif kind == 2:
            seen = [
                one
                for (of, member), made in self.pairings.items()
                if of == draft.manifest.hash and member not in self.liars
                for one in made[-1].ciphertexts
            ]
            copied = (*seen, *pairing.ciphertexts)[: len(pairing.ciphertexts)]
            pairing = again(pairing, key, ciphertexts=copied)
        place = (draft.manifest.hash, liar)
        self.pairings.setdefault(place, []).append(pairing)
        self.paired.setdefault(place, []).append(replace(phase, pairing=pairing))
        self._ready.pop(place, None)

    def ready_of(self, liar: str, manifest: bytes) -> Ready | None:
        """Return a colluder that holds the keys of its pairs under a manifest; None before all have paired."""
        place, draft = (manifest, liar), self.of_manifest(manifest)
        if draft is None or place not in self.paired:
            return None
        if place not in self._ready:
            try:
                shown = self.ciphertexts_for(draft, liar)
                ready, _ = self.paired[place][-1].receive(shown, SigningKey(bytes(32)), 0)
            except PeerFault:
                return None
            assert isinstance(ready, Ready)
            self._ready[place] = ready
        return self._ready[place]

    # What the coordinator shows

    def is_paired(self, draft: Draft) -> bool:
        """Return whether every member of a manifest has paired."""
        return all((draft.manifest.hash, member) in self.pairings for member in draft.manifest.members)

    def cards_for(self, draft: Draft, member: str, trick: int = 0) -> Cards:
        """Return the cards for a member, truly or by one of `CARD_TRICKS`."""
        true = draft.enrolling.cards_for(draft.manifest, member)
        others = [place for place, shown in enumerate(true.shown) if shown.member != member]
        manifest, shown = true.manifest, list(true.shown)
        keyed = [place for place in others if shown[place].mlkem_key]
        match trick:
            case 1:  # without one member's card
                del shown[others[0]]
            case 2:  # with the coordinator's ML-KEM key in the place of a member's
                shown[keyed[0]] = replace(shown[keyed[0]], mlkem_key=OWN_KEY)
            case 3:  # without an ML-KEM key that the member needs
                shown[keyed[-1]] = replace(shown[keyed[-1]], mlkem_key=b"")
            case 4:  # with fewer votes for an outcome
                manifest = replace(manifest, threshold=manifest.threshold - 1)
            case 5:  # with this member's card out of the manifest
                shown = [each for each in shown if each.member != member]
            case 6:  # with the cards of another manifest
                shown = list(self._other(draft, member))
        return Cards(manifest, tuple(shown))

    def _other(self, draft: Draft, member: str) -> tuple[Shown, ...]:
        other = self.drafts[self.drafts.index(draft) - 1]
        member = member if member in other.manifest.member_places else other.manifest.members[0]
        return other.enrolling.cards_for(other.manifest, member).shown

    def ciphertexts_for(self, draft: Draft, member: str, trick: int = 0, *, variant: int = 0) -> Ciphertexts:
        """Return the others' ciphertexts for a member, truly or by one of `CIPHERTEXT_TRICKS`; of a colluder one of its pairings."""
        manifest = draft.manifest
        shown = [self._shown(draft, sender, member, variant) for sender in senders_to(manifest, member)]
        found = [each for each in shown if each is not None]
        if trick == 6:  # of another manifest, under this one's hash
            other = self.drafts[self.drafts.index(draft) - 1]
            if member in other.manifest.member_places:
                found = [
                    each
                    for sender in senders_to(other.manifest, member)
                    if (each := self._shown(other, sender, member, 0)) is not None
                ]
        elif trick == 7:  # those for another member
            other_member = next(each for each in manifest.members if each != member)
            found = list(self.ciphertexts_for(draft, other_member).shown)
        elif trick and found:
            found = _TRICKS[trick](found)
        return Ciphertexts(manifest.hash, tuple(found))

    def _shown(self, draft: Draft, sender: str, recipient: str, variant: int) -> ShownCiphertext | None:
        made = self.pairings.get((draft.manifest.hash, sender))
        if not made:
            return None
        split = dict(split_pairing(draft.manifest, made[-1 - variant % len(made)]))
        return split[recipient]


def _swapped(found: list[ShownCiphertext]) -> list[ShownCiphertext]:
    """Swap two senders' ciphertexts, under their own names and signatures."""
    one, other = found[0], found[-1]
    found[0] = replace(one, ciphertext=other.ciphertext, path=other.path)
    found[-1] = replace(other, ciphertext=one.ciphertext, path=one.path)
    return found


def _renamed(found: list[ShownCiphertext]) -> list[ShownCiphertext]:
    """Show one sender's ciphertext as another's."""
    return [*found[:-1], replace(found[0], member=found[-1].member)]


def _own(found: list[ShownCiphertext]) -> list[ShownCiphertext]:
    """Show a ciphertext whose secret the coordinator knows."""
    return [replace(found[0], ciphertext=b"\x0c" * len(found[0].ciphertext)), *found[1:]]


_TRICKS: dict[int, Callable[[list[ShownCiphertext]], list[ShownCiphertext]]] = {
    1: lambda found: found[1:],  # withhold one
    2: _swapped,
    3: _renamed,
    4: _own,
    5: lambda found: [replace(found[0], path=()), *found[1:]],
}
