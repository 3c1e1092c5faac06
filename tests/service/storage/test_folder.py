import subprocess
import sys
from pathlib import Path

import pytest

from service.storage.folder import lock_folder
from tests.support.serving import running
from veilsum.protocol.errors import Misuse


def test_one_coordinator_at_a_time_works_on_a_folder(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from service.storage.folder import lock_folder\n"
        f"with lock_folder(Path({str(tmp_path)!r})): print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(Misuse, match=rf"process {holder.pid}.*VEILSUM_DATA_DIR"), lock_folder(tmp_path):
            pass
        (tmp_path / "coordinator.lock").unlink()
        with pytest.raises(Misuse, match="process unknown"), lock_folder(tmp_path):
            pass
        holder.kill()
    with lock_folder(tmp_path):
        pass


async def test_a_second_app_on_the_folder_refuses_to_start(tmp_path: Path) -> None:
    async with running(tmp_path):
        with pytest.raises(Misuse, match="another coordinator"):
            async with running(tmp_path):
                pass
    async with running(tmp_path):
        pass
