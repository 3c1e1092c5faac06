"""What the papers look at to say why heads go wrong: pure functions from models and features to numbers.

`training.plots` draws each of them.
"""

from training.analysis.cka import cka_by_layer, layer_outputs, linear_cka, mean_similarity
from training.analysis.embedding import embed
from training.analysis.heads import direction_consistency, head_norms, norm_difference, singular_values
from training.analysis.members import analyse, member_models
from training.analysis.separability import separability, sliced_wasserstein
from training.analysis.sweeps import sweep

__all__ = [
    "analyse",
    "cka_by_layer",
    "direction_consistency",
    "embed",
    "head_norms",
    "layer_outputs",
    "linear_cka",
    "mean_similarity",
    "member_models",
    "norm_difference",
    "separability",
    "singular_values",
    "sliced_wasserstein",
    "sweep",
]
