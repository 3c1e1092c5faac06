"""Cards of the next attempt's helpers come in, and its opening goes out (helpers H3, H4)."""

from dataclasses import dataclass, field, replace

from protocol.causes import Cause
from protocol.errors import PeerFault
from protocol.helpers.attempt import HelperAttempt, check_card, clients_of
from protocol.helpers.messages import Ended, HelperCard, HelperManifest, HelperOpening
from protocol.identity import SigningKey
from protocol.messages.opening import EMPTY_CHAIN, Terms
from protocol.messages.roster import Roster, cohort_id
from protocol.parameters import HONEST_MIN


@dataclass(frozen=True)
class Enrolling:
    """Waits for three cards at least.

    Attributes:
        roster: the admin's.
        counter: attempts ended before; `chain` is the head over them.
        cap: most records of one client.
        colluders: `a`; None for a quarter of the roster's clients.
        survivors_min: `n_min`; None for the least, a + h_min.
        cards: by helper.
    """

    roster: Roster
    counter: int
    chain: bytes
    cap: int
    colluders: int | None = None
    survivors_min: int | None = None
    cards: dict[str, HelperCard] = field(default_factory=dict)

    @classmethod
    def after(
        cls, roster: Roster, history: tuple[Ended, ...], cap: int, colluders: int | None = None
    ) -> "Enrolling":
        """The next attempt of a federation that has ended these."""
        chain = EMPTY_CHAIN
        for ended in history:
            chain = ended.extend(chain)
        return cls(roster, len(history), chain, cap, colluders)

    @property
    def cohort(self) -> bytes:
        """What every card must name."""
        return cohort_id(self.roster.hash, self.counter)

    def receive(self, card: HelperCard, now_s: float) -> "Enrolling":
        """Admit a card that passes `check_card` and is its helper's first, or the same again.

        Raises:
            PeerFault: as `check_card`; card-conflict while another of the same helper is in force.
        """
        check_card(self.roster, card, self.cohort, now_s)
        known = self.cards.get(card.member)
        if known is not None and known != card and now_s < known.expires_s:
            raise PeerFault(Cause.CARD_CONFLICT, f"{card.member} has sent another card", [card.member])
        return replace(self, cards={**self.cards, card.member: card})

    def attempt(self, terms: Terms, key: SigningKey, now_s: float) -> HelperAttempt:
        """Sign the opening, once three helpers or four have come; PeerFault as `HelperAttempt.check`."""
        clients = len(clients_of(self.roster))
        colluders = clients // 4 if self.colluders is None else self.colluders
        manifest = HelperManifest(
            cohort=self.cohort,
            roster_hash=self.roster.hash,
            counter=self.counter,
            cards=tuple(self.cards[helper] for helper in sorted(self.cards)),
            clients=clients,
            colluders=colluders,
            honest_min=HONEST_MIN,
            survivors_min=colluders + HONEST_MIN if self.survivors_min is None else self.survivors_min,
            cap=self.cap,
        )
        attempt = HelperAttempt(
            self.roster, HelperOpening.make(key, manifest=manifest, chain=self.chain, terms=terms)
        )
        attempt.check(now_s)
        return attempt
