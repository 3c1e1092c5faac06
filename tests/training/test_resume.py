import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tests.support.digits import DIGITS, MLP, KilledError, kill_after
from training.algorithms.named import ALGORITHMS
from training.data.catalogue import load_digits_dataset
from training.federated import DivergedError, Trained, train
from training.models.config import ExtractorConfig
from training.partition import dirichlet_partition
from training.recipe import Constant, Recipe, fedavg_recipe, spherefed_recipe
from training.resume import ResumeError, RoundRecord, RunState, Snapshots

PARTITION = dirichlet_partition(DIGITS.train.y[:400].numpy(), 4, 0.5, np.random.default_rng(0), min_size=10)
STATEFUL = ["fedavg", "fedopt", "scaffold", "feddyn", "moon", "gmv", "fedper"]


def outcome(trained: Trained) -> Any:
    def bits(state: dict[str, torch.Tensor]) -> list[bytes]:
        return [tensor.numpy().tobytes() for _, tensor in sorted(state.items())]

    history = [(r.lr, r.local_loss, r.test_loss, r.accuracy) for r in trained.history]
    return bits(trained.classifier.state_dict()), history, [bits(s) for m in trained.memory for s in m]


def recipe(name: str = "fedavg", **choices: Any) -> Recipe:
    values: dict[str, Any] = {"rounds": 4, "local_epochs": 1, "participation": 0.5, "augment": True}
    return fedavg_recipe(
        MLP, algorithm=ALGORITHMS[name](), **values | {"lr": 0.05, "batch_size": 64} | choices
    )


@pytest.mark.parametrize("name", STATEFUL)
def test_a_killed_run_goes_on_bit_for_bit(tmp_path: Path, name: str) -> None:
    snapshot = tmp_path / "run"
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


def test_a_kill_at_any_write_costs_no_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copies: list[Path] = []

    def copy() -> Path:
        copies.append(tmp_path / str(len(copies)))
        shutil.copytree(tmp_path / "run", copies[-1])
        return copies[-1]

    def before(action: Callable[..., Any]) -> Callable[..., Any]:
        def copied(*args: Any, **options: Any) -> Any:
            copy()
            return action(*args, **options)

        return copied

    def torn(tensors: Any, path: Path, metadata: Any) -> None:
        save_file(tensors, path, metadata)
        copied = copy() / path.name
        copied.write_bytes(copied.read_bytes()[:-1])

    monkeypatch.setattr("training.checkpoint.save_file", torn)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", before(Path.replace))
        patched.setattr(Path, "unlink", before(Path.unlink))
        whole = train(recipe("scaffold", rounds=2), DIGITS, PARTITION, snapshot=tmp_path / "run")
    # In each of two rounds two members' files and the server's are written and renamed, then a server's file is removed.
    assert len(copies) >= 2 * 3 * 2 + 1
    monkeypatch.undo()
    for each in copies:
        resumed = train(recipe("scaffold", rounds=2), DIGITS, PARTITION, snapshot=each)
        assert outcome(resumed) == outcome(whole)


def test_a_snapshot_writes_only_the_members_that_took_part(tmp_path: Path) -> None:
    written: list[dict[str, int]] = []

    def look(record: RoundRecord) -> None:
        written.append({path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()})

    choices = recipe("scaffold", rounds=5, participation=0.25)
    train(choices, DIGITS, PARTITION, snapshot=tmp_path, snapshot_every=2, progress=look)
    fresh = [
        sorted(name.split("-")[0] for name, when in after.items() if before.get(name) != when)
        for before, after in pairwise([{}, *written])
    ]
    # One of four members takes part in a round: at most two between two snapshots, and one in the last round.
    assert [each[-1:] for each in fresh] == [[], ["server"], [], ["server"], ["server"]]
    assert [len(each) - 1 <= most for each, most in zip(fresh, (0, 2, 0, 2, 1), strict=True)] == [True] * 5
    assert all("member" in each for each in (fresh[1], fresh[3], fresh[4]))


def test_a_run_goes_on_for_more_rounds_if_its_rates_do_not_depend_on_them(tmp_path: Path) -> None:
    short, long = (recipe("scaffold", rounds=rounds, schedule=Constant()) for rounds in (2, 4))
    train(short, DIGITS, PARTITION, snapshot=tmp_path)
    resumed = train(long, DIGITS, PARTITION, snapshot=tmp_path)
    assert [record.rounds for record in resumed.history] == [4] * 4
    assert outcome(resumed) == outcome(train(long, DIGITS, PARTITION))
    with pytest.raises(ResumeError, match=r"\b4 rounds.*\b2\b"):
        train(short, DIGITS, PARTITION, snapshot=tmp_path)


