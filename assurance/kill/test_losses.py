"""A few of the campaign's faults, and that it knows every kind of stored thing."""

import random
from pathlib import Path

import pytest

from assurance.kill.losses import BLOB_FOLDERS, Fault, Found, make_past, try_fault

WAYS = {
    Fault("checking", "blobs.events", "lost"): "it went on",
    Fault("revealing", "events.round", "flipped"): "admin close",
    Fault("done", "coordinator.public_key", "flipped"): "db repair",
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", WAYS, ids=str)
async def test_a_fault_is_left_by_its_way_and_no_folder_is_left_out(tmp_path: Path, fault: Fault) -> None:
    past, found = await make_past(tmp_path, fault.state), Found()
    blobs = tmp_path / "blobs"
    stored = {path.relative_to(blobs).parts[0] for path in blobs.rglob("*") if path.is_file()}
    await try_fault(past, fault, random.Random(0), found)
    assert found.faults == []
    assert (found.tried.total(), list(found.ways)) == (1, [WAYS[fault]])
    assert stored <= set(BLOB_FOLDERS)
