"""Figures of one calibrated head: how far its confidence is to be trusted, what each class gets, what its sums hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from training.plots.style import BLUE, GREY, ORANGE, PALE, Format, legend_above, uri
from training.plots.style import figure as drawing

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    FloatArray = npt.NDArray[np.floating]
    IntArray = npt.NDArray[np.integer]

_ROUNDING = 1e-10
_MANY_CLASSES = 60  # beyond, names would run into each other


def reliability_diagram(
    confidence: FloatArray, accuracy: FloatArray, records: IntArray, *, image: Format = "svg"
) -> str:
    """How often a head is right against how sure it is (Guo et al. 2017, Fig. 1), and how often it is how sure.

    Args:
        confidence: mean of each bin's records, in 0..1, of shape (B,), bins being equal parts of 0..1.
        accuracy: share of them that are right, of shape (B,).
        records: of each bin, of shape (B,); empty bins are left out.
        image: the format.
    """
    held, bins = records > 0, len(records)
    with drawing((7.2, 3.9), columns=2, width_ratios=(1.15, 1.0)) as (figure, (diagram, sizes)):
        diagram.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle=(0, (4, 3)), label="as sure as right")
        diagram.vlines(confidence[held], confidence[held], accuracy[held], color=PALE, linewidth=3)
        areas = 12 + 130 * np.sqrt(records[held] / records.max())
        diagram.scatter(
            confidence[held], accuracy[held], s=areas, color=BLUE, linewidths=0, zorder=3, label="a bin"
        )
        diagram.set(
            xlim=(0, 1.02), ylim=(0, 1.02), xlabel="confidence", ylabel="accuracy", title="Reliability"
        )
        diagram.grid(visible=True)
        legend_above(diagram)
        sizes.bar((np.arange(bins) + 0.5) / bins, records, width=0.86 / bins, color=ORANGE)
        sizes.set(xlim=(0, 1.02), xlabel="confidence", ylabel="records", title="Records by confidence")
        sizes.grid(visible=True, axis="y")
        return uri(figure, image)


def class_recalls(
    recalls: FloatArray,
    records: IntArray,
    *,
    class_names: Sequence[str] | None = None,
    image: Format = "svg",
) -> str:
    """The share of each class's records that a head calls that class, the least on top, beside how many there are.

    Args:
        recalls: in 0..1, of shape (C,).
        records: of each class, of shape (C,); classes without any are left out, and of more than 60 the best.
        class_names: C names; 0..C−1 where absent.
        image: the format.
    """
    held = np.flatnonzero(records)
    order = held[np.argsort(recalls[held], kind="stable")][:_MANY_CLASSES]
    names = class_names or [str(c) for c in range(len(recalls))]
    overall = 100 * float(recalls @ records / records.sum())
    rows = np.arange(len(order))
    with drawing((7.2, 1.6 + 0.3 * len(order)), columns=2, width_ratios=(3.0, 1.0)) as (figure, axes):
        shares, totals = axes
        shares.hlines(rows, overall, 100 * recalls[order], color=PALE, linewidth=3)
        shares.axvline(
            overall, color=GREY, linewidth=1, linestyle=(0, (4, 3)), label=f"all records, {overall:.1f} %"
        )
        shares.scatter(100 * recalls[order], rows, s=42, color=BLUE, linewidths=0, zorder=3, label="a class")
        shares.set(
            ylim=(len(rows) - 0.4, -0.6), xlabel="called right (%)", ylabel="class", title="Accuracy by class"
        )
        shares.set_xlim(right=101)
        shares.set_yticks(rows, [names[c] for c in order])
        shares.grid(visible=True, axis="x")
        shares.spines["left"].set_visible(False)
        legend_above(shares)
        bars = totals.barh(rows, records[order], color=GREY, height=0.55)
        totals.bar_label(bars, padding=4, fontsize=9)
        totals.set(ylim=(len(rows) - 0.4, -0.6), xticks=[], yticks=[])
        totals.set_xlabel("records held out", loc="left")
        totals.margins(x=0.35)
        totals.spines[:].set_visible(False)
        return uri(figure, image)


def eigenvalues(
    values: FloatArray, *, edge: float | None = None, ridge: float | None = None, image: Format = "svg"
) -> str:
    """The eigenvalues of V, largest first, with what drowns the small ones: the ridge, or the edge of the noise.

    Args:
        values: of shape (l,), in any order; under noise some are negative, and without it those below 10⁻¹⁰ of the largest,
            which rounding has made, are left out.
        edge: σ_V·√(2l), beyond which no eigenvalue is noise alone; None for an exact sum.
        ridge: λ; None where there is none.
        image: the format.
    """
    falling = np.sort(values)[::-1]
    index = np.arange(1, len(falling) + 1)
    with drawing((7.2, 3.6)) as (figure, (axes,)):
        if edge is not None:
            axes.axhspan(-edge, edge, color=ORANGE, alpha=0.12, linewidth=0, label=f"noise, ±{edge:.3g}")
        seen = falling > (_ROUNDING * falling[0] if edge is None else edge)
        axes.plot(index[seen], falling[seen], "o", color=BLUE, markersize=4, label="eigenvalue")
        if edge is not None:
            axes.plot(index[~seen], falling[~seen], "o", color=GREY, markersize=4)
        if ridge:
            axes.axhline(ridge, color=ORANGE, linewidth=1, linestyle=(0, (4, 3)), label=f"λ = {ridge:.3g}")
        if edge is None:
            axes.set_yscale("log")
        else:
            axes.set_yscale("symlog", linthresh=edge)
        axes.set(
            xlabel="index", ylabel="eigenvalue of V", title="What the records hold, direction by direction"
        )
        axes.grid(visible=True, axis="y")
        axes.locator_params(axis="x", integer=True)
        legend_above(axes)
        return uri(figure, image)
