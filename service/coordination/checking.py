"""Check everything in a database: the work behind `veilsum operator db check`."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import starmap, zip_longest
from typing import Any

from sqlalchemy import Connection, Row, Table, select
from sqlalchemy.exc import DatabaseError

from service.coordination.federations import check_lost, has_signed
from service.coordination.journal import EVENTS_PER_READ
from service.coordination.scrubbing import find_damaged_blobs
from service.coordination.standing import RoundEnd, read_closing
from service.settings import Settings
from service.storage import migrating, stores
from service.storage.audit import END_ID, START_ID
from service.storage.blobs import Blobs
from service.storage.database import Database
from service.storage.faults import check_named, reword_errors
from service.storage.tables import (
    audit,
    audit_head,
    cards,
    ciphertexts,
    cohorts,
    coordinator,
    events,
    links,
    lost_contexts,
    pairings,
    rosters,
    rounds,
    studies,
    tokens,
)
from veilsum.protocol.attempt import Attempt
from veilsum.protocol.audit import EMPTY_LOG_END, AuditEntry, AuditHead, End, follow_entries
from veilsum.protocol.codec import Fixed
from veilsum.protocol.errors import Misuse, PeerFault
from veilsum.protocol.keys import hash_mlkem_key
from veilsum.protocol.messages import (
    KeyCard,
    Link,
    Manifest,
    Opening,
    Roster,
    ShownCiphertext,
    Study,
    parse_message,
)
from veilsum.protocol.rest import Problem, Scope, round_name


def _check_roster(row: Row[Any]) -> None:
    Roster.from_bytes(row.body).verify_admin(bytes.fromhex(row.federation))


def _check_study(row: Row[Any]) -> None:
    check_named(row.hash, Study.from_bytes(row.body).hash.hex())


def _check_cohort(row: Row[Any]) -> None:
    bytes.fromhex(row.study)
    if row.manifest is not None:
        check_named(row.id, Manifest.from_bytes(row.manifest).cohort.hex())
    if row.fault is not None:
        Problem.model_validate_json(row.fault)


def _check_card(row: Row[Any]) -> None:
    card = KeyCard.from_bytes(row.body)
    check_named(row.member, card.member)
    check_named(row.serial.hex(), card.serial.to_bytes(8, "big").hex())
    card.verify(bytes.fromhex(row.key), card.member)
    check_named(card.mlkem_key_hash.hex(), hash_mlkem_key(row.mlkem_key).hex())


def _check_pairing(row: Row[Any]) -> None:
    Fixed(64).encode(row.signature)


def _check_ciphertext(row: Row[Any]) -> None:
    check_named(row.sender, ShownCiphertext.from_bytes(row.body).member)


def _check_round(row: Row[Any]) -> None:
    check_named(row.cohort, Opening.from_bytes(row.opening).cohort.hex())
    if row.final is not None:
        check_named(row.state, RoundEnd.from_row(row).state)


def _check_lost(row: Row[Any]) -> None:
    check_lost(row.body, row.federation, row.context)


def _check_event(row: Row[Any]) -> None:
    if row.kind == "message":
        parse_message(row.body)


def _check_key(row: Row[Any]) -> None:
    check_named(row.public_key, bytes.fromhex(row.public_key).hex())


def _check_token(row: Row[Any]) -> None:
    check_named(row.sha256, bytes.fromhex(row.sha256).hex())
    list(map(Scope, row.scopes.split()))


_ROW_CHECKS: tuple[tuple[Table, Callable[[Row[Any]], None], str], ...] = (
    (rosters, _check_roster, "roster {0.number} of federation {0.federation}"),
    (studies, _check_study, "study {0.hash} of federation {0.federation}"),
    (cohorts, _check_cohort, "cohort {0.id} of federation {0.federation}"),
    (cards, _check_card, "card of {0.member} in cohort {0.cohort}"),
    (pairings, _check_pairing, "pairing of {0.member} in cohort {0.cohort}"),
    (ciphertexts, _check_ciphertext, "ciphertext of {0.sender} for {0.recipient} in cohort {0.cohort}"),
    (rounds, _check_round, "round {0.id} of federation {0.federation}"),
    (lost_contexts, _check_lost, "Lost of context {0.context} in federation {0.federation}"),
    (events, _check_event, "event {0.number} of round {0.round}"),
    (tokens, _check_token, "token {0.id}"),
    (coordinator, _check_key, "coordinator's public key"),
)
"""For each table, how to read a row and what to call it."""


async def find_damage(settings: Settings) -> dict[str, list[str]]:
    """Return the names of damaged parts of a coordinator's database, and of its blobs. Changes nothing.

    Raises:
        Misuse: a coordinator works on the data folder's SQLite, the database can't be reached, or has another format.
    """
    async with stores.connect_database(settings) as database:
        await check_format(database)
        with reword_errors():
            damaged = [f"file: {words}" for words in await database.find_damage()]
        for table, read, name in _ROW_CHECKS:
            damaged += await _check_rows(database, table, read, name)
        damaged += await _check_signatures(database)
        damaged += await _check_chains(database)
        damaged += await _check_log(database)
        damaged += await _check_blobs(database, stores.blobs_of(settings))
    return {"damaged": damaged}


async def check_format(database: Database) -> None:
    """Refuse a database of another release's format (Misuse)."""
    with reword_errors(), suppress(DatabaseError):
        found = await database.read(migrating.current_format)
        if found != migrating.newest_format():
            raise Misuse(
                f"the database has the format {found or 'of no release'}, and this release checks {migrating.newest_format()}: check it with the "
                "release that wrote it"
            )


