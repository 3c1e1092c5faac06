"""Memory freed by the C library returns to the system, and statements and rounds keep none of their parameters."""

import asyncio
import ctypes
import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from service.coordination import rounds
from service.coordination.catalogue import FileShelf
from service.coordination.events import Event
from service.coordination.journal import Journal
from service.coordination.solving import give_back
from service.storage.dialects import Sqlite
from service.storage.tables import events
from tests.support.calls import record_calls
from tests.support.party import Party
from tests.support.serving import Server

PIECE = 100_000
"""Bytes of an allocation below those that the C library maps directly."""
GLIBC = pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="the C library is not glibc")


class Used(ctypes.Structure):
    """glibc's `struct mallinfo2`."""

    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
    )]  # fmt: skip


def used() -> int:
    """Return the bytes allocated in C and not freed."""
    look = ctypes.CDLL(None).mallinfo2
    look.restype = Used
    found = look()
    return int(found.uordblks + found.hblkhd)


def resident() -> int:
    """Return the resident bytes of this process."""
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * 4096


@GLIBC
def test_pages_between_pieces_in_use_are_given_back() -> None:
    pieces = [b"x" * PIECE for _ in range(1000)]
    del pieces[1::2], pieces[: len(pieces) - 2]  # one at the top holds the heap
    held = resident()
    give_back()
    assert resident() < held - 40 * 1_000_000
    assert pieces


@GLIBC
async def test_no_statement_keeps_what_it_stored(tmp_path: Path) -> None:
    """Twenty announcements of half a megabyte in one transaction, then one alone."""
    database = Sqlite(tmp_path / "events.db")
    await database.start()
    before = used()
    for first, count in ((0, 20), (20, 1)):
        rows = [
            {
                "round": "r",
                "number": first + each,
                "at_s": 0.0,
                "kind": "message",
                "body": secrets.token_bytes(500_000),
            }
            for each in range(count)
        ]
        assert len(await database.write(partial(database.add_all, table=events, rows=rows))) == count
    del rows
    assert used() < before + 4_000_000
    await database.stop()


async def test_announcements_lie_beside_the_database(server: Server, formed: Party) -> None:
    """They are neither in its rows nor in the round's memory; events refer to them, and they are deleted with the round."""
    round_id = await formed.open_round(server)
    await formed.play_until(server, round_id, "checking")
    standing, blobs = server.live(round_id).standing, server.coordinator.blobs
    announced = {sha256(formed.upload_of(member)).hexdigest() for member in formed.ids}
    assert set(blobs.list_names(f"events/{round_id}")) == announced
    bodies = await server.coordinator.database.read_values(select(events.c.body))
    assert max(map(len, bodies)) == 32 < min(len(formed.upload_of(member)) for member in formed.ids)
    assert standing is not None
    assert isinstance(standing.phase.setting.shelf, FileShelf)
    assert (await formed.play(server, round_id))["state"] == "done"
    await server.tidy(round_id)
    assert blobs.list_names("events") == ()


def unnamed_bytes(folder: Path) -> int:
    """Return the length of this process's open files in a folder that have no name any more."""
    found = 0
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            target = str(link.readlink())
            if target.startswith(f"{folder}/") and target.endswith("(deleted)"):
                found += link.stat().st_size
    return found


async def test_an_announcement_that_the_database_did_not_take_needs_no_more_room(
    server: Server, formed: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    round_id = await formed.open_round(server)
    database = type(server.coordinator.database)
    sizes = set[int]()

    async def refuse(*_: object) -> None:
        raise OSError(os.strerror(28))

    for _ in range(3):
        with monkeypatch.context() as patched:
            patched.setattr(database, "_write", refuse)
            assert (await formed.announce(server, round_id, "m-0")).status_code == 503
        sizes.add(unnamed_bytes(server.folder))
    assert (await formed.announce(server, round_id, "m-0")).status_code == 200
    assert {unnamed_bytes(server.folder)} == sizes != {0}


async def test_deliveries_are_read_as_they_are_taken(
    server: Server, formed: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a slow decryptor, only a piece of them is in memory."""
    round_id = await formed.open_round(server)
    await formed.play_until(server, round_id, "checking")
    round_ = server.live(round_id)
    assert round_.standing is not None
    phase = round_.standing.phase
    read = record_calls(monkeypatch, FileShelf, "read_delivery", lambda _, dealer, __: dealer)
    for size, pieces in ((1, 5), (1 << 17, 1)):
        monkeypatch.setattr(rounds, "LIST_PIECE_BYTES", size)
        found = round_.request_for("m-1")
        assert isinstance(found, Iterator)
        read.clear()
        taken = [next(found)]
        assert read == ["m-0", "m-2", "m-3"][: 0 if size == 1 else None]
        taken.extend(found)
        message = phase.request_for("m-1")
        assert message is not None
        assert (b"".join(taken), len(taken)) == (message.to_bytes(), pieces)


async def test_an_announcement_that_goes_with_its_round_is_no_damage(
    server: Server, formed: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process ends the round between reading the rows and reading the announcements."""
    round_id = await formed.open_round(server)
    await formed.play_until(server, round_id, "checking")
    standing = server.live(round_id).standing
    assert standing is not None
    late = Journal(server.coordinator.database, server.coordinator.blobs, round_id, standing)
    read = late._make_event

    def ended(*row: Any) -> Event:
        playing = formed.play(server, round_id)
        asyncio.run_coroutine_threadsafe(playing, loop).result()
        asyncio.run_coroutine_threadsafe(server.tidy(round_id), loop).result()
        return read(*row)

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(late, "_make_event", ended)
    end, found, _ = await late.read_unseen(0)
    assert end is not None
    assert (end.state, found) == ("done", [])
