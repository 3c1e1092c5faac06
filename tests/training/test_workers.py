import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tests.support.digits import DIGITS, SIX
from tests.support.digits import LARGER as MLP
from tests.support.processes import children, until
from training.algorithms.base import State, Update
from training.algorithms.named import ALGORITHMS
from training.checkpoint import save_checkpoint
from training.experiments.config import load_experiment
from training.experiments.running import run_experiment
from training.federated import train
from training.local import LocalTrainer, Task
from training.recipe import Recipe, fedavg
from training.resume import ResumeError, RoundRecord
from training.workers import of_all

ROOT = Path(__file__).parents[2]


def recipe() -> Recipe:
    return fedavg(
        MLP, algorithm=ALGORITHMS["scaffold"](), rounds=2, local_epochs=1, participation=0.8, lr=0.05
    )


def resumed_from_a_folder_of_ones_own(snapshot: Path) -> list[int]:
    """Resume after one of two rounds. The first process's file counts, even if others have none."""

    def stop(record: RoundRecord) -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        train(recipe(), DIGITS, SIX, snapshot=snapshot, progress=stop)
    with pytest.raises(ResumeError, match="is another experiment's"):
        train(replace(recipe(), seed=1), DIGITS, SIX, snapshot=snapshot)
    seen: list[int] = []
    train(recipe(), DIGITS, SIX, snapshot=snapshot, progress=lambda record: seen.append(record.round))
    return seen


def refused(*_: object) -> None:
    raise AssertionError("an update was pickled")


def same(one: State, other: State) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def one_of_a_group(folder: Path) -> None:
    """The work of each process of `torchrun`."""
    from torch import distributed  # noqa: PLC0415

    distributed.init_process_group("gloo")
    try:
        with pytest.raises(ValueError, match="torchrun started 2 processes already"):
            train(recipe(), DIGITS, SIX, workers=2)
        rank = distributed.get_rank()
        trained_here: list[int] = []
        call = LocalTrainer.__call__

        def noted(self: LocalTrainer, task: Task) -> Update:
            trained_here.append(task.member)
            return call(self, task)

        LocalTrainer.__call__ = noted  # type: ignore[method-assign]
        pickled = distributed.all_gather_object, distributed.broadcast_object_list
        for name in ("all_gather_object", "broadcast_object_list"):
            setattr(distributed, name, refused)
        trained = train(recipe(), DIGITS, SIX)
        distributed.all_gather_object, distributed.broadcast_object_list = pickled
        assert {member % 2 for member in trained_here} == {rank}
        LocalTrainer.__call__ = call  # type: ignore[method-assign]
        kept = train(recipe(), DIGITS, SIX, snapshot=folder / "run")
        assert all(all(map(same, one, other)) for one, other in zip(trained.memory, kept.memory, strict=True))
        assert of_all(rank) == [0, 1]
        rounds = resumed_from_a_folder_of_ones_own(folder / f"own-{rank}")
        assert rounds == [2]
        quick = {"training": {"rounds": 1, "local_epochs": 1}, "model": {"architecture": "mlp"}}
        cost = run_experiment(
            load_experiment("digits-fedavg", None, {**quick, "calibrate": {}}), 0
        ).result.cost
        assert len({*of_all(cost.cpu_s)}) == 1  # the same sum in all processes
        save_checkpoint(trained.classifier, folder / f"{rank}.safetensors", preprocessing="")
        np.save(folder / f"{rank}.npy", [record.local_loss for record in trained.history])
    finally:
        distributed.destroy_process_group()


@pytest.mark.slow
def test_a_killed_training_leaves_neither_records_nor_processes(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "veilsum", "train", "--workers", "2", "--snapshot-every", "1"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE) as parent:
        assert parent.stderr is not None
        assert b"round 1 of 20" in parent.stderr.readline()
        began = children(parent.pid)
        parent.kill()
        assert len(began) == 2
        until(lambda: not any(Path(f"/proc/{each}").exists() for each in began))
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


@pytest.mark.slow
def test_torchrun_s_processes_all_have_the_bits_of_one(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*command, str(Path(__file__)), str(tmp_path)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    alone = train(recipe(), DIGITS, SIX)
    state = alone.classifier.state_dict()
    for rank in range(2):
        weights = load_file(tmp_path / f"{rank}.safetensors")
        assert all(np.array_equal(weights[name], tensor) for name, tensor in state.items())
        losses = np.load(tmp_path / f"{rank}.npy")
        np.testing.assert_array_equal(losses, [record.local_loss for record in alone.history])
    assert [path.name for path in tmp_path.glob("own-*")] == ["own-0"]
    resumed = train(recipe(), DIGITS, SIX, snapshot=tmp_path / "run")  # nothing is left to train
    for here, kept in zip(alone.memory, resumed.memory, strict=True):
        assert all(map(same, here, kept))


if __name__ == "__main__":
    one_of_a_group(Path(sys.argv[1]))
