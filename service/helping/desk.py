"""A federation's helpers at the coordinator: cards for the next attempt, and how every earlier one has ended.

Nothing here is kept but the cards: the history is the rounds' own closings, in order.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Row, select

from protocol.causes import Cause
from protocol.errors import PeerFault
from protocol.helpers.coordinator import Enrolling
from protocol.helpers.messages import HELPERS, Ended, HelperCard, HelperCertificate, HelperLost
from protocol.messages import Roster, parse
from protocol.rest import HelpersView
from service.modes import AnyClosing
from service.problems import not_found, wrong_phase
from service.rounds import Round
from service.storage.database import Database
from service.storage.tables import helper_cards, rounds
from service.watch import Watch

READ = 20
"""Ends that are read at once."""


class Desk:
    """One federation's.

    Attributes:
        roster: the newest; cards are for it.
    """

    def __init__(self, database: Database, roster: Roster) -> None:
        self.roster = roster
        self.watch = Watch(lambda: self.version)
        self._database, self._lock = database, asyncio.Lock()
        self._taking = asyncio.Lock()
        self._live: Round | None = None
        self._ended: dict[str, Ended] = {}
        """By the ids of attempts with helpers, oldest first."""
        self._enrolling: Enrolling | None = None

    def opened(self, round_: Round) -> None:
        """A round of this federation stands in the database; all before it have ended."""
        self._settle()
        self._live = round_
        self.watch.notify()

    async def take_up(self) -> None:
        """Read how attempts have ended of which nothing was heard here."""
        async with self._taking:
            if self.live is not None:
                await self.live.refresh()
            federation = self.roster.federation.hex()
            query = (
                select(rounds.c.id, rounds.c.closing)
                .where(rounds.c.federation == federation, rounds.c.final.is_not(None))
                .order_by(rounds.c.number)
                .limit(READ)
            )
            while True:
                async with self._database.reading() as connection:
                    rows = (await connection.execute(query.offset(self._count))).all()
                new = await asyncio.to_thread(_endings, rows)
                if not new:
                    return
                self._ended |= {name: ended for name, ended in new.items() if name not in self._ended}

    def _settle(self) -> None:
        if self._live is not None and self._live.final is not None:
            self._ended.setdefault(self._live.id, _closing(self._live.end()).ended)
            self._live = None

    @property
    def live(self) -> Round | None:
        """The attempt that runs. One at a time: all others have ended."""
        self._settle()
        return self._live

    @property
    def _count(self) -> int:
        self._settle()
        return len(self._ended)

    @property
    def history(self) -> tuple[Ended, ...]:
        """How each attempt has ended, oldest first."""
        self._settle()
        return tuple(self._ended.values())

    async def closing(self, position: int) -> bytes:
        """How attempt `position` has ended, as a message; PeerFault(not-found) before it has."""
        if position >= self._count:
            raise not_found("attempt that has ended")
        name = list(self._ended)[position]
        async with self._database.reading() as connection:
            found = await connection.execute(select(rounds.c.closing).where(rounds.c.id == name))
            return bytes(found.scalar_one())

    @property
    def _known(self) -> Enrolling | None:
        """The cards as they were loaded, if they are the next attempt's under the newest roster."""
        known = self._enrolling
        fits = known is not None and (known.roster.hash, known.counter) == (self.roster.hash, self._count)
        return known if fits else None

    async def enrolling(self) -> Enrolling:
        """The cards of the next attempt so far."""
        known = self._known
        if known is None:
            known = await asyncio.to_thread(Enrolling.after, self.roster, self.history, 1)
            async with self._database.reading() as connection:
                query = select(helper_cards.c.body).where(helper_cards.c.cohort == known.cohort.hex())
                stored = [HelperCard.from_bytes(body) for body in (await connection.execute(query)).scalars()]
            # A card that came in meanwhile stands in the newer value, and must not be forgotten for this one.
            if self._known is None:
                self._enrolling = replace(known, cards={card.member: card for card in stored})
            return await self.enrolling()
        return known

    async def refresh(self) -> None:
        """Take up the cards that other processes have stored."""
        if self._database.shared:
            await self.take_up()
            async with self._lock:
                self._enrolling = None
                await self.enrolling()
            self.watch.notify()

    async def receive(self, card: HelperCard, now_s: float) -> None:
        """Take a helper's card for the next attempt durably."""
        async with self._lock:
            if self.live is not None:
                raise wrong_phase(
                    f"round {self.live.id} has opened without this card: wait for its end, then send the next"
                )
            before = await self.enrolling()
            after = before.receive(card, now_s)
            if before.cards.get(card.member) == card:
                return
            async with self._database.transaction() as connection:
                # Again where a card has expired, or an earlier commit was reported as failed.
                row = {"cohort": card.cohort.hex(), "member": card.member, "body": card.to_bytes()}
                await self._database.put(connection, helper_cards, row)
                await self._database.announce(connection, self.roster.federation.hex())
            self._enrolling = after
        self.watch.notify()

    async def ready(self, until_s: float) -> Enrolling:
        """The cards in force until then: one that runs out earlier would send every later client away.

        Raises:
            PeerFault: cohort-too-small names the helpers without one where they are too few.
        """
        enrolling = await self.enrolling()
        in_force = {helper: card for helper, card in enrolling.cards.items() if until_s < card.expires_s}
        missing = sorted(set(self.roster.helpers) - set(in_force))
        if len(missing) > 1:
            raise PeerFault(
                Cause.COHORT_TOO_SMALL,
                f"no card for attempt {enrolling.counter} of {', '.join(missing)} that lasts until the uploads are in: three "
                f"helpers of {HELPERS} take part at the least; let them run `veilsum helper run`",
                missing,
            )
        return replace(enrolling, cards=in_force)

    @property
    def version(self) -> int:
        """Grows with every roster, attempt, end and card."""
        cards = len(self._known.cards) if self._known is not None else 0
        return 8 * (self.roster.version_number + self._count) + (5 if self.live else cards)

    async def view(self, now_s: float) -> HelpersView:
        """What anybody may see."""
        enrolling = await self.enrolling()
        return HelpersView(
            federation=self.roster.federation.hex(),
            roster_version=self.roster.version_number,
            counter=enrolling.counter,
            cohort=enrolling.cohort.hex(),
            helpers=self.roster.helpers,
            cards=tuple(sorted(h for h, card in enrolling.cards.items() if now_s < card.expires_s)),
            round=self.live.id if self.live else None,
            version=self.version,
        )


def _endings(rows: Sequence[Row[Any, Any]]) -> dict[str, Ended]:
    """Of attempts with helpers, by their ids; a federation with others has none of these."""
    closings = ((row.id, parse(row.closing)) for row in rows)
    return {
        name: found.ended for name, found in closings if isinstance(found, HelperCertificate | HelperLost)
    }


def _closing(closing: AnyClosing) -> HelperCertificate | HelperLost:
    assert isinstance(closing, HelperCertificate | HelperLost)
    return closing
