"""Records, the least rows that the rules allow, exact sums of them, and how much of a record a candidate is."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import erf  # type: ignore[import-untyped]

from veilsum.calibration import CCVRStatistics, FFCStatistics
from veilsum.calibration.rows import Floats, Integers, unit_rows
from veilsum.calibration.sparse_columns import SparseColumns

if TYPE_CHECKING:
    from collections.abc import Iterable

HONEST_MEMBERS = 3
"""n_min − a of the smallest roster."""
KINDS = ("dense", "ReLU", "GELU", "sparse 10 %", "sparse 5 %", "sparse 3 %")
CONSTANT_SHARE = 0.1
RECOVERED_COSINE = 0.999
LATTICE = 2.0**31
"""Steps a unit of a vector of 48 bits."""


@dataclass(frozen=True, eq=False)
class World:
    """A population of records behind one extractor: latent classes through a random layer and an activation.

    Columns of sparse kinds are used unequally, and `rare` of the columns (none of dense ones) hardly ever, as in real networks.
    """

    kind: str
    dim: int
    classes: int = 3
    latent: int = 0
    """Numbers behind a record; 0 for 8, or half of the features where these are sparse."""
    rare: int = 0
    rare_rate: float = 0.005

    def draw(self, rows: int, seed: int, classes: int | None = None) -> tuple[Floats, Integers]:
        """Return unit rows of the first `classes` classes, and their labels."""
        layer, sparse = np.random.default_rng(5), self.kind.startswith("sparse")
        latent = self.latent or (self.dim // 2 if sparse else 8)
        centres = layer.standard_normal((self.classes, latent))
        weights = layer.standard_normal((latent, self.dim))
        rates = np.clip(self._rate * np.exp(0.5 * layer.standard_normal(self.dim)), 0.01, 0.6)
        rates[: self.rare] = self.rare_rate
        sample = centres[layer.integers(0, self.classes, 8_000)] + layer.standard_normal((8_000, latent))
        cuts = np.array(
            [np.quantile(column, 1 - rate) for column, rate in zip((sample @ weights).T, rates, strict=True)]
        )
        if not sparse:
            cuts[self.rare :] = 0
        rng, count = np.random.default_rng(seed), 0
        found, labels = list[Floats](), list[Integers]()
        while count < rows:
            drawn = rng.integers(0, classes or self.classes, rows)
            inner = (centres[drawn] + rng.standard_normal((rows, latent))) @ weights
            matrix = self._activate(inner, cuts)
            usable = np.count_nonzero(matrix, axis=1) >= 2
            found.append(matrix[usable])
            count += int(usable.sum())
            labels.append(drawn[usable])
        return unit_rows(np.concatenate(found)[:rows])[0], np.concatenate(labels)[:rows]

    @property
    def _rate(self) -> float:
        return float(self.kind.split()[1]) / 100 if self.kind.startswith("sparse") else 0.5

    def _activate(self, inner: Floats, cuts: Floats) -> Floats:
        if self.kind == "dense":
            return inner
        if self.kind == "GELU":
            inner = inner - cuts
            values: Floats = inner / 2 * (1 + erf(inner / math.sqrt(2)))
            return values
        rectified: Floats = np.maximum(inner - cuts, 0)
        return rectified


def count_numbers(width: int, classes: int) -> int:
    """M of one statistic of second moments, class sums and counts."""
    return width * (width + 1) // 2 + width * classes + classes


def least_rows(numbers: int, width: int, dim: int, *, whole: bool = True) -> int:
    """R4's formula: need(B) = max(2·w, ⌈2·M/(dim − 1)⌉), and at least 50 for the whole vector."""
    return max(2 * width, math.ceil(2 * numbers / (dim - 1)), 50 if whole else 1)


