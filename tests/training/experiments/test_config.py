from pathlib import Path
from typing import Any

import pytest
import torch

from tests.texts.experiments import WRONG
from training.algorithms.aggregations import FedAvg, FedNova
from training.algorithms.base import Algorithm
from training.algorithms.named import ALGORITHMS, LOCAL_ALGORITHMS
from training.algorithms.weights import ControlVariates
from training.data.dataset import Dataset
from training.experiments.choices import ConfigError
from training.experiments.config import (
    list_installed,
    list_variants,
    load_experiment,
    merge_tables,
    parse_change,
)
from training.recipe import positive_hinge


def data(side: int = 32, channels: int = 3, classes: int = 100) -> Dataset:
    return Dataset(torch.zeros(1, channels, side, side), torch.zeros(1, dtype=torch.int64), classes, "data")


@pytest.mark.parametrize("change", WRONG)
def test_a_setting_that_no_experiment_has_is_refused(change: str) -> None:
    """What is wrong and what is allowed stands in tests/texts."""
    with pytest.raises(ConfigError, match=r"^digits-fedavg: "):
        load_experiment("digits-fedavg", None, parse_change(change))


def test_what_is_added_to_an_algorithm_is_all_of_it() -> None:
    needed = {"fedrep": {"head_epochs": 1}}
    every = {name: make(**needed.get(name, {})) for name, make in ALGORITHMS.items()}
    assert {
        name for name, own in every.items() if own.terms and isinstance(own.aggregation, FedAvg)
    } == LOCAL_ALGORITHMS
    by_records = {"algorithm": "fednova", "also": [{"name": "scaffold", "uniform": False}]}
    recipe = load_experiment("digits-fedavg", None, {"training": by_records}).make_recipe(data(8, 1, 10), 0)
    assert recipe.algorithm == Algorithm(FedNova(), (ControlVariates(uniform=False),))


@pytest.mark.parametrize(
    ("training", "allowed"),
    [
        ({"normalise": True, "head": "normalised"}, True),
        ({"normalise": True, "head": "simplex"}, True),
        ({"normalise": False, "head": "normalised"}, False),
        ({"normalise": True, "head": "learned"}, False),
        ({"normalise": True, "head": {"name": "learned", "bias": False}}, False),
        ({"normalise": True, "head": {"name": "orthonormal", "scale": 16}}, False),
    ],
)
def test_a_loss_of_cosines_is_given_cosines(training: dict[str, Any], *, allowed: bool) -> None:
    experiment = load_experiment("digits-fedavg", None, {"training": training | {"loss": "positive-hinge"}})
    if allowed:
        assert experiment.make_recipe(data(8, 1, 10), 0).loss == positive_hinge
    else:
        with pytest.raises(ConfigError, match="positive-hinge"):
            experiment.make_recipe(data(8, 1, 10), 0)


def test_what_only_the_data_can_tell() -> None:
    crowded = load_experiment(
        "digits-spherefed", None, {"model": {"architecture": "cnn", "options": {"dim": 9}}}
    )
    with pytest.raises(ConfigError, match=r"digits-spherefed: 10\b"):
        crowded.make_recipe(data(8, 1, 10), 0)


@pytest.mark.parametrize("algorithm", ["fedaws", {"name": "fedrep", "head_epochs": 1}])
def test_what_trains_a_head_takes_no_fixed_one(algorithm: Any) -> None:
    changes = {"training": {"algorithm": algorithm, "head": "simplex", "local_epochs": 2}}
    with pytest.raises(ConfigError, match=r"digits-fedavg: .*head"):
        load_experiment("digits-fedavg", None, changes).make_recipe(data(8, 1, 10), 0)


def test_a_file_of_ones_own_extends_and_varies(tmp_path: Path) -> None:
    (tmp_path / "base.toml").write_text(
        'extends = "digits-spherefed"\n[training]\nrounds = 3\n[variants.a.training]\nlr = 9.0\n'
    )
    (tmp_path / "own.toml").write_text(
        'extends = "base.toml"\nmethod = "mine"\n[variants.b.training]\nlr = 8.0\n'
    )
    own = load_experiment(tmp_path / "own.toml")
    assert (own.name, own.method, own.training.rounds, own.training.local_epochs) == ("own", "mine", 3, 4)
    assert list_variants(tmp_path / "own.toml") == ("a", "b")
    assert [load_experiment(str(tmp_path / "own.toml"), v).training.lr for v in "ab"] == [9.0, 8.0]
    with pytest.raises(ConfigError, match=r"'c'.* a, b"):
        load_experiment(tmp_path / "own.toml", "c")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("a = ", "TOML"),
        ('extends = "own.toml"', "extends itself"),
        ('extends = "nothing"', "'nothing'"),
        ("extends = 3", "3"),
        ("variants = 3", "variants"),
        ("variants = { a = 3 }", "variants"),
        ('name = "mine"', "'name'"),
    ],
)
def test_a_file_that_is_none(tmp_path: Path, text: str, named: str) -> None:
    (tmp_path / "own.toml").write_text(text)
    with pytest.raises(ConfigError, match=named):
        load_experiment(tmp_path / "own.toml")


def test_changes_as_words() -> None:
    assert parse_change("training.rounds=3") == {"training": {"rounds": 3}}
    assert parse_change("training.algorithm=fedprox") == {"training": {"algorithm": "fedprox"}}
    assert parse_change('training.algorithm={name = "fedprox", mu = 1}') == {
        "training": {"algorithm": {"name": "fedprox", "mu": 1}}
    }
    for text in ("training", "=3"):
        with pytest.raises(ConfigError, match=text):
            parse_change(text)
    assert merge_tables({"a": {"b": 1, "c": 2}}, {"a": {"c": 3}}, {"d": 4}) == {"a": {"b": 1, "c": 3}, "d": 4}
    assert merge_tables({"head": {"name": "simplex", "scale": 2}}, {"head": {"name": "tammes"}}) == {
        "head": {"name": "tammes"}
    }
    model = {"model": {"architecture": "mlp", "options": {"width": 8}}}
    changed = merge_tables(model, {"model": {"options": {"depth": 2}}})
    assert changed["model"] == {"architecture": "mlp", "options": {"width": 8, "depth": 2}}
    assert merge_tables(model, parse_change("model.options={}"))["model"] == {
        "architecture": "mlp",
        "options": {},
    }
    assert merge_tables({"head": "simplex"}, parse_change("head.scale=2")) == {
        "head": {"name": "simplex", "scale": 2}
    }


def test_every_shipped_experiment_loads() -> None:
    for name in list_installed():
        assert load_experiment(name).calibrate, name


def test_false_takes_an_inherited_calibration_away() -> None:
    kept = load_experiment("digits-fedavg", None, {"calibrate": {"ccvr": False, "ffc": {"ridge": 1}}})
    assert "ccvr" not in kept.calibrate
    assert kept.calibrate["ffc"] == {"ridge": 1}
