import base64
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable

import numpy as np
import pytest

from training import plots
from training.plots import Format
from training.plots.rounds import _apart
from training.plots.style import series

RNG = np.random.default_rng(0)
FIGURES: dict[str, Callable[[Format], str]] = {
    "labels": lambda image: plots.label_distribution(RNG.integers(40, size=(4, 10)), image=image),
    "many labels": lambda image: plots.label_distribution(RNG.integers(9, size=(3, 100)), image=image),
    "many members": lambda image: plots.label_distribution(RNG.integers(9, size=(95, 3)), image=image),
    "classes": lambda image: plots.per_class_accuracy(RNG.random(3), RNG.random(3), image=image),
    "named classes": lambda image: plots.per_class_accuracy(
        RNG.random(2), RNG.random(2), class_names=["cat", "dog"], image=image
    ),
    "phases": lambda image: plots.phase_timeline({"setup": 0.2, "upload": 3.0}, image=image),
    "ridge": lambda image: plots.ridge_curve(np.logspace(-3, 3, 9), RNG.random(9), 1.0, image=image),
    "rounds": lambda image: plots.accuracy_over_rounds({"FedAvg": [0.1, 0.5, 0.8]}, image=image),
    "levels": lambda image: plots.accuracy_over_rounds({"a": [0.1]}, levels={"calibrated": 0.9}, image=image),
    "bands": lambda image: plots.accuracy_bands(
        {f"method {i}": RNG.random((1 + i % 2, 3 + i)).tolist() for i in range(8)}, image=image
    ),
    "heads": lambda image: plots.accuracy_by_head(
        {f"method {i}": {"trained": [0.3, 0.4], "FFC": [0.5]} for i in range(3)}
        | {"bare": {"trained": [0.2]}},
        image=image,
    ),
    "one round": lambda image: plots.accuracy_bands({"a": [[0.5], [0.6]]}, image=image),
    "sweep": lambda image: plots.sweep_curve(
        {"FFC": [0.1, 1, 10], "other": [1, 5]},
        {"FFC": RNG.random((2, 3)).tolist(), "other": [[0.5, 0.6]]},
        parameter="λ",
        image=image,
    ),
    "norms": lambda image: plots.head_norms(RNG.random((4, 5)), RNG.integers(900, size=(4, 5)), image=image),
    "similarity": lambda image: plots.layer_similarity(
        {name: {layer: RNG.random((3, 3)) for layer in ("layer 1", "head")} for name in ("a", "b")},
        image=image,
    ),
    "one similarity": lambda image: plots.layer_similarity({"a": {"head": RNG.random((3, 3))}}, image=image),
    "constant layer": lambda image: plots.layer_similarity(
        {"a": {"dead": np.full((3, 3), np.nan), "head": RNG.random((3, 3))}}, image=image
    ),
    "spectrum": lambda image: plots.singular_values(
        {"a": np.array([3.0, 1]), "b": np.array([1.0])}, image=image
    ),
    "embedding": lambda image: plots.embedding(
        RNG.random((30, 2)),
        np.arange(30) % 3,
        {"trained": np.zeros(30, int), "FFC": np.arange(30) % 3},
        image=image,
    ),
    "features alone": lambda image: plots.embedding(RNG.random((50, 2)), np.arange(50), image=image),
    "reliability": lambda image: plots.reliability_diagram(
        np.linspace(0.05, 0.95, 10), RNG.random(10), RNG.integers(0, 9, 10), image=image
    ),
    "recalls": lambda image: plots.class_recalls(RNG.random(5), np.array([3, 0, 9, 1, 1]), image=image),
    "eigenvalues": lambda image: plots.eigenvalues(np.array([1e-14, 1.0, 30]), ridge=0.1, image=image),
    "noisy eigenvalues": lambda image: plots.eigenvalues(np.array([-2.0, 1.0, 30]), edge=4.0, image=image),
    "gain": lambda image: plots.separability_gain({"a": 1.0, "b": 2.0}, {"a": 0.1, "b": -0.02}, image=image),
}


def payload(uri: str, kind: str) -> bytes:
    prefix = f"data:image/{kind};base64,"
    assert uri.startswith(prefix)
    return base64.b64decode(uri.removeprefix(prefix), validate=True)


@pytest.mark.parametrize("figure", FIGURES.values(), ids=FIGURES)
def test_a_figure_is_an_svg_that_needs_nothing_else(figure: Callable[[Format], str]) -> None:
    svg = payload(figure("svg"), "svg+xml")
    root = ET.fromstring(svg)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    links = [value for node in root.iter() for name, value in node.attrib.items() if name.endswith("href")]
    assert all(link.startswith("#") for link in links)


def test_a_figure_is_a_png_where_asked() -> None:
    assert payload(FIGURES["phases"]("png"), "png").startswith(b"\x89PNG")


def test_the_same_figures_are_the_same_bytes() -> None:
    assert FIGURES["phases"]("svg") == FIGURES["phases"]("svg")


def test_names_at_the_ends_of_lines_are_moved_apart_and_keep_their_order() -> None:
    placed = _apart([50.0, 50.2, 49.9, 20.0], 1.0)
    assert np.argsort(placed).tolist() == np.argsort([50.0, 50.2, 49.9, 20.0]).tolist()
    assert np.diff(np.sort(placed)).min() >= 1 - 1e-9
    assert np.mean(placed) == pytest.approx(np.mean([50.0, 50.2, 49.9, 20.0]))
    assert _apart([1.0, 5.0], 1.0) == [1.0, 5.0]


def test_eighteen_lines_are_told_apart() -> None:
    styles = [str(series(i)) for i in range(18)]
    assert len(set(styles)) == 18


def test_matplotlib_is_loaded_only_to_draw() -> None:
    script = "import sys, training; sys.exit(bool({'matplotlib', 'sklearn'} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