def share_rows(
    world: World, needed: int, numbers: int, seed: int, *, rule: bool = True, own_check: bool = True
) -> list[tuple[Floats, Integers]]:
    """Return each honest member's rows: as few as the formula and its own check allow, sparse features cleared if `rule`."""
    size = -(-needed // HONEST_MEMBERS)
    made = []
    for member in range(HONEST_MEMBERS):
        rows, labels = world.draw(60 * size, seed * 100 + member)
        each = size
        while (
            not (columns := _counted(rows[:each], labels[:each])).rows_suffice(numbers, HONEST_MEMBERS)
            and own_check
        ):
            each += max(1, each // 20)
            assert each <= len(rows), "no number of rows suffices"
        z, own = rows[:each].copy(), labels[:each]
        if rule:
            columns.clear(z, own)
        made.append((z, own))
    return made


def _counted(rows: Floats, labels: Integers) -> SparseColumns:
    columns = SparseColumns(rows.shape[1])
    columns.count(rows, labels)
    return columns


def clear_sparse(rows: Floats, labels: Integers, classes: int | None = None) -> Floats:
    """Return a member's rows without their sparse features."""
    columns, cleared = SparseColumns(rows.shape[1], classes), rows.copy()
    columns.count(cleared, labels)
    columns.clear(cleared, labels)
    return cleared


def draw_others(world: World, rows: int, seed: int, *, rule: bool = True) -> Floats:
    """Return as many rows that were not summed, with sparse features cleared as members do."""
    parts = np.array_split(world.draw(rows, seed + 10_000)[0], HONEST_MEMBERS)
    return np.concatenate(
        [clear_sparse(part, np.zeros(len(part), np.int64)) if rule else part for part in parts]
    )


def pool(members: Iterable[tuple[Floats, Integers]]) -> tuple[Floats, Integers]:
    rows, labels = zip(*members, strict=True)
    return np.concatenate(rows), np.concatenate(labels)


def add_constant(rows: Floats) -> Floats:
    """x = (√.9·z, √.1)."""
    return np.column_stack(
        [math.sqrt(1 - CONSTANT_SHARE) * rows, np.full(len(rows), math.sqrt(CONSTANT_SHARE))]
    )


def sum_ffc(rows: Floats, labels: Integers, classes: int) -> tuple[Floats, Floats, Integers]:
    """Return V, U and n as a result publishes them: in steps of 2^−31."""
    statistics = FFCStatistics(rows.shape[1], classes)
    statistics.add(rows, labels)
    return round_sums(statistics.V), round_sums(statistics.U), statistics.counts.copy()


def sum_class(rows: Floats) -> tuple[Floats, Floats]:
    """Return CCVR's Σzzᵀ and Σz of one class."""
    statistics = CCVRStatistics(rows.shape[1], 1)
    statistics.add(rows, np.zeros(len(rows), np.int64))
    return round_sums(statistics.pooled.V), round_sums(statistics.pooled.U[:, 0])


def round_sums(values: Floats) -> Floats:
    return np.rint(values * LATTICE) / LATTICE


@dataclass(frozen=True)
class Found:
    """What an attack gave back: rows, and the mean of each candidate's best cosine, with the same against rows that were not summed."""

    rows: int
    recovered: int
    cosine: float
    chance_recovered: int
    chance: float

    @property
    def excess(self) -> float:
        return self.cosine - self.chance


def compare(candidates: Floats, rows: Floats, others: Floats) -> Found:
    """Compare candidates with the summed rows and with as many independent ones.

    Cosines are taken less the mean of the independent rows, which anyone knows; a row is recovered if a candidate's own cosine reaches
    `RECOVERED_COSINE`.
    """
    assert len(others) == len(rows)
    lengths = np.linalg.norm(candidates, axis=1)
    candidates = candidates[lengths > 0] / lengths[lengths > 0, None]
    rows, others = (each[each.any(axis=1)] for each in (rows, others))
    if not len(candidates) or not len(rows):
        return Found(len(rows), 0, 0.0, 0, 0.0)
    centre = others.mean(axis=0)

    def best(targets: Floats) -> tuple[int, float]:
        scaled = targets / np.linalg.norm(targets, axis=1, keepdims=True)
        hit = (candidates @ scaled.T).max(axis=0) >= RECOVERED_COSINE
        apart, away = candidates - centre, scaled - centre
        apart /= np.linalg.norm(apart, axis=1, keepdims=True)
        away /= np.linalg.norm(away, axis=1, keepdims=True)
        return int(hit.sum()), float((apart @ away.T).max(axis=1).mean())

    (recovered, cosine), (by_chance, chance) = best(rows), best(others)
    return Found(len(rows), recovered, cosine, by_chance, chance)
