"""Self-contained HTML reports: figures, drawn from arrays as data URIs for `<img src>`, and the pages that hold them.

The palette is distinguishable with any colour vision (Okabe and Ito 2008), and position, shape or a label repeats the meaning of each
colour. Figures are data URIs rather than inline SVG, because several inline drawings would share one id space.
"""

from __future__ import annotations

import base64
import io
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy.typing as npt
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    FloatArray = npt.NDArray[np.floating]
    IntArray = npt.NDArray[np.integer]


BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#6B7280"
INK, RULE = "#1F2933", "#E3E7EB"
PALE_GREY = "#C5CDD5"

# Typed as Any because matplotlib's stubs expect a literal for every setting.
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
    # Text as outlines and ids from a fixed salt make the file the same everywhere and on every run.
    "svg.fonttype": "path",
    "svg.hashsalt": "veilsum",
}


@contextmanager
def new_figure(
    size: tuple[float, float], columns: int = 1, width_ratios: tuple[float, ...] | None = None
) -> Iterator[tuple[Figure, tuple[Axes, ...]]]:
    """Make an empty figure of `size` inches in the house style, and its axes from left to right."""
    # Only reports load matplotlib. pyplot is avoided because it keeps figures and chooses a window system.
    from matplotlib import rc_context  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    with rc_context(_STYLE):
        drawn = Figure(size, layout="constrained")
        axes = drawn.subplots(1, columns, squeeze=False, width_ratios=width_ratios)
        yield drawn, tuple(axes[0])


def render_page(package: str, **values: Any) -> str:
    """Render a package's `report.html`."""
    from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 - only reports load it

    made = Environment(
        loader=PackageLoader(package, ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return made.get_template("report.html").render(values)


_ABOVE_LEGEND = 31
"""Points between a title and its axes, with a legend of one row between them."""


def legend_above(axes: Axes) -> None:
    """Put the legend between title and plot, where it hides no data."""
    axes.legend(
        loc="lower left", bbox_to_anchor=(-0.01, 1), ncols=5, borderaxespad=0.2, handletextpad=0.4, fontsize=9
    )
    axes.set_title(axes.get_title(loc="left"), pad=_ABOVE_LEGEND)


def format_duration(seconds: float) -> str:
    """Format a duration, in milliseconds below one second."""
    return f"{1000 * seconds:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def data_uri(drawn: Figure, image: Literal["svg", "png"] = "svg") -> str:
    """Encode a figure as a data URI. The same figure gives the same bytes."""
    buffer = io.BytesIO()
    drawn.savefig(buffer, format=image, dpi=160, metadata={"Date": None} if image == "svg" else None)
    kind = "svg+xml" if image == "svg" else "png"
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode()}"


def phase_timeline(seconds: Mapping[str, float]) -> str:
    """Draw one bar per phase, in order, each starting where the previous one ended."""
    durations = np.array(list(seconds.values()))
    ends = np.cumsum(durations)
    with new_figure((7.2, 1.2 + 0.4 * len(durations))) as (figure, (axes,)):
        bars = axes.barh(list(seconds), durations, left=ends - durations, color=BLUE, height=0.5)
        axes.bar_label(bars, [format_duration(value) for value in durations], padding=5, fontsize=9)
        axes.invert_yaxis()
        axes.set(
            xlim=(0, float(ends[-1]) * 1.1),
            xlabel="seconds since the start",
            title=f"Phases: {format_duration(float(ends[-1]))} in total",
        )
        axes.grid(visible=True, axis="x")
        axes.spines["left"].set_visible(False)
        return data_uri(figure)


def ridge_curve(ridges: FloatArray, errors: FloatArray, chosen: float) -> str:
    """Draw the error, (m,), at each ridge λ, (m,) ascending, and mark the chosen one."""
    best = int(np.argmin(np.abs(ridges - chosen)))
    with new_figure((7.2, 3.4)) as (figure, (axes,)):
        axes.plot(ridges, errors, color=BLUE, linewidth=2)
        axes.axvline(ridges[best], color=ORANGE, linewidth=1, linestyle=(0, (4, 3)))
        axes.plot(ridges[best], errors[best], "o", color=ORANGE, markersize=8)
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
        axes.set(xscale="log", xlabel="ridge λ", ylabel="error", title="λ by generalised cross-validation")
        axes.grid(visible=True, axis="y")
        return data_uri(figure)


def label_distribution(counts: IntArray) -> str:
    """Draw records per member and class, counts of shape (K, C), as discs with the count as area."""
    members, classes = counts.shape
    width, height = min(0.42, 12 / classes), min(0.34, 14 / members)  # a cell's, in inches
    diameter = 72 * 0.9 * min(width, height)  # the largest disc's, in points
    size = (3.0 + width * classes, 1.3 + height * members)
    with new_figure(size, columns=2, width_ratios=(width * classes, 2.0)) as (figure, (cells, totals)):
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
        # At most 30 and 90 tick labels, because more would overlap.
        columns, rows = range(0, classes, -(-classes // 30)), range(0, members, -(-members // 90))
        cells.set_xticks(columns, [str(c) for c in columns])
        cells.set_yticks(rows, [str(k + 1) for k in rows])
        cells.grid(visible=True)
        cells.spines[["left", "bottom"]].set_visible(False)
        sizes = counts.sum(axis=1)
        _draw_totals(totals, sizes, "records", [str(sizes[k]) if k in rows else "" for k in range(members)])
        return data_uri(figure)


def _draw_totals(axes: Axes, records: IntArray, label: str, shown: Sequence[str] | None = None) -> None:
    """Draw a bar of records next to each row of the plot on the left."""
    bars = axes.barh(range(len(records)), records, color=GREY, height=0.55)
    axes.bar_label(bars, shown, padding=4, fontsize=9)
    axes.set(ylim=(len(records) - 0.4, -0.6), xticks=[], yticks=[])
    axes.set_xlabel(label, loc="left")
    axes.margins(x=0.35)
    axes.spines[:].set_visible(False)


def per_class_accuracy(
    before: FloatArray,
    after: FloatArray,
    *,
    class_names: Sequence[str] | None = None,
    labels: tuple[str, str] = ("trained head", "calibrated head"),
) -> str:
    """Draw each class's accuracy in 0..1, (C,), under two heads as a dumbbell, the least accurate class first."""
    names = class_names or [str(c) for c in range(len(before))]
    order = np.argsort(before, kind="stable")
    low, high = 100 * np.asarray(before)[order], 100 * np.asarray(after)[order]
    rows = np.arange(len(order))
    with new_figure((7.2, 1.5 + 0.32 * len(order))) as (figure, (axes,)):
        axes.hlines(rows, low, high, color=PALE_GREY, linewidth=3)
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
        return data_uri(figure)
