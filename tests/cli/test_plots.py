import base64
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable

import numpy as np
import pytest

from veilsum.cli import plots

RNG = np.random.default_rng(0)
FIGURES: dict[str, Callable[[], str]] = {
    "labels": lambda: plots.label_distribution(RNG.integers(40, size=(4, 10))),
    "many labels": lambda: plots.label_distribution(RNG.integers(9, size=(3, 100))),
    "many members": lambda: plots.label_distribution(RNG.integers(9, size=(95, 3))),
    "classes": lambda: plots.per_class_accuracy(RNG.random(3), RNG.random(3)),
    "named classes": lambda: plots.per_class_accuracy(
        RNG.random(2), RNG.random(2), class_names=["cat", "dog"]
    ),
    "phases": lambda: plots.phase_timeline({"setup": 0.2, "upload": 3.0}),
    "ridge": lambda: plots.ridge_curve(np.logspace(-3, 3, 9), RNG.random(9), 1.0),
}


def payload(uri: str, kind: str) -> bytes:
    prefix = f"data:image/{kind};base64,"
    assert uri.startswith(prefix)
    return base64.b64decode(uri.removeprefix(prefix), validate=True)


def check_svg(uri: str) -> None:
    """Check that the figure loads no external resource."""
    root = ET.fromstring(payload(uri, "svg+xml"))
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    links = [value for node in root.iter() for name, value in node.attrib.items() if name.endswith("href")]
    assert all(link.startswith("#") for link in links)


@pytest.mark.parametrize("figure", FIGURES.values(), ids=FIGURES)
def test_a_figure_is_an_svg_that_needs_nothing_else(figure: Callable[[], str]) -> None:
    check_svg(figure())


def test_matplotlib_is_loaded_only_to_draw() -> None:
    script = "import sys, training, veilsum.cli.plots; sys.exit(bool({'matplotlib', 'sklearn'} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
