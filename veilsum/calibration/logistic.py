"""Logistic heads: multinomial regression on features."""

from collections import deque
from collections.abc import Callable

import numpy as np

from veilsum.calibration.errors import CalibrationError
from veilsum.calibration.head import log_softmax
from veilsum.calibration.rows import Floats, Integers

_MEMORY, _SHORTEST = 10, 2.0**-40


def fit_logistic(
    features: Floats,
    labels: Integers,
    classes: int,
    *,
    penalty: float = 1e-4,
    tolerance: float = 1e-6,
    steps: int = 1000,
) -> Floats:
    """Minimise the mean cross-entropy + ½·penalty·‖weights‖² by L-BFGS (Nocedal and Wright 2006, algorithm 7.5).

    Args:
        features: (n, l) float64.
        labels: (n,).
        classes: C.
        penalty: above 0: without it, separable features have no minimum. The bias is not penalised.
        tolerance: largest gradient at which to stop.
        steps: at most.

    Returns:
        (l + 1, C), the bias in the last row.

    Raises:
        CalibrationError: no records, or a penalty that is not above 0.
    """
    if not len(features) or not penalty > 0:
        raise CalibrationError(f"{len(features)} records and penalty {penalty!r}: both must be above 0")

    def objective(flat: Floats) -> tuple[float, Floats]:
        parameters = flat.reshape(-1, classes)
        loss, gradient = _cross_entropy(features, labels, parameters)
        loss += 0.5 * penalty * float((parameters[:-1] ** 2).sum())
        gradient[:-1] += penalty * parameters[:-1]
        return loss, gradient.ravel()

    start = np.zeros((features.shape[1] + 1) * classes)
    return _minimise(objective, start, tolerance, steps).reshape(-1, classes)


def fit_logistic_sgd(
    features: Floats,
    labels: Integers,
    classes: int,
    rng: np.random.Generator,
    *,
    start: Floats | None = None,
    rate: float = 0.01,
    momentum: float = 0.9,
    decay: float = 1e-5,
    epochs: int = 10,
    batch: int = 64,
) -> Floats:
    """Minimise the mean cross-entropy by SGD with momentum, as papers do; the end depends on the start.

    Args:
        features: (n, l) float64.
        labels: (n,).
        classes: C.
        rng: shuffles the records.
        start: (l + 1, C), such as the head that federated training left; None for zeros.
        rate: step size.
        momentum: of the velocity, v ← momentum·v + gradient.
        decay: weight decay.
        epochs: passes over the records.
        batch: records per step.

    Returns:
        (l + 1, C), the bias in the last row.
    """
    parameters = np.zeros((features.shape[1] + 1, classes)) if start is None else start.copy()
    velocity = np.zeros_like(parameters)
    for _ in range(epochs):
        order = rng.permutation(len(features))
        for first in range(0, len(order), batch):
            chosen = order[first : first + batch]
            _, gradient = _cross_entropy(features[chosen], labels[chosen], parameters)
            velocity = momentum * velocity + gradient + decay * parameters
            parameters -= rate * velocity
    return parameters


def _cross_entropy(features: Floats, labels: Integers, parameters: Floats) -> tuple[float, Floats]:
    logs = log_softmax(features @ parameters[:-1] + parameters[-1])
    own = np.arange(len(labels)), labels
    loss = -float(logs[own].mean())
    slope = np.exp(logs)
    slope[own] -= 1
    slope /= len(labels)
    return loss, np.vstack([features.T @ slope, slope.sum(axis=0)])


def _minimise(
    objective: Callable[[Floats], tuple[float, Floats]], x: Floats, tolerance: float, steps: int
) -> Floats:
    value, gradient = objective(x)
    pairs: deque[tuple[Floats, Floats]] = deque(maxlen=_MEMORY)
    for _ in range(steps):
        if np.abs(gradient).max() <= tolerance:
            break
        direction = -_inverse_hessian(pairs, gradient)
        slope, length = float(gradient @ direction), 1.0
        tried = objective(x + direction)
        while tried[0] > value + 1e-4 * length * slope and length > _SHORTEST:
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
