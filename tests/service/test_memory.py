"""What the C library keeps of freed memory goes back to the system."""

import ctypes
from pathlib import Path

import pytest

from service.memory import give_back

PIECE = 100_000
"""Bytes, below what the C library maps by itself."""


def resident() -> int:
    """Bytes of this process."""
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * 4096


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="the C library is not glibc")
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
