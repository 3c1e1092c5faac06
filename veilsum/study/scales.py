"""The scales of heads for the judge, from rows drawn from the sums: no record is at hand where a head is solved."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from veilsum.calibration import CalibrationError, CCVRStatistics, FFCStatistics, Head
from veilsum.calibration.answer import LOG_ODDS_CRITERIA, Answer
from veilsum.calibration.ccvr_head import virtual_features
from veilsum.calibration.judge_tables import Scale, exact_scores, place_scale, rough_scale
from veilsum.calibration.lda import class_moments
from veilsum.calibration.privacy.noisy_sums import NoisyGaussians
from veilsum.calibration.random_features import KernelHead
from veilsum.calibration.rows import Floats, Integers
from veilsum.protocol.study import Question

_ROWS_DRAWN, _SCORES_MAX = 4_000, 1 << 22
_DRAWS_TAG = b"veilsum calibration judge's scales 1 "
_RIDGE_TEMPERATURE = 0.25
"""τ of a ridge head of one class, if no rows can be drawn; it falls with the root of the number of classes."""


@dataclass(frozen=True, eq=False)
class VirtualRows:
    """Rows drawn from the classes' means and covariance, as many of each class, with the classes' shares in the sum.

    Attributes:
        rows: (n, l), of features; of random features if `mapped`.
        labels: (n,).
        shares: (C,).
    """

    rows: Floats
    labels: Integers
    shares: Floats
    mapped: bool


def draw_rows(question: Question, pooled: Mapping[str, object]) -> VirtualRows | None:
    """Draw rows from a run's sums; None without a judge, or if the sums tell too little of the classes. Equal sums give equal rows."""
    if question.judge is None or not pooled:
        return None
    kind, first = next(iter(pooled.items()))
    seed = hashlib.sha256(_DRAWS_TAG + question.digest).digest()
    rng = np.random.default_rng(int.from_bytes(seed, "little"))
    classes = len(question.classes)
    per_class, most = max(2, _ROWS_DRAWN // classes), max(2, _SCORES_MAX // classes)
    try:
        match first:
            case CCVRStatistics() | NoisyGaussians():
                rows, labels = virtual_features(first, per_class, rng)
                chosen = rng.permutation(len(labels))[:most]
                rows, labels = rows[chosen], labels[chosen]
                counts = first.counts.astype(np.float64)
            case FFCStatistics():
                means, within, counts = class_moments(first)
                within[np.diag_indices(len(within))] += 1e-9 * max(float(np.trace(within)), 1e-9)
                factor = np.linalg.cholesky(within)
                labels = rng.permutation(np.repeat(np.flatnonzero(counts), per_class))[:most]
                rows = means[labels] + rng.standard_normal((len(labels), len(within))) @ factor.T
            case _:
                return None
    except (CalibrationError, np.linalg.LinAlgError):
        return None
    return VirtualRows(rows, labels.astype(np.int64), counts / counts.sum(), kind == "random-features")


def add_scales(question: Question, drawn: VirtualRows | None, answer: Answer) -> Answer:
    """Return an answer with the scales of its heads, if the study has a judge."""
    if question.judge is None or answer.head is None:
        return answer
    heads = {"": answer.head, **answer.heads}
    scales = {name: _find_scale(question, drawn, name, head, answer) for name, head in heads.items()}
    return replace(answer, scales=scales)


def guess_scale(question: Question, *, log_odds: bool) -> Scale:
    """Return a scale for a head if nothing is known except whether its scores are log-odds."""
    assert question.judge is not None
    temperature = 1.0 if log_odds else _RIDGE_TEMPERATURE / len(question.classes) ** 0.5
    return rough_scale(question.positive_class, question.judge.bins.score, temperature)


def _find_scale(
    question: Question, drawn: VirtualRows | None, name: str, head: Head, answer: Answer
) -> Scale:
    assert question.judge is not None
    log_odds = name == "lda" or (not name and answer.chosen_by in LOG_ODDS_CRITERIA)
    if drawn is None or (drawn.mapped and not isinstance(head, KernelHead)):
        return guess_scale(question, log_odds=log_odds)
    if drawn.mapped:
        width = len(head.weights)
        scores = drawn.rows[:, :width] * (drawn.rows.shape[1] / width) ** 0.5 @ head.weights
        scores += 0 if head.bias is None else head.bias
        scores[:, list(head.empty_classes)] = -np.inf
    else:
        scores = exact_scores(head, drawn.rows)
    return place_scale(
        question.positive_class, question.judge.bins.score, scores, drawn.labels, shares=drawn.shares
    )
