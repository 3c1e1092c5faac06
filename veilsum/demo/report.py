"""The demo's report: one self-contained HTML file."""

import numpy as np

from veilsum import plots
from veilsum.demo import facts as wording
from veilsum.demo.facts import PHASE_NAMES, Facts
from veilsum.protocol.rest import TRUST


def render(facts: Facts) -> str:
    """The demo's report, as one HTML page that loads nothing else."""
    known, shown = ~np.isnan(facts.per_class.before), np.isfinite(facts.gcv)
    steps = {PHASE_NAMES[name]: value for name, value in facts.seconds.items() if name != "total"}
    return plots.page(
        "veilsum.demo",
        facts=facts,
        wording=wording,
        tried=np.count_nonzero(shown),
        trust=TRUST.replace("`", ""),
        plots={
            "classes": plots.per_class_accuracy(
                facts.per_class.before[known],
                facts.per_class.masked[known],
                class_names=[str(label) for label in np.flatnonzero(known)],
            ),
            "ridge": plots.ridge_curve(facts.grid[shown], facts.gcv[shown], facts.ridge),
            "labels": plots.label_distribution(facts.label_counts),
            "phases": plots.phase_timeline(steps),
        },
    )
