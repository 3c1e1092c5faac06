"""The judge's tables: right and wrong answers of heads on held-out records, as counts that noise can be added to (periods: Judgements).

A record adds 1 to one cell of each table, so its length is √tables; the table by confidence also holds where in its bin a confidence lies, at
most ½. What can be stated from the sum is in `veilsum.calibration.judge`.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from veilsum.calibration.ccvr_head import TukeyHead, tukey_transform
from veilsum.calibration.errors import CalibrationError
from veilsum.calibration.head import Head, log_softmax
from veilsum.calibration.lattice import FeaturesLattice, exact_products
from veilsum.calibration.layout import DenseBlock
from veilsum.calibration.privacy.release import Release, WeightedBlock
from veilsum.calibration.random_features import KernelHead
from veilsum.calibration.reliability import LOSS_MAX, default_temperatures
from veilsum.calibration.rows import Array, Floats, Integers, as_features, row_blocks, unit_directions

JUDGE_LATTICE = FeaturesLattice(8)
"""Counts are summed in steps of 2^−8, fine enough for a member's share of the noise."""
_OFFSET_MAX = 0.5
JOINT, BY_CLASS, BY_CONFIDENCE, BY_SCORE = "joint", "class", "confidence", "score"
WRONG, RIGHT, OFFSET = 0, 1, 2
"""Columns of the tables by class and by confidence. The table by score has the columns negative and positive."""


@dataclass(frozen=True)
class TableShapes:
    """The sizes of the tables, which follow from the study alone.

    Attributes:
        heads: h, maximum heads; the joint table has 2^h cells, whatever number is shown.
        classes: C. The table by class has one row more, for records of classes that the first head never predicts.
        confidence_bins, score_bins: bins of the first head's confidence and of its score of the positive class.
        positive: the class whose scores are counted; None without a table by score.
    """

    heads: int
    classes: int
    confidence_bins: int
    score_bins: int
    positive: int | None

    @cached_property
    def release(self) -> Release:
        """The tables in order, and the length of one record's part."""
        blocks = [
            DenseBlock(JOINT, (1 << self.heads,)),
            DenseBlock(BY_CLASS, (self.classes + 1, 2)),
            DenseBlock(BY_CONFIDENCE, (self.confidence_bins, 3)),
        ]
        if self.positive is not None:
            blocks.append(DenseBlock(BY_SCORE, (self.score_bins, 2)))
        parts = tuple(WeightedBlock(block, 1) for block in blocks)
        return Release(parts, math.sqrt(len(blocks) + _OFFSET_MAX**2))

    @property
    def elements(self) -> int:
        return self.release.layout.elements


@dataclass(frozen=True, eq=False)
class Scale:
    """How a head's scores become confidences, and fall into bins.

    Attributes:
        temperature: τ at which softmax(scores/τ) is the head's confidence.
        edges: (S − 1,) ascending edges between the bins of its score; empty without a table by score.
    """

    temperature: float
    edges: Floats


@dataclass(frozen=True, eq=False)
class ShownHeads:
    """The heads that a run judges. The tables by class, confidence and score are those of the first.

    Attributes:
        heads: one or more, of the same classes.
        temperature, edges: the scale of the first.
    """

    heads: tuple[Head, ...]
    temperature: float
    edges: Floats


def exact_scores(head: Head, features: Array) -> Floats:
    """Scores of usable (n, dim) features, (n, C); −∞ for classes that the head never predicts. Each row's bits follow from that row alone."""
    rows = unit_directions(as_features(features, head.dim), head.centre, total=True)
    if isinstance(head, KernelHead):
        rows = head.map.of_units(rows, apart=True)
    elif isinstance(head, TukeyHead):
        rows = tukey_transform(rows, head.power)
    scores = exact_products(rows, head.weights)
    if head.bias is not None:
        scores += head.bias
    scores[:, list(head.empty_classes)] = -np.inf
    return scores


def confidence_places(scores: Floats, temperature: float, bins: int) -> tuple[Integers, Integers]:
    """Return each row's bin of max softmax(scores/τ), (n,), and its place in the bin in steps of 2^−8 from the middle, (n,).

    The bins part evenly what lies between 1/A and 1, A being the classes that the head predicts.
    """
    answered = int(np.isfinite(scores[:1]).sum())
    sure = np.exp(log_softmax(scores / temperature).max(axis=1))
    least = 1 / max(answered, 1)
    place = bins * (sure - least) / (1 - least) if answered > 1 else np.full(len(scores), float(bins))
    bin_of = np.clip(np.floor(place), 0, bins - 1)
    unit = JUDGE_LATTICE.unit(1)
    offset = np.rint(unit * np.clip(place - bin_of - 0.5, -_OFFSET_MAX, _OFFSET_MAX))
    return bin_of.astype(np.int64), offset.astype(np.int64)


