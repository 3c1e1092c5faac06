"""A few of the campaign's faults, and that every kind of stored thing is there in some state."""

import random
from pathlib import Path

import pytest

from assurance.kill.damage import BLOB_FOLDERS, FLIPPED, LOST, Fault, Kind
from assurance.kill.losses import Found, try_fault
from assurance.kill.pasts import make_past

WAYS = {
    Fault("checking", Kind("blobs", "events"), LOST): ["it went on"],
    Fault("revealing", Kind("events", "round"), FLIPPED): ["admin close"],
    Fault("done", Kind("coordinator", "public_key"), FLIPPED): ["db repair"],
    Fault("done", Kind("blobs", "transcripts"), LOST): ["put back"],
    Fault("done", Kind("files", "coordinator.sqlite3"), LOST): ["backup restore"],
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", WAYS, ids=str)
async def test_a_fault_is_left_by_its_way_and_no_folder_is_left_out(tmp_path: Path, fault: Fault) -> None:
    past, found = await make_past(tmp_path / "past", fault.state), Found()
    assert (fault.kind, fault.how) in past.present
    blobs = past.folder / "blobs"
    stored = {path.relative_to(blobs).parts[0] for path in blobs.rglob("*") if path.is_file()}
    assert await try_fault(past, tmp_path / "copy", fault, random.Random(0), found)
    assert found.faults == []
    assert found.ways.keys() >= {*WAYS[fault]}
    assert stored <= set(BLOB_FOLDERS)
