"""The report on a head: one self-contained HTML file."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from veilsum import plots
from veilsum.calibrating.fitting import DERIVED, HEADS
from veilsum.calibration import Reliability
from veilsum.calibration.head_file import Calibrated
from veilsum.study.answers import Alone

_MANY = 100  # classes that a table shows


def render(name: str, found: Alone, head: Calibrated, seen: Reliability | None, *, personal: bool) -> str:
    """Render the report on a head, one of `HEADS`, as one HTML page that loads nothing else.

    `seen` is how it does on the hold-out set, None without one; `personal`, whether a result's pooled sums were mixed in.
    """
    answer, ridge = found.answer, None if name in DERIVED else found.answer.ridge
    grid, errors = answer.grid, answer.errors
    compared = np.zeros(0, bool) if ridge is None or grid is None or errors is None else np.isfinite(errors)
    values: dict[str, Any] = {
        "name": name,
        "title": HEADS[name],
        "personal": personal,
        "records": answer.records,
        "classes": head.head.classes,
        "ridge": ridge,
        "tried": len(compared),
        "compared": np.count_nonzero(compared),
        "curve": "",
        "eigenvalues": None,
        "seen": None,
    }
    if values["compared"] > 1 and grid is not None and errors is not None and ridge is not None:
        values["curve"] = plots.ridge_curve(grid[compared], errors[compared], ridge)
    if (V := getattr(found.statistics, "V", None)) is not None:
        values["eigenvalues"] = np.linalg.eigvalsh(V)
        values["spectrum"] = plots.eigenvalues(values["eigenvalues"], ridge)
    if seen is not None and seen.records:
        values |= {
            "seen": seen,
            "error_before": seen.calibration_errors[int(np.abs(np.log(seen.temperatures)).argmin())],
            "reliability": plots.reliability_diagram(*seen.diagram),
            "recalls": plots.class_recalls(seen.recalls, seen.confusion.sum(axis=1)),
            "rows": list(_rows(seen)),
        }
    return plots.page("veilsum.calibrating", **values)


def _rows(seen: Reliability) -> Iterator[tuple[Any, ...]]:
    """Each class, its records, its recall, the class most often predicted in its place, and how often."""
    counts = seen.confusion.sum(axis=1)
    wrong = seen.confusion - np.diag(np.diagonal(seen.confusion))
    for label in np.flatnonzero(counts)[:_MANY]:
        taken = wrong[label].argmax()
        yield label, counts[label], seen.recalls[label], taken, wrong[label, taken]
