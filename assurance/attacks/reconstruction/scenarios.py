"""Each attack where DESIGN's floors promise that it fails, and beside it where it works."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING

import numpy as np

from assurance.attacks.reconstruction import columns, listing, peeling, row_space, solving
from assurance.attacks.reconstruction.linear_fit import LinearFit, cosine
from assurance.attacks.reconstruction.records import (
    CONSTANT_SHARE,
    HONEST_MEMBERS,
    RECOVERED_COSINE,
    Found,
    World,
    add_constant,
    clear_sparse,
    compare,
    count_numbers,
    draw_others,
    least_rows,
    pool,
    share_rows,
    sum_class,
    sum_ffc,
)
from veilsum.calibration import RandomFeatures
from veilsum.calibration.privacy.accountant import gdp_mu
from veilsum.calibration.privacy.release import default_weight, ffc_release

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from veilsum.calibration.rows import Floats, Integers

CLASSES = 3
NOISE_EPSILON, NOISE_DELTA = 8.0, 1e-5
EXCESS_LIMIT = 0.15
"""Of a candidate's cosine over chance: far from a record, which has 1."""
LINEAR_COSINE = 0.8


class Expected(enum.Enum):
    GIVES = "gives rows back"
    NOTHING = "nothing beyond chance"
    WEAKNESS = "known weakness"


