"""M0: a cohort's cards come in until the manifest is made (protocol §4.2)."""

from dataclasses import dataclass, field, replace

from protocol.attempt import colluders_assumed, decryptors_of
from protocol.causes import Cause
from protocol.errors import PeerFault
from protocol.keys import PROBE, canonical
from protocol.messages import KeyCard, Manifest, Roster, cohort_id
from protocol.parameters import HONEST_MIN, Quorum


@dataclass(frozen=True)
class Enrolling:
    """Collects key cards of one cohort.

    Attributes:
        roster: who may send one.
        counter: tells this cohort of the roster from others.
        colluders: `a`; None for a quarter of the roster.
        honest_min: `h_min`.
        cap: most records each member may contribute to a round.
        cards: by member.
    """

    roster: Roster
    counter: int
    cap: int
    colluders: int | None = None
    honest_min: int = HONEST_MIN
    cards: dict[str, KeyCard] = field(default_factory=dict)

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
        2. it has not expired (card-expired);
        3. it is the member's first (card-conflict);
        4. neither key is of low order (low-order-point) or stands on another card, or twice, however it is
           encoded (duplicate).
        """
        member = card.member
        if card.cohort != self.cohort:
            raise PeerFault(Cause.WRONG_COHORT, f"{member}'s card is for another cohort", [member])
        card.verify(self.roster.key_of(member), member)
        if now_s >= card.expires_s:
            raise PeerFault(Cause.CARD_EXPIRED, f"{member}'s card has expired", [member])
        if member in self.cards:
            if self.cards[member] != card:
                raise PeerFault(Cause.CARD_CONFLICT, f"{member} sent another card before", [member])
            return self
        for key in (card.mask_key, card.box_key):
            PROBE.agree(key, member)
        keys = (canonical(card.mask_key), canonical(card.box_key))
        taken = {canonical(key) for other in self.cards.values() for key in (other.mask_key, other.box_key)}
        if keys[0] == keys[1] or not taken.isdisjoint(keys):
            raise PeerFault(Cause.DUPLICATE, f"a key on {member}'s card is in use already", [member])
        return replace(self, cards={**self.cards, member: card})

    def manifest(self) -> Manifest:
        """Close the cohort with the cards that came; PeerFault(cohort-too-small) where they are too few."""
        members = tuple(sorted(self.cards))
        decryptors = decryptors_of(self.roster, members)
        colluders = colluders_assumed(self.roster) if self.colluders is None else self.colluders
        quorum = Quorum.derive(len(members), len(decryptors), colluders=colluders, honest_min=self.honest_min)
        return Manifest(
            cohort=self.cohort,
            roster_hash=self.roster.hash,
            counter=self.counter,
            cards=tuple(self.cards[member] for member in members),
            colluders=quorum.colluders,
            decryptor_colluders=quorum.decryptor_colluders,
            honest_min=quorum.honest_min,
            survivors_min=quorum.survivors_min,
            threshold=quorum.threshold,
            degree=len(members) - 1,
            window_dropped_max=0,
            decryptors=decryptors,
            caps=(self.cap,) * len(members),
        )
