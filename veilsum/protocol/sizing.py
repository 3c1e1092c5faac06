"""Compute a cohort's quorum, graph and committee from public integers (analysis: Sizes).

The coordinator computes these sizes; every member recomputes them and refuses any others. No floats are involved. The sizes don't depend
on the vector, so a cohort serves rounds of any length.

Windows of a sparse graph and drawn committees are samples without replacement from n members, with a colluders and d
dropouts. A sample holds at most c colluders except with probability 2^−σ, and d' dropouts except with probability 2^−η. Then

    w > c + d'      leaves an honest survivor in a window of w places after D_max = d' dropouts,
    L > c + 2·d'    leaves t = ⌊(L + a_D)/2⌋ + 1 members in a committee of L after d' dropouts, with a_D = c.

Probabilities hold for all n windows jointly, or for the single committee. At the smallest w only one D_max satisfies both
bounds, so k and D_max are unique.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from math import comb

from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import Misuse, PeerFault
from veilsum.protocol.forms import count_noun
from veilsum.protocol.graph import draw_committee
from veilsum.protocol.messages.base import MAX_DECRYPTORS

HONEST_MIN = 3
COMPLETE_MAX = 200
"""Largest cohort that always has a complete graph and, without nominees, all members as decryptors."""
SPARSE_MIN = 1_000
"""Larger cohorts have a sparse graph if one exists."""
SPARSE_FACTOR = 3
"""Between those sizes the graph is sparse if that leaves at most a third of the neighbours. The cost of masks, agreements, shares and
boxes grows with the neighbours. A complete graph keeps its secrecy under any dropouts, a sparse one with high probability: that is
worth three times the cost, but not more."""
SECURITY_BITS = 80
"""Colluders exceed their bound with probability at most 2^−80: σ = 40, and 40 more against a coordinator that omits cards to bias order
and draw."""
WINDOW_BITS = 20
"""η: a window loses more than D_max members with probability at most 2^−20."""
COMMITTEE_BITS = 30
"""η of a drawn committee: fewer than t of its members remain with probability at most 2^−30."""
DEFAULT_LOSS_PER_MILLE = 100
"""Default δ: members per thousand that may drop out."""


def colluding_nominees(nominees: int, colluders: int) -> int:
    """Compute a_D for nominated decryptors: min(a, ⌊(L−1)/3⌋), so that L ≥ 3·a_D + 1 and a_D can't stall the rest.

    `nominees` counts all that the roster names, enrolled or not; otherwise omitting cards would lower a_D.
    """
    if nominees < 1 or colluders < 0:
        raise Misuse(f"no a_D for {nominees} nominees and a={colluders}")
    return min(colluders, (nominees - 1) // 3)


@dataclass(frozen=True)
class Quorum:
    """The quorum of a sum for n members, L of them decryptors.

    Attributes:
        members: n.
        decryptors: L.
        colluders: a, members that may collude with the coordinator.
        decryptor_colluders: a_D, colluding decryptors: min(a, L), unless the decryptors were nominated or drawn.
        honest_min: h_min, minimum honest members in a sum; at least 3.
        survivors_min: n_min = max(a + h_min, ⌊(N+a)/2⌋ + 1), with N members in the roster. So two certified sets of a roster share
            an honest member, which refuses a history that omits either set.
        threshold: t = ⌊(L+a_D)/2⌋ + 1, for shares and for signatures. As 2t > L + a_D, no two outcomes of one context can both be
            certified, and not both secrets of one member recovered.
    """

    members: int
    decryptors: int
    colluders: int
    decryptor_colluders: int
    honest_min: int
    survivors_min: int
    threshold: int

    @classmethod
    def derive_quorum(
        cls,
        members: int,
        decryptors: int,
        *,
        colluders: int | None = None,
        decryptor_colluders: int | None = None,
        honest_min: int = HONEST_MIN,
        roster: int | None = None,
    ) -> "Quorum":
        """Compute the quorum.

        `colluders` defaults to ⌊n/4⌋, correct if the cohort is the roster; `decryptor_colluders` defaults to min(a, L), correct
        for any decryptors; `roster` is N and defaults to n.

        Raises:
            Misuse: h_min < 3, a < 0, a_D outside 0 … min(a, L), or more decryptors than members.
            PeerFault: cohort-too-small if n < 3, L < 2, n_min > n or t > L, with the numbers.
        """
        a = members // 4 if colluders is None else colluders
        if members < 3:
            raise PeerFault(
                Cause.COHORT_TOO_SMALL, f"{count_noun(members, 'member')}: a sum needs at least 3"
            )
        if a < 0 or honest_min < HONEST_MIN or decryptors > members:
            raise Misuse(f"no quorum for n={members}, L={decryptors}, a={a}, h_min={honest_min}")
        a_d = min(a, decryptors) if decryptor_colluders is None else decryptor_colluders
        if not 0 <= a_d <= min(a, decryptors):
            raise Misuse(f"no quorum for L={decryptors}, a={a}, a_D={a_d}")
        survivors_min = max(a + honest_min, ((members if roster is None else roster) + a) // 2 + 1)
        threshold = (decryptors + a_d) // 2 + 1
        if survivors_min > members or threshold > decryptors or decryptors < 2:
            raise PeerFault(
                Cause.COHORT_TOO_SMALL,
                f"{count_noun(members, 'member')}, {count_noun(decryptors, 'decryptor')} and up to {count_noun(a, 'colluder')}: a sum needs "
                f"at least {count_noun(survivors_min, 'member')} and {count_noun(threshold, 'decryptor')}. Enrol more members, or assume fewer colluders",
            )
        return cls(members, decryptors, a, a_d, honest_min, survivors_min, threshold)

    @property
    def erasures_min(self) -> int:
        """The number of "revealed nothing" reports that make an attempt VOID, q = L + a_D − t + 1 (wire: Ends).

        At most a_D of them lie, so at least L − t + 1 honest decryptors never revealed: at most t − 1 may have.
        """
        return self.decryptors + self.decryptor_colluders - self.threshold + 1

    @property
    def members_may_miss(self) -> int:
        """Member dropouts that an attempt tolerates."""
        return self.members - self.survivors_min

    @property
    def decryptors_may_miss(self) -> int:
        """Decryptor dropouts that an attempt tolerates."""
        return self.decryptors - self.threshold

    def caution(self) -> str | None:
        """Return a warning about a very small cohort or few decryptors, or None."""
        if self.colluders == 0:
            return (
                f"with {self.members} members no collusion is tolerated: one member that colludes with the "
                "coordinator exposes the sum of the others"
            )
        if self.decryptor_colluders < min(self.colluders, self.decryptors):
            return (
                f"{self.colluders} members may collude, but of the {self.decryptors} decryptors only {self.decryptor_colluders}: "
                "one more of these, with the coordinator, reads any member. Nominate more decryptors, or none; of a "
                "committee that was drawn the draw keeps more away"
            )
        if self.members_may_miss == 0:
            return f"with {self.members} members none may be missing: one dropout ends the attempt"
        return None


class Committee(StrEnum):
    """The way in which decryptors are chosen."""

    EVERYONE = "everyone"
    NOMINATED = "nominated"
    DRAWN = "drawn"


def count_dropouts(members: int, loss: int) -> int:
    """Return ⌊loss·n/1000⌋, the number of members that may drop out."""
    return members * loss // 1000


@dataclass(frozen=True)
class Sizes:
    """A cohort's quorum, committee and graph.

    Attributes:
        quorum: n, L, a, a_D, h_min, n_min and t.
        committee: how decryptors are chosen.
        degree: k, neighbours of a member; n − 1 on the complete graph.
        window_dropped_max: D_max; zero on the complete graph, which has no windows.
    """

    quorum: Quorum
    committee: Committee
    degree: int
    window_dropped_max: int

    def choose_decryptors(
        self, members: Sequence[str], nominees: Collection[str], beacon: bytes
    ) -> tuple[str, ...]:
        """Return D, ascending, from members in ascending order.

        `nominees` are all that the roster nominates, enrolled or not. The beacon seeds the draw of a drawn committee.
        """
        if len(members) != self.quorum.members:
            raise Misuse(f"{len(members)} members, sized for {self.quorum.members}")
        if self.committee is Committee.DRAWN:
            return draw_committee(beacon, members, self.quorum.decryptors)
        nominated = set(nominees)
        everyone = self.committee is Committee.EVERYONE
        chosen = tuple(member for member in members if everyone or member in nominated)
        if len(chosen) != self.quorum.decryptors:
            raise Misuse(f"{len(chosen)} decryptors, sized for {self.quorum.decryptors}")
        return chosen


def size_cohort(
    members: int,
    nominated: int | None,
    *,
    roster: int,
    colluders: int,
    honest_min: int = HONEST_MIN,
    loss: int = DEFAULT_LOSS_PER_MILLE,
    present: int | None = None,
) -> Sizes:
    """Compute the sizes of a cohort.

    Nominees decrypt if the roster names some. Otherwise all members of a cohort of up to 200 decrypt; a larger cohort draws a committee,
    or all decrypt if no committee fits. The graph is complete up to 200 members, and up to 1,000 unless a sparse one has at most a
    third of the neighbours.

    `members` is n, `roster` N, `colluders` a, `honest_min` h_min and `loss` δ per thousand. `nominated` counts the decryptors that the
    roster names, enrolled or not; None if it names none. `present` counts the nominees that enrolled; None for all.

    Raises:
        Misuse: a number is outside its domain.
        PeerFault: cohort-too-small, with the numbers, if there are too few members, too many decryptors, or too few nominees for
            any of them to collude.
    """
    dropped = count_dropouts(members, loss)
    # Check n_min before sampling from too few members.
    quorum = Quorum.derive_quorum(members, members, colluders=colluders, honest_min=honest_min, roster=roster)
    committee, decryptors, a_d = _choose_committee(members, nominated, present, colluders, dropped)
    if decryptors > MAX_DECRYPTORS:
        raise PeerFault(
            Cause.COHORT_TOO_SMALL,
            f"{decryptors} of n={members} members would decrypt, at most {MAX_DECRYPTORS} can: nominate some in the roster",
        )
    quorum = Quorum.derive_quorum(
        members,
        decryptors,
        colluders=colluders,
        decryptor_colluders=a_d,
        honest_min=honest_min,
        roster=roster,
    )
    degree, window_dropped_max = members - 1, 0
    if members > COMPLETE_MAX:
        sparse = size_graph(members, colluders, dropped, SECURITY_BITS, WINDOW_BITS)
        if sparse and (members > SPARSE_MIN or SPARSE_FACTOR * sparse[0] <= degree):
            degree, window_dropped_max = sparse
    return Sizes(quorum, committee, degree, window_dropped_max)


def _choose_committee(
    members: int, nominated: int | None, present: int | None, a: int, dropped: int
) -> tuple[Committee, int, int]:
    if nominated is not None:
        came = nominated if present is None else present
        if not 0 <= came <= min(nominated, members):
            raise Misuse(f"{came} of {nominated} nominees among {members} members")
        a_d = colluding_nominees(nominated, a)
        # A single colluding nominee could read any member, although the cohort promises a > 0 (analysis: Sizes).
        if a_d == 0 < a:
            raise PeerFault(
                Cause.COHORT_TOO_SMALL,
                f"of {nominated} nominated decryptors none may collude, although a={a} members may: nominate 4 or more, "
                f"{3 * a + 1} to withstand all {a}, or none, so that every member decrypts",
                ["admin"],
            )
        return Committee.NOMINATED, came, min(came, a_d)
    if present is not None:
        raise Misuse(f"{present} nominees came where none are nominated")
    drawn = None
    if members > COMPLETE_MAX:
        drawn = size_committee(members, a, dropped, SECURITY_BITS, COMMITTEE_BITS)
    if drawn is None or drawn[0] == members:
        return Committee.EVERYONE, members, min(a, members)
    return Committee.DRAWN, *drawn


def hypergeometric_bound(population: int, marked: int, drawn: int, *, bits: int, draws: int = 1) -> int:
    """Return the least x with draws · P[Hypergeometric(N, K, w) > x] ≤ 2^−bits, a bound on marked items in a sample without replacement.

    The bound is monotone in `drawn` and exact: it sums binomial coefficients from the far end of the tail and compares
    them as integers, in at most 6 ms up to N = 10,000.

    N is `population`, K `marked` and w `drawn`. `draws` is the number of samples, independent or not, that the probability covers jointly
    (a union bound).
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

    Of n members up to `colluders` may collude and up to `dropped` drop out. `security_bits` is σ, including the grinding allowance, and
    `liveness_bits` η.
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
        return drawn - hypergeometric_bound(members, colluders, drawn, bits=security_bits, draws=draws)

    sample = weight  # a window has at least one place, a committee two decryptors
    while sample <= members:
        d = hypergeometric_bound(members, dropped, sample, bits=liveness_bits, draws=draws)
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
