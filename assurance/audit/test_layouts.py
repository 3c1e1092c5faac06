"""Bugs in the noise of every step's vector: the best distinguisher for one record flags each bug, and passes the correct mechanism."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from assurance.audit.chain import element_variances
from assurance.audit.pipeline import add_noise, exact, spec_of
from tests.support.simulator import SeededRandom
from veilsum.calibration.layout import SymmetricBlock
from veilsum.calibration.privacy.mechanism import Mechanism, Share
from veilsum.study.promise import mechanism_of

DIM, CLASSES = 6, 2
STEPS = {
    "ccvr": ("ccvr", "sum", "sum"),
    "ffc": ("ffc", "sum", "sum"),
    "mean": ("ffc", "mean+sum", "mean"),
    "gradient": ("ffc", "mean+sum+16-gradients", "gradient-1"),
}
RELEASES, APART = 1_000, 0.1
"""`APART` is more than four standard errors of μ, each 1/√(2·1,000) of it. The smallest bug, two of three shares, shows as 22 percent."""
MATERIAL = {"centre": np.zeros(DIM), "whitening": np.eye(DIM), "weights": np.zeros((DIM, CLASSES))}


@cache
def posed(name: str) -> tuple[Mechanism, Any]:
    """Return the mechanism of 3 honest members of 4, and what a record of length 1 adds to the sum."""
    kind, recipe, step = STEPS[name]
    spec = spec_of(DIM, CLASSES, kind, recipe, step)
    material = MATERIAL if spec.takes_material else None
    return mechanism_of(spec), exact(spec, np.ones((1, DIM)), np.array([1]), material)


def seen(name: str, members: list[tuple[Share, ...]]) -> float:
    """Return μ of sums with these members' shares: the record's shift in standard deviations of the noise."""
    mechanism, record = posed(name)
    weights = record / np.maximum(sum(element_variances(mechanism, own) for own in members), 1.0)
    scores = np.zeros(RELEASES)
    for index, shares in enumerate(members):
        noise = np.zeros(RELEASES * len(record), np.int64)
        add_noise(mechanism, shares, noise, RELEASES, SeededRandom(index))
        scores += noise.reshape(RELEASES, -1) @ weights
    return float(record @ weights / scores.std())


def scaled(mechanism: Mechanism, factor: float, *, diagonal: float | None = None) -> tuple[Share, ...]:
    """Return the mechanism's shares with scaled variances."""
    found = []
    for part, share in zip(mechanism.release.parts, mechanism.shares, strict=True):
        symmetric = isinstance(part.block, SymmetricBlock)
        on = factor if diagonal is None or not symmetric else diagonal
        found.append(Share(int(share.variance * factor), int(share.diagonal * on)))
    return tuple(found)


@pytest.mark.parametrize("name", STEPS)
def test_what_is_promised_of_each_step_is_what_is_seen(name: str) -> None:
    mechanism, record = posed(name)
    moved = np.linalg.norm(record * mechanism.release.element_weights(mechanism.lattice))
    assert moved <= mechanism.sensitivity * (1 + 1e-12)
    promised = mechanism.mu_round * moved / mechanism.sensitivity
    assert seen(name, [mechanism.shares] * 3) == pytest.approx(promised, rel=APART)
    whole, parts = mechanism.shares, mechanism.release.parts
    bugs = {
        "half of sigma": [scaled(mechanism, 1 / 4)] * 3,
        "a forgotten root of 2": [scaled(mechanism, 1 / 2)] * 3,
        "a member without its share": [whole] * 2,
    }
    if any(isinstance(part.block, SymmetricBlock) for part in parts):
        bugs["off the diagonal halved"] = [scaled(mechanism, 1 / 2, diagonal=1)] * 3
    if len(parts) > 1:
        bugs["no noise on one block"] = [(whole[0], Share(0, 0), *whole[2:])] * 3
    for bug, members in bugs.items():
        assert seen(name, members) > (1 + APART) * promised, bug
