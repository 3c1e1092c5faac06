"""The figures of reproductions: methods, rounds, members' heads and features."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from veilsum.cli.plots import BLUE, GREY, ORANGE, PALE_GREY, RULE, data_uri, legend_above, new_figure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    FloatArray = npt.NDArray[np.floating]
    IntArray = npt.NDArray[np.integer]

SERIES = (BLUE, ORANGE, "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
# From the seventh series on, colours repeat with other markers and dashes.
MARKERS = ("o", "s", "^", "D", "v", "P")
DASHES: tuple[Any, ...] = ("solid", (0, (5, 2)), (0, (1.5, 1.5)))


def series(index: int) -> dict[str, Any]:
    """Return the colour and dash of line `index`; the first eighteen differ."""
    return {"color": SERIES[index % len(SERIES)], "linestyle": DASHES[index // len(SERIES) % len(DASHES)]}


def accuracy_bands(
    runs: Mapping[str, Sequence[Sequence[float]]], *, title: str = "Accuracy over rounds"
) -> str:
    """Draw mean accuracy over seeds after each round, with the range of the seeds and a name at each line's end.

    Args:
        runs: per method, per seed, the accuracy in 0..1 after round 1, 2, …; seeds of unequal length are cut to the shortest.
        title: above the figure.
    """
    with new_figure((7.2, 4.2)) as (figure, (axes,)):
        ends: list[tuple[float, str, str]] = []
        longest = 1
        for i, (name, seeds) in enumerate(runs.items()):
            rounds = min(map(len, seeds))
            values = 100 * np.array([seed[:rounds] for seed in seeds])
            at, mean, style = np.arange(1, rounds + 1), values.mean(axis=0), series(i)
            axes.plot(at, mean, linewidth=1.8, **style)
            if len(seeds) > 1:
                axes.fill_between(
                    at, values.min(axis=0), values.max(axis=0), color=style["color"], alpha=0.12, linewidth=0
                )
            ends.append((float(mean[-1]), name, style["color"]))
            longest = max(longest, rounds)
        axes.set(xlabel="round", ylabel="test accuracy (%)", title=title)
        axes.set_xlim(1, max(longest, 2))
        axes.grid(visible=True, axis="y")
        axes.locator_params(axis="x", integer=True)
        low, high = axes.get_ylim()
        axes.set_ylim(low, high)
        for (value, name, colour), height in zip(
            ends, _apart([end[0] for end in ends], (high - low) / 22), strict=True
        ):
            axes.annotate(
                name,
                (1.01, (height - low) / (high - low)),
                xycoords="axes fraction",
                va="center",
                fontsize=9,
                color=colour,
                annotation_clip=False,
            )
            axes.plot(longest, value, "o", color=colour, markersize=3.5, clip_on=False)
        return data_uri(figure)


def _apart(heights: Sequence[float], gap: float) -> list[float]:
    """Move heights apart, from the top down, until neighbours are `gap` apart."""
    order = np.argsort(heights)[::-1]
    placed = np.array(heights, dtype=float)
    for above, below in pairwise(order):
        placed[below] = min(placed[below], placed[above] - gap)
    # Shift all names back, so that their mean stays where the lines end.
    return [float(height) for height in placed + (np.mean(heights) - placed.mean())]


def sweep_curve(
    values: Mapping[str, Sequence[float]],
    accuracies: Mapping[str, Sequence[Sequence[float]]],
    *,
    parameter: str,
) -> str:
    """Draw accuracy over one hyper-parameter: λ of FFC, or M_c of CCVR.

    Args:
        values: per line, the tried values > 0.
        accuracies: per line, per seed, the accuracy in 0..1 at each.
        parameter: the axis' name.
    """
    with new_figure((7.2, 3.6)) as (figure, (axes,)):
        for i, (name, tried) in enumerate(values.items()):
            measured = 100 * np.asarray(accuracies[name])
            mean, style = measured.mean(axis=0), series(i)
            axes.plot(
                tried,
                mean,
                marker=MARKERS[i % len(MARKERS)],
                markersize=5,
                linewidth=1.8,
                label=name,
                **style,
            )
            if len(measured) > 1:
                axes.fill_between(
                    tried,
                    measured.min(axis=0),
                    measured.max(axis=0),
                    color=style["color"],
                    alpha=0.12,
                    linewidth=0,
                )
        axes.set(
            xscale="log", xlabel=parameter, ylabel="test accuracy (%)", title=f"Accuracy over {parameter}"
        )
        axes.grid(visible=True, axis="y")
        legend_above(axes)
        return data_uri(figure)


def accuracy_by_head(
    accuracies: Mapping[str, Mapping[str, Sequence[float]]], *, trained: str = "trained"
) -> str:
    """Draw each head's accuracy by method: one row per method, one mark per head.

    Args:
        accuracies: per method and head, the accuracy in 0..1 under each seed; marks are means.
        trained: the trained head, drawn as a ring.
    """
    heads = list(dict.fromkeys(head for own in accuracies.values() for head in own))
    rows = np.arange(len(accuracies))
    means = {
        head: [100 * float(np.mean(own[head])) if head in own else np.nan for own in accuracies.values()]
        for head in heads
    }
    with new_figure((7.2, 1.5 + 0.32 * len(rows))) as (figure, (axes,)):
        every = np.array(list(means.values()))
        axes.hlines(rows, np.nanmin(every, axis=0), np.nanmax(every, axis=0), color=PALE_GREY, linewidth=3)
        others = [head for head in heads if head != trained]
        for head in heads:
            ring = head == trained
            i = 0 if ring else others.index(head)
            axes.scatter(
                means[head],
                rows,
                s=105 if ring else 38,
                marker="o" if ring else MARKERS[i % len(MARKERS)],
                color="white" if ring else [c for c in (*SERIES, GREY) if c != ORANGE][i % len(SERIES)],
                edgecolors=ORANGE if ring else None,
                linewidths=2 if ring else 0,
                label=head,
                zorder=3,
            )
        axes.set(
            yticks=rows,
            ylim=(len(rows) - 0.4, -0.6),
            xlabel="accuracy on the test records (%)",
            title="Accuracy by method and head",
        )
        axes.set_yticklabels(list(accuracies))
        axes.grid(visible=True, axis="x")
        axes.spines["left"].set_visible(False)
        legend_above(axes)
        return data_uri(figure)


_NONE_AT = 0.5  # where a logarithmic axis shows zero


def head_norms(norms: FloatArray, label_counts: IntArray) -> str:
    """Draw each class vector's norm at each member over the member's records of the class (Luo et al. 2021, Fig. 3).

    If heads are biased towards their members' classes, the points rise.

    Args:
        norms: ‖w_c‖, of shape (K, C).
        label_counts: of shape (K, C).
    """
    with new_figure((7.2, 3.6)) as (figure, (axes,)):
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
        return data_uri(figure)


_PANELS = 3


def layer_similarity(cka: Mapping[str, Mapping[str, FloatArray]]) -> str:
    """Draw the mean similarity of members' outputs by layer (Luo et al. 2021, Figs. 2 and 11).

    Args:
        cka: per method, per layer, the similarity of every two members, (K, K), in 0..1; NaN where outputs are constant.
    """
    with new_figure((7.2, 3.8)) as (figure, (axes,)):
        names = list(next(iter(cka.values())))
        for i, (method, layers) in enumerate(cka.items()):
            pairs = [np.asarray(m)[~np.eye(len(m), dtype=bool)] for m in layers.values()]
            means = [float(np.mean(p[np.isfinite(p)])) if np.isfinite(p).any() else np.nan for p in pairs]
            style = series(i)
            axes.plot(
                range(len(means)),
                means,
                marker=MARKERS[i % len(MARKERS)],
                markersize=6,
                linewidth=1.8,
                label=method,
                **style,
            )
            if len(cka) == 1 and np.isfinite(means).all():
                low, high = ([np.nanquantile(p, q) for p in pairs] for q in (0.1, 0.9))
                axes.fill_between(range(len(means)), low, high, color=style["color"], alpha=0.12, linewidth=0)
        axes.set(ylabel="CKA between members", title="How alike members' layers are on the same records")
        axes.set_ylim(max(0.0, np.floor(10 * axes.get_ylim()[0] - 0.5) / 10), 1.01)
        axes.set_xticks(range(len(names)), names)
        axes.grid(visible=True, axis="y")
        legend_above(axes)
        return data_uri(figure)


def singular_values(values: Mapping[str, FloatArray]) -> str:
    """Draw a head's singular values relative to the largest (Son et al. 2024, Fig. 1); a falling tail means lost directions.

    Args:
        values: per method, descending.
    """
    with new_figure((7.2, 3.6)) as (figure, (axes,)):
        for i, (method, each) in enumerate(values.items()):
            scaled = np.asarray(each) / each[0]
            axes.plot(
                range(1, len(scaled) + 1),
                scaled,
                marker=MARKERS[i % len(MARKERS)],
                markersize=5,
                linewidth=1.8,
                label=method,
                **series(i),
            )
        axes.set(
            ylim=(0, 1.03),
            xlabel="index",
            ylabel="singular value / largest",
            title="Singular values of the head",
        )
        axes.grid(visible=True, axis="y")
        axes.locator_params(axis="x", integer=True)
        legend_above(axes)
        return data_uri(figure)


def embedding(points: FloatArray, labels: IntArray, predicted: Mapping[str, IntArray] | None = None) -> str:
    """Draw t-SNE of features by class, and one panel per head with its errors.

    Args:
        points: (n, 2).
        labels: (n,).
        predicted: by the head's name, (n,); up to two.
    """
    heads = dict(list((predicted or {}).items())[: _PANELS - 1])
    classes = np.unique(labels)
    with new_figure((3.6 * (1 + len(heads)) + 0.2, 4.2), columns=1 + len(heads)) as (figure, axes):
        for i, label in enumerate(classes):
            own = labels == label
            axes[0].scatter(
                points[own, 0],
                points[own, 1],
                s=9,
                color=_CLASSES[i % len(_CLASSES)],
                linewidths=0,
                alpha=0.8,
            )
            if len(classes) <= 20:
                # The class's number near its median: colours alone do not distinguish twenty classes.
                centre = np.median(points[own], axis=0)
                nearest = points[own][np.linalg.norm(points[own] - centre, axis=1).argmin()]
                axes[0].annotate(
                    str(label),
                    nearest,
                    ha="center",
                    va="center",
                    fontsize=9,
                    fontweight="bold",
                    bbox={
                        "boxstyle": "circle,pad=0.15",
                        "fc": "white",
                        "ec": _CLASSES[i % len(_CLASSES)],
                        "lw": 1.2,
                    },
                )
        axes[0].set_title("features by class", fontsize=11)
        for panel, (name, answers) in zip(axes[1:], heads.items(), strict=True):
            wrong = answers != labels
            panel.scatter(points[~wrong, 0], points[~wrong, 1], s=7, color=PALE_GREY, linewidths=0)
            panel.scatter(
                points[wrong, 0],
                points[wrong, 1],
                s=11,
                marker="x",
                linewidths=0.9,
                c=[_CLASSES[a % len(_CLASSES)] for a in answers[wrong]],
            )
            panel.set_title(f"{name}: {100 * float(wrong.mean()):.1f} % wrong", fontsize=11)
        for panel in axes:
            panel.set(xticks=[], yticks=[])
            panel.spines[["left", "bottom"]].set_color(RULE)
        if heads:
            axes[1].set_xlabel(
                "crosses: errors, in the colour of the class they were taken for", fontsize=9, color=GREY
            )
        return data_uri(figure, "png")


def separability_gain(distance: Mapping[str, float], gain: Mapping[str, float]) -> str:
    """Draw a calibration's gain over the distance between classes before it (Luo et al. 2021, Fig. 6), one point per run.

    Args:
        distance: per run, the mean sliced Wasserstein distance between classes.
        gain: per run, the gain in accuracy, in −1..1.
    """
    with new_figure((7.2, 3.6)) as (figure, (axes,)):
        for i, name in enumerate(distance):
            at = (distance[name], 100 * gain[name])
            axes.scatter(*at, s=46, color=SERIES[i % len(SERIES)], marker=MARKERS[i % len(MARKERS)], zorder=3)
            axes.annotate(name, at, xytext=(7, 0), textcoords="offset points", va="center", fontsize=9)
        axes.axhline(0, color=GREY, linewidth=0.8)
        axes.margins(x=0.18, y=0.15)
        axes.set(
            xlabel="mean sliced Wasserstein distance between classes",
            ylabel="gain (points)",
            title="Gain by calibration, and how far apart the classes lie",
        )
        axes.grid(visible=True)
        return data_uri(figure)


# Ten that differ in lightness as well as in hue.
_CLASSES = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#56B4E9",
    "#E69F00",
    "#4B5563",
    "#8C564B",
    "#7B3FA0",
    "#94A300",
)
