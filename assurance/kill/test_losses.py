"""The campaign's faults, one by one: each kind of stored thing is damaged in a state, and left by its way."""

import asyncio
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from assurance.kill.damage import BLOB_FOLDERS, FLIPPED, LOST, TABLES, Fault, Kind
from assurance.kill.losses import CHUNK_ELEMENTS, Found, try_fault
from assurance.kill.pasts import Past, make_history, make_past
from veilsum.protocol import round_spec

NOTHING, PLAY, CLOSE, REPAIR = "nothing was needed", "it went on", "admin close", "db repair"
CHANGED: dict[tuple[str, str], str] = {
    ("collecting", "rosters.body studies.body studies.hash pairings.signature"): PLAY,
    ("collecting", "rounds.opening cohorts.manifest"): CLOSE,
    ("checking", "rounds.id"): REPAIR,
    ("formed", "cohorts.manifest cohorts.study cohorts.federation"): NOTHING,
    ("formed", "cards.body ciphertexts.body"): NOTHING,
    ("done", "rounds.final rounds.closing rounds.record rounds.opening rounds.id"): NOTHING,
    ("done", "rosters.number studies.version"): NOTHING,
    ("done", "links.position coordinator.public_key"): REPAIR,
}
"""Values with a flipped bit, by state, and the way that leads on."""
GONE: dict[tuple[str, str], str] = {
    ("collecting", "rosters studies ciphertexts"): PLAY,
    ("collecting", "rounds cohorts cards"): CLOSE,
    ("formed", "cohorts cards pairings"): NOTHING,
    ("done", "rounds cohorts"): NOTHING,
    ("done", "links"): REPAIR,
}
"""Lost rows."""
FAULTS = {
    Fault(state, Kind(*name.split(".")), FLIPPED): way
    for (state, names), way in CHANGED.items()
    for name in names.split()
} | {
    Fault(state, Kind(table, TABLES[table].columns[0].name), LOST): way
    for (state, tables), way in GONE.items()
    for table in tables.split()
}
QUICK = {
    "collecting": (
        *("rosters.body", "rounds.opening", "cohorts.manifest", "pairings.signature"),
        *("studies", "cards", "ciphertexts"),
    ),
    "done": ("coordinator.public_key", "links"),
}
"""Those that are tried with every change, by state and what is flipped or the table of what is lost: each kind of record once."""
SLOW = {
    Fault("checking", Kind("blobs", "events"), LOST): PLAY,
    Fault("revealing", Kind("events", "round"), FLIPPED): CLOSE,
    Fault("done", Kind("blobs", "transcripts"), LOST): "put back",
    Fault("done", Kind("files", "coordinator.sqlite3"), LOST): "backup restore",
}


class Aimed(random.Random):
    """Chooses what belongs to the newest round, cohort and study of a past."""

    def __init__(self, past: Past) -> None:
        super().__init__(0)
        party = past.party
        self._aims = (past.round_id or party.cohort, party.cohort, party.study.hash.hex())

    def choice(self, things: Any) -> Any:
        meant = [each for aim in self._aims for each in things if aim in repr(each)]
        return (meant or things)[0]


@pytest.fixture(autouse=True)
def _chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(round_spec, "CHUNK_ELEMENTS", CHUNK_ELEMENTS)


@pytest.fixture(scope="session")
def pasts(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Past]:
    """A past in each state, played at its first use, of one history."""
    folder = tmp_path_factory.mktemp("pasts")
    history = cache(lambda: asyncio.run(make_history(folder / "history")))
    return cache(lambda state: asyncio.run(make_past(history(), folder / state, state)))


def is_quick(fault: Fault) -> bool:
    name = f"{fault.kind.place}.{fault.kind.name}" if fault.how == FLIPPED else fault.kind.place
    return fault in FAULTS and name in QUICK.get(fault.state, ())


@pytest.mark.parametrize(
    "fault",
    [pytest.param(each, marks=() if is_quick(each) else pytest.mark.slow) for each in FAULTS | SLOW],
    ids=str,
)
def test_a_fault_is_left_by_its_way_and_no_folder_is_left_out(
    tmp_path: Path, pasts: Callable[[str], Past], fault: Fault
) -> None:
    past, found = pasts(fault.state), Found()
    assert (fault.kind, fault.how) in past.present
    assert asyncio.run(try_fault(past, tmp_path / "copy", fault, Aimed(past), found))
    assert found.faults == []
    assert (FAULTS | SLOW)[fault] in found.ways
    blobs = past.folder / "blobs"
    assert {path.relative_to(blobs).parts[0] for path in blobs.rglob("*") if path.is_file()} <= set(
        BLOB_FOLDERS
    )
