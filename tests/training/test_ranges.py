from collections.abc import Callable
from math import inf, nan
from typing import Any

import pytest

from training.algorithms.aggregations import ServerOptimiser, Spreading
from training.algorithms.features import (
    ClassVariance,
    FeatureDiscrepancy,
    GlobalMemory,
    ModelContrastive,
    RestrictedSoftmax,
    Uniformity,
)
from training.algorithms.weights import DynamicCorrection, DynamicPenalty, Proximal
from training.heads import Orthonormal, Simplex, Tammes
from training.ranges import below_one, check_fraction, check_positive, not_negative
from training.recipe import MultiStep

OUTSIDE: list[tuple[Any, dict[str, Any]]] = [
    (ClassVariance, {"weight": -1.0}),
    (DynamicCorrection, {"alpha": 0.0}),
    (DynamicPenalty, {"alpha": 0.0}),
    (FeatureDiscrepancy, {"weight": -0.1}),
    (GlobalMemory, {"alpha": -1.0}),
    (GlobalMemory, {"warmup": -1}),
    (ModelContrastive, {"mu": -1.0}),
    (ModelContrastive, {"temperature": 0.0}),
    (MultiStep, {"milestones": (1,), "gamma": -1.0}),
    (MultiStep, {"gamma": 0.5, "milestones": (3, -1)}),
    (Orthonormal, {"scale": 0.0}),
    (Proximal, {"mu": -5.0}),
    (RestrictedSoftmax, {"alpha": 1.5}),
    (ServerOptimiser, {"lr": 0.0}),
    (ServerOptimiser, {"momentum": 1.5}),
    (ServerOptimiser, {"beta2": 1.0}),
    (ServerOptimiser, {"tau": 0.0}),
    (Simplex, {"scale": -1.0}),
    (Spreading, {"margin": -1.0}),
    (Spreading, {"lr": nan}),
    (Tammes, {"steps": -3}),
    (Tammes, {"lr": 0.0}),
    (Uniformity, {"weight": -0.5}),
]


@pytest.mark.parametrize(("kind", "options"), OUTSIDE)
def test_what_lies_outside_of_its_range_is_named(kind: Any, options: dict[str, Any]) -> None:
    name = [*options][-1]
    with pytest.raises(ValueError, match=rf"^{name} must .*, not -?[\dn]"):
        kind(**options)


def test_where_ranges_end() -> None:
    taken: dict[Callable[..., None], list[float]] = {
        check: [] for check in (check_positive, not_negative, below_one, check_fraction)
    }
    for check, values in taken.items():
        for value in (-1.0, 0.0, 0.5, 1.0, 2.0, inf, nan):
            try:
                check(it=value)
            except ValueError:
                continue
            values.append(value)
    assert [*taken.values()] == [[0.5, 1.0, 2.0], [0.0, 0.5, 1.0, 2.0], [0.0, 0.5], [0.0, 0.5, 1.0]]
