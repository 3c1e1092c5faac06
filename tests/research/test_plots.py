from collections.abc import Callable

import numpy as np
import pytest

from research import plots
from research.plots import _apart
from tests.veilsum.test_plots import check_svg, payload

RNG = np.random.default_rng(0)
FIGURES: dict[str, Callable[[], str]] = {
    "bands": lambda: plots.accuracy_bands(
        {f"method {i}": RNG.random((1 + i % 2, 3 + i)).tolist() for i in range(8)}
    ),
    "heads": lambda: plots.accuracy_by_head(
        {f"method {i}": {"trained": [0.3, 0.4], "FFC": [0.5]} for i in range(3)}
        | {"bare": {"trained": [0.2]}}
    ),
    "one round": lambda: plots.accuracy_bands({"a": [[0.5], [0.6]]}),
    "sweep": lambda: plots.sweep_curve(
        {"FFC": [0.1, 1, 10], "other": [1, 5]},
        {"FFC": RNG.random((2, 3)).tolist(), "other": [[0.5, 0.6]]},
        parameter="λ",
    ),
    "norms": lambda: plots.head_norms(RNG.random((4, 5)), RNG.integers(900, size=(4, 5))),
    "similarity": lambda: plots.layer_similarity(
        {name: {layer: RNG.random((3, 3)) for layer in ("layer 1", "head")} for name in ("a", "b")}
    ),
    "one similarity": lambda: plots.layer_similarity({"a": {"head": RNG.random((3, 3))}}),
    "constant layer": lambda: plots.layer_similarity(
        {"a": {"dead": np.full((3, 3), np.nan), "head": RNG.random((3, 3))}}
    ),
    "spectrum": lambda: plots.singular_values({"a": np.array([3.0, 1]), "b": np.array([1.0])}),
    "gain": lambda: plots.separability_gain({"a": 1.0, "b": 2.0}, {"a": 0.1, "b": -0.02}),
}
POINTS: dict[str, Callable[[], str]] = {
    "embedding": lambda: plots.embedding(
        RNG.random((30, 2)), np.arange(30) % 3, {"trained": np.zeros(30, int), "FFC": np.arange(30) % 3}
    ),
    "features alone": lambda: plots.embedding(RNG.random((50, 2)), np.arange(50)),
}


@pytest.mark.parametrize("figure", FIGURES.values(), ids=FIGURES)
def test_a_figure_is_an_svg_that_needs_nothing_else(figure: Callable[[], str]) -> None:
    check_svg(figure())


@pytest.mark.parametrize("figure", POINTS.values(), ids=POINTS)
def test_a_figure_of_many_points_is_a_png(figure: Callable[[], str]) -> None:
    assert payload(figure(), "png").startswith(b"\x89PNG")


def test_names_at_the_ends_of_lines_are_moved_apart_and_keep_their_order() -> None:
    placed = _apart([50.0, 50.2, 49.9, 20.0], 1.0)
    assert np.argsort(placed).tolist() == np.argsort([50.0, 50.2, 49.9, 20.0]).tolist()
    assert np.diff(np.sort(placed)).min() >= 1 - 1e-9
    assert np.mean(placed) == pytest.approx(np.mean([50.0, 50.2, 49.9, 20.0]))
    assert _apart([1.0, 5.0], 1.0) == [1.0, 5.0]