async def _check_rows(
    database: Database, table: Table, read: Callable[[Row[Any]], None], name: str
) -> list[str]:
    damaged = list[str]()

    def check_rows(connection: Connection) -> None:
        for row in connection.execute(select(table), execution_options={"yield_per": EVENTS_PER_READ}):
            try:
                read(row)
            except Exception:  # noqa: BLE001 - damaged rows fail anywhere
                damaged.append(name.format(row))

    try:
        await database.read(check_rows)
    except Exception as error:  # noqa: BLE001 - a damaged file's, which has no class of its own
        damaged.append(f"table {table.name}: not all rows can be read ({type(error).__name__})")
    return damaged


async def _check_blobs(database: Database, blobs: Blobs) -> list[str]:
    try:
        key = await database.read_value(select(coordinator.c.public_key))
        found = find_damaged_blobs(
            database, blobs, bytes.fromhex(key or ""), pause=lambda _: asyncio.sleep(0)
        )
        return [f"blob {name}" async for name in found]
    except Exception as error:  # noqa: BLE001 - as above
        return [f"blobs: not all can be checked ({type(error).__name__})"]


async def _check_signatures(database: Database) -> list[str]:
    """Check studies and openings by the rosters' keys, and rounds' ids. What can't be read at all has another name."""
    damaged = list[str]()

    def check_rows(connection: Connection) -> None:
        keys = set[tuple[str, bytes]]()
        for row in connection.execute(select(rosters)):
            with suppress(PeerFault):
                keys.add((row.federation, Roster.from_bytes(row.body).study_key))
        for row in connection.execute(select(studies)):
            with suppress(PeerFault):
                study = Study.from_bytes(row.body)
                if not any(
                    has_signed(key, study) for federation, key in keys if federation == row.federation
                ):
                    damaged.append(
                        f"study {row.hash} of federation {row.federation}: its signature has changed"
                    )
        for row, attempt in _list_attempts(connection):
            name = round_name(attempt.context)
            if name != row.id:
                damaged.append(f"round {row.id}: it was opened as {name}")
            try:
                attempt.opening.verify(attempt.roster.coordinator, "coordinator")
            except PeerFault:
                damaged.append(f"round {row.id}: its opening has changed")

    try:
        await database.read(check_rows)
    except Exception as error:  # noqa: BLE001 - as above
        damaged.append(f"table rounds: not all signatures can be checked ({type(error).__name__})")
    return damaged


def find_misnamed_rounds(connection: Connection) -> dict[str, str]:
    """Return what the rounds that are stored under another id were opened as."""
    names = {row.id: round_name(attempt.context) for row, attempt in _list_attempts(connection)}
    return {stored: name for stored, name in names.items() if stored != name}


