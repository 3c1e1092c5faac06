"""Figures for self-contained HTML reports: plain arrays in, a data URI for `<img src>` out."""

from training.plots.calibration import class_recalls, eigenvalues, reliability_diagram
from training.plots.classes import head_norms, label_distribution, per_class_accuracy
from training.plots.features import embedding, layer_similarity, separability_gain, singular_values
from training.plots.methods import accuracy_by_head
from training.plots.rounds import (
    accuracy_bands,
    accuracy_over_rounds,
    phase_timeline,
    ridge_curve,
    sweep_curve,
)
from training.plots.style import Format

__all__ = [
    "Format",
    "accuracy_bands",
    "accuracy_by_head",
    "accuracy_over_rounds",
    "class_recalls",
    "eigenvalues",
    "embedding",
    "head_norms",
    "label_distribution",
    "layer_similarity",
    "per_class_accuracy",
    "phase_timeline",
    "reliability_diagram",
    "ridge_curve",
    "separability_gain",
    "singular_values",
    "sweep_curve",
]
