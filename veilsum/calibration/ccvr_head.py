"""CCVR's head: virtual features drawn from the classes' Gaussians, and a head trained on them.

Luo et al. 2021, algorithm 1, draws M_c features of class c from N(μ_c, Σ_c) and retrains the head on them by cross-entropy. Their
§5.1 applies a ReLU and Tukey's transformation x ↦ x^β, β = ½, before the re-training; the algorithm omits the step.

Yang et al. 2021 ("Free Lunch for Few-shot Learning") use it to bring features nearer to Gaussians before they fit and draw. Here
it comes after the draw, and the head applies it to real features too. It suits features that are not negative; others become 0.
`power=None` leaves it out.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from veilsum.calibration.errors import CalibrationError, NoRecords
from veilsum.calibration.head import Head, find_empty_classes, log_softmax
from veilsum.calibration.rows import Array, Floats, Integers, as_features, finite_rows, unit_directions

EIGENVALUE_FLOOR = 1e-6
"""Eigenvalues of a class's covariance are raised to this share of their mean. With n_c ≤ l records, most are 0 or, by rounding, below."""


class Gaussians(Protocol):
    """What virtual features are drawn from: `CCVRStatistics` or `NoisyGaussians`. A class with count 0 is left out."""

    @property
    def dim(self) -> int: ...
    @property
    def classes(self) -> int: ...
    @property
    def counts(self) -> Integers: ...
    def mean(self, label: int) -> Floats: ...
    def covariance(self, label: int) -> Floats: ...
    def shared_covariance(self) -> Floats: ...


@dataclass(frozen=True, repr=False, eq=False)
class TukeyHead(Head):
    """A head on x^β of the positive part of features, which are not scaled to length 1.

    Attributes:
        power: β; None for features as they are.
        unit: scale features to length 1 first, because the statistics were of such features.
    """

    power: float | None
    unit: bool = False

    @property
    def scales(self) -> bool:
        return self.unit

    def rows(self, features: Array, *, normalise: bool = False) -> Floats:
        """max(features, 0)^β, (n, dim) float64. With `normalise`, rows are scaled to length 1 first."""
        if normalise or self.unit:
            return tukey_transform(
                unit_directions(self._check_features(features, normalise=normalise), self.centre), self.power
            )
        return tukey_transform(finite_rows(as_features(features, self.dim)), self.power)

    def with_weights(self, weights: Floats, bias: Floats | None) -> "TukeyHead":
        return replace(self, weights=weights, bias=bias)


def tukey_transform(features: Floats, power: float | None, out: Floats | None = None) -> Floats:
    """max(features, 0)^power; 1 is a ReLU alone, None leaves features as they are (Tukey 1977, "ladder of powers").

    `out`, which may be `features`, receives the result.
    """
    if power is None:
        return features
    raised: Floats = np.maximum(features, 0, out=out)
    raised **= power
    return raised


def positive_definite(covariance: Floats, floor: float = EIGENVALUE_FLOOR) -> tuple[Floats, Floats]:
    """Eigenvalues (l,) of a covariance, raised to at least floor times their mean, and eigenvectors (l, l).

    Of all matrices whose eigenvalues reach the floor, QDQᵀ is the nearest in the Frobenius norm (Higham 1988).
    """
    values, vectors = np.linalg.eigh(covariance)
    return np.maximum(values, floor * max(float(values.mean()), 0.0)), vectors


def virtual_features(
    statistics: Gaussians, per_class: int, rng: "np.random.Generator"
) -> tuple[Floats, Integers]:
    """Draw M features from the Gaussian of each class that has records; a class of one record takes the shared covariance.

    Equal generators draw equal features on one machine.

    Returns:
        (n, l) float64 and (n,) labels, class by class.

    Raises:
        NoRecords: the statistics are empty, or no class has two records.
    """
    counts = statistics.counts
    held = np.flatnonzero(counts)
    if not len(held):
        raise NoRecords("the statistics hold no records: update or add sums before drawing")
    if per_class < 1:
        raise CalibrationError(f"{per_class} virtual features per class: draw at least one")
    shared = statistics.shared_covariance() if (counts == 1).any() else None
    # One array, filled class by class: at 100 of each of 100 classes every copy of it is 100 MB.
    features = np.empty((len(held), per_class, statistics.dim))
    for label, drawn in zip(held.tolist(), features, strict=True):
        covariance = shared if shared is not None and counts[label] == 1 else statistics.covariance(label)
        values, vectors = positive_definite(covariance)
        # By the symmetric root, which is continuous in Σ where eigenvectors are not: sums a rounding apart draw alike.
        draws = (rng.standard_normal(drawn.shape) @ vectors) * np.sqrt(values)
        np.add(draws @ vectors.T, statistics.mean(label), out=drawn)
    return features.reshape(-1, statistics.dim), np.repeat(held, per_class)