def positive_margins(scores: Floats, positive: int) -> Floats:
    """Return the score of the positive class less the highest other, (n,); infinite if the head predicts only one of the two."""
    others = np.delete(scores, positive, axis=1).max(axis=1)
    own = scores[:, positive]
    return np.where(np.isfinite(own), own - others, -np.inf)


def tabulate_records(shapes: TableShapes, shown: ShownHeads, features: Array, labels: Integers) -> Integers:
    """Count usable (n, dim) features with their (n,) classes: the flat tables, (elements,) int64 in steps of 2^−8."""
    if not 1 <= len(shown.heads) <= shapes.heads:
        raise CalibrationError(f"{len(shown.heads)} heads are shown; the tables take 1 to {shapes.heads}")
    first, matrix = shown.heads[0], as_features(features, shown.heads[0].dim)
    lacking = np.isin(labels, first.empty_classes)
    tables = {block.name: np.zeros(block.shape, np.int64) for block in shapes.release.layout.blocks}
    unit, widest = JUDGE_LATTICE.unit(1), max(len(head.weights) for head in shown.heads)
    for block in row_blocks(len(matrix), max(matrix.shape[1], widest, shapes.classes)):
        truth, cell = labels[block], np.zeros(len(labels[block]), np.int64)
        scores = [exact_scores(head, matrix[block]) for head in shown.heads]
        for bit, each in enumerate(scores):
            cell |= (each.argmax(axis=1) == truth).astype(np.int64) << bit
        right = cell & 1
        np.add.at(tables[JOINT], cell, unit)
        np.add.at(tables[BY_CLASS], (np.where(lacking[block], shapes.classes, truth), right), unit)
        bin_of, offset = confidence_places(scores[0], shown.temperature, shapes.confidence_bins)
        np.add.at(tables[BY_CONFIDENCE], (bin_of, right), unit)
        np.add.at(tables[BY_CONFIDENCE][:, OFFSET], bin_of, offset)
        if shapes.positive is not None:
            margins = positive_margins(scores[0], shapes.positive)
            level = np.searchsorted(shown.edges, margins, side="right")
            np.add.at(tables[BY_SCORE], (level, (truth == shapes.positive).astype(np.int64)), unit)
    return shapes.release.layout.flatten(tables)


def place_scale(
    positive: int | None, bins: int, scores: Floats, labels: Integers, *, shares: Floats | None = None
) -> Scale:
    """Find the scale of a head from its (n, C) scores of rows with their (n,) classes.

    The rows need be no patients': those drawn from a sum's class means and covariance do. τ has the smallest loss, at the (C,) `shares` of the
    classes instead of the rows' own. The edges part an even mixture of positives and others evenly.
    """
    answered = np.isfinite(scores[:1]).ravel()
    known = answered[labels]
    own = labels[known]
    temperatures, chosen = default_temperatures(), np.arange(len(own))
    counts = np.bincount(own, minlength=len(answered))
    weights = np.ones(len(chosen)) if shares is None else (shares / np.maximum(counts, 1))[own]
    losses = [
        -float(weights @ np.maximum(log_softmax(scores[known] / each)[chosen, own], -LOSS_MAX))
        for each in temperatures
    ]
    temperature = float(temperatures[int(np.argmin(losses))])
    if positive is None:
        return Scale(temperature, np.zeros(0))
    margins = positive_margins(scores, positive)
    is_positive = labels == positive
    finite = np.isfinite(margins)
    weights = np.where(is_positive, 1 / max(1, is_positive.sum()), 1 / max(1, (~is_positive).sum())) * finite
    if not weights.any():
        return rough_scale(positive, bins, temperature)
    order = np.argsort(margins, kind="stable")
    shares = np.cumsum(weights[order]) / weights.sum()
    wanted = np.arange(1, bins) / bins
    edges = margins[order][np.minimum(np.searchsorted(shares, wanted), len(order) - 1)]
    steps = 1e-9 * max(1.0, float(np.abs(edges).max())) * np.arange(len(edges))
    return Scale(temperature, np.maximum.accumulate(edges) + steps)


def rough_scale(positive: int | None, bins: int, temperature: float) -> Scale:
    """Return a scale where no rows are known: edges spread evenly over log-odds from −4 to 4."""
    edges = np.zeros(0) if positive is None else temperature * np.linspace(-4, 4, bins + 1)[1:-1]
    return Scale(temperature, edges)
