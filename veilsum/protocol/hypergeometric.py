"""Hypergeometric tail bounds, and the smallest samples that satisfy them (protocol §5).

Integer arithmetic only, so every machine computes the same sizes.

Windows of a sparse graph and drawn committees are samples without replacement from n members, with a colluders and d
dropouts. A sample holds at most c colluders except with probability 2^−σ, and d' dropouts except with probability 2^−η. Then

    w > c + d'      leaves an honest survivor in a window of w places after D_max = d' dropouts,
    L > c + 2·d'    leaves t = ⌊(L + a_D)/2⌋ + 1 members in a committee of L after d' dropouts, with a_D = c.

Probabilities hold for all n windows jointly, or for the single committee. At the smallest w only one D_max satisfies both
bounds, so k and D_max are unique.
"""

from functools import lru_cache
from math import comb

from veilsum.protocol.errors import Misuse


def quantile(population: int, marked: int, drawn: int, *, bits: int, draws: int = 1) -> int:
    """Bound the marked items in a sample without replacement, except with probability 2^−bits.

    The bound is monotone in `drawn` and exact: it sums binomial coefficients from the far end of the tail and compares
    them as integers, in at most 6 ms up to N = 10,000.

    Args:
        population: N.
        marked: K, 0 … N.
        drawn: sample size w, 0 … N.
        bits: exponent of the probability, at least 1.
        draws: number of samples, independent or not, that the probability covers jointly (a union bound), at least 1.

    Returns:
        The least x with draws · P[Hypergeometric(N, K, w) > x] ≤ 2^−bits.

    Raises:
        Misuse: a number is outside its domain.
    """
    if not (0 <= marked <= population and 0 <= drawn <= population and bits >= 1 and draws >= 1):
        raise Misuse(f"no tail for N={population}, K={marked}, w={drawn}, {bits} bits and {draws} draws")
    unmarked = population - marked
    x = min(marked, drawn)
    ways, term = 0, comb(marked, x) * comb(unmarked, drawn - x)
    allowed = comb(population, drawn) // (draws << bits)
    while ways + term <= allowed:
        ways += term
        term = term * x * (unmarked - drawn + x) // ((marked - x + 1) * (drawn - x + 1))
        x -= 1
    return x


def size_graph(
    members: int, colluders: int, dropped: int, security_bits: int, liveness_bits: int
) -> tuple[int, int] | None:
    """Find the smallest even k < n − 1 of a sparse graph, and its D_max; None if no k fits.

    Every one of the n windows of k/2 places has at most D_max dropouts except with probability 2^−liveness_bits, and every
    window within that bound holds an honest survivor except with probability 2^−security_bits.

    Args:
        members: n.
        colluders: members that may collude, 0 … n.
        dropped: members that may drop out, 0 … n.
        security_bits: σ, including the grinding allowance.
        liveness_bits: η.

    Raises:
        Misuse: a number is outside its domain.
    """
    found = _least_sample(members, colluders, dropped, 1, security_bits, liveness_bits, members)
    if found is None or 2 * found[0] >= members - 1:
        return None
    return 2 * found[0], found[2]


def size_committee(
    members: int, colluders: int, dropped: int, security_bits: int, liveness_bits: int
) -> tuple[int, int] | None:
    """Find the smallest drawn committee, L ≥ 2, and its a_D; None if no L fits.

    More than a_D decryptors collude with probability at most 2^−security_bits, and fewer than t = ⌊(L + a_D)/2⌋ + 1 remain
    with probability at most 2^−liveness_bits. Arguments and errors as for `size_graph`.
    """
    found = _least_sample(members, colluders, dropped, 2, security_bits, liveness_bits, 1)
    return found and (found[0], found[1])


@lru_cache(maxsize=1 << 10)
def _least_sample(
    members: int,
    colluders: int,
    dropped: int,
    weight: int,
    security_bits: int,
    liveness_bits: int,
    draws: int,
) -> tuple[int, int, int] | None:
    """Find the smallest sample w > c + weight·d', with its bounds c on colluders and d' on dropouts."""

    def honest(drawn: int) -> int:
        return drawn - quantile(members, colluders, drawn, bits=security_bits, draws=draws)

    sample = weight  # a window has at least one place, a committee two decryptors
    while sample <= members:
        d = quantile(members, dropped, sample, bits=liveness_bits, draws=draws)
        missing = weight * d + 1 - honest(sample)
        if missing <= 0:
            return sample, sample - honest(sample), d
        # A larger sample never lowers d and adds at most one honest member per place. So no smaller sample fits, nor any
        # up to the first with enough honest members for this d.
        sample += missing
        while sample + missing <= members and honest(sample + missing) <= weight * d:
            sample += missing
            missing *= 2
    return None