def test_a_cosine_does_not_go_on_for_more_rounds(tmp_path: Path) -> None:
    train(recipe(rounds=2), DIGITS, PARTITION, snapshot=tmp_path)
    with pytest.raises(ResumeError, match=r"round 2 .*0\.025, .*0\.0426777"):
        train(recipe(rounds=4), DIGITS, PARTITION, snapshot=tmp_path)


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
    choices = spherefed_recipe(MLP, rounds=4, local_epochs=1, calibrate_every=2)
    with pytest.raises(KilledError):
        train(choices, DIGITS, PARTITION, snapshot=tmp_path / "run", progress=kill_after(3))
    resumed = train(choices, DIGITS, PARTITION, snapshot=tmp_path / "run")
    assert outcome(resumed) == outcome(train(choices, DIGITS, PARTITION))


def test_another_experiment_is_not_gone_on_from(tmp_path: Path) -> None:
    snapshot = tmp_path / "run"
    train(recipe(rounds=1), DIGITS, PARTITION, snapshot=snapshot)
    with pytest.raises(ResumeError, match=r"\blr .*0\.1 .*0\.05"):
        train(recipe(rounds=1, lr=0.1), DIGITS, PARTITION, snapshot=snapshot)
    other = dirichlet_partition(DIGITS.train.y.numpy(), 4, 0.5, np.random.default_rng(1), min_size=10)
    with pytest.raises(ResumeError, match="partition is"):
        train(recipe(rounds=1), DIGITS, other, snapshot=snapshot)
    with pytest.raises(ResumeError, match="test records is"):
        train(recipe(rounds=1), load_digits_dataset(1), PARTITION, snapshot=snapshot)


def test_two_terms_may_keep_the_same_tensor(tmp_path: Path) -> None:
    same = torch.arange(6.0).reshape(2, 3)
    folder = Snapshots(tmp_path, {})
    folder.put_member(1, ({"w": same.T}, {"w": same}), 0)
    folder.commit_run(RunState({"w": same}, {}, ({}, {}), (), ()))
    again = Snapshots(tmp_path, {})
    back = again.load_run(2)
    assert back is not None
    assert torch.equal(back.weights["w"], same)
    assert back.memory[0] == ({}, {})
    assert all(map(torch.equal, (state["w"] for state in back.memory[1]), (same.T, same)))


def test_a_member_that_keeps_nothing_any_more_keeps_nothing_after_a_kill(tmp_path: Path) -> None:
    folder = Snapshots(tmp_path, {})
    for memory in ({"w": torch.ones(1)}, {}):
        folder.put_member(0, (memory,), 0)
        folder.commit_run(RunState({}, {}, ({},), (), ()))
    back = Snapshots(tmp_path, {}).load_run(1)
    assert back is not None
    assert back.memory == (({},),)


def test_a_damaged_memory_is_named(tmp_path: Path) -> None:
    train(recipe("scaffold"), DIGITS, PARTITION, snapshot=tmp_path)
    [path, *_] = tmp_path.glob("member-*")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ResumeError, match=path.name):
        train(recipe("scaffold", rounds=4), DIGITS, PARTITION, snapshot=tmp_path)


@pytest.mark.parametrize("metadata", [None, {"veilsum-run": "no JSON"}, {"veilsum-run": json.dumps({})}])
def test_what_is_no_run_is_refused(tmp_path: Path, metadata: dict[str, str] | None) -> None:
    path = tmp_path / "server-1.safetensors"
    save_file({"a": torch.zeros(1)}, path, metadata=metadata)
    with pytest.raises(ResumeError, match=path.name):
        train(recipe(), DIGITS, PARTITION, snapshot=tmp_path)
    path.write_bytes(b"no")
    with pytest.raises(ResumeError, match=path.name):
        train(recipe(), DIGITS, PARTITION, snapshot=tmp_path)


def test_a_loss_that_is_no_number_ends_the_run_and_says_what_to_do() -> None:
    with pytest.raises(DivergedError, match=r"1e\+30") as caught:
        train(recipe(lr=1e30), DIGITS, PARTITION)
    assert caught.value.round == 1


def test_so_does_a_last_step_that_leaves_no_numbers(tmp_path: Path) -> None:
    # one step a member: its loss was taken before it
    last = recipe(lr=1e30, rounds=1, local_epochs=1, batch_size=10_000)
    with pytest.raises(DivergedError, match="round 1"):
        train(last, DIGITS, PARTITION, snapshot=tmp_path / "run")
    assert not (tmp_path / "run").exists()
