"""A disk fills up again and again. What can't be stored is refused, acknowledged data stays, and the round continues."""

import asyncio
import errno
import itertools
import os
import subprocess
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from assurance.outages.patience import endure
from tests.support.servers import lacking
from tests.support.serving import Process

FULL_S, MOST = 0.6, 30
"""How long the disk stays full, and how often it fills up: members' retries could otherwise keep it full for ever."""


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 16 MB, and return its folder."""
    folder = tmp_path / "disk"
    folder.mkdir(mode=0o700)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16m,mode=700", "tmpfs", folder], capture_output=True, check=False
    )
    if mounted.returncode:
        lacking(f"no file system can be mounted: {mounted.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def fill(folder: Path) -> Path:
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file:
        free = os.statvfs(folder)
        file.write(bytes(free.f_bavail * free.f_frsize))
        # More than once, because the coordinator may free space meanwhile.
        with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
            deque((file.write(bytes(1 << 16)) for _ in itertools.count()), maxlen=0)
    return filler


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_a_full_disk_loses_nothing_and_the_round_goes_on(
    small: Path, record_property: Callable[[str, object], None]
) -> None:
    (small / "data").mkdir(mode=0o700)
    process = Process(small / "data", {"VEILSUM_RESUME_GRACE_S": "0"})
    process.log.close()
    process.log = (small.parent / "log").open("ab")  # on another disk: this test is about the data
    emptying: asyncio.Task[None] | None = None
    outages = itertools.count(1)

    async def empty(filler: Path) -> None:
        await asyncio.sleep(FULL_S)
        await asyncio.to_thread(filler.unlink)

    async def strike(acknowledged: int) -> asyncio.Task[None] | None:
        nonlocal emptying
        if acknowledged % 3 or (emptying is not None and not emptying.done()) or next(outages) > MOST:
            return None
        emptying = asyncio.create_task(empty(fill(small)))
        return emptying

    record_property("figures", await endure(process, strike, within_s=600))
    assert '"status": 500' not in (small.parent / "log").read_text()
