"""Trial runs: the cost of noise on your own records, before a study is signed.

Your n records stand in for the study's N: noise scaled by n/N keeps the ratio of signal to noise. A fifth of the records is the hold-out
set. The noise is Gaussian instead of discrete Gaussian.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from veilsum.calibration.ffc import FFCStatistics
from veilsum.calibration.head import Head, log_softmax
from veilsum.calibration.privacy.integer_sums import RESIDUAL_CLIP
from veilsum.calibration.privacy.noisy_sums import Descent, NoisyGradient, NoisySums
from veilsum.calibration.privacy.plan import Outlook
from veilsum.calibration.privacy.release import default_weight
from veilsum.calibration.ridge import solve_ffc
from veilsum.calibration.rows import SQRT_HALF, Floats, Integers, unit_rows, with_constant

_HELD_OUT = 5
TRIAL_OFF_BY = 5.5
"""Maximum error of a trial on 2,000 rows, in points, in 95 % of the measurements of each kind (`benchmarks.noisy_recipes`)."""


@dataclass(frozen=True)
class Trial:
    """Accuracies in % on a hold-out set.

    Attributes:
        exact: of the head of an exact sum.
        noisy: of the noisy chain's head, the mean over draws of the noise.
        majority: of always answering the class that is most frequent in the hold-out set.
        balanced: mean recall of the noisy chain's head over the classes, the mean over draws.
    """

    exact: float
    noisy: float
    majority: float
    balanced: float

    @property
    def lost(self) -> float:
        """Points of accuracy that noise costs."""
        return self.exact - self.noisy

    def judge_loss(self, headroom: float) -> Outlook:
        """Return the verdict on the loss over the headroom; hopeless if always answering one class is right as often."""
        return Outlook.HOPELESS if self.noisy <= self.majority else Outlook.of_loss(self.lost / headroom)


def try_recipe(
    rows: Floats, labels: Integers, classes: int, shares: Mapping[str, float], mu: float, *, draws: int = 3
) -> Trial:
    """Fit a recipe's chain to four fifths of the rows, and judge its head on the others.

    `rows` are (n, l) of length 1, `labels` (n,). `shares` are the shares of μ² by step, and `mu` is μ of the chain times N/n.
    """
    order = np.random.default_rng(0).permutation(len(rows))
    rows, labels = rows[order], labels[order]
    judging = np.arange(len(rows)) % _HELD_OUT == 0
    own, truth = labels[~judging], labels[judging]
    exact = FFCStatistics(rows.shape[1], classes, constant=True)
    exact.update(rows[~judging], own)
    mu /= 1 - 1 / _HELD_OUT  # hold-out rows are missing from the sums
    heads = [
        noisy_head(rows[~judging], own, classes, shares, mu, np.random.default_rng(seed))
        for seed in range(draws)
    ]
    first, *hits = [
        head.predict(rows[judging], normalise=True) == truth for head in (solve_ffc(exact), *heads)
    ]
    counts = np.bincount(truth)
    recalls = [[each[truth == label].mean() for label in np.flatnonzero(counts)] for each in hits]
    return Trial(
        *(
            100 * float(each)
            for each in (first.mean(), np.mean(hits), counts.max() / len(truth), np.mean(recalls))
        )
    )


def noisy_head(
    rows: Floats,
    labels: Integers,
    classes: int,
    shares: Mapping[str, float],
    mu: float,
    rng: np.random.Generator,
) -> Head:
    """Compute the head of a noisy chain over rows of length 1, with a constant."""
    centre = None
    if "mean" in shares:
        centre = find_noisy_mean(rows, mu * math.sqrt(shares["mean"]), rng)
        rows = unit_rows(rows - centre, total=True)[0]
    rows = with_constant(rows)
    sums = noisy_sums(rows, labels, classes, mu * math.sqrt(shares["sum"]), rng)
    steps = [share for step, share in shares.items() if step not in {"mean", "sum"}]
    if not steps:
        return Head(sums.solution.weights, sums.solution.bias, (), centre=centre)
    descent = Descent.from_sums(sums)
    rows = unit_rows(rows @ descent.whitening, total=True)[0]
    for step, share in enumerate(steps, 1):
        deviation = 1 / (mu * math.sqrt(share))
        noise = deviation * rng.standard_normal(descent.weights.shape)
        gradient = NoisyGradient(clip_gradient(rows, labels, descent.weights) + noise, deviation)
        descent = descent.take_step(gradient, step, len(steps))
    head = descent.make_head(constant=True)
    return Head(head.weights, head.bias, (), centre=centre)


def noisy_sums(
    rows: Floats, labels: Integers, classes: int, mu: float, rng: np.random.Generator
) -> NoisySums:
    """Return V and U with noise; the last column of the rows is the constant."""
    dim, weight = rows.shape[1], default_weight(classes)
    deviation = math.sqrt(1 + weight**2) / mu
    upper = np.triu(rng.standard_normal((dim, dim)) * deviation * SQRT_HALF, 1)
    V = rows.T @ rows + upper + upper.T + np.diag(rng.standard_normal(dim) * deviation)
    U = rows.T @ np.eye(classes)[labels] + rng.standard_normal((dim, classes)) * deviation / weight
    return NoisySums(V, U, deviation, deviation / weight, True, None)


def find_noisy_mean(rows: Floats, mu: float, rng: np.random.Generator) -> Floats:
    """Return the mean of (n, l) rows of length 1, with the noise of a step `mean`."""
    sums = rows.sum(axis=0) * SQRT_HALF + rng.standard_normal(rows.shape[1]) / mu
    mean: Floats = sums / max(1.0, len(rows) * SQRT_HALF + float(rng.standard_normal()) / mu)
    return mean / max(1.0, float(np.linalg.norm(mean)))


def clip_gradient(rows: Floats, labels: Integers, weights: Floats) -> Floats:
    """Return Σ x·ρᵀ, (l, C), as members sum it in a gradient step, before noise."""
    residuals = np.exp(log_softmax(rows @ weights))
    residuals[np.arange(len(labels)), labels] -= 1
    residuals /= np.maximum(np.linalg.norm(residuals, axis=1), RESIDUAL_CLIP)[:, None]
    gradient: Floats = rows.T @ residuals
    return gradient