def solve_ccvr(
    statistics: Gaussians,
    rng: "np.random.Generator",
    *,
    per_class: int = 100,
    power: float | None = 0.5,
    unit: bool = False,
    centre: Floats | None = None,
    penalty: float = 1e-4,
) -> TukeyHead:
    """Fit the head that CCVR retrains, on virtual features alone.

    Args:
        statistics: pooled.
        rng: draws the virtual features.
        per_class: M; the paper takes 100, 500 and 1000 for CIFAR-10, CIFAR-100 and CINIC-10, and rarely finds more to be worse.
        power: β of Tukey's transformation after a ReLU; None for neither, as in their Algorithm 1.
        unit: as `TukeyHead`.
        centre: as `Head`, of features that were summed less their mean.
        penalty: of `fit_logistic`. The paper trains by `fit_logistic_sgd` on `tukey_transform(features, power)`.

    Raises:
        NoRecords: the statistics are empty, or no class has two records.
        CalibrationError: a penalty that is not above 0, or a power outside 0…1.
    """
    if power is not None and not 0 < power <= 1:
        raise CalibrationError(f"a power lies above 0 and up to 1, not {power!r}: pass None for none")
    features, labels = virtual_features(statistics, per_class, rng)
    tukey_transform(features, power, out=features)
    parameters = fit_logistic(features, labels, statistics.classes, penalty=penalty)
    empty = find_empty_classes(statistics.counts)
    return TukeyHead(parameters[:-1], parameters[-1], empty, power, unit, centre=centre)


_LBFGS_MEMORY, _STEP_MIN = 10, 2.0**-40


def fit_logistic(
    features: Floats,
    labels: Integers,
    classes: int,
    *,
    penalty: float = 1e-4,
    tolerance: float = 1e-6,
    steps: int = 1000,
) -> Floats:
    """Minimise the mean cross-entropy + ½·penalty·‖weights‖² by L-BFGS (Nocedal and Wright 2006, algorithm 7.5); (l + 1, C), bias last.

    Features are (n, l) and labels (n,). Without a penalty, separable features have no minimum; the bias is not penalised. The descent stops
    at a largest gradient of `tolerance`, or after so many steps.
    """
    if not len(features) or not penalty > 0:
        raise CalibrationError(f"{len(features)} records and penalty {penalty!r}: both must be above 0")

    def objective(flat: Floats) -> tuple[float, Floats]:
        parameters = flat.reshape(-1, classes)
        loss, gradient = measure_cross_entropy(features, labels, parameters)
        loss += 0.5 * penalty * float((parameters[:-1] ** 2).sum())
        gradient[:-1] += penalty * parameters[:-1]
        return loss, gradient.ravel()

    start = np.zeros((features.shape[1] + 1) * classes)
    return _minimise_lbfgs(objective, start, tolerance, steps).reshape(-1, classes)


def fit_logistic_sgd(
    features: Floats,
    labels: Integers,
    classes: int,
    rng: "np.random.Generator",
    *,
    start: Floats | None = None,
    rate: float = 0.01,
    epochs: int = 10,
    batch: int = 64,
) -> Floats:
    """Minimise the mean cross-entropy by SGD with momentum and weight decay, as papers do. (l + 1, C), bias last.

    Features are (n, l), labels (n,), and `start` is (l + 1, C), such as the head that federated training left; None for zeros. The end depends
    on it.
    """
    parameters = np.zeros((features.shape[1] + 1, classes)) if start is None else start.copy()
    velocity = np.zeros_like(parameters)
    for _ in range(epochs):
        order = rng.permutation(len(features))
        for first in range(0, len(order), batch):
            chosen = order[first : first + batch]
            _, gradient = measure_cross_entropy(features[chosen], labels[chosen], parameters)
            velocity = 0.9 * velocity + gradient + 1e-5 * parameters
            parameters -= rate * velocity
    return parameters


def measure_cross_entropy(features: Floats, labels: Integers, parameters: Floats) -> tuple[float, Floats]:
    """Return the mean loss of these parameters, and its gradient."""
    logs = log_softmax(features @ parameters[:-1] + parameters[-1])
    own = np.arange(len(labels)), labels
    loss = -float(logs[own].mean())
    slope = np.exp(logs)
    slope[own] -= 1
    slope /= len(labels)
    return loss, np.vstack([features.T @ slope, slope.sum(axis=0)])


def _minimise_lbfgs(
    objective: Callable[[Floats], tuple[float, Floats]], x: Floats, tolerance: float, steps: int
) -> Floats:
    value, gradient = objective(x)
    pairs: deque[tuple[Floats, Floats]] = deque(maxlen=_LBFGS_MEMORY)
    for _ in range(steps):
        if np.abs(gradient).max() <= tolerance:
            break
        direction = -_inverse_hessian(pairs, gradient)
        slope, length = float(gradient @ direction), 1.0
        tried = objective(x + direction)
        while tried[0] > value + 1e-4 * length * slope and length > _STEP_MIN:
            length /= 2
            tried = objective(x + length * direction)
        taken, bent = length * direction, tried[1] - gradient
        if tried[0] > value or not taken @ bent > 0:  # rounding hides any further descent
            break
        pairs.append((taken, bent))
        x = x + taken
        value, gradient = tried
    return x


def _inverse_hessian(pairs: deque[tuple[Floats, Floats]], gradient: Floats) -> Floats:
    """The two-loop recursion: an estimate of the Hessian's inverse from the last steps, applied to a gradient."""
    q, taken = gradient.copy(), []
    for s, y in reversed(pairs):
        a = float(s @ q) / float(s @ y)
        q -= a * y
        taken.append(a)
    if pairs:
        s, y = pairs[-1]
        q *= float(s @ y) / float(y @ y)
    else:
        q /= max(1.0, float(np.linalg.norm(gradient)))
    for (s, y), a in zip(pairs, reversed(taken), strict=True):
        q += (a - float(y @ q) / float(s @ y)) * s
    return q
