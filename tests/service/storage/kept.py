"""`python -m tests.service.storage.kept`: store a data folder in this release's format, for later releases to open.

It has a federation with a finished round, another with a round that accepts uploads, and a third in which half the members have paired.
"""

import asyncio
import gzip
import io
import sqlite3
import tarfile
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from service.storage import migrating
from tests.support.party import SIX, Party
from tests.support.serving import Clock, read_metric, running
from veilsum.protocol import round_spec
from veilsum.system.files import make_folder

FOLDERS = Path(__file__).parent / "folders"
FINISHED, RUNNING, PAIRING = b"a" * 32, b"b" * 32, b"c" * 32
"""The seeds of the federations' admins."""
DONE, LIVE = (Party(SIX, admin_seed=seed).federation for seed in (FINISHED, RUNNING))
CHUNK_ELEMENTS = 8
"""Elements of a chunk in every kept folder."""


def opened(archive: Path, folder: Path) -> Clock:
    """Unpack a kept folder; return it with a clock that continues from its creation."""
    make_folder(folder)
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
        made_s = max(each.mtime for each in packed)
    clock = Clock()
    clock.ahead_s = made_s - time.time()
    return clock


def run_sql(folder: Path, statement: str, *values: object) -> list[Any]:
    """Run a statement on a stopped coordinator's file; return its rows. A change must change something."""
    with closing(sqlite3.connect(folder / "coordinator.sqlite3")) as file, file:
        done = file.execute(statement, values)
        assert done.rowcount, statement
        return done.fetchall()


def flip(
    folder: Path, table: str, column: str, where: str, value: str, *, after: str = "", cut: bool = False
) -> None:
    """Flip the lowest bit of a stored value's first byte, or of the byte after a text; or cut the last byte off."""
    for row, old in run_sql(folder, f"SELECT rowid, {column} FROM {table} WHERE {where} = ?", value):
        data = old.encode() if isinstance(old, str) else bytes(old)
        at = data.index(after.encode()) + len(after)
        new = data[:-1] if cut else data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        changed = new.decode() if isinstance(old, str) else new
        run_sql(folder, f"UPDATE {table} SET {column} = ? WHERE rowid = ?", changed, row)


def count_damage(what: str) -> float:
    """Return how much damage of a kind this process has found."""
    return read_metric("veilsum_storage_damaged_total", what=what)


def overwrite(folder: Path, table: str) -> None:
    """Overwrite the first page of a table."""
    path = folder / "coordinator.sqlite3"
    [(page,)] = run_sql(folder, "SELECT rootpage FROM sqlite_master WHERE name = ?", table)
    [(size,)] = run_sql(folder, "PRAGMA page_size")
    data = bytearray(path.read_bytes())
    data[(page - 1) * size : page * size] = bytes(range(256)) * (size // 256)
    path.write_bytes(data)


async def made(folder: Path) -> None:
    """Fill a new folder."""
    async with running(folder) as server:
        for seed in (FINISHED, RUNNING):
            party = Party(SIX, admin_seed=seed)
            round_id = await party.begun(server)
            if seed == RUNNING:
                await party.serve(server, round_id, "m-0")
            else:
                await party.play(server, round_id)
                await server.tidy(round_id)
        party = Party(SIX, admin_seed=PAIRING)
        await party.send_cards(server)
        for member in SIX[:3]:
            await party.pair(server, member)
    with closing(sqlite3.connect(folder / "coordinator.sqlite3")) as database:
        database.execute("VACUUM")


def packed(folder: Path) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                archive.add(path, path.relative_to(folder))
    return gzip.compress(content.getvalue(), mtime=0)


if __name__ == "__main__":
    round_spec.CHUNK_ELEMENTS = CHUNK_ELEMENTS
    with tempfile.TemporaryDirectory() as name:
        asyncio.run(made(Path(name)))
        (FOLDERS / f"{migrating.newest_format()}.tar.gz").write_bytes(packed(Path(name)))
