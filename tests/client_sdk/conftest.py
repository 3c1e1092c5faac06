import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from client_sdk.reservations import Reservations
from tests.support.federation import Federation
from veilsum.protocol import round_spec


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test pulls the plug; where writes are synced, test_contribution stops the machine at each of them."""
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)
    monkeypatch.setattr(Reservations, "synchronous", "OFF")


@pytest.fixture(autouse=True)
def _short_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that short vectors have several chunks."""
    monkeypatch.setattr(round_spec, "CHUNK_ELEMENTS", 8)


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[Federation]:
    built = Federation(tmp_path)
    yield built
    built.close()
