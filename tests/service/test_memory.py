"""What the C library keeps of freed memory goes back to the system, and statements keep nothing that they were given."""

import ctypes
import secrets
from pathlib import Path

import pytest

from service.solving import give_back
from service.storage.dialects import Sqlite
from service.storage.tables import events

PIECE = 100_000
"""Bytes, below what the C library maps by itself."""
GLIBC = pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="the C library is not glibc")


class Used(ctypes.Structure):
    """glibc's `struct mallinfo2`."""

    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
    )]  # fmt: skip


def used() -> int:
    """Bytes that were allocated in C and not freed."""
    look = ctypes.CDLL(None).mallinfo2
    look.restype = Used
    found = look()
    return int(found.uordblks + found.hblkhd)


def resident() -> int:
    """Bytes of this process."""
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * 4096


@GLIBC
def test_pages_between_pieces_in_use_are_given_back() -> None:
    pieces = [b"x" * PIECE for _ in range(1000)]
    del pieces[1::2], pieces[: len(pieces) - 2]  # one at the top holds the heap
    held = resident()
    give_back()
    assert resident() < held - 40 * 1_000_000
    assert pieces


def test_another_library_keeps_what_it_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    give_back()


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
        async with database.transaction() as connection:
            assert len(await database.add_all(connection, events, rows)) == count
    del rows
    assert used() < before + 4_000_000
    await database.stop()
