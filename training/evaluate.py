"""What a classifier is worth, what features its extractor gives, and how it does with another head."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from training.heads import Classifier, FixedHead

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    from torch import Tensor

    from training.data import Dataset
    from training.losses import Loss

RECORDS_AT_ONCE = 1024


@torch.no_grad()
def extract_features(classifier: Classifier, x: Tensor) -> Tensor:
    """What the head sees of x: float32 of shape (n, l), of norm one where the classifier normalises.

    Puts the classifier in evaluation mode, so that the features are a function of the weights and x alone. They are computed
    where the weights lie, and come back to where x does.
    """
    classifier.eval()
    place = next((p.device for p in classifier.extractor.parameters()), x.device)
    parts = (classifier.features(part.to(place)) for part in torch.split(x, RECORDS_AT_ONCE))
    return torch.cat([part.float().to(x.device) for part in parts])


@torch.no_grad()
def predict_logits(classifier: Classifier, x: Tensor) -> Tensor:
    """The logits of x, of shape (n, C)."""
    return head_logits(classifier, extract_features(classifier, x))


@torch.no_grad()
def head_logits(classifier: Classifier, z: Tensor) -> Tensor:
    """The logits, of shape (n, C), of features of shape (n, l) as the head sees them: where the features lie."""
    logits: Tensor = classifier.head(z.to(classifier.head.weight.device))
    return logits.to(z.device)


def evaluate(classifier: Classifier, data: Dataset, loss: Loss) -> tuple[float, float]:
    """The mean loss and the accuracy, in 0..1."""
    logits = predict_logits(classifier, data.x)
    return float(loss(logits, data.y)), _hit_rate(logits, data.y)


def accuracy(classifier: Classifier, data: Dataset) -> float:
    """The fraction of records whose largest logit is their label's, in 0..1."""
    return _hit_rate(predict_logits(classifier, data.x), data.y)


def per_class_accuracy(classifier: Classifier, data: Dataset) -> npt.NDArray[np.float64]:
    """The accuracy on each class's own records, of shape (C,); NaN for a class without records."""
    predicted = predict_logits(classifier, data.x).argmax(dim=1)
    return accuracy_by_class(predicted.cpu().numpy(), data.y.cpu().numpy(), data.classes)


def accuracy_by_class(
    predicted: npt.NDArray[np.integer], labels: npt.NDArray[np.integer], classes: int
) -> npt.NDArray[np.float64]:
    """The share of each class's records, (n,), whose prediction, (n,), is their label: (classes,); NaN for a class without records."""
    hits = np.bincount(labels, weights=predicted == labels, minlength=classes)
    counts = np.bincount(labels, minlength=classes)
    result = np.full(classes, np.nan)
    np.divide(hits, counts, out=result, where=counts > 0)
    return result


def with_head(
    classifier: Classifier,
    weights: Tensor | npt.NDArray[np.floating],
    bias: Tensor | npt.NDArray[np.floating] | None = None,
    *,
    unanswered: Sequence[int] = (),
) -> Classifier:
    """The same extractor, shared and not copied, under a calibrated head; normalisation stays as it was.

    Args:
        classifier: whose extractor to use.
        weights: W of shape (l, C), applied as Wᵀz: the shape that FFC's solution has (Dong et al. 2022, eq. 10).
        bias: b of shape (C,), or None.
        unanswered: classes without records in the fit: they get a bias of −∞, for their zeros would beat negative logits.

    Raises:
        ValueError: if W does not have one row for each feature.
    """
    head = torch.as_tensor(weights, dtype=torch.float32)
    if head.ndim != 2 or len(head) != classifier.extractor.dim:
        raise ValueError(f"weights must have shape ({classifier.extractor.dim}, C), not {tuple(head.shape)}")
    offset = None if bias is None else torch.as_tensor(bias, dtype=torch.float32)
    if unanswered:
        offset = torch.zeros(head.shape[1]) if offset is None else offset.clone()
        offset[list(unanswered)] = -torch.inf
    return Classifier(classifier.extractor, FixedHead(head.T, offset), normalise=classifier.normalise)


def _hit_rate(logits: Tensor, labels: Tensor) -> float:
    return int((logits.argmax(dim=1) == labels).sum()) / len(labels)
