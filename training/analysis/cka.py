"""Centred kernel alignment (Kornblith et al. 2019): how alike two networks' outputs are on the same records.

CCVR compares members' models layer by layer and finds the classifier least alike (Luo et al. 2021, Figs. 1 and 2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import numpy.typing as npt
    from torch import Tensor

    from training.heads import Classifier

    Floats = npt.NDArray[np.float64]

HEAD = "head"


def linear_cka(x: Floats, y: Floats) -> float:
    """‖YᵀX‖² / (‖XᵀX‖ ‖YᵀY‖) of centred X, (n, p), and Y, (n, q), in 0..1 (Kornblith et al. 2019, eq. 3 with linear kernels).

    Neither a rotation nor a common scale of either changes it. Outputs that are the same for every record have no
    similarity: NaN.

    Raises:
        ValueError: if the records differ in number.
    """
    if len(x) != len(y):
        raise ValueError(f"CKA compares outputs of the same records: there are {len(x)} and {len(y)}")
    a, b = _gram(x), _gram(y)
    scale = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(np.vdot(a, b)) / scale if scale > 0 else float("nan")


def layer_outputs(classifier: Classifier, x: Tensor) -> dict[str, Floats]:
    """What each layer makes of x, flattened to (n, ·): the children of `extractor.layers` that have weights, then the head.

    Layers are called "layer 1", "layer 2", … as in CCVR's Table 6 for the MOON CNN, and the head "head".
    """
    layers = classifier.extractor.layers
    children = list(layers) if isinstance(layers, nn.Sequential) else [layers]
    weighted = [child for child in children if any(True for _ in child.parameters())]
    named = {f"layer {i}": child for i, child in enumerate(weighted, 1)} | {HEAD: classifier.head}
    kept: dict[str, Floats] = {}

    def keep(name: str) -> object:
        def hook(_module: nn.Module, _inputs: object, output: Tensor) -> None:
            kept[name] = output.detach().flatten(1).double().numpy()

        return hook

    handles = [module.register_forward_hook(keep(name)) for name, module in named.items()]  # type: ignore[arg-type]  # as above
    try:
        with torch.no_grad():
            classifier.eval()(x)
    finally:
        for handle in handles:
            handle.remove()
    return kept


def cka_by_layer(outputs: Iterable[Mapping[str, Floats]]) -> dict[str, Floats]:
    """The similarity of every two members' outputs, by layer, (K, K), from `layer_outputs` of each on the same records.

    One member's outputs are looked at after another's, and only their (n, n) products are kept.
    """
    grams: dict[str, list[Floats]] = {}
    for each in outputs:
        for name, values in each.items():
            grams.setdefault(name, []).append(_gram(values))
    result = {}
    for name, own in grams.items():
        norms = np.array([np.linalg.norm(gram) for gram in own])
        products = np.array([[np.vdot(a, b) for b in own] for a in own])
        with np.errstate(invalid="ignore", divide="ignore"):
            result[name] = products / np.outer(norms, norms)
    return result


def mean_similarity(matrix: Floats) -> float:
    """The mean over pairs of different members of a (K, K) matrix (Luo et al. 2021, Fig. 2)."""
    return float(matrix[~np.eye(len(matrix), dtype=bool)].mean())


def _gram(x: Floats) -> Floats:
    # (n, n), centred: memory depends on the records alone, whatever the layer's width.
    centred = x - x.mean(axis=0)
    gram: Floats = centred @ centred.T
    return gram
