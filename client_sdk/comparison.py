"""How the consortium's head and a member's own do on this member's hold-out records. Nothing of it leaves the member."""

import math
from typing import Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from veilsum.calibration.head import Head
from veilsum.calibration.judge_tables import positive_margins
from veilsum.calibration.reliability import Reliability
from veilsum.calibration.rows import Array, Floats, Integers

WORSE_ERRORS = 2.0
"""Standard errors by which the consortium's head has to be behind before it is called worse."""
_COMPARED_MIN = 5
"""Fewest records of a class whose recalls are compared."""


class _Facts(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ClassRecall(_Facts):
    """One class's records, and the shares of them that the heads label correctly; None without an own head."""

    label: int
    records: int
    recall: float
    own_recall: float | None


class Detection(_Facts):
    """How a head finds the positive class.

    Attributes:
        label: the positive class.
        positives: its records.
        recall, own_recall: shares of them for which the heads predict it.
        auroc, own_auroc: probability that a positive's score is above another record's.
        threshold: of the score less the highest other, with the largest recall less false alarms on these records.
        threshold_recall, false_alarms: shares of positives and of other records at or above the threshold.
    """

    label: int
    positives: int
    recall: float
    own_recall: float | None
    auroc: float
    own_auroc: float | None
    threshold: float
    threshold_recall: float
    false_alarms: float


class Judgement(_Facts):
    """Heads on this member's hold-out records of the classes that the consortium's head predicts.

    Attributes:
        records: number of these hold-out rows.
        unanswered: hold-out rows of other classes, withheld ones included. No figure counts them: the only holder of
            such a class would see a head that is wrong on records that it can't predict.
        accuracy: share of them that the consortium's head labels correctly, at this member's class shares.
        own_accuracy: share that a head fitted to this member's contribution alone labels correctly; None without one.
        balanced_accuracy, own_balanced_accuracy: the same at equal class shares: the mean recall over the classes of these rows.
        recalls: by class, of those with rows.
        detection: of the positive class; None without one.
        worse: whether the consortium's head is surely wrong more often than the own one at both shares, of the classes that the own one knows.
        temperature: τ at which softmax(scores/τ) of the consortium's head fits their labels best.
    """

    records: int = Field(gt=0)
    unanswered: int = Field(default=0, ge=0)
    accuracy: float
    own_accuracy: float | None
    balanced_accuracy: float
    own_balanced_accuracy: float | None
    recalls: tuple[ClassRecall, ...]
    detection: Detection | None
    worse: bool
    temperature: float = Field(gt=0, allow_inf_nan=False)

    @classmethod
    def of_head(
        cls,
        head: Head,
        features: Array,
        labels: Integers,
        own: Head | None,
        *,
        unanswered: int = 0,
        positive: int | None = None,
    ) -> Self:
        """Judge the consortium's head, and a member's own that predicts the same classes, on (n, dim) features and (n,) class indices, n ≥ 1."""
        scores = head.answer_scores(features, normalise=head.scales)
        seen = Reliability.of(head, features, labels, normalise=head.scales)
        right = scores.argmax(axis=1) == labels
        own_scores = None if own is None else own.answer_scores(features, normalise=own.scales)
        own_right = None if own_scores is None else own_scores.argmax(axis=1) == labels
        recalls = tuple(
            ClassRecall(
                label=label,
                records=int((labels == label).sum()),
                recall=float(right[labels == label].mean()),
                own_recall=None if own_right is None else float(own_right[labels == label].mean()),
            )
            for label in np.unique(labels).tolist()
        )
        balanced, own_balanced = (
            math.fsum(of_head) / len(recalls)
            for of_head in ([each.recall for each in recalls], [each.own_recall or 0.0 for each in recalls])
        )
        return cls(
            records=len(labels),
            unanswered=unanswered,
            accuracy=float(right.mean()),
            own_accuracy=None if own_right is None else float(own_right.mean()),
            balanced_accuracy=balanced,
            own_balanced_accuracy=None if own is None else own_balanced,
            recalls=recalls,
            detection=None if positive is None else detect_class(scores, own_scores, labels, positive),
            worse=own_scores is not None
            and own_balanced >= balanced
            and _is_worse(scores, own_scores, labels),
            temperature=seen.temperature,
        )


def _is_worse(scores: Floats, own_scores: Floats, labels: Integers) -> bool:
    """Whether the consortium's head is surely behind at this member's class shares, and at equal ones.

    An own head knows which classes its member has, and how many of each. That is no fault of the other: so both choose among the own head's
    classes, and the shares are compared twice.
    """
    known = np.isfinite(own_scores[0])
    of_known = known[labels]
    if not of_known.any():
        return False
    fair = np.where(known, scores, -np.inf)[of_known].argmax(axis=1) == labels[of_known]
    own = own_scores[of_known].argmax(axis=1) == labels[of_known]
    behind = own.astype(np.int64) - fair
    differ = int(np.abs(behind).sum())
    if int(behind.sum()) <= WORSE_ERRORS * math.sqrt(differ):  # McNemar 1947
        return False
    classes, counts = np.unique(labels[of_known], return_counts=True)
    of_class = [behind[labels[of_known] == label] for label in classes[counts >= _COMPARED_MIN]]
    mean = math.fsum(float(each.mean()) for each in of_class)
    # Of a class with few records, all alike by chance, the variance is not 0.
    variance = math.fsum((float((each**2).sum()) + 0.5) / (len(each) + 1) / len(each) for each in of_class)
    return mean > WORSE_ERRORS * math.sqrt(variance)


def detect_class(
    scores: Floats, own_scores: Floats | None, labels: Integers, positive: int
) -> Detection | None:
    """Measure how (n, C) scores, and those of a member's own head, find a class; None unless there are records of it and of others."""
    is_positive = labels == positive
    if is_positive.all() or not is_positive.any():
        return None
    margins = positive_margins(scores, positive)
    own = None if own_scores is None else positive_margins(own_scores, positive)
    thresholds = np.unique(margins)
    recalls, alarms = (
        1 - np.searchsorted(np.sort(part), thresholds) / len(part)
        for part in (margins[is_positive], margins[~is_positive])
    )
    best = int(np.argmax(recalls - alarms))
    return Detection(
        label=positive,
        positives=int(is_positive.sum()),
        recall=_find_recall(scores, positive, is_positive),
        own_recall=None if own_scores is None else _find_recall(own_scores, positive, is_positive),
        auroc=find_auroc(margins, is_positive),
        own_auroc=None if own is None else find_auroc(own, is_positive),
        threshold=float(np.clip(thresholds[best], -1e300, 1e300)),
        threshold_recall=float(recalls[best]),
        false_alarms=float(alarms[best]),
    )


def _find_recall(scores: Floats, positive: int, is_positive: Integers) -> float:
    return float((scores[is_positive].argmax(axis=1) == positive).mean())


def find_auroc(scores: Floats, is_positive: Integers) -> float:
    """Return the share of pairs of a positive and another record in which the positive has the higher score; ties count half (Mann and Whitney 1947)."""
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place.ravel()]
    positives = int(is_positive.sum())
    others = len(scores) - positives
    return float((ranks[is_positive].sum() - positives * (positives + 1) / 2) / (positives * others))
