"""Make again what follows from other rows of a database: the work behind `veilsum operator db repair`."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, or_, select, update

from service.coordination.checking import (
    check_format,
    find_broken_chains,
    find_damage,
    find_misnamed_rounds,
    read_attempt,
    read_log_ends,
    read_log_start,
)
from service.coordination.standing import read_closing
from service.settings import Settings
from service.storage import keys, stores
from service.storage.audit import COORDINATOR_ACTOR, END_ID, Deed, append_deeds
from service.storage.database import Database
from service.storage.faults import check_named
from service.storage.tables import audit, audit_head, coordinator, links, rosters, rounds
from veilsum.protocol.attempt import Attempt
from veilsum.protocol.audit import End, chain_entry
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.messages import Roster
from veilsum.protocol.rest import round_name

ENTRIES_PER_READ = 1000
"""How many entries of the audit log are read from storage at a time."""
Repair = Callable[[Connection], bool]
"""Returns whether there was something to repair. Raises any error if what that follows from is damaged too."""


async def repair_database(settings: Settings) -> dict[str, list[str]]:
    """Make again what follows from other rows, and return what was repaired, and what is still damaged. Raises as `find_damage`.

    That is the coordinator's public key; the audit log's numbers and end, from its entries; rounds' ids, from what they were opened
    with; and the chains, from the rounds that they link.
    """
    repaired, public = list[str](), keys.key_of(settings).public
    async with stores.connect_database(settings) as database:
        await check_format(database)
        with suppress(Exception):  # whatever can't be read is listed below
            async for name, repair in _list_repairs(database, public):
                with suppress(Exception):
                    if await database.write(repair):
                        repaired.append(name)
    return {"repaired": repaired, **await find_damage(settings)}


async def _list_repairs(database: Database, public: bytes) -> AsyncIterator[tuple[str, Repair]]:
    """Yield each repair after those that it rests on."""
    yield "coordinator's public key", partial(_rebind_key, public)
    yield "audit log", partial(_rebuild_log, database)
    for stored, name in (await database.read(find_misnamed_rounds)).items():
        yield f"id of round {name}", partial(_rename_round, database, stored, name)
    for federation in await find_broken_chains(database):
        yield f"chain of federation {federation}", partial(_rebuild_chain, database, federation)


def _rebind_key(public: bytes, connection: Connection) -> bool:
    """Bind the database to the coordinator's key again, if a roster names it."""
    known = connection.execute(select(coordinator.c.public_key)).scalar_one_or_none()
    bodies = connection.execute(select(rosters.c.body).order_by(rosters.c.number.desc())).scalars().all()
    if known == public.hex() or not any(_names_coordinator(body, public) for body in bodies):
        return False
    connection.execute(delete(coordinator))
    connection.execute(insert(coordinator).values(number=0, public_key=public.hex()))
    return True


def _names_coordinator(body: bytes, public: bytes) -> bool:
    with suppress(PeerFault):
        roster = Roster.from_bytes(body)
        roster.verify_admin(roster.federation)
        return roster.coordinator == public
    return False


def _rebuild_log(database: Database, connection: Connection) -> bool:
    """Number the audit log's entries as their hashes say, and let it end with the last of them."""
    renumbered = _renumber_entries(connection)
    end, head = read_log_ends(connection)
    if head == end and not renumbered:
        return False
    database.put_row(connection, audit_head, {"id": END_ID, "number": end.number, "head": end.head})
    deed = Deed(time.time(), COORDINATOR_ACTOR, "audit log repaired", f"last={end.number}")
    append_deeds(connection, database, [deed])
    return True


def _renumber_entries(connection: Connection) -> bool:
    """Give entries that have lost their number the one at which they continue the log."""
    start, renumbered = read_log_start(connection), False
    end = _follow_log(connection, start)
    while (stray := _find_stray_entry(connection, start, end)) is not None:
        own = update(audit).where(audit.c.number == stray)
        connection.execute(own.values(number=end.number + 1))
        end, renumbered = _follow_log(connection, end), True
    return renumbered


def _follow_log(connection: Connection, end: End) -> End:
    """Return the last entry up to which the log goes on without a break."""
    following = select(audit).where(audit.c.number > end.number).order_by(audit.c.number)
    for row in connection.execute(following, execution_options={"yield_per": ENTRIES_PER_READ}):
        if row.number != end.number + 1 or not _continues_log(row, end):
            break
        end = End(row.number, row.head)
    return end


def _find_stray_entry(connection: Connection, start: End, end: End) -> int | None:
    """Return the number of the entry that follows `end` by its hash."""
    others = select(audit).where(or_(audit.c.number <= start.number, audit.c.number > end.number))
    rows = connection.execute(others, execution_options={"yield_per": ENTRIES_PER_READ})
    return next((row.number for row in rows if _continues_log(row, end)), None)


def _continues_log(row: Row[Any], end: End) -> bool:
    entry = chain_entry(end, row.at_ms, row.who, row.action, row.on, row.outcome)
    return bool(entry.head == row.head)


def _rename_round(database: Database, stored: str, name: str, connection: Connection) -> bool:
    """Store a round under its context's name again, if the audit log has that name.

    Otherwise another part of it may be damaged, which changes the context too.
    """
    written = select(audit.c.number).where(audit.c.on.contains(f"round_id={name}")).limit(1)
    if connection.execute(written).first() is None:
        return False
    connection.execute(update(rounds).where(rounds.c.id == stored).values(id=name))
    deed = Deed(time.time(), COORDINATOR_ACTOR, "id of a round repaired", f"round_id={name}")
    append_deeds(connection, database, [deed])
    return True


def _rebuild_chain(database: Database, federation: str, connection: Connection) -> bool:
    ended = select(rounds).where(rounds.c.federation == federation, rounds.c.final.is_not(None))
    bodies = [
        _read_named_attempt(connection, row).make_link(read_closing(row.closing)).encode()
        for row in connection.execute(ended.order_by(rounds.c.number)).all()
    ]
    connection.execute(delete(links).where(links.c.federation == federation))
    for position, body in enumerate(bodies):
        connection.execute(insert(links).values(federation=federation, position=position, body=body))
    deed = Deed(time.time(), COORDINATOR_ACTOR, "chain repaired", f"federation={federation}")
    append_deeds(connection, database, [deed])
    return True


def _read_named_attempt(connection: Connection, row: Row[Any]) -> Attempt:
    attempt = read_attempt(connection, row)
    check_named(row.id, round_name(attempt.context))
    return attempt
