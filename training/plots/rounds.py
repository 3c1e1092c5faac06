"""Figures over rounds, hyper-parameters and time."""

from __future__ import annotations

from itertools import cycle, pairwise
from typing import TYPE_CHECKING

import numpy as np

from training.plots.style import (
    BLUE,
    GREY,
    MARKERS,
    ORANGE,
    SERIES,
    Format,
    duration,
    legend_above,
    series,
    uri,
)
from training.plots.style import figure as drawing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt

    FloatArray = npt.NDArray[np.floating]


def phase_timeline(seconds: Mapping[str, float], *, image: Format = "svg") -> str:
    """When each phase ran: one bar a phase, in order, starting where the one before it ended.

    Args:
        seconds: the duration of each phase, in the order they ran.
        image: the format.
    """
    durations = np.array(list(seconds.values()))
    ends = np.cumsum(durations)
    with drawing((7.2, 1.2 + 0.4 * len(durations))) as (figure, (axes,)):
        bars = axes.barh(list(seconds), durations, left=ends - durations, color=BLUE, height=0.5)
        axes.bar_label(bars, [duration(value) for value in durations], padding=5, fontsize=9)
        axes.invert_yaxis()
        axes.set(
            xlim=(0, float(ends[-1]) * 1.1),
            xlabel="seconds since the start",
            title=f"Phases: {duration(float(ends[-1]))} in all",
        )
        axes.grid(visible=True, axis="x")
        axes.spines["left"].set_visible(False)
        return uri(figure, image)


def ridge_curve(
    ridges: FloatArray,
    errors: FloatArray,
    chosen: float,
    *,
    criterion: str = "generalised cross-validation",
    image: Format = "svg",
) -> str:
    """The error by which λ was chosen at each λ, the chosen one marked.

    Args:
        ridges: the grid of λ > 0, ascending, of shape (m,).
        errors: the error at each, of shape (m,).
        chosen: the λ that was taken, one of `ridges`: of errors that tie the largest.
        criterion: what the error is of.
        image: the format.
    """
    best = int(np.argmin(np.abs(ridges - chosen)))
    with drawing((7.2, 3.4)) as (figure, (axes,)):
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
        axes.set(xscale="log", xlabel="ridge λ", ylabel="error", title=f"λ by {criterion}")
        axes.grid(visible=True, axis="y")
        return uri(figure, image)


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
    with drawing((7.2, 3.6)) as (figure, (axes,)):
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
        legend_above(axes)
        return uri(figure, image)


def accuracy_bands(
    runs: Mapping[str, Sequence[Sequence[float]]],
    *,
    title: str = "Accuracy over rounds",
    image: Format = "svg",
) -> str:
    """The mean accuracy over seeds after each round, and between which values the seeds lie.

    The line's name stands at its end; names that would overlap are moved apart.

    Args:
        runs: per method, per seed, the accuracy in 0..1 after round 1, 2, …; seeds of unequal length are cut to the shortest.
        title: above the figure.
        image: the format.
    """
    with drawing((7.2, 4.2)) as (figure, (axes,)):
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
        return uri(figure, image)


def _apart(heights: Sequence[float], gap: float) -> list[float]:
    """The heights moved as little as it takes, from the top down, that neighbours are `gap` apart."""
    order = np.argsort(heights)[::-1]
    placed = np.array(heights, dtype=float)
    for above, below in pairwise(order):
        placed[below] = min(placed[below], placed[above] - gap)
    # What was pushed down comes back by half, so that the middle of the names stays where the lines end.
    return [float(height) for height in placed + (np.mean(heights) - placed.mean())]


def sweep_curve(
    values: Mapping[str, Sequence[float]],
    accuracies: Mapping[str, Sequence[Sequence[float]]],
    *,
    parameter: str,
    image: Format = "svg",
) -> str:
    """Accuracy over one hyper-parameter: λ of FFC, or M_c of CCVR.

    Args:
        values: per line, where it was tried, each above 0.
        accuracies: per line, per seed, the accuracy in 0..1 at each.
        parameter: the axis' name.
        image: the format.
    """
    with drawing((7.2, 3.6)) as (figure, (axes,)):
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
        return uri(figure, image)
