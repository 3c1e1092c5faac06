import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import children, until

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_a_killed_training_leaves_neither_records_nor_processes(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "veilsum", "train", "--workers", "2", "--snapshot-every", "1"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE) as parent:
        assert parent.stderr is not None
        assert any(
            b"round 1 of 20" in line for line in parent.stderr
        )  # a slow machine reports within the round first
        began = children(parent.pid)
        parent.kill()
        assert len(began) == 2
        until(lambda: not any(Path(f"/proc/{each}").exists() for each in began))
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]
