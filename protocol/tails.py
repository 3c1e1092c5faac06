"""Hypergeometric tails, and the least samples that hold against them (protocol §5).

All in integers: who computes a size gets the same one, on any machine.

Windows of a sparse graph and drawn committees are samples without replacement of n members, a of whom collude and d of whom
drop out. But for a chance of 2^−σ a sample holds at most c colluders, and but for one of 2^−η it loses at most d'. Then

    w > c + d'      lets a window of w places that lost D_max = d' members keep an honest survivor,
    L > c + 2·d'    lets a committee of L that lost d' members keep t = ⌊(L + a_D)/2⌋ + 1 of them, with a_D = c.

A window's chances are for all n windows together, a committee's are its own. At the least w no other D_max satisfies both
bounds: k and D_max leave nothing to choose.
"""

from functools import lru_cache
from math import comb

from protocol.errors import Misuse


def quantile(population: int, marked: int, drawn: int, *, bits: int, draws: int = 1) -> int:
    """Bound how many marked ones are among `drawn`, drawn without replacement, but for a chance of 2^−bits.

    It doesn't fall as `drawn` grows. Exact: binomial coefficients are added up from the far end of the tail and
    compared as integers, in at most 6 ms up to N = 10,000.

    Args:
        population: N.
        marked: K of them, 0 … N.
        drawn: w of them, 0 … N.
        bits: what the chance is to be held to, at least 1.
        draws: how many draws, independent or not, the chance is for all together (a union bound), at least 1.

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
    """Find the least even k < n − 1 of a sparse graph, and its D_max; None where there is none.

    Of the n windows of k/2 places all lose at most D_max members but for a chance of 2^−liveness_bits, and all that have
    lost no more hold an honest survivor but for a chance of 2^−security_bits.

    Args:
        members: n.
        colluders: members who may collude, 0 … n.
        dropped: members who may drop out, 0 … n.
        security_bits: σ, with what grinding takes.
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
    """Find the least L ≥ 2 of a drawn committee, and its a_D; None where there is none.

    More than a_D decryptors collude with a chance of at most 2^−security_bits, and fewer than t = ⌊(L + a_D)/2⌋ + 1 are left
    with a chance of at most 2^−liveness_bits. Arguments and errors as for `size_graph`.
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
    """The least sample w > c + weight·d', with its bounds c and d' on who colludes and who drops out."""

    def honest(drawn: int) -> int:
        return drawn - quantile(members, colluders, drawn, bits=security_bits, draws=draws)

    sample = weight  # a window has a place at least, a committee two decryptors
    while sample <= members:
        d = quantile(members, dropped, sample, bits=liveness_bits, draws=draws)
        missing = weight * d + 1 - honest(sample)
        if missing <= 0:
            return sample, sample - honest(sample), d
        # With each more in the sample d doesn't fall, and the honest rise by one or none: no smaller sample has what is
        # missing, nor has any up to one whose honest are too few even for this d.
        sample += missing
        while sample + missing <= members and honest(sample + missing) <= weight * d:
            sample += missing
            missing *= 2
    return None
