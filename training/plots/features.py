"""Figures of features and heads: similarity of layers, singular values, t-SNE, what separability forecasts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from training.plots.style import GREY, MARKERS, PALE, RULE, SERIES, Format, legend_above, series, uri
from training.plots.style import figure as drawing

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    FloatArray = npt.NDArray[np.floating]
    IntArray = npt.NDArray[np.integer]

_PANELS = 3


def layer_similarity(cka: Mapping[str, Mapping[str, FloatArray]], *, image: Format = "svg") -> str:
    """The mean similarity of members' outputs by layer (Luo et al. 2021, Figs. 2 and 11).

    Args:
        cka: per method, per layer, the similarity of every two members, (K, K), in 0..1; NaN where outputs are constant.
        image: the format.
    """
    with drawing((7.2, 3.8)) as (figure, (axes,)):
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
        axes.set(
            ylabel="CKA between members",
            title="How alike members' layers are on the same records",
        )
        axes.set_ylim(max(0.0, np.floor(10 * axes.get_ylim()[0] - 0.5) / 10), 1.01)
        axes.set_xticks(range(len(names)), names)
        axes.grid(visible=True, axis="y")
        legend_above(axes)
        return uri(figure, image)


def singular_values(values: Mapping[str, FloatArray], *, image: Format = "svg") -> str:
    """A head's singular values, each over its largest (Son et al. 2024, Fig. 1): a tail that falls is lost directions.

    Args:
        values: per method, descending.
        image: the format.
    """
    with drawing((7.2, 3.6)) as (figure, (axes,)):
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
        return uri(figure, image)


def embedding(
    points: FloatArray,
    labels: IntArray,
    predicted: Mapping[str, IntArray] | None = None,
    *,
    image: Format = "svg",
) -> str:
    """t-SNE of features, coloured by their class; then, a panel a head, the records that it takes for another one.

    Args:
        points: (n, 2).
        labels: (n,).
        predicted: by the head's name, (n,); up to two.
        image: the format.
    """
    heads = dict(list((predicted or {}).items())[: _PANELS - 1])
    classes = np.unique(labels)
    with drawing((3.6 * (1 + len(heads)) + 0.2, 4.2), columns=1 + len(heads)) as (figure, axes):
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
                # The class's number stands at its densest point: colours alone don't tell twenty classes apart.
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
            panel.scatter(points[~wrong, 0], points[~wrong, 1], s=7, color=PALE, linewidths=0)
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
        return uri(figure, image)


def separability_gain(
    distance: Mapping[str, float], gain: Mapping[str, float], *, image: Format = "svg"
) -> str:
    """What a calibration gained against how far apart classes lay before (Luo et al. 2021, Fig. 6): a point a run.

    Args:
        distance: per run, the mean sliced Wasserstein distance between classes.
        gain: per run, accuracy after less accuracy before, in −1..1.
        image: the format.
    """
    with drawing((7.2, 3.6)) as (figure, (axes,)):
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
        return uri(figure, image)


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
