"""Figures for a self-contained HTML report: plain arrays in, a data URI for `<img src>` out.

A data URI, not inline SVG: several inline drawings share one id space. Colours are Okabe and Ito's (2008), which
readers with any colour vision can tell apart; where colour carries meaning, position or a label does too.
"""

from __future__ import annotations

import base64
import io
from contextlib import contextmanager
from itertools import cycle
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy.typing as npt
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    FloatArray = npt.NDArray[np.floating]
    IntArray = npt.NDArray[np.integer]

Format: TypeAlias = Literal["svg", "png"]

BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#6B7280"
INK, RULE = "#1F2933", "#E3E7EB"
SERIES = (BLUE, ORANGE, GREEN, "#CC79A7", "#56B4E9", "#E69F00")

# Any, where matplotlib's stubs want a literal of every setting there is.
_STYLE: dict[Any, Any] = {
    "figure.facecolor": "white",
    "axes.facecolor": "white",
    "axes.edgecolor": "#9AA5B1",
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.titlelocation": "left",
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "axes.titlecolor": INK,
    "axes.titlepad": 12,
    "axes.labelsize": 10,
    "grid.color": RULE,
    "grid.linewidth": 0.8,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "xtick.minor.size": 0,
    "font.size": 10,
    "legend.frameon": False,
    # Text as outlines, and ids from a fixed salt: the file looks the same everywhere and on every run.
    "svg.fonttype": "path",
    "svg.hashsalt": "veilsum",
}


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
    with _figure(size, columns=2, width_ratios=(width * classes, 2.0)) as (figure, (cells, totals)):
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
        return _uri(figure, image)


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
    with _figure((7.2, 1.5 + 0.32 * len(order))) as (figure, (axes,)):
        axes.hlines(rows, low, high, color="#C5CDD5", linewidth=3)
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
        _legend_above(axes)
        return _uri(figure, image)


def phase_timeline(seconds: Mapping[str, float], *, image: Format = "svg") -> str:
    """When each phase ran: one bar a phase, in order, starting where the one before it ended.

    Args:
        seconds: the duration of each phase, in the order they ran.
        image: the format.
    """
    durations = np.array(list(seconds.values()))
    ends = np.cumsum(durations)
    with _figure((7.2, 1.2 + 0.4 * len(durations))) as (figure, (axes,)):
        bars = axes.barh(list(seconds), durations, left=ends - durations, color=BLUE, height=0.5)
        axes.bar_label(bars, [_duration(value) for value in durations], padding=5, fontsize=9)
        axes.invert_yaxis()
        axes.set(
            xlim=(0, float(ends[-1]) * 1.1),
            xlabel="seconds since the start",
            title=f"Phases: {_duration(float(ends[-1]))} in all",
        )
        axes.grid(visible=True, axis="x")
        axes.spines["left"].set_visible(False)
        return _uri(figure, image)


def ridge_curve(ridges: FloatArray, gcv: FloatArray, chosen: float, *, image: Format = "svg") -> str:
    """The generalised cross-validation score over λ, the chosen one marked.

    Args:
        ridges: the grid of λ > 0, ascending, of shape (m,).
        gcv: the score at each, of shape (m,).
        chosen: the λ that was taken, one of `ridges`: of scores that tie the largest.
        image: the format.
    """
    best = int(np.argmin(np.abs(ridges - chosen)))
    with _figure((7.2, 3.4)) as (figure, (axes,)):
        axes.plot(ridges, gcv, color=BLUE, linewidth=2)
        axes.axvline(ridges[best], color=ORANGE, linewidth=1, linestyle=(0, (4, 3)))
        axes.plot(ridges[best], gcv[best], "o", color=ORANGE, markersize=8)
        axes.annotate(
            f"λ = {ridges[best]:.3g}",
            (ridges[best], 1),
            xycoords=("data", "axes fraction"),
            xytext=(6, -4),
            textcoords="offset points",
            va="top",
            color=ORANGE,
            fontweight="bold",
        )
        axes.set(
            xscale="log", xlabel="ridge λ", ylabel="GCV score", title="λ by generalised cross-validation"
        )
        axes.grid(visible=True, axis="y")
        return _uri(figure, image)


def accuracy_over_rounds(
    accuracies: Mapping[str, Sequence[float]],
    *,
    levels: Mapping[str, float] | None = None,
    image: Format = "svg",
) -> str:
    """The global model's accuracy after each round: a line for each named run.

    Args:
        accuracies: per run, the accuracy in 0..1 after round 1, 2, …
        levels: named accuracies to compare with, such as a calibrated head's, drawn as dashed levels.
        image: the format.
    """
    with _figure((7.2, 3.6)) as (figure, (axes,)):
        for (name, values), colour in zip(accuracies.items(), cycle(SERIES), strict=False):
            axes.plot(
                range(1, len(values) + 1), 100 * np.asarray(values), color=colour, linewidth=2, label=name
            )
        for name, level in (levels or {}).items():
            axes.axhline(100 * level, color=GREY, linewidth=1.2, linestyle=(0, (4, 3)), label=name)
        axes.set(xlabel="round", ylabel="test accuracy (%)", title="Accuracy over rounds")
        axes.set_ylim(top=101)
        axes.margins(x=0.01)
        axes.grid(visible=True, axis="y")
        axes.locator_params(axis="x", integer=True)
        _legend_above(axes)
        return _uri(figure, image)


@contextmanager
def _figure(
    size: tuple[float, float], columns: int = 1, width_ratios: tuple[float, ...] | None = None
) -> Iterator[tuple[Figure, tuple[Axes, ...]]]:
    # Imported here: only reports need it. No pyplot: it would keep figures and choose a window system.
    from matplotlib import rc_context  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    with rc_context(_STYLE):
        figure = Figure(size, layout="constrained")
        axes = figure.subplots(1, columns, squeeze=False, width_ratios=width_ratios)
        yield figure, tuple(axes[0])


def _legend_above(axes: Axes) -> None:
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=4, borderaxespad=0.2, handletextpad=0.4)


def _duration(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def _uri(figure: Figure, image: Format) -> str:
    buffer = io.BytesIO()
    figure.savefig(buffer, format=image, dpi=160, metadata={"Date": None} if image == "svg" else None)
    kind = "svg+xml" if image == "svg" else "png"
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode()}"
