import math
from fractions import Fraction
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veilsum.protocol.errors import Misuse
from veilsum.protocol.sizing import hypergeometric_bound, size_committee, size_graph


@cache
def exceeding(population: int, marked: int, drawn: int, x: int) -> Fraction:
    """Compute P[Hypergeometric > x] by definition."""
    ways = sum(
        math.comb(marked, y) * math.comb(population - marked, drawn - y)
        for y in range(x + 1, min(marked, drawn) + 1)
    )
    return Fraction(ways, math.comb(population, drawn))


@st.composite
def samples(draw: st.DrawFn, most: int = 60) -> tuple[int, int, int]:
    population = draw(st.integers(0, most))
    return population, draw(st.integers(0, population)), draw(st.integers(0, population))


# --- Quantiles ---------------------------------------------------------------------------------------------


@given(sample=samples(), bits=st.integers(1, 80), draws=st.integers(1, 1000))
def test_a_quantile_is_the_least_that_the_exact_tail_allows(
    sample: tuple[int, int, int], bits: int, draws: int
) -> None:
    x = hypergeometric_bound(*sample, bits=bits, draws=draws)
    assert draws * exceeding(*sample, x) <= Fraction(1, 2**bits)
    assert draws * exceeding(*sample, x - 1) > Fraction(1, 2**bits)


def test_chances_that_are_met_exactly_are_met() -> None:
    assert exceeding(4, 1, 1, 0) == Fraction(1, 4)
    assert (hypergeometric_bound(4, 1, 1, bits=2), hypergeometric_bound(4, 1, 1, bits=3)) == (0, 1)
    assert (
        hypergeometric_bound(8, 1, 1, bits=2, draws=2),
        hypergeometric_bound(8, 1, 1, bits=2, draws=3),
    ) == (0, 1)


@pytest.mark.parametrize(
    ("population", "marked", "drawn", "bits", "draws"),
    [(5, 6, 1, 1, 1), (5, -1, 1, 1, 1), (5, 1, 6, 1, 1), (5, 1, -1, 1, 1), (5, 1, 1, 0, 1), (5, 1, 1, 1, 0)],
)
def test_impossible_samples_are_a_misuse(
    population: int, marked: int, drawn: int, bits: int, draws: int
) -> None:
    with pytest.raises(Misuse, match=f"N=5, K={marked}, w={drawn}, {bits} .*{draws}"):
        hypergeometric_bound(population, marked, drawn, bits=bits, draws=draws)


# --- Sparse graphs -----------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=60)
@given(sample=samples(40), security=st.integers(1, 12), liveness=st.integers(1, 8))
def test_a_sized_graph_is_the_least_and_its_bound_the_only_one(
    sample: tuple[int, int, int], security: int, liveness: int
) -> None:
    n, colluders, dropped = sample[0], sample[1] // 4, sample[2] // 4

    def holds(w: int, dropped_max: int) -> bool:
        unsafe = n * exceeding(n, colluders, w, w - dropped_max - 1)
        stuck = n * exceeding(n, dropped, w, dropped_max)
        return unsafe <= Fraction(1, 2**security) and stuck <= Fraction(1, 2**liveness)

    holding = [(2 * w, d) for w in range(1, n) if 2 * w < n - 1 for d in range(w + 1) if holds(w, d)]
    sized = size_graph(n, colluders, dropped, security, liveness)
    assert [cell for cell in holding if cell[0] == min(holding)[0]] == ([sized] if sized else [])


# --- Drawn committees --------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=60)
@given(sample=samples(40), security=st.integers(1, 30), liveness=st.integers(1, 20))
def test_a_sized_committee_is_the_least_that_keeps_its_threshold(
    sample: tuple[int, int, int], security: int, liveness: int
) -> None:
    n, colluders, dropped = sample[0], sample[1] // 2, sample[2] // 3

    def holds(size: int, a_d: int) -> bool:
        threshold = (size + a_d) // 2 + 1
        return size >= threshold and exceeding(n, dropped, size, size - threshold) <= Fraction(1, 2**liveness)

    def bound(size: int) -> int:
        return next(x for x in range(n + 1) if exceeding(n, colluders, size, x) <= Fraction(1, 2**security))

    holding = [(size, bound(size)) for size in range(2, n + 1) if holds(size, bound(size))]
    assert size_committee(n, colluders, dropped, security, liveness) == min(holding, default=None)


def test_where_half_are_false_or_gone_nothing_holds() -> None:
    assert size_graph(1_000, 500, 500, 40, 20) is None
    assert size_committee(1_000, 400, 300, 40, 20) is None
    assert size_committee(1_000, 400, 299, 40, 20) is not None