def _list_attempts(connection: Connection) -> Iterator[tuple[Row[Any], Attempt]]:
    """Yield the rounds that can be read."""
    for row in connection.execute(select(rounds), execution_options={"yield_per": EVENTS_PER_READ}):
        with suppress(Exception):
            attempt = read_attempt(connection, row)
            yield row, attempt


def read_attempt(connection: Connection, row: Row[Any]) -> Attempt:
    """Read a round's attempt. Raises any error if a part of it is damaged."""
    cohort = connection.execute(select(cohorts).where(cohorts.c.id == row.cohort)).one()
    own = rosters.c.federation == row.federation, rosters.c.number == cohort.roster_number
    roster = connection.execute(select(rosters.c.body).where(*own)).scalar_one()
    own = studies.c.federation == row.federation, studies.c.hash == cohort.study
    study = connection.execute(select(studies.c.body).where(*own)).scalar_one()
    return Attempt(
        Roster.from_bytes(roster),
        Study.from_bytes(study),
        Manifest.from_bytes(cohort.manifest),
        Opening.from_bytes(row.opening),
    )


async def _check_chains(database: Database) -> list[str]:
    try:
        return [f"chain of federation {federation}" for federation in await find_broken_chains(database)]
    except Exception as error:  # noqa: BLE001 - as above
        return [f"table links: not all rows can be read ({type(error).__name__})"]


async def find_broken_chains(database: Database) -> list[str]:
    """Return the federations whose links don't agree with the rows of their ended rounds."""
    ended = select(rounds).where(rounds.c.final.is_not(None)).order_by(rounds.c.number)
    rows = await database.read_rows(ended)
    chain = await database.read_rows(select(links).order_by(links.c.position))
    broken = list[str]()
    for federation in sorted({row.federation for row in (*rows, *chain)}):
        pairs = zip_longest(
            *([row for row in each if row.federation == federation] for each in (rows, chain))
        )
        places = [row.position for row in chain if row.federation == federation]
        if places != list(range(len(places))) or not all(starmap(_link_fits, pairs)):
            broken.append(federation)
    return broken


def _link_fits(row: Row[Any] | None, stored: Row[Any] | None) -> bool:
    if row is None or stored is None:
        return False
    try:
        link, closing = Link.from_bytes(stored.body), read_closing(row.closing)
    except Exception:  # noqa: BLE001 - as above
        return False
    said = link.cohort.hex(), link.sequence, link.attempt, round_name(link.context)
    own = row.cohort, row.sequence, row.attempt, row.id
    return said == own and (link.reason, link.survivors) == (closing.reason, closing.survivors_hash)


async def _check_log(database: Database) -> list[str]:
    """Check the audit log's chain."""
    try:
        end, head = await database.read(read_log_ends)
    except Exception as error:  # noqa: BLE001 - as above
        return [f"audit log: {error.detail if isinstance(error, PeerFault) else type(error).__name__}"]
    return [] if head == end else ["audit log: it does not end where its head says"]


def read_log_ends(connection: Connection) -> tuple[End, End]:
    """Return where the audit log's entries end, and where its head says. Raises PeerFault if the entries don't follow each other."""
    head = connection.execute(select(audit_head).where(audit_head.c.id == END_ID)).one_or_none()
    rows = connection.execute(select(audit).order_by(audit.c.number)).mappings()
    end = follow_entries((AuditEntry.model_validate(dict(row)) for row in rows), read_log_start(connection))
    return end, End(head.number, head.head) if head else EMPTY_LOG_END


def read_log_start(connection: Connection) -> End:
    """Return the position that the first entry kept follows. Raises PeerFault if the coordinator did not sign it."""
    pruned = connection.execute(select(audit_head).where(audit_head.c.id == START_ID)).one_or_none()
    if pruned is None:
        return EMPTY_LOG_END
    signed = AuditHead.model_validate(pruned, from_attributes=True)
    public = connection.execute(select(coordinator.c.public_key)).scalar_one()
    signed.verify(bytes.fromhex(public))
    return signed.end
