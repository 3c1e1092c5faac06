import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from client_sdk.database import StateDatabase
from client_sdk.identity import Identity
from client_sdk.result import Result
from tests.support.federation import Federation
from tests.support.remembered import remembered
from veilsum.protocol import round_spec
from veilsum.protocol.messages import Certificate, Vote, void_hash

__all__ = ["remembered"]


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test pulls the plug; where writes are synced, test_crash stops the machine at each of them."""
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)
    monkeypatch.setattr(StateDatabase, "synchronous", "OFF")


@pytest.fixture(autouse=True)
def _short_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that short vectors have several chunks."""
    monkeypatch.setattr(round_spec, "CHUNK_ELEMENTS", 8)


@pytest.fixture(scope="session")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Federation, Result]:
    """A federation whose round is done, and a member's result with its transcript."""
    federation = Federation(tmp_path_factory.mktemp("federation"))
    federation.transcripts = True
    round_id = federation.coordinator.open_round(federation.enrol())
    result = federation.together(federation.contributions(round_id))["member-0"]
    federation.close()
    return federation, result


@pytest.fixture(scope="session")
def voided(done: tuple[Federation, Result]) -> Result:
    """The result beside a certificate of the same attempt that says VOID."""
    federation, result = done
    context = result.evidence.attempt.context
    votes = tuple(
        Vote.make(
            Identity.load(federation.folder / member).key,
            context=context,
            member=member,
            outcome=void_hash(context, "cancelled"),
        )
        for member in federation.ids
    )
    certificate = Certificate(context, (), "cancelled", votes)
    return replace(result, evidence=replace(result.evidence, certificate=certificate))


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Whatever federation a test has made is closed after it."""
    yield
    while Federation.made:
        Federation.made.pop().close()


@pytest.fixture
def federation(tmp_path: Path) -> Federation:
    return Federation(tmp_path)
