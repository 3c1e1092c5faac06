"""Whole chains of a noisy study, as members and the coordinator compute them, with and without a canary.

Each step's material follows from the noisy sums before it, through the files that the coordinator publishes and members read: what the
canary changed in one step steers the next. Each honest member's vector comes from `compute_vector`, with its own noise; a silent one
colludes. The attacker knows every record but the canary and reads every sum, so its best score is the sum over steps of the canary's
contribution, weighted by the variances, with the noise around the others' sum. Its means lie μ deviations apart, μ of the whole chain.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from assurance.audit.estimate import Estimate, estimate_mu
from assurance.audit.pipeline import MEMBERS, spec_of
from tests.support.simulator import SeededRandom
from veilsum.calibration.layout import SymmetricBlock
from veilsum.calibration.privacy.mechanism import Mechanism, Share
from veilsum.calibration.rows import Floats, Integers
from veilsum.protocol.round_spec import RoundSpec
from veilsum.protocol.study import RECIPES
from veilsum.study.answers import compute_answer, read_pooled
from veilsum.study.promise import mechanism_of, study_mu
from veilsum.study.result_files import encode_files, read_material
from veilsum.study.vectors import compute_vector, noiseless_vector

Rows = tuple[Floats, Integers]
CHAIN_DIM, CHAIN_CLASSES, CHAIN_RECORDS = 6, 2, 40
CANARY_LABEL = 1
"""All other records like the canary are of class 0: no head learns its label, so its residual stays long enough to be cut."""


@dataclass(frozen=True)
class Chain:
    """Chains of one recipe over exactly n_min survivors.

    Attributes:
        recipe: with gradients or without.
        quieter: the bug of honest members that draw noise for so many times the μ of each step.
    """

    recipe: str
    quieter: float = 1.0

    @property
    def mu(self) -> float:
        """The promised μ of the whole chain."""
        noise = self.specs[0].question.noise
        assert noise is not None
        return study_mu(noise)

    @property
    def specs(self) -> tuple[RoundSpec, ...]:
        return tuple(
            spec_of(CHAIN_DIM, CHAIN_CLASSES, "ffc", self.recipe, step) for step, _ in RECIPES[self.recipe]
        )

    def estimate(self, chains: int, seed: int) -> Estimate:
        """Estimate μ from so many chains without the canary and as many with it."""
        without, having = (
            np.array([self.score(canary=canary, seed=2 * (seed + draw) + canary) for draw in range(chains)])
            for canary in (False, True)
        )
        return estimate_mu(without, having)

    def score(self, *, canary: bool, seed: int) -> float:
        """Return the attacker's score of one chain."""
        source, rows, published, total = SeededRandom(seed), _records(), None, 0.0
        for spec in self.specs:
            material, mechanism = read_material(spec, published), mechanism_of(spec)
            changed = noiseless_vector(spec, *_canary(), material)
            known = [noiseless_vector(spec, *own, material) for own in rows]
            honest = self._honest_vectors(spec, known, material, source, canary=canary)
            summed = np.sum([*honest, known[-1]], axis=0)  # the last one colludes
            weights = changed / (mechanism.honest * element_variances(self._bugged(mechanism)))
            total += float((summed - np.sum(known, axis=0)) @ weights)
            answer = compute_answer(spec, read_pooled(spec, summed, MEMBERS), MEMBERS, material)
            published = encode_files(spec, answer).material
        return total

    def _honest_vectors(
        self, spec: RoundSpec, known: list[Integers], material: Any, source: SeededRandom, *, canary: bool
    ) -> Iterator[Integers]:
        for place, own in enumerate(_records()[:-1]):
            held = _join(own, _canary()) if place == 0 and canary else own
            if self.quieter == 1:
                yield compute_vector(spec, *held, material, source)
            else:
                vector = known[place].copy() if held is own else noiseless_vector(spec, *held, material)
                self._bugged(mechanism_of(spec)).add_noise(vector, source)
                yield vector

    def _bugged(self, mechanism: Mechanism) -> Mechanism:
        return replace(mechanism, mu=mechanism.mu * self.quieter)


@cache
def _records() -> list[Rows]:
    """Return the members' rows and labels: class 0 around one direction, class 1 around another."""
    rng, found = np.random.default_rng(5), list[Rows]()
    for _ in range(MEMBERS):
        labels = np.arange(CHAIN_RECORDS) % CHAIN_CLASSES
        rows = (
            0.2 * rng.standard_normal((CHAIN_RECORDS, CHAIN_DIM))
            + np.eye(CHAIN_CLASSES, CHAIN_DIM)[labels]
            + 0.3
        )
        found.append((rows, labels))
    return found


@cache
def _canary() -> Rows:
    """Return a row like those of class 0, with the other label."""
    return np.eye(1, CHAIN_DIM) + 0.3, np.array([CANARY_LABEL])


def _join(first: Rows, second: Rows) -> Rows:
    return np.concatenate([first[0], second[0]]), np.concatenate([first[1], second[1]])


def element_variances(mechanism: Mechanism, shares: tuple[Share, ...] = ()) -> Floats:
    """Return the (elements,) variances of one member's noise; of other shares than the mechanism's if they are given."""
    found = np.empty(mechanism.release.layout.elements)
    places = mechanism.release.layout.slices.values()
    for part, place, share in zip(mechanism.release.parts, places, shares or mechanism.shares, strict=True):
        found[place] = share.variance
        if isinstance(part.block, SymmetricBlock):
            found[place][part.diagonal] = share.diagonal
    return found
