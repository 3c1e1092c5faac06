"""A training process that is killed without warning, and the same command again."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from training.results import RunResult

COMMAND = (
    *(
        sys.executable,
        "-m",
        "veilsum",
        "train",
        "digits-fedavg",
        "--seed",
        "3",
        "--json",
        "--snapshot-every",
        "1",
    ),
    *(
        "--set",
        "training.rounds=6",
        "--set",
        "training.local_epochs=3",
        "--set",
        'training.algorithm="scaffold"',
    ),
    *("--set", "calibrate={ffc = {}}"),
)


def started(output: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, "--output", str(output)],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def rounds_made(process: subprocess.Popen[str], *, kill_after: int | None = None) -> list[int]:
    """The rounds that it says it made, until it ends or is killed."""
    made = []
    with process:
        assert process.stderr is not None
        for line in process.stderr:
            if ": round " in line:
                made.append(int(line.partition(": round ")[2].split()[0]))
            if kill_after is not None and made[-1:] == [kill_after]:
                process.send_signal(signal.SIGKILL)
                break
        process.wait()
    assert process.returncode == (0 if kill_after is None else -signal.SIGKILL)
    return made


@pytest.mark.slow
def test_a_killed_process_is_taken_up_by_the_same_command_and_ends_with_the_same_bits(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert rounds_made(started(whole)) == [1, 2, 3, 4, 5, 6]
    assert rounds_made(started(killed), kill_after=2) == [1, 2]
    assert not (killed / "seed-3" / "result.json").exists()
    first, *_, last = rounds_made(started(killed))
    assert (first > 2, last) == (True, 6)  # one or two more may have been made before the signal came
    files = [folder / "seed-3" for folder in (whole, killed)]
    assert len({(file / "extractor.safetensors").read_bytes() for file in files}) == 1
    one, other = (RunResult.model_validate_json((file / "result.json").read_text()) for file in files)
    assert one.cost.cpu_s is not None
    assert other.cost.cpu_s is None  # what was killed did not say
    assert (one.accuracy, one.per_class, one.deal) == (other.accuracy, other.per_class, other.deal)
    for line, again in zip(one.history, other.history, strict=True):
        assert line.model_copy(update={"seconds": again.seconds}) == again
    assert [each.accuracy for each in one.calibrations] == [each.accuracy for each in other.calibrations]
