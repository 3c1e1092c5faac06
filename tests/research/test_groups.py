import pytest

from research.report import cells
from research.report.groups import cpu_s, groups, said
from training.models.config import ExtractorConfig
from training.recipe import fedavg_recipe, spherefed_recipe
from training.results import Calibration

from .conftest import Make

MODEL = ExtractorConfig("moon_cnn", (3, 32, 32), {"dim": 256})


def test_what_a_method_changes_is_read_from_the_recipes(make: Make) -> None:
    recipes = {
        "a": fedavg_recipe(MODEL),
        "b": fedavg_recipe(MODEL, seed=7, momentum=0.5),
        "c": spherefed_recipe(MODEL, augment=True),
    }
    [group] = groups(cells([make(experiment=name, recipe=each.describe()) for name, each in recipes.items()]))
    assert group.settings["model"] == "moon_cnn(dim=256)"
    assert group.settings["aggregation"] == "FedAvg(uniform=no)"
    assert group.settings["terms"] == "none"
    assert "seed" not in group.settings
    plain, slow, sphere = group.cells
    assert group.changes(plain) == {}
    assert said(group.changes(slow)) == "momentum 0.5"
    assert group.changes(sphere) == {
        "head": "orthonormal_head",
        "normalise": "yes",
        "loss": "mean_squared_error",
        "lr": "0.5",
        "augment": "yes",
    }


def test_who_is_first_and_what_calibrations_gain_and_cost(make: Make) -> None:
    weak, strong = make(accuracy=0.5, ccvr=0.6), make(experiment="own", accuracy=0.58, ccvr=0.62)
    [group] = groups(cells([weak, strong]))
    assert {head: cell.first.experiment for head, cell in group.best.items()} == dict.fromkeys(
        ("none", "ffc", "ccvr"), "own"
    )
    assert group.best_of_all is not None
    head, cell = group.best_of_all
    assert (head, cell.first.experiment) == ("ffc", "own")
    assert group.gains["ccvr"] == pytest.approx((10, 4))
    assert [(fit.head, fit.seconds, fit.upload_bytes) for fit in group.fits] == [
        ("ffc", None, 2_400),
        ("ccvr", None, 2_500_000),
    ]
    assert cpu_s(cell) == 100


def test_who_lacks_a_seed_is_not_ranked_with_those_that_have_all(make: Make) -> None:
    names = ("FedAvg", "BABU", "SCAFFOLD")
    runs = [make(seed=seed, experiment=name, method=name) for seed in (0, 1) for name in names]
    lucky = runs[2].model_copy(update={"accuracy": 0.9})  # its other seed diverged
    [group] = groups(cells([*runs[:2], lucky, *runs[3:5]]))
    assert [cell.first.method for cell in group.ranked] == ["FedAvg", "BABU"]
    assert group.best["none"].first.method == "FedAvg"
    assert group.notes == ("Not ranked, for they have other seeds or partitions: SCAFFOLD.",)


def test_calibrations_that_were_not_fitted_alike_are_told(make: Make) -> None:
    def fitted(seed: int, **options: float) -> Calibration:
        return Calibration(kind="all-data", accuracy=0.6, options={"lr": 0.001, "ridge": seed, **options})

    runs = [make(seed=seed, calibrations=(fitted(seed, epochs=10),)) for seed in (0, 1)]
    [alike] = groups(cells(runs))
    [unalike] = groups(cells([*runs, make(seed=2, calibrations=(fitted(2, epochs=50),))]))
    [unsaid] = groups(cells([*runs, make(seed=2, calibrations=(fitted(2),))]))
    assert alike.fitted_unalike == unsaid.fitted_unalike == {}
    assert unalike.notes == (
        "all data was not fitted alike, so that its numbers don't compare: epochs 10 in 2 runs, 50 in 1 run.",
    )
