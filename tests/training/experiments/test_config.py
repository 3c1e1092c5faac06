from datetime import date
from math import inf
from pathlib import Path
from typing import Any

import pytest
import torch

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

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"training": {"lr": -1}}, "training.lr: Input should be greater than 0"),
    ({"trainin": {}}, "there is no 'trainin'; there are method, paper_row"),
    ({"training": {"epochs": 2}}, "there is no 'training.epochs'; there are algorithm"),
    ({"training": {"algorithm": "fedpro"}}, "training.algorithm: there is no 'fedpro'; it is one of clsprox"),
    ({"training": {"algorithm": {"mu": 1}}}, "training.algorithm: a table needs a `name`"),
    ({"training": {"algorithm": {"name": "fedprox", "nu": 1}}}, "no option 'nu'; its options are mu"),
    ({"training": {"algorithm": {"name": "fednova", "nu": 1}}}, "no option 'nu'; it has none"),
    (
        {"training": {"algorithm": {"name": "fedprox", "mu": "x"}}},
        "fedprox's mu: Input should be a valid number",
    ),
    ({"training": {"algorithm": {"name": "fedprox", "mu": -5}}}, "fedprox's mu must be finite and not"),
    ({"training": {"also": [{"name": "moon", "temperature": 0}]}}, "training.also: moon's temperature must"),
    ({"training": {"head": {"name": "tammes", "steps": -3}}}, "training.head: tammes's steps must be"),
    (
        {"training": {"schedule": {"name": "multi-step", "milestones": [3], "gamma": -1}}},
        "multi-step's gamma",
    ),
    (
        {"data": {"pooled": True}},
        "data.pooled: the test records are among those trained on; it needs [personal]",
    ),
    ({"training": {"algorithm": "fedrep"}}, "fedrep needs the option 'head_epochs'"),
    ({"training": {"also": ["fedrs", "x"]}}, "training.also: there is no 'x'"),
    ({"training": {"also": ["fednova"]}}, "training.also: fednova is what its server does"),
    ({"training": {"also": ["fedprox", {"name": "fedavgm", "lr": 0.5}]}}, "training.also: fedavgm is what"),
    (
        {"training": {"also": ["fedaws"]}},
        "or add any of clsprox, fedmmd, fedper, fedprox, fedrep, fedrs, feduv",
    ),
    ({"training": {"also": ["feddyn"]}}, "training.also: feddyn is what its server does"),
    ({"training": {"also": ["scaffold"]}}, "training.also: SCAFFOLD's control variates count members alike"),
    ({"training": {"head": "x"}}, "training.head: there is no 'x'"),
    ({"training": {"loss": "x"}}, "training.loss: there is no 'x'; it is one of cross-entropy"),
    ({"training": {"schedule": "x"}}, "training.schedule: there is no 'x'"),
    ({"deal": "x"}, "deal: there is no 'x'"),
    ({"deal": {"name": "dirichlet"}}, "dirichlet needs the option 'members'"),
    ({"model": {"architecture": "x"}}, "model.architecture: there is no 'x'"),
    ({"calibrate": {"x": {}}}, "calibrate: there is no 'x'"),
    ({"calibrate": {"ffc": {"lam": 1}}}, "ffc has no option 'lam'; its options are ridge, constant"),
    ({"personal": {"methods": {"x": {}}}}, "personal.methods: there is no 'x'"),
    ({"personal": {"methods": {"sgd": {"lam": 1}}}}, "sgd has no option 'lam'; its options are epochs, lr"),
    ({"calibrate": {"ccvr": {"transform": "tuckey"}}}, "ccvr's transform: Input should be 'tukey' or 'none'"),
    ({"calibrate": {"ccvr": {"solver": "exct"}}}, "ccvr's solver: Input should be 'sgd' or 'exact'"),
    ({"calibrate": {"ffc": {"ridge": "x"}}}, "ffc's ridge: Input should be a valid number"),
    ({"calibrate": {"ffc": {"ridge": "0.1"}}}, "ffc's ridge: Input should be a valid number"),
    ({"calibrate": {"ffc": {"ridge": -1}}}, "ffc's ridge: Input should be greater than or equal to 0"),
    ({"calibrate": {"all-data": {"epochs": 1.5}}}, "all-data's epochs: Input should be a valid integer"),
    ({"calibrate": {"rff": {"size": 0}}}, "rff's size: Input should be greater than or equal to 1"),
    ({"calibrate": {"ffc": True}}, "calibrate.ffc: Input should be a valid dictionary"),
    ({"calibrate": 1}, "calibrate: Input should be a valid dictionary"),
    ({"calibrate": {"ffc": {"ridge": date(2026, 11, 1)}}}, "ffc's ridge: Input should be a valid number"),
    ({"personal": {"methods": {"sgd": {"epochs": 1.5}}}}, "sgd's epochs: Input should be a valid integer"),
    (
        {"personal": {"methods": {"sgd": {"epochs": 0}}}},
        "sgd's epochs: Input should be greater than or equal to 1",
    ),
    ({"personal": {"methods": {"fine-tuned": {"lr": inf}}}}, "fine-tuned's lr: Input should be"),
    ({"model": {"architecture": "cnn", "options": {"depth": 9}}}, "cnn has no option 'depth'"),
    (
        {"model": {"architecture": "mlp", "options": {"dim": "x"}}},
        "mlp's dim: Input should be a valid integer",
    ),
]


