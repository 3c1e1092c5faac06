import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from client_sdk.database import StateDatabase
from client_sdk.identity import Identity
from client_sdk.result import Result
from tests.support.consortium import NOISY, Consortium
from tests.support.remembered import remembered
from tests.support.serving import Stage, standing
from veilsum.protocol import round_spec
from veilsum.protocol.messages import Certificate, Vote, void_hash
from veilsum.protocol.shamir import share_secrets

__all__ = ["remembered"]


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Don't sync writes: no test cuts the power. Where writes are synced, test_crash stops the machine at each of them."""
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)
    monkeypatch.setattr(StateDatabase, "synchronous", "OFF")


@pytest.fixture(autouse=True, scope="module")
def _short_chunks() -> Iterator[None]:
    """Shorten chunks, so that short vectors have several."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(round_spec, "CHUNK_ELEMENTS", 8)
        yield


@pytest.fixture(scope="session")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """One coordinator for all tests."""
    with standing(tmp_path_factory.mktemp("stage") / "service") as made:
        yield made


@pytest.fixture(scope="session")
def done(stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> tuple[Consortium, Result]:
    """A federation with a finished round, and a member's result with its transcript."""
    consortium = Consortium(stage, tmp_path_factory.mktemp("federation"))
    consortium.transcripts = True
    round_id = consortium.open_round(consortium.enrol())
    result = consortium.together(consortium.contributions(round_id))["member-0"]
    consortium.close()
    return consortium, result


@pytest.fixture(scope="session")
def voided(done: tuple[Consortium, Result]) -> Result:
    """The result, and a certificate of the same attempt that says VOID."""
    consortium, result = done
    context = result.evidence.attempt.context
    votes = tuple(
        Vote.make_signed(
            Identity.load(consortium.folder / member).key,
            context=context,
            member=member,
            outcome=void_hash(context, "cancelled"),
        )
        for member in consortium.ids
    )
    certificate = Certificate(context, (), "cancelled", votes)
    return replace(result, evidence=replace(result.evidence, certificate=certificate))


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Close everything that a test has made."""
    yield
    while Consortium.made:
        Consortium.made.pop().close()


@contextmanager
def dealing_falsely() -> Iterator[None]:
    """Have the members that deal in the block deal shares of another secret than their own."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            "veilsum.protocol.sealing.share_secrets",
            lambda secrets, *rest: share_secrets([b"\x01" * 32] * len(secrets), *rest),
        )
        yield


@pytest.fixture
def consortium(stage: Stage, tmp_path: Path) -> Consortium:
    return Consortium(stage, tmp_path)


@pytest.fixture
def five(stage: Stage, tmp_path: Path) -> Consortium:
    """Five members, of whom two may be missing."""
    return Consortium(stage, tmp_path, members=5)


@pytest.fixture
def noisy(stage: Stage, tmp_path: Path) -> Consortium:
    return Consortium(stage, tmp_path, question=NOISY)
