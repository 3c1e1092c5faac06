"""A federation's rounds with mask helpers: opened, loaded again, and kept apart from those of the other mode."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

from sqlalchemy import Row

from calibration import Layout
from protocol.causes import Cause
from protocol.errors import PeerFault
from protocol.helpers.attempt import HelperAttempt, clients_of
from protocol.helpers.coordinator import HelperWindows
from protocol.helpers.messages import HELPERS, HelperKind, HelperOpening
from protocol.identity import SigningKey
from protocol.messages import Opening
from protocol.rest import HelperRoundRequest, ModeName, WindowsModel
from service.federations import Federations
from service.helping.desk import Desk
from service.helping.mode import HelpersMode
from service.preflight import helper_terms_of
from service.rounds import Round
from service.storage.blobs import Blobs
from service.storage.database import Database


class Helping:
    """Every federation's helpers.

    Args:
        database: rows.
        blobs: chunks.
        wake: called when one of their rounds has changed.
        federations: their rosters.
    """

    def __init__(
        self, database: Database, blobs: Blobs, wake: Callable[[], None], federations: Federations
    ) -> None:
        self._database, self._blobs, self._wake, self._federations = database, blobs, wake, federations
        self._desks: dict[str, Desk] = {}

    @property
    def desks(self) -> Iterable[Desk]:
        """Those that somebody has asked for."""
        return self._desks.values()

    async def desk(self, federation: str) -> Desk:
        """A federation's; PeerFault(not-found), or weak-parameters where its roster names no four helpers."""
        roster = await self._federations.newest(federation)
        if len(roster.helpers) != HELPERS:
            raise PeerFault(
                Cause.WEAK_PARAMETERS,
                f"roster version {roster.version_number} names {len(roster.helpers)} helpers, not {HELPERS}: have the admin "
                "name them with `veilsum federation roster --helper`",
                ["admin"],
            )
        desk = self._desks.get(federation)
        if desk is not None and desk.roster.hash == roster.hash:
            return desk
        parsed = await self._federations.roster(federation, roster.version_number)
        desk = self._desks.setdefault(federation, Desk(self._database, parsed))
        await desk.take_up()
        if desk.roster.hash != parsed.hash:
            desk.roster = parsed
            desk.watch.notify()
        return desk

    async def refresh(self, federation: str) -> None:
        """Take up the cards that other processes have stored."""
        if federation in self._desks:
            await self._desks[federation].refresh()

    async def prepare(
        self, federation: str, request: HelperRoundRequest, layout: Layout, key: SigningKey, now_s: float
    ) -> HelperAttempt:
        """Sign the next attempt; PeerFault as `Desk.ready`, the preflight, and `HelperAttempt.check`."""
        desk = await self.desk(federation)
        enrolling = replace(
            await desk.ready(now_s + request.windows.upload_s),
            cap=request.records_cap,
            colluders=request.colluders,
            survivors_min=request.survivors_min,
        )
        terms = helper_terms_of(request, desk.roster, len(clients_of(desk.roster)), now_s, layout)
        return enrolling.attempt(terms, key, now_s)

    async def load(self, row: Row[tuple[object, ...]], not_before_s: float) -> Round:
        """A stored attempt, as it was when the last process stopped."""
        opening = HelperOpening.from_bytes(row.opening)
        attempt = HelperAttempt(
            await self._federations.roster_named(row.federation, opening.manifest.roster_hash), opening
        )
        given = WindowsModel.model_validate_json(row.windows)
        windows = HelperWindows(given.upload_s, given.check_s, given.freeze_s, given.reveal_s)
        if row.final is not None:
            mode = HelpersMode(attempt, windows, ())
            return Round(self._database, self._blobs, self._wake, mode, row.opened_s, row)
        # The newest roster may name other helpers, or none: the desk is made of whichever there was.
        desk = self._desks.setdefault(row.federation, Desk(self._database, attempt.roster))
        await desk.take_up()
        mode = HelpersMode(attempt, windows, desk.history[: attempt.manifest.counter])
        wake = partial(self._changed, desk)
        round_ = Round(self._database, self._blobs, wake, mode, row.opened_s)
        await round_.resume(not_before_s)
        desk.opened(round_)
        return round_

    def _changed(self, desk: Desk) -> None:
        desk.watch.notify()
        self._wake()


def is_with_helpers(opening: bytes) -> bool:
    """Whether a stored opening is of the helpers' mode."""
    return opening[1] == HelperKind.OPENING


def opening_from(body: bytes) -> Opening | HelperOpening:
    """A stored opening, of either mode."""
    return HelperOpening.from_bytes(body) if is_with_helpers(body) else Opening.from_bytes(body)


def refuse_other_mode(round_id: str, opening: bytes, mode: ModeName) -> None:
    """A federation runs in one mode, that of its first round: nobody keeps a ledger over both (helpers H9).

    Raises:
        PeerFault: ledger-refused.
    """
    first: ModeName = "helpers" if is_with_helpers(opening) else "members"
    if first != mode:
        raise PeerFault(
            Cause.LEDGER_REFUSED,
            f"this federation has opened round {round_id} in the mode '{first}': sums of both modes could be "
            f"combined, and nobody keeps a ledger over both. Make another federation for rounds in the mode '{mode}', "
            "over other records",
        )
