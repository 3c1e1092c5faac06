"""Every kind of stored thing, and how one is flipped or lost."""

import math
import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from sqlalchemy import Column, Connection, MetaData, String, Table, and_, delete, select, update
from sqlalchemy.exc import IntegrityError

from service.settings import Settings
from service.storage import stores
from service.storage.blobs import Blobs
from service.storage.database import Database
from service.storage.folder import DATABASE_FILE
from service.storage.tables import metadata
from veilsum.system.key_files import COORDINATOR_KEY

TABLES = {
    **metadata.tables,
    "alembic_version": Table("alembic_version", MetaData(), Column("version_num", String, primary_key=True)),
}
FLIPPED, LOST = "flipped", "lost"
BLOBS, FILES = "blobs", "files"
BLOB_FOLDERS = (
    *("uploads", "sums", "events", "results", "transcripts"),
    *("combined", "canaries", "heads", "sites"),
)
FILE_NAMES = (COORDINATOR_KEY, DATABASE_FILE)
"""Files of the data folder that are no blobs; the second is there on SQLite alone."""


@dataclass(frozen=True)
class Kind:
    """A kind of stored thing.

    Attributes:
        place: a table, `BLOBS` or `FILES`.
        name: a column, a folder of blobs, or a file.
    """

    place: str
    name: str

    def __str__(self) -> str:
        return f"{self.place}.{self.name}"


@dataclass(frozen=True)
class Fault:
    """What is done to a thing of a kind, in a state of its federation."""

    state: str
    kind: Kind
    how: str

    def __str__(self) -> str:
        return f"{self.kind} {self.how}, {self.state}"


def list_faults() -> list[tuple[Kind, str]]:
    """Name every kind of stored thing with each way to damage it. A row is lost as a whole, so once for each table."""
    found = list[tuple[Kind, str]]()
    for table in TABLES.values():
        found += [(Kind(table.name, column.name), FLIPPED) for column in table.columns]
        found += [(Kind(table.name, table.columns[0].name), LOST)]
    for place, names in ((BLOBS, BLOB_FOLDERS), (FILES, FILE_NAMES)):
        found += [(Kind(place, name), how) for name in names for how in (FLIPPED, LOST)]
    return found


async def list_present(settings: Settings) -> set[tuple[Kind, str]]:
    """Return the faults that a stopped coordinator's stores have a thing for."""
    async with stores.connect_database(settings) as database:
        blobs = stores.blobs_of(settings)
        return {
            (kind, how)
            for kind, how in list_faults()
            if kind.place != FILES and await _find_things(database, blobs, kind, how)
        } | {(kind, how) for kind, how in list_faults() if (settings.data_dir / kind.name).is_file()}


async def do_damage(settings: Settings, fault: Fault, draw: random.Random) -> str | None:
    """Damage a thing of a stopped coordinator. Returns its name, or None where the changed key is another row's."""
    kind = fault.kind
    if kind.place == FILES:
        path = settings.data_dir / kind.name
        content = path.read_bytes()
        path.unlink()
        if fault.how == FLIPPED:
            path.touch(0o600)
            path.write_bytes(flip_value(content, draw))
        return kind.name
    async with stores.connect_database(settings) as database:
        blobs = stores.blobs_of(settings)
        chosen = draw.choice(await _find_things(database, blobs, kind, fault.how))
        if kind.place == BLOBS:
            content = blobs.get(chosen)
            blobs.delete(chosen)
            if fault.how == FLIPPED:
                blobs.put(chosen, flip_value(content, draw))
            return str(chosen)
        column = TABLES[kind.place].columns[kind.name]
        try:
            await database.write(partial(_damage_row, column, chosen, fault.how, draw))
        except IntegrityError:
            return None
    return kind.name


async def _find_things(database: Database, blobs: Blobs, kind: Kind, how: str) -> list[Any]:
    """Return the things of a kind that can be damaged so: rows, or names of blobs."""
    if kind.place == BLOBS:
        return sorted(_list_blobs(blobs, kind.name))
    column = TABLES[kind.place].columns[kind.name]
    rows = await database.read_rows(select(column.table))
    return sorted(
        (row for row in rows if how == LOST or getattr(row, kind.name) not in {None, "", b""}), key=repr
    )


def flip_value(value: Any, draw: random.Random) -> Any:
    """Flip a bit of a stored value."""
    match value:
        case bool():
            return not value
        case int():
            return value ^ (1 << draw.randrange(8))
        case float():
            bits = bytearray(struct.pack("<d", value))
            bits[draw.randrange(8)] ^= 1 << draw.randrange(8)
            (changed,) = struct.unpack("<d", bits)
            return changed if math.isfinite(changed) else -value - 1.0
        case str():
            at = draw.randrange(len(value))
            return value[:at] + chr(ord(value[at]) ^ 1) + value[at + 1 :]
    data = bytearray(value)
    data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    return bytes(data)


def _damage_row(column: Column[Any], row: Any, how: str, draw: random.Random, connection: Connection) -> None:
    table = column.table
    own = and_(*(each == getattr(row, each.name) for each in table.primary_key.columns))
    if how == LOST:
        connection.execute(delete(table).where(own))
    else:
        value = flip_value(getattr(row, column.name), draw)
        connection.execute(update(table).where(own).values({column.name: value}))


def _list_blobs(blobs: Blobs, folder: str) -> Iterator[str]:
    for name in blobs.list_names(folder):
        inner = list(_list_blobs(blobs, f"{folder}/{name}"))
        yield from inner or [f"{folder}/{name}"]
