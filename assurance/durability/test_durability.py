"""The quick part of `make durability`, and tests of the forgetful disk."""

import re
import shutil
from collections import Counter
from pathlib import Path, PurePosixPath

import pytest

from assurance.durability.disk import Disk, File, Folder, sync
from assurance.durability.run import cuts, lost, record
from tests.support.servers import lacking
from tests.support.simulator import of

SENDING = re.compile(r"/(?:[0-9a-f]{64}|m-\d|\d)$")
"""End of a path, after the name of what is sent."""


@pytest.mark.slow
async def test_nothing_is_acknowledged_before_it_is_on_the_disk(tmp_path: Path) -> None:
    if shutil.which("strace") is None:
        lacking("strace is not installed")
    trace = await record(tmp_path)
    found = cuts(trace, tmp_path / "data", tmp_path / "cuts")
    kinds = [SENDING.sub("", cut.answer.path.partition("?")[0]).rpartition("/")[2] for cut in found]
    sent = Counter(kinds)
    assert sent.pop("answers") >= 12, "4 receipts, votes and reveals, and what they repeat"
    assert sent == {"roster": 1, "studies": 1, "cards": 4, "pairings": 4, "uploads": 4, "chunks": 4}
    assert await lost(found) == []
    for sync_call in ("fsync", "fdatasync", "folders"):
        careless = cuts(trace, tmp_path / "data", tmp_path / sync_call, every=6, deaf=sync_call)
        assert await lost(careless), f"without {sync_call} nothing is noticed"


def test_a_file_that_is_moved_into_place_stays_only_by_three_syncs(tmp_path: Path) -> None:
    """One for the file's bytes, one for its name in the folder, and one for the folder's own name."""
    disk = Disk()
    folder = disk.make(PurePosixPath("folder"), Folder())
    file = of(File, disk.make(PurePosixPath("folder/.new"), File()))
    file.pending.append(lambda content: content.extend(b"data"))
    disk.move(PurePosixPath("folder/.new"), PurePosixPath("folder/file"))

    def left(name: str) -> dict[str, bytes]:
        top = disk.materialise(tmp_path / name)
        return {str(each.relative_to(top)): each.read_bytes() for each in top.rglob("*") if each.is_file()}

    sync(folder, 2)
    assert left("no name above") == {}
    sync(disk.top, 1)
    assert left("no bytes") == {"folder/file": b""}
    sync(file, 1)
    assert left("all") == {"folder/file": b"data"}
