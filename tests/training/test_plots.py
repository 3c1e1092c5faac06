import base64
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable

import numpy as np
import pytest

from training import plots
from training.plots import Format

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


def test_matplotlib_is_loaded_only_to_draw() -> None:
    script = "import sys, training; sys.exit(bool({'matplotlib', 'sklearn'} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
