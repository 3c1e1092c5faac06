import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from training.algorithms import ALGORITHMS
from training.data import load_digits_dataset
from training.federated import DivergedError, Trained, train
from training.hardware import Hardware
from training.models import ExtractorConfig
from training.partition import dirichlet_partition
from training.recipe import Recipe, fedavg, spherefed
from training.resume import ResumeError, RoundRecord, Snapshot

DIGITS = load_digits_dataset()
PARTITION = dirichlet_partition(DIGITS.train.y.numpy(), 4, 0.5, np.random.default_rng(0), min_size=10)
MLP = ExtractorConfig("mlp", (1, 8, 8), {"hidden": 8, "dim": 10})
STATEFUL = ["fedavg", "fedopt", "scaffold", "feddyn", "moon", "gmv", "fedper"]


class KilledError(Exception):
    pass


def kill_after(rounds: int) -> Any:
    def progress(record: RoundRecord) -> None:
        if record.round == rounds:
            raise KilledError

    return progress


def outcome(trained: Trained) -> Any:
    def bits(state: dict[str, torch.Tensor]) -> list[bytes]:
        return [tensor.numpy().tobytes() for _, tensor in sorted(state.items())]

    history = [(r.lr, r.local_loss, r.test_loss, r.accuracy) for r in trained.history]
    return bits(trained.classifier.state_dict()), history, [bits(s) for m in trained.memory for s in m]


def recipe(name: str = "fedavg", **choices: Any) -> Recipe:
    values: dict[str, Any] = {"rounds": 4, "local_epochs": 1, "participation": 0.5, "augment": True}
    return fedavg(MLP, algorithm=ALGORITHMS[name](), **values | {"lr": 0.05, "batch_size": 64} | choices)


@pytest.mark.parametrize("name", STATEFUL)
def test_a_killed_run_goes_on_bit_for_bit(tmp_path: Path, name: str) -> None:
    snapshot = tmp_path / "run.safetensors"
    whole = train(recipe(name), DIGITS, PARTITION)
    with pytest.raises(KilledError):
        train(recipe(name), DIGITS, PARTITION, snapshot=snapshot, progress=kill_after(2))
    seen: list[RoundRecord] = []
    resumed = train(recipe(name), DIGITS, PARTITION, snapshot=snapshot, progress=seen.append)
    assert [record.round for record in seen] == [3, 4]
    assert outcome(resumed) == outcome(whole)
    # And once it is over, there is nothing left to train.
    assert outcome(train(recipe(name), DIGITS, PARTITION, snapshot=snapshot)) == outcome(whole)
    assert [path.name for path in tmp_path.iterdir()] == [snapshot.name]


@pytest.mark.slow
def test_so_does_one_that_convolves_by_what_a_member_kept(tmp_path: Path) -> None:
    images = replace(
        recipe("moon", rounds=3, augment=False, participation=1.0), model=ExtractorConfig("cnn", (1, 8, 8))
    )
    with pytest.raises(KilledError):
        train(images, DIGITS, PARTITION, snapshot=tmp_path / "run", progress=kill_after(2))
    resumed = train(images, DIGITS, PARTITION, snapshot=tmp_path / "run")
    assert outcome(resumed) == outcome(train(images, DIGITS, PARTITION))


def test_so_does_one_whose_head_was_calibrated_before_the_kill(tmp_path: Path) -> None:
    choices = spherefed(MLP, rounds=4, local_epochs=1, calibrate_every=2)
    with pytest.raises(KilledError):
        train(choices, DIGITS, PARTITION, snapshot=tmp_path / "run", progress=kill_after(3))
    resumed = train(choices, DIGITS, PARTITION, snapshot=tmp_path / "run")
    assert outcome(resumed) == outcome(train(choices, DIGITS, PARTITION))


def test_another_experiment_is_not_gone_on_from(tmp_path: Path) -> None:
    snapshot = tmp_path / "run.safetensors"
    train(recipe(rounds=1), DIGITS, PARTITION, snapshot=snapshot)
    with pytest.raises(ResumeError, match=r"lr is 0\.1 here and 0\.05 there"):
        train(recipe(rounds=1, lr=0.1), DIGITS, PARTITION, snapshot=snapshot)
    other = dirichlet_partition(DIGITS.train.y.numpy(), 4, 0.5, np.random.default_rng(1), min_size=10)
    with pytest.raises(ResumeError, match="partition is"):
        train(recipe(rounds=1), DIGITS, other, snapshot=snapshot)
    with pytest.raises(ResumeError, match="test records is"):
        train(recipe(rounds=1), load_digits_dataset(1), PARTITION, snapshot=snapshot)


def test_other_arithmetic_is_not_gone_on_with(tmp_path: Path) -> None:
    snapshot = tmp_path / "run.safetensors"
    train(recipe(rounds=1), DIGITS, PARTITION, snapshot=snapshot)
    with safe_open(snapshot, "pt") as file:  # what runs on the CPU were told by before there was a choice
        stated = json.loads(file.metadata()["veilsum-run"])["experiment"]
    assert stated.keys() == recipe().describe().keys() | {"partition", "training records", "test records"}
    train(recipe(rounds=1), DIGITS, PARTITION, snapshot=snapshot, hardware=Hardware(channels_last=False))
    with pytest.raises(ResumeError, match="bfloat16 is True here and None there"):
        train(recipe(rounds=1), DIGITS, PARTITION, snapshot=snapshot, hardware=Hardware(bfloat16=True))


def test_two_terms_may_keep_the_same_tensor(tmp_path: Path) -> None:
    same = torch.arange(6.0).reshape(2, 3)
    run = Snapshot({"w": same}, {}, ({},), (({"w": same.T},), ({"w": same},)), ())
    run.save(tmp_path / "run", {})
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    back = Snapshot.load(tmp_path / "run", {})
    assert torch.equal(back.weights["w"], same)
    assert [torch.equal(member["w"], own) for (member,), own in zip(back.memory, (same.T, same), strict=True)]


@pytest.mark.parametrize("metadata", [None, {"veilsum-run": "no JSON"}, {"veilsum-run": json.dumps({})}])
def test_what_is_no_run_is_refused(tmp_path: Path, metadata: dict[str, str] | None) -> None:
    path = tmp_path / "run.safetensors"
    save_file({"a": torch.zeros(1)}, path, metadata=metadata)
    with pytest.raises(ResumeError, match="no run to go on from"):
        train(recipe(), DIGITS, PARTITION, snapshot=path)
    path.write_bytes(b"no")
    with pytest.raises(ResumeError, match="no run to go on from"):
        train(recipe(), DIGITS, PARTITION, snapshot=path)


def test_a_loss_that_is_no_number_ends_the_run_and_says_what_to_do() -> None:
    with pytest.raises(DivergedError, match=r"round 1, at a learning rate of 1e\+30: lower it") as caught:
        train(recipe(lr=1e30), DIGITS, PARTITION)
    assert caught.value.round == 1


def test_so_does_a_last_step_that_leaves_no_numbers(tmp_path: Path) -> None:
    # one step a member: its loss was taken before it
    last = recipe(lr=1e30, rounds=1, local_epochs=1, batch_size=10_000)
    with pytest.raises(DivergedError, match="round 1, at a learning rate"):
        train(last, DIGITS, PARTITION, snapshot=tmp_path / "run.safetensors")
    assert not (tmp_path / "run.safetensors").exists()
