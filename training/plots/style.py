"""One house style: light ground, few lines, colours that readers with any colour vision tell apart (Okabe and Ito 2008).

Where colour carries meaning, position, shape or a label does too. Figures come back as data URIs for `<img src>`, not as
inline SVG: several inline drawings share one id space.
"""

from __future__ import annotations

import base64
import io
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Format: TypeAlias = Literal["svg", "png"]

BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#6B7280"
INK, RULE = "#1F2933", "#E3E7EB"
SERIES = (BLUE, ORANGE, GREEN, "#CC79A7", "#56B4E9", "#E69F00")
# For the seventh series and on, the same colours again with other markers and dashes.
MARKERS = ("o", "s", "^", "D", "v", "P")
DASHES: tuple[Any, ...] = ("solid", (0, (5, 2)), (0, (1.5, 1.5)))
PALE = "#C5CDD5"

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


@contextmanager
def figure(
    size: tuple[float, float], columns: int = 1, width_ratios: tuple[float, ...] | None = None
) -> Iterator[tuple[Figure, tuple[Axes, ...]]]:
    """An empty figure in the house style, `size` in inches, with its axes from left to right."""
    # Imported here: only reports need it. No pyplot: it would keep figures and choose a window system.
    from matplotlib import rc_context  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    with rc_context(_STYLE):
        drawn = Figure(size, layout="constrained")
        axes = drawn.subplots(1, columns, squeeze=False, width_ratios=width_ratios)
        yield drawn, tuple(axes[0])


def series(index: int) -> dict[str, Any]:
    """Colour and dash of the i-th line: no two of the first eighteen are alike."""
    return {"color": SERIES[index % len(SERIES)], "linestyle": DASHES[index // len(SERIES) % len(DASHES)]}


def legend_above(axes: Axes, columns: int = 4) -> None:
    """A legend between title and plot, where it hides nothing."""
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(-0.01, 1),
        ncols=columns,
        borderaxespad=0.2,
        handletextpad=0.4,
        fontsize=9,
    )
    rows = -(-len(axes.get_legend_handles_labels()[1]) // columns)
    axes.set_title(axes.get_title(loc="left"), pad=14 + 17 * rows)


def duration(seconds: float) -> str:
    """Milliseconds below a second, else seconds."""
    return f"{1000 * seconds:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def uri(drawn: Figure, image: Format) -> str:
    """The figure as a data URI; the same figure is the same bytes."""
    buffer = io.BytesIO()
    drawn.savefig(buffer, format=image, dpi=160, metadata={"Date": None} if image == "svg" else None)
    kind = "svg+xml" if image == "svg" else "png"
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode()}"