def data(side: int = 32, channels: int = 3, classes: int = 100) -> Dataset:
    return Dataset(torch.zeros(1, channels, side, side), torch.zeros(1, dtype=torch.int64), classes, "data")


@pytest.mark.parametrize(("change", "reason"), WRONG)
def test_what_is_wrong_and_what_is_allowed(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_experiment("digits-fedavg", None, change)
    assert reason in str(caught.value)
    assert str(caught.value).startswith("digits-fedavg: ")


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
        with pytest.raises(ConfigError, match="positive-hinge is a loss of cosines"):
            experiment.make_recipe(data(8, 1, 10), 0)


def test_what_only_the_data_can_tell() -> None:
    crowded = load_experiment(
        "digits-spherefed", None, {"model": {"architecture": "cnn", "options": {"dim": 9}}}
    )
    with pytest.raises(ConfigError, match="digits-spherefed: 10 classes need 10 orthonormal rows"):
        crowded.make_recipe(data(8, 1, 10), 0)


@pytest.mark.parametrize(
    ("algorithm", "reason"),
    [
        ("fedaws", "FedAwS needs a trained head"),
        ({"name": "fedrep", "head_epochs": 1}, "FedRep's head epochs need a head that is learned"),
    ],
)
def test_what_trains_a_head_takes_no_fixed_one(algorithm: Any, reason: str) -> None:
    changes = {"training": {"algorithm": algorithm, "head": "simplex", "local_epochs": 2}}
    with pytest.raises(ConfigError, match=f"digits-fedavg: .*{reason}"):
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
    with pytest.raises(ConfigError, match="has no variant 'c'; it has a, b"):
        load_experiment(tmp_path / "own.toml", "c")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a = ", "is not TOML"),
        ('extends = "own.toml"', "extends itself"),
        ('extends = "nothing"', "no experiment is called 'nothing'"),
        ("extends = 3", "one name of an experiment or a file, not 3"),
        ("variants = 3", "`variants` are tables by name"),
        ("variants = { a = 3 }", "`variants` are tables by name"),
        ('name = "mine"', "there is no 'name'"),
    ],
)
def test_a_file_that_is_none(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "own.toml").write_text(text)
    with pytest.raises(ConfigError, match=reason):
        load_experiment(tmp_path / "own.toml")


def test_changes_as_words() -> None:
    assert parse_change("training.rounds=3") == {"training": {"rounds": 3}}
    assert parse_change("training.algorithm=fedprox") == {"training": {"algorithm": "fedprox"}}
    assert parse_change('training.algorithm={name = "fedprox", mu = 1}') == {
        "training": {"algorithm": {"name": "fedprox", "mu": 1}}
    }
    for text in ("training", "=3"):
        with pytest.raises(ConfigError, match="is not a setting; write a key, =, and a value"):
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
