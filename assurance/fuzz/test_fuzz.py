"""The quick part of `make fuzz`: the plain engine, and that its rules see what is broken on purpose."""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from assurance.fuzz import decoders, oracle
from assurance.fuzz.live import Live
from assurance.fuzz.oracle import Tally
from veilsum.protocol import packing
from veilsum.protocol.codec import Reader
from veilsum.protocol.coordinator import Collecting
from veilsum.protocol.messages.parse import MESSAGES
from veilsum.protocol.ring import Ring
from veilsum.protocol.unmasking import Unmasking


def everywhere(monkeypatch: pytest.MonkeyPatch, function: str, replacement: Callable[..., Any]) -> None:
    """Replace a function in every module of `protocol` that has imported it."""
    for name, module in list(sys.modules.items()):
        if name.startswith("veilsum.protocol.") and hasattr(module, function):
            monkeypatch.setattr(module, function, replacement)


def test_mutated_messages_in_live_rounds() -> None:
    tally = Live(seed=0, mutants=20).campaign(6_000)
    assert tally.violations == {}
    assert tally.delivered >= 6_000
    assert tally.resigned.total() >= 0.3 * tally.delivered
    assert tally.messages["chunk"] > 500
    assert tally.causes["accepted"] > 100
    assert len(tally.causes) > 20


def test_mutated_bytes_in_every_decoder() -> None:
    tally = decoders.campaign(0, 4_000)
    assert tally.violations == {}
    assert {"chunk", *(form.__name__ for form in MESSAGES.values())} <= tally.messages.keys()
    assert tally.causes["accepted"] > 500


def live(messages: int = 1_000) -> Tally:
    return Live(seed=3, mutants=10).campaign(messages)


def test_a_signature_that_is_not_checked_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    everywhere(monkeypatch, "verify_signature", lambda *_: None)
    assert any("a forged" in what for what in live().violations)


def test_a_path_that_is_not_checked_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    everywhere(monkeypatch, "verify", lambda *_: True)
    assert any("that its header does not cover" in what for what in live(2_500).violations)


def test_a_second_encoding_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reader, "done", lambda _: None)
    assert any("encoded otherwise" in what for what in live().violations)
    assert any("AssertionError" in what for what in decoders.campaign(0, 400).violations)


def test_another_exception_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def take(reader: Reader, count: int) -> bytes:
        taken = bytes(reader._data[reader._at : reader._at + count])
        reader._at += count
        assert len(taken) == count, "the data end"
        return taken

    monkeypatch.setattr(Reader, "take", take)
    assert any("AssertionError at test_fuzz.py" in what for what in live().violations)


def test_a_sum_that_is_not_exact_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    chunk = Unmasking.chunk
    monkeypatch.setattr(Unmasking, "chunk", lambda *arguments: chunk(*arguments) + 1)
    assert any("is not exact" in what for what in Live(seed=3, mutants=2).campaign(1_000).violations)


def test_a_chunk_that_is_not_checked_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Collecting, "check_chunk", lambda *_: None)
    assert any("bytes that were not announced" in what for what in live().violations)


def test_padding_that_is_not_checked_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def padded(data: bytes, ring: Ring, elements: int) -> object:
        size = ring.packed_bytes(elements)
        return np.frombuffer(bytes(data) + bytes(size), np.uint8)[:size]

    monkeypatch.setattr(packing, "_checked", padded)
    assert any("packed otherwise" in what for what in decoders.campaign(0, 4_000).violations.values())


def test_a_slow_call_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oracle, "SLOW_S", 0.0)
    assert any(what.endswith(": slow") for what in live(200).violations)
