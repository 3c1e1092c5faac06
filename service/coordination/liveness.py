"""When each member was last heard from: when it signed its newest admitted request, long polls included.

The time is the signature's own, by the signer's clock, which may be off by as much as the gate allows. A request that is sent again therefore
says nothing new, and a long poll counts from its beginning.
"""

import asyncio
from collections.abc import Collection

from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError

from service.http.problems import terms_refused
from service.storage.database import Database
from service.storage.tables import last_heard
from service.telemetry.logs import describe_error, log
from veilsum.protocol.attempt import Attempt
from veilsum.protocol.rest import DecryptorsView, join_names

WRITE_HEARD_EVERY_S = 10.0
"""Pause between two writes. A time is this late at other replicas, and may be lost if the process is killed before."""
_SILENT_REMEDY = "Start their `veilsum member join`"


class LastHeard:
    """When each member was last heard from, by all processes of one database.

    Requests are noted in memory. All notes of some seconds are written together, so that a poll costs no write of its own.
    """

    def __init__(self, database: Database) -> None:
        self._database, self._unwritten = database, dict[tuple[str, str], float]()

    def note_request(self, federation: str, member: str, signed_s: float) -> None:
        """Note an admitted request that a member signed at this Unix time."""
        key = federation, member
        self._unwritten[key] = max(signed_s, self._unwritten.get(key, signed_s))

    async def read_times(self, federation: str, members: Collection[str]) -> dict[str, float]:
        """Return when each member signed its newest request, in Unix time, without members that never did."""
        await self.write_notes()
        heard = last_heard.c
        query = select(heard.member, heard.signed_s).where(
            heard.federation == federation, heard.member.in_(members)
        )
        return {row.member: row.signed_s for row in await self._database.read_rows(query)}

    async def write_notes(self) -> None:
        """Write what was noted since the last write. If that fails, it is logged, and the notes are kept."""
        notes = dict(self._unwritten)
        if not notes:
            return
        adding = self._database.insert(last_heard)
        new_s = adding.excluded.signed_s
        newest = adding.on_conflict_do_update(
            index_elements=last_heard.primary_key.columns,
            set_={"signed_s": new_s},
            where=last_heard.c.signed_s < new_s,
        )
        # In order, so that two processes never wait for each other.
        rows = [
            {"federation": federation, "member": member, "signed_s": signed_s}
            for (federation, member), signed_s in sorted(notes.items())
        ]
        try:
            await self._database.write(lambda connection: connection.execute(newest, rows))
        except (OSError, SQLAlchemyError) as error:
            log.warning("last heard not written", **describe_error(error))
            return
        left = {key: signed_s for key, signed_s in self._unwritten.items() if notes.get(key) != signed_s}
        self._unwritten = left

    async def keep_writing(self) -> None:
        """Write every `WRITE_HEARD_EVERY_S`, and once more when cancelled."""
        try:
            while True:
                await asyncio.sleep(WRITE_HEARD_EVERY_S)
                await self.write_notes()
        finally:
            await self.write_notes()


async def find_decryptors(last: LastHeard, attempt: Attempt, within_s: float, now_s: float) -> DecryptorsView:
    """Return which of an attempt's decryptors signed a request within the last `within_s` seconds."""
    silent = await _find_silent(last, attempt, attempt.decryptors, now_s - within_s)
    return DecryptorsView(
        decryptors=len(attempt.decryptors),
        needed=attempt.quorum.threshold,
        within_s=within_s,
        heard=len(attempt.decryptors) - len(silent),
        silent=silent,
    )


async def check_enough_heard(
    last: LastHeard, attempt: Attempt, members: Collection[str], within_s: float, now_s: float
) -> None:
    """Refuse a round for which too few decryptors or members were heard from within `within_s` seconds (terms-refused).

    `members` may be in the sum. A count needs as many more members as its study lets drop out afterwards.
    """
    found = await find_decryptors(last, attempt, within_s, now_s)
    if found.heard < found.needed:
        raise terms_refused(f"{found.sentence}. {_SILENT_REMEDY}")
    needed, withhold = attempt.survivors_min, attempt.question.withhold
    if withhold is not None and attempt.terms.counts and not attempt.repeats:
        needed = max(needed, len(members) - withhold.margin)
    silent = await _find_silent(last, attempt, members, now_s - within_s)
    heard = len(members) - len(silent)
    if heard < needed:
        raise terms_refused(
            f"{heard} of {len(members)} members were heard from within {within_s:g} s, and {needed} are needed. Missing: {join_names(silent)}. {_SILENT_REMEDY}"
        )


async def _find_silent(
    last: LastHeard, attempt: Attempt, members: Collection[str], since_s: float
) -> tuple[str, ...]:
    times = await last.read_times(attempt.roster.federation.hex(), members)
    return tuple(member for member in members if times.get(member, float("-inf")) < since_s)
