"""Solve an exact sum for all of its rows as unknowns, by damped Gauss–Newton steps from records of the same population."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.func import jacrev, vmap

if TYPE_CHECKING:
    from collections.abc import Callable

    from veilsum.calibration import RandomFeatures
    from veilsum.calibration.rows import Floats, Integers

    Numbers = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    """What one row and its class (one-hot) add to a vector."""


def add_moments(lift: Callable[[torch.Tensor], torch.Tensor]) -> Numbers:
    """Second moments and class sums of a row's image under `lift`."""

    def numbers(z: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        x = lift(z)
        upper = torch.triu_indices(len(x), len(x))
        return torch.cat([(x[upper[0]] * x[upper[1]]), torch.outer(label, x).ravel()])

    return numbers


def lift_waves(phi: RandomFeatures) -> Callable[[torch.Tensor], torch.Tensor]:
    omega = torch.tensor(phi.directions)

    def lift(z: torch.Tensor) -> torch.Tensor:
        turns = omega @ (z / z.norm())
        waves: torch.Tensor = math.sqrt(2 / phi.size) * torch.cat([torch.cos(turns), torch.sin(turns)])
        return waves

    return lift


def lift_layer(weights: Floats) -> Callable[[torch.Tensor], torch.Tensor]:
    """Another extractor of the same inputs: a smooth layer, then length 1."""
    layer = torch.tensor(weights)

    def lift(z: torch.Tensor) -> torch.Tensor:
        x = torch.nn.functional.softplus(4 * (layer @ (z / z.norm())))
        unit: torch.Tensor = x / x.norm()
        return unit

    return lift


def lift_itself(z: torch.Tensor) -> torch.Tensor:
    unit: torch.Tensor = z / z.norm()
    return unit


def lift_with_constant(z: torch.Tensor) -> torch.Tensor:
    return torch.cat([math.sqrt(0.9) * z / z.norm(), torch.tensor([math.sqrt(0.1)], dtype=z.dtype)])


def sum_numbers(numbers: list[Numbers], rows: Floats, labels: Integers, classes: int) -> torch.Tensor:
    return _each(numbers, torch.tensor(rows), _onehot(labels, classes)).sum(dim=0)


def solve_rows(
    numbers: list[Numbers],
    total: torch.Tensor,
    start: Floats,
    labels: Integers,
    classes: int,
    steps: int = 60,
) -> tuple[Floats, float]:
    """Return rows whose numbers add up to `total`, and the relative size of what is missing. The classes' sizes are known."""
    named, z, damping = _onehot(labels, classes), torch.tensor(start), 1e-2

    def function(z: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        return torch.cat([each(z, label) for each in numbers])

    jacobian = vmap(jacrev(function))
    missing = total - _each(numbers, z, named).sum(dim=0)
    for _ in range(steps):
        J = jacobian(z, named).transpose(0, 1).reshape(len(total), -1)
        gram = J @ J.T
        scale = float(gram.diagonal().mean())
        while damping < 1e6:
            moved = J.T @ torch.linalg.solve(
                gram + damping * scale * torch.eye(len(gram), dtype=gram.dtype), missing
            )
            tried = z + moved.reshape(z.shape)
            tried = tried / tried.norm(dim=1, keepdim=True)
            left = total - _each(numbers, tried, named).sum(dim=0)
            if left.norm() < missing.norm():
                z, missing, damping = tried, left, max(damping / 4, 1e-10)
                break
            damping *= 4
        if damping >= 1e6 or missing.norm() < 1e-9 * total.norm():
            break
    return z.numpy(), float(missing.norm() / total.norm())


def _each(numbers: list[Numbers], z: torch.Tensor, named: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = torch.cat([vmap(each)(z, named) for each in numbers], dim=1)
    return found


def _onehot(labels: Integers, classes: int) -> torch.Tensor:
    return torch.tensor(np.eye(classes)[labels])
