"""A classifier's accuracy and features, and the same extractor under another head."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from training.data.dataset import Dataset
from training.heads import Classifier, FixedHead
from training.recipe import Loss

EVALUATION_BATCH = 1024


@torch.no_grad()
def extract_features(classifier: Classifier, x: Tensor) -> Tensor:
    """Compute the features of x as the head sees them: float32 of shape (n, l), of norm one if the classifier normalises.

    Puts the classifier in evaluation mode, so that features depend on the weights and x only. They are computed on the weights'
    device and returned on that of x.
    """
    classifier.eval()
    place = next((p.device for p in classifier.extractor.parameters()), x.device)
    parts = (classifier.features(part.to(place)) for part in torch.split(x, EVALUATION_BATCH))
    return torch.cat([part.float().to(x.device) for part in parts])


@torch.no_grad()
def predict_logits(classifier: Classifier, x: Tensor) -> Tensor:
    """Compute the logits of x, of shape (n, C)."""
    return head_logits(classifier, extract_features(classifier, x))


@torch.no_grad()
def head_logits(classifier: Classifier, z: Tensor) -> Tensor:
    """Compute the logits, of shape (n, C), of features of shape (n, l), on the features' device."""
    logits: Tensor = classifier.head(z.to(classifier.head.weight.device))
    return logits.to(z.device)


def evaluate_classifier(classifier: Classifier, data: Dataset, loss: Loss) -> tuple[float, float]:
    """Return the mean loss and the accuracy, in 0..1."""
    logits = predict_logits(classifier, data.x)
    return float(loss(logits, data.y)), _hit_rate(logits, data.y)


def accuracy(classifier: Classifier, data: Dataset) -> float:
    """Return the accuracy, 0..1: the share of records with the largest logit at their label."""
    return _hit_rate(predict_logits(classifier, data.x), data.y)


def per_class_accuracy(classifier: Classifier, data: Dataset) -> npt.NDArray[np.float64]:
    """Return the accuracy on each class's records, of shape (C,); NaN for a class without records."""
    predicted = predict_logits(classifier, data.x).argmax(dim=1)
    return accuracy_by_class(predicted.cpu().numpy(), data.y.cpu().numpy(), data.classes)


def accuracy_by_class(
    predicted: npt.NDArray[np.integer], labels: npt.NDArray[np.integer], classes: int
) -> npt.NDArray[np.float64]:
    """Return the share of correct predictions, (n,), for each class of labels, (n,): (classes,), NaN for a class without records."""
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
    """Put a calibrated head on a classifier's extractor, which is shared, not copied.

    Args:
        classifier: the extractor and its normalisation.
        weights: W of shape (l, C), applied as Wᵀz, as FFC solves it (Dong et al. 2022, eq. 10).
        bias: b of shape (C,), or None.
        unanswered: classes without records in the fit; they get a bias of −∞, because zero logits would beat negative ones.

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