@dataclass(frozen=True)
class Scenario:
    attack: str
    features: str
    setting: str
    expected: Expected
    run: Callable[[int], Found]
    quick: bool = True
    """Whether it runs with every change: one of each kind does."""
    draws: int = 1
    """Sums that are attacked."""

    @property
    def name(self) -> str:
        return f"{self.attack}, {self.features}, {self.setting}"

    def measure(self, draws: int | None = None) -> Found:
        """Attack independent sums, `draws` or as many as the scenario asks for, and add up what comes back."""
        found = [self.run(seed) for seed in range(1, 1 + max(draws or 0, self.draws))]
        return Found(
            sum(each.rows for each in found),
            sum(each.recovered for each in found),
            float(np.mean([each.cosine for each in found])),
            sum(each.chance_recovered for each in found),
            float(np.mean([each.chance for each in found])),
        )

    def holds(self, found: Found) -> bool:
        """Whether the attack did what is expected of it."""
        if self.expected is Expected.NOTHING:
            spare = max(1, found.rows // 20)
            return found.recovered <= found.chance_recovered + spare and found.excess <= EXCESS_LIMIT
        if self.attack == "linear fit":
            return self.expected is Expected.WEAKNESS or found.cosine >= LINEAR_COSINE > found.chance + 0.3
        return self.expected is Expected.WEAKNESS or found.recovered > 2 * found.chance_recovered


def list_scenarios(dim: int = 32) -> Iterator[Scenario]:
    """Yield all scenarios; a larger `dim` makes the sums of columns, classes and tables larger."""
    for noisy, expected in ((False, Expected.GIVES), (True, Expected.NOTHING)):
        setting = f"noise of ε = {NOISE_EPSILON:g}" if noisy else "exact"
        yield Scenario("listing", "table", setting, expected, partial(_list_inputs, dim, noisy=noisy))
    for setting, expected in (
        ("without the column rule", Expected.GIVES),
        ("rule", Expected.WEAKNESS),
        ("noise", Expected.NOTHING),
    ):
        yield Scenario("peeling", "0/1 table", setting, expected, partial(_peel_table, dim + 8, setting))
    yield from _column_scenarios(dim)
    yield from _class_scenarios(dim)
    yield from _linear_scenarios(dim)
    yield from _solving_scenarios()


# What is listed


def _list_inputs(dim: int, seed: int, *, noisy: bool) -> Found:
    needed, rng = least_rows(count_numbers(dim, CLASSES), dim, dim), np.random.default_rng(seed)
    listed = listing.list_table((8, 6, 5, 4), dim)
    chosen, others = rng.integers(0, len(listed), (2, needed))
    labels, by_chance = rng.integers(0, CLASSES, (2, needed))
    V, U, n = sum_ffc(listed[chosen], labels, CLASSES)
    if noisy:
        V, U = _add_noise(V, U, rng)
    solved = listing.solve_counts(listed, V, U, n)
    found, chance = (
        listing.count_found(solved, chosen, labels),
        listing.count_found(solved, others, by_chance),
    )
    return Found(needed, found, found / needed, chance, chance / needed)


def _add_noise(V: Floats, U: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
    dim, classes = U.shape
    deviation = ffc_release(dim, classes).row_sensitivity / gdp_mu(NOISE_EPSILON, NOISE_DELTA)
    upper = np.triu(rng.standard_normal((dim, dim)), 1) * deviation / math.sqrt(2)
    noise = upper + upper.T + np.diag(rng.standard_normal(dim) * deviation)
    return V + noise, U + rng.standard_normal(U.shape) * deviation / default_weight(classes)


def _peel_table(width: int, setting: str, seed: int) -> Found:
    needed = least_rows(count_numbers(width, CLASSES), width, width)
    mean = peeling.draw_table(50_000, width, 1).mean(axis=0)
    bits, others = (
        peeling.draw_table(needed, width, seed + 10),
        peeling.draw_table(needed, width, seed + 1_000),
    )
    z = peeling.standardise_table(bits, mean)
    if setting == "rule":
        parts = np.array_split(z, HONEST_MEMBERS)
        z = np.concatenate([clear_sparse(part, np.zeros(len(part), np.int64)) for part in parts])
    V, U, _ = sum_ffc(z, np.zeros(needed, np.int64), 1)
    if setting == "noise":
        V, _ = _add_noise(V, U, np.random.default_rng(seed))
    found = {tuple(row) for row in peeling.peel_rows(V, mean).tolist()}
    hit, chance = (sum(tuple(row) in found for row in rows.tolist()) for rows in (bits, others))
    return Found(needed, hit, hit / needed, chance, chance / needed)


# Columns


def _column_scenarios(dim: int) -> Iterator[Scenario]:
    attacks: dict[str, Callable[[Floats], Floats]] = {
        "only row": columns.read_columns,
        "pairs of columns": columns.read_pairs,
    }
    for kind in ("dense", "ReLU", "GELU", "sparse 10 %", "sparse 5 %", "sparse 3 %"):
        very_sparse, quick = kind in {"sparse 5 %", "sparse 3 %"}, kind in {"dense", "ReLU", "sparse 10 %"}
        for attack, read in attacks.items():
            for constant in (False, True):
                yield Scenario(
                    attack,
                    kind,
                    "ffc with constant" if constant else "ffc",
                    Expected.WEAKNESS if very_sparse else Expected.NOTHING,
                    partial(_read_columns, dim, kind, read, constant=constant),
                    quick=quick and (not constant or kind == "ReLU"),
                )
        if very_sparse:
            yield Scenario(
                "pairs of columns",
                kind,
                "without the own-row check",
                Expected.GIVES,
                partial(_read_columns, 64, kind, columns.read_pairs, rule=False, own_check=False),
                quick=kind == "sparse 5 %",
                draws=3,
            )
        if kind != "dense":
            yield Scenario(
                "only row",
                kind,
                "without the column rule",
                Expected.GIVES,
                partial(_read_columns, dim, kind, columns.read_columns, rule=False),
                quick=quick,
                draws=4,
            )
    for share in (0.2, 0.49):
        yield Scenario(
            "only row",
            "ReLU",
            f"a column of five rows of one member, one with {share:.0%} of it",
            Expected.WEAKNESS,
            partial(_read_site_column, dim, share),
        )


def _read_columns(
    dim: int,
    kind: str,
    read: Callable[[Floats], Floats],
    seed: int,
    *,
    rule: bool = True,
    own_check: bool = True,
    constant: bool = False,
) -> Found:
    width = dim + constant
    numbers = count_numbers(width, CLASSES)
    # Of all members together about one row has a rare feature.
    rate = {"ReLU": 0.3, "GELU": 0.6, "sparse 10 %": 0.1, "sparse 5 %": 0.05, "sparse 3 %": 0.04}.get(
        kind, 1
    ) / dim
    world = World(kind, dim, CLASSES, rare=dim // 6 if own_check else 0, rare_rate=rate)
    needed = least_rows(numbers, width, dim)
    rows, labels = pool(share_rows(world, needed, numbers, seed, rule=rule, own_check=own_check))
    V, _, _ = sum_ffc(add_constant(rows) if constant else rows, labels, CLASSES)
    seen = V[:dim, :dim] / (1 - CONSTANT_SHARE) if constant else V
    return compare(read(seen), rows, draw_others(world, len(rows), seed, rule=rule))


def _read_site_column(dim: int, share: float, seed: int) -> Found:
    """One member has a feature that no other has, in the fewest rows that the rule allows, as unequal as it allows."""
    numbers = count_numbers(dim, CLASSES)
    world = World("ReLU", dim, CLASSES)
    members = share_rows(world, least_rows(numbers, dim, dim), numbers, seed)
    rows, labels = pool(members)
    rows[:, 0] = 0
    parts = np.sqrt(np.array([share, *[(1 - share) / 4] * 4]) * 0.5)
    rows[:5] *= (np.sqrt(1 - parts**2) / np.linalg.norm(rows[:5], axis=1))[:, None]
    rows[:5, 0] = parts
    assert clear_sparse(rows[: len(members[0][0])], labels[: len(members[0][0])])[:, 0].any()
    V, _, _ = sum_ffc(rows, labels, CLASSES)
    others = world.draw(5, seed + 10_000)[0]
    return compare(V[:1, 1:], rows[:5, 1:], others[:, 1:])


# Classes


def _class_scenarios(dim: int) -> Iterator[Scenario]:
    for kind, expected in (
        ("ReLU", Expected.NOTHING),
        ("sparse 10 %", Expected.NOTHING),
        ("sparse 5 %", Expected.WEAKNESS),
    ):
        find = partial(_find_corners, dim, kind)
        yield Scenario("corners", kind, "ccvr", expected, find, quick=kind == "ReLU")
    for kind in ("ReLU", "sparse 10 %"):
        find = partial(_find_corners, dim, kind, few=6)
        yield Scenario("corners", kind, "ccvr of 6 rows", Expected.GIVES, find, quick=kind == "ReLU")


def _find_corners(dim: int, kind: str, seed: int, *, few: int = 0) -> Found:
    world = World(kind, dim, 1)
    if few:
        rows = world.draw(few, seed)[0]
    else:
        numbers = 1 + dim + dim * (dim + 1) // 2
        rows, _ = pool(share_rows(world, least_rows(numbers, dim, dim, whole=False), numbers, seed))
    V, _ = sum_class(rows)
    return compare(row_space.find_corners(V, seed), rows, draw_others(world, len(rows), seed, rule=not few))


# Withheld classes


def _linear_scenarios(dim: int) -> Iterator[Scenario]:
    for kind in ("ReLU", "GELU"):
        for kept, constant in ((True, False), (False, False), (True, True), (False, True)):
            yield Scenario(
                "linear fit",
                kind,
                f"ffc{' with constant' if constant else ''}, withheld row {'kept in V' if kept else 'left out'}",
                Expected.GIVES if kept else Expected.NOTHING,
                partial(_read_withheld, dim, kind, kept=kept, constant=constant),
                quick=kind == "ReLU",
            )


def _read_withheld(dim: int, kind: str, seed: int, *, kept: bool, constant: bool) -> Found:
    """Read one row of the last class at a time, in 30 sums; cosines are taken less the mean of its class."""
    world, withheld = World(kind, dim, CLASSES), CLASSES - 1
    width = dim + constant
    numbers = count_numbers(width, CLASSES)
    fit = _fit_linear(dim, kind, withheld)
    rows, labels = world.draw(2 * least_rows(numbers, width, dim), seed)
    rows, labels = rows[labels != withheld], labels[labels != withheld]
    lifted = add_constant(rows) if constant else rows
    V, U, _ = sum_ffc(lifted, labels, CLASSES)
    hidden = world.draw(300, seed + 500)
    rare, others = np.split(hidden[0][hidden[1] == withheld][:60], 2)
    own, chance = [], []
    for row, other in zip(rare, others, strict=True):
        secret = add_constant(row[None]) if constant else row[None]
        found = _withheld_row(fit, V + secret.T @ secret * kept, U, len(rows), constant=constant)
        own.append(cosine(found, row - fit.mean))
        chance.append(cosine(found, other - fit.mean))
    hits = [sum(each >= RECOVERED_COSINE for each in listed) for listed in (own, chance)]
    return Found(len(rare), hits[0], float(np.mean(own)), hits[1], float(np.mean(chance)))


@cache
def _fit_linear(dim: int, kind: str, withheld: int) -> LinearFit:
    public, labels = World(kind, dim, CLASSES).draw(12_000, 77)
    return LinearFit.of(public, labels, withheld)


def _withheld_row(fit: LinearFit, V: Floats, U: Floats, rows: int, *, constant: bool) -> Floats:
    if not constant:
        return fit.read_withheld(V, U, rows)
    # The constant's column is √(.9·.1)·Σz: no fit is needed.
    total: Floats = V[-1, :-1] / math.sqrt(CONSTANT_SHARE * (1 - CONSTANT_SHARE))
    found: Floats = total - U[:-1].sum(axis=1) / math.sqrt(1 - CONSTANT_SHARE) - fit.mean
    return found


# All rows as unknowns


def _solving_scenarios(dim: int = 8, size: int = 12) -> Iterator[Scenario]:
    waves = solving.add_moments(solving.lift_waves(RandomFeatures(dim, size, 0.7, bytes(32))))
    plain = solving.add_moments(solving.lift_itself)
    constant = solving.add_moments(solving.lift_with_constant)
    layers = [np.random.default_rng(each).standard_normal((10, dim)) for each in (1, 2)]
    cases: dict[str, tuple[list[solving.Numbers], int, int]] = {
        "ffc": ([plain], dim, 2),
        "ffc with constant": ([constant], dim + 1, 2),
        "random features": ([waves], size, 2),
        "ffc and random features": ([plain, waves], size, 2),
        "two extractors by repeats": (
            [solving.add_moments(solving.lift_layer(each)) for each in layers],
            10,
            2,
        ),
        "ccvr": ([plain], dim, 1),
    }
    for name, (numbers, width, classes) in cases.items():
        for few in (True, False):
            yield Scenario(
                "solving",
                "dense",
                f"{name}, 3 rows" if few else name,
                Expected.GIVES if few else Expected.NOTHING,
                partial(_solve_all, dim, numbers, width, classes, few=few),
                quick=len(numbers) == 1,
            )


def _solve_all(
    dim: int, numbers: list[solving.Numbers], width: int, classes: int, seed: int, *, few: bool
) -> Found:
    """Solve from records of the population, with the right number of each class; of three tries the best fit counts."""
    world = World("dense", dim, classes, latent=dim)
    count = len(solving.sum_numbers(numbers, *world.draw(1, 1), classes)) + classes
    rows, labels = world.draw(3 if few else least_rows(count, width, dim, whole=classes > 1), seed)
    total = solving.sum_numbers(numbers, rows, labels, classes)
    solved = [
        solving.solve_rows(numbers, total, *_guess_rows(world, labels, 100 * seed + each), classes)
        for each in range(3 if few else 1)
    ]
    best = min(solved, key=lambda each: each[1])[0]
    return compare(best, rows, world.draw(len(rows), seed + 10_000)[0])


def _guess_rows(world: World, labels: Integers, seed: int) -> tuple[Floats, Integers]:
    public, named = world.draw(20 * len(labels) + 50, seed + 5_000)
    guessed = [public[named == label][: int((labels == label).sum())] for label in range(world.classes)]
    return np.concatenate(guessed), np.sort(labels)
