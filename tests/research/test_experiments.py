from functools import cache
from typing import Any

import pytest
import torch

from research import reproduce_row
from research.papers import EXPERIMENTS, paper_experiment, row_of
from training.algorithms.aggregations import FedAvg, FedNova, Spreading
from training.algorithms.features import ClassVariance, RestrictedSoftmax
from training.algorithms.weights import ControlVariates, Proximal
from training.data.dataset import Dataset
from training.experiments.choices import ConfigError
from training.heads import Simplex, orthonormal_head
from training.recipe import MultiStep, mean_squared_error


def data(side: int = 32, channels: int = 3, classes: int = 100) -> Dataset:
    return Dataset(torch.zeros(1, channels, side, side), torch.zeros(1, dtype=torch.int64), classes, "data")


load = cache(paper_experiment)


@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_every_shipped_experiment_holds_choices_that_there_are_and_can_be_small(name: str) -> None:
    for variant in (None, *EXPERIMENTS[name]):
        experiment = load(name, variant)
        assert experiment.method
        assert experiment.calibrate
        assert experiment.name == (name if variant is None else f"{name}/{variant}")
    small = load(name, "small")
    assert small.scale
    assert small.data.stands_in_for
    assert small.data.name in {"cifar-10-jpeg", "tinyimagenet-100", "pacs-32", "spoken-digits"}
    assert small.model.architecture in {"moon_cnn", "mlp"}
    recipe = small.make_recipe(data(classes=10 if "cifar-10" in small.data.name else 100), 0)
    assert recipe.rounds <= 100


def named(choice: Any) -> Any:
    return choice if isinstance(choice, str) else choice["name"]


@pytest.mark.slow
def test_every_variant_can_be_small() -> None:
    for name, variants in EXPERIMENTS.items():
        for variant in variants:
            if variant != "small":
                check_small(name, variant)


def check_small(name: str, variant: str) -> None:
    alone, small = load(name, variant), load(name, "small")
    on_top, below = load(name, ("small", variant)), load(name, (variant, "small"))
    assert on_top.name == f"{name}/small+{variant}"
    assert on_top.method == alone.method
    for choice in ("head", "loss", "normalise"):
        assert getattr(on_top.training, choice) == getattr(alone.training, choice), choice
    assert named(on_top.training.algorithm) == named(alone.training.algorithm)  # a warm-up may be shorter
    assert below.scale == small.scale
    assert (below.training.rounds, below.model, below.data) == (
        small.training.rounds,
        small.model,
        small.data,
    )
    if alone.data.name == load(name, None).data.name:
        assert on_top.data == small.data
    else:  # the smaller run's limits don't apply to the variant's data set
        assert on_top.data == alone.data
    assert on_top.scale == alone.scale or on_top.scale == f"{small.scale}, except what {variant} may change"
    row = row_of(alone.name, alone.paper_row)
    assert row_of(on_top.name, on_top.paper_row, smaller=True) == row
    # A variant that the smaller run may have undone is compared with no row.
    assert row is None or row_of(below.name, below.paper_row, smaller=True) is None


def test_of_two_variants_the_last_has_its_way() -> None:
    first, last = "alpha-05", "multi-step"
    both = paper_experiment("spherefed-fedavg-mobilenetv2-ours", ("small", "k-100", last))
    assert both.name == "spherefed-fedavg-mobilenetv2-ours/small+k-100+multi-step"
    assert both.deal == {"name": "dirichlet", "members": 10, "alpha": 0.5}
    assert (both.training.rounds, both.training.participation) == (500, 0.1)
    assert both.scale.endswith(", except what k-100 and multi-step may change")
    assert row_of(both.name, None, smaller=True) is None  # no row has both
    assert row_of(f"spherefed-fedavg-mobilenetv2-ours/{first}+{last}", None) is None
    twice = paper_experiment("spherefed-fedavg-mobilenetv2-ours", (first, first))
    assert twice == paper_experiment("spherefed-fedavg-mobilenetv2-ours", first)
    with pytest.raises(ConfigError, match="has no variant 'x'"):
        paper_experiment("ccvr-fedavg", ("small", "x"))


def test_methods_are_composed_as_their_files_say() -> None:
    ours = paper_experiment(
        "spherefed-fednova-vgg13-ours", "alpha-05", {"model": {"architecture": "moon_cnn"}}
    )
    recipe = ours.make_recipe(data(), 7)
    assert (recipe.head, recipe.loss, recipe.normalise) == (orthonormal_head, mean_squared_error, True)
    assert recipe.algorithm.aggregation == FedNova()
    assert (recipe.lr, recipe.rounds, recipe.local_epochs, recipe.seed) == (0.1, 100, 10, 7)
    etf = paper_experiment("fedetf-etf-gmv", "small").make_recipe(data(classes=10), 0)
    assert etf.head == Simplex()
    assert [vars(term) for term in etf.algorithm.terms] == [{"alpha": 1.0, "warmup": 90}]
    uv = paper_experiment("feduv-stl10-feduv", "variance-only").training.algorithm
    assert uv == {"name": "feduv", "uniformity": 0.0}
    both = paper_experiment("fedetf-scaffold-fedrs", "small").make_recipe(data(classes=10), 0)
    assert both.algorithm.terms == (ControlVariates(), RestrictedSoftmax())
    assert both.algorithm.aggregation == FedAvg(uniform=True)
    aws = paper_experiment("fedetf-fedaws", "small").make_recipe(data(classes=10), 0)
    assert aws.algorithm.aggregation == Spreading(steps=30)
    steps = paper_experiment(
        "spherefed-fedavg-mobilenetv2", "multi-step", {"model": {"architecture": "moon_cnn"}}
    )
    assert steps.make_recipe(data(), 0).schedule == MultiStep(milestones=(25, 50, 75), gamma=0.1)
    with_uv = paper_experiment("ccvr-fedprox", "small", {"training": {"also": ["feduv"]}}).make_recipe(
        data(classes=10), 0
    )
    assert with_uv.algorithm.terms[:2] == (Proximal(0.001), ClassVariance())


def test_the_rows_are_at_the_papers_own_rounds() -> None:
    for row, model in (("ccvr", "moon_cnn"), ("hundred-classes", "mobilenetv2")):
        fedavg, spherefed = reproduce_row.experiments(row, shortened=False)
        assert (fedavg.method, spherefed.method) == ("FedAvg", "SphereFed")
        for each in (fedavg, spherefed):
            assert (each.training.rounds, each.training.local_epochs) == (100, 10)
            assert each.deal == {"name": "dirichlet", "members": 10, "alpha": 0.1}
            assert each.model.architecture == model
            assert each.data.train_records is None
            assert each.scale == ""
    [short, _] = reproduce_row.experiments("hundred-classes", shortened=True)
    assert (short.training.rounds, short.training.local_epochs, short.data.train_records) == (8, 1, 6_000)
    assert short.scale
