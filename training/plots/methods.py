"""Figures of methods beside each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from training.plots.style import GREY, MARKERS, ORANGE, PALE, SERIES, Format, legend_above, uri
from training.plots.style import figure as drawing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def accuracy_by_head(
    accuracies: Mapping[str, Mapping[str, Sequence[float]]],
    *,
    trained: str = "trained",
    image: Format = "svg",
) -> str:
    """What each head makes of each method: a row a method, a mark a head, a line from the lowest to the highest.

    Args:
        accuracies: per method and head, the accuracy in 0..1 under each seed; marks are means.
        trained: the head that training left, drawn as a ring.
        image: the format.
    """
    heads = list(dict.fromkeys(head for own in accuracies.values() for head in own))
    rows = np.arange(len(accuracies))
    means = {
        head: [100 * float(np.mean(own[head])) if head in own else np.nan for own in accuracies.values()]
        for head in heads
    }
    with drawing((7.2, 1.5 + 0.32 * len(rows))) as (figure, (axes,)):
        every = np.array(list(means.values()))
        axes.hlines(rows, np.nanmin(every, axis=0), np.nanmax(every, axis=0), color=PALE, linewidth=3)
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
        legend_above(axes, columns=5)
        return uri(figure, image)
