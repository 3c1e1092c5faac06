"""Figures of classes and members: what each holds, and what each class gains."""

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


_NONE_AT = 0.5  # where a logarithmic axis shows zero


def label_distribution(
    counts: IntArray, *, class_names: Sequence[str] | None = None, image: Format = "svg"
) -> str:
    """How many records of each class each member holds: a disc per cell, its area the count.

    Args:
        counts: of shape (K, C).
        class_names: C names; 0..C−1 where absent.
        image: the format.
    """
    members, classes = counts.shape
    names = class_names or [str(c) for c in range(classes)]
    width, height = min(0.42, 12 / classes), min(0.34, 14 / members)  # a cell's, in inches
    diameter = 72 * 0.9 * min(width, height)  # the largest disc's, in points
    size = (3.0 + width * classes, 1.3 + height * members)
    with drawing(size, columns=2, width_ratios=(width * classes, 2.0)) as (figure, (cells, totals)):
        member, label = np.nonzero(counts)
        areas = diameter**2 * counts[member, label] / counts.max()
        cells.scatter(label, member, s=areas, color=BLUE, linewidths=0)
        cells.set(
            xlim=(-0.6, classes - 0.4),
            ylim=(members - 0.4, -0.6),
            xlabel="class",
            ylabel="member",
            title=f"Records of each class at each member (largest disc: {counts.max()})",
        )
        # More names than these would run into each other.
        columns, rows = range(0, classes, -(-classes // 30)), range(0, members, -(-members // 90))
        cells.set_xticks(columns, [names[c] for c in columns])
        cells.set_yticks(rows, [str(k + 1) for k in rows])
        cells.grid(visible=True)
        cells.spines[["left", "bottom"]].set_visible(False)
        sizes = counts.sum(axis=1)
        bars = totals.barh(range(members), sizes, color=GREY, height=0.55)
        totals.bar_label(
            bars, [str(sizes[k]) if k in rows else "" for k in range(members)], padding=4, fontsize=9
        )
        totals.set(ylim=(members - 0.4, -0.6), xticks=[], yticks=[])
        totals.set_xlabel("records in all", loc="left")
        totals.margins(x=0.3)
        totals.spines[:].set_visible(False)
        return uri(figure, image)


def per_class_accuracy(
    before: FloatArray,
    after: FloatArray,
    *,
    class_names: Sequence[str] | None = None,
    labels: tuple[str, str] = ("trained head", "calibrated head"),
    image: Format = "svg",
) -> str:
    """Each class's accuracy under two heads: a dumbbell a class, the least accurate before on top.

    Args:
        before: accuracies in 0..1 under the first head, of shape (C,).
        after: the same under the second.
        class_names: C names; 0..C−1 where absent.
        labels: what the two heads are called.
        image: the format.
    """
    names = class_names or [str(c) for c in range(len(before))]
    order = np.argsort(before, kind="stable")
    low, high = 100 * np.asarray(before)[order], 100 * np.asarray(after)[order]
    rows = np.arange(len(order))
    with drawing((7.2, 1.5 + 0.32 * len(order))) as (figure, (axes,)):
        axes.hlines(rows, low, high, color=PALE, linewidth=3)
        axes.scatter(
            low, rows, s=105, color="white", edgecolors=ORANGE, linewidths=2, label=labels[0], zorder=3
        )
        axes.scatter(high, rows, s=42, color=BLUE, linewidths=0, label=labels[1], zorder=3)
        axes.set(
            yticks=rows,
            ylim=(len(rows) - 0.4, -0.6),
            ylabel="class",
            xlabel="accuracy on the test records (%)",
            title="Accuracy by class",
        )
        axes.set_xlim(right=101)
        axes.set_yticklabels([names[c] for c in order])
        axes.grid(visible=True, axis="x")
        axes.spines["left"].set_visible(False)
        legend_above(axes)
        return uri(figure, image)


def head_norms(norms: FloatArray, label_counts: IntArray, *, image: Format = "svg") -> str:
    """Each class vector's norm at each member against the records that the member holds of the class.

    CCVR's Figure 3 in one panel: where heads are biased to what their members hold, the points rise.

    Args:
        norms: ‖w_c‖, of shape (K, C).
        label_counts: of shape (K, C).
        image: the format.
    """
    with drawing((7.2, 3.6)) as (figure, (axes,)):
        none = label_counts == 0
        axes.scatter(
            label_counts[~none],
            norms[~none],
            s=26,
            color=BLUE,
            alpha=0.7,
            linewidths=0,
            label="holds the class",
        )
        axes.scatter(
            np.full(none.sum(), _NONE_AT),
            norms[none],
            s=26,
            color="white",
            edgecolors=ORANGE,
            linewidths=1.2,
            label="holds none of it",
        )
        axes.set(xscale="log", xlabel="records of the class at the member", ylabel="norm of the class vector")
        axes.set_title("Members' class vectors: norm over records held")
        held = 10.0 ** np.arange(len(str(label_counts.max())))
        axes.set_xticks([_NONE_AT, *held], ["none", *(f"{tick:,.0f}" for tick in held)])
        axes.minorticks_off()
        axes.grid(visible=True, axis="y")
        legend_above(axes)
        return uri(figure, image)
