"""Which graph, which committee and which numbers a cohort gets, computed from public integers alone (protocol §5).

The coordinator computes them, and every member computes them again and refuses others: no float takes part, and nothing but the
arguments is read.

Graph and committee depend on n, the nominees and the assumptions, never on the vector, so a cohort serves rounds of any
length.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum

from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import Misuse, PeerFault
from veilsum.protocol.estimate import Cost
from veilsum.protocol.graph import draw_committee
from veilsum.protocol.hypergeometric import size_committee, size_graph
from veilsum.protocol.messages.base import MAX_DECRYPTORS
from veilsum.protocol.quorum import HONEST_MIN, Quorum, colluding_nominees

COMPLETE_MAX = 200
"""Largest cohort with a complete graph in any case, and in which all members decrypt without nominees."""
SPARSE_MIN = 1_000
"""Larger cohorts have a sparse graph if one exists."""
SPARSE_FACTOR = 3
"""Between those two it is sparse if that leaves at most a third of the neighbours: masks, agreements, shares and boxes cost
by the neighbour. A complete graph keeps its secrecy under any dropouts, a sparse one with high probability: worth three
times the price, and no more."""


class Committee(StrEnum):
    """How decryptors are chosen."""

    EVERYONE = "everyone"
    NOMINATED = "nominated"
    DRAWN = "drawn"


@dataclass(frozen=True)
class Assumptions:
    """What a cohort is sized against. Fractions are per mille, rounded down to members.

    Attributes:
        gamma: γ, members that may collude with the coordinator.
        delta: δ, members that may drop out.
        sigma_bits: σ; colluders have more than their bound with a chance of at most 2^−σ.
        eta_bits: η; a window loses more than D_max members with a chance of at most 2^−η.
        committee_eta_bits: η of a drawn committee; fewer than t of it are left with a chance of at most 2^−η. 30 was read off
            three committees at n = 1,000, which a chance of 2^−20 / n would give as well: at other n the two differ.
        grinding_bits: added to σ against a coordinator that leaves out cards to bias order and draw.

    Raises:
        Misuse: a number is outside its domain, or γ + 2δ ≥ 1: then ⌊(n+a)/2⌋ + 1 survivors cannot be expected.
    """

    gamma: int = 250
    delta: int = 100
    sigma_bits: int = 40
    eta_bits: int = 20
    committee_eta_bits: int = 30
    grinding_bits: int = 40

    def __post_init__(self) -> None:
        if min(self.gamma, self.delta) < 0 or self.gamma + 2 * self.delta >= 1000:
            raise Misuse(f"no cohort holds against γ={self.gamma}‰ and δ={self.delta}‰")
        if min(self.sigma_bits, self.eta_bits, self.committee_eta_bits) < 1 or self.grinding_bits < 0:
            raise Misuse("a chance is held to a bit at least, and grinding takes none away")

    @property
    def security_bits(self) -> int:
        """The σ that is sized for, so that σ is left after grinding."""
        return self.sigma_bits + self.grinding_bits

    def colluders(self, members: int) -> int:
        """⌊γn⌋, the default `a`."""
        return members * self.gamma // 1000

    def dropped(self, members: int) -> int:
        """Members that may drop out of n: ⌊δn⌋."""
        return members * self.delta // 1000


@dataclass(frozen=True)
class Sizes:
    """Everything about a cohort that follows from how many there are.

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

    @property
    def complete(self) -> bool:
        """Whether every pair of members shares a mask."""
        return self.degree == self.quorum.members - 1

    def decryptors(self, members: Sequence[str], nominees: Collection[str], beacon: bytes) -> tuple[str, ...]:
        """D, ascending.

        Args:
            members: ids, ascending.
            nominees: ids that the roster nominates, among the members or not.
            beacon: draws the committee where it is drawn.

        Raises:
            Misuse: other numbers of members or nominees than sized for, or as `draw_committee`.
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


@dataclass(frozen=True)
class Plan(Sizes):
    """Sizes, and what a round will cost.

    Attributes:
        cost: of a round with ⌊δn⌋ members lost.
    """

    cost: Cost

    @property
    def sentence(self) -> str:
        """The plan in words."""
        q, cost = self.quorum, self.cost
        masks = (
            "each shares a mask with every other"
            if self.complete
            else f"each shares a mask with {self.degree:,} others, and of any {self.degree // 2:,} in a row "
            f"{self.window_dropped_max:,} may drop out"
        )
        all_hold = self.committee is Committee.EVERYONE
        holders = (
            "All"
            if all_hold
            else f"{q.decryptors:,} {self.committee.value} ({q.decryptor_colluders:,} may collude)"
        )
        cpu = _seconds(cost.decryptor_cpu_ns)
        if not all_hold:
            cpu = f"{_seconds(cost.member_cpu_ns)} ({cpu} if it holds shares)"
        return (
            f"{q.members:,} members, up to {q.colluders:,} of them colluding; {masks}. {holders} hold shares, and any {q.threshold:,} of "
            f"them can open the sum of {q.survivors_min:,} or more members. A member computes for about {cpu} and sends "
            f"{in_bytes(cost.upload_bytes)}. The coordinator stores {in_bytes(cost.stored_bytes)} and computes for "
            f"{_seconds(cost.coordinator_cpu_ns)} if {cost.lost:,} drop out."
        )


def size(
    members: int,
    nominated: int | None,
    assumptions: Assumptions,
    *,
    present: int | None = None,
    colluders: int | None = None,
    honest_min: int = HONEST_MIN,
    roster: int | None = None,
) -> Sizes:
    """Size a cohort, each member's way to check a manifest.

    Nominees decrypt if the roster names some. Otherwise all of up to 200 members decrypt, and beyond that a drawn committee, or
    all if no committee fits. The graph is complete up to 200 members, and up to 1,000 unless a sparse one has at most a third
    of the neighbours.

    Args:
        members: n, the enrolled members.
        nominated: decryptors that the roster names, came they or not; None where it names none.
        assumptions: what to size against.
        present: enrolled nominees; None for all.
        colluders: a, where it isn't ⌊γn⌋: of a roster's fraction no card that is left out takes anything away.
        honest_min: h_min.
        roster: N, members in the roster; None where all of them came.

    Raises:
        Misuse: a number is outside its domain.
        PeerFault: cohort-too-small, with the numbers: too few members, or nominees where some may collude.
    """
    a = assumptions.colluders(members) if colluders is None else colluders
    dropped = assumptions.dropped(members)
    # n_min before anything is drawn from too few
    quorum = Quorum.derive(members, members, colluders=a, honest_min=honest_min, roster=roster)
    committee, decryptors, a_d = _committee(members, nominated, present, a, dropped, assumptions)
    if decryptors > MAX_DECRYPTORS:
        raise PeerFault(
            Cause.COHORT_TOO_SMALL,
            f"{decryptors} of n={members} members would decrypt, at most {MAX_DECRYPTORS} can: nominate some in the roster",
        )
    quorum = Quorum.derive(
        members, decryptors, colluders=a, decryptor_colluders=a_d, honest_min=honest_min, roster=roster
    )
    degree, window_dropped_max = members - 1, 0
    if members > COMPLETE_MAX:
        sparse = size_graph(members, a, dropped, assumptions.security_bits, assumptions.eta_bits)
        if sparse and (members > SPARSE_MIN or SPARSE_FACTOR * sparse[0] <= degree):
            degree, window_dropped_max = sparse
    return Sizes(quorum, committee, degree, window_dropped_max)


def _committee(
    members: int, nominated: int | None, present: int | None, a: int, dropped: int, assumptions: Assumptions
) -> tuple[Committee, int, int]:
    if nominated is not None:
        came = nominated if present is None else present
        if not 0 <= came <= min(nominated, members):
            raise Misuse(f"{came} of {nominated} nominees among {members} members")
        a_d = colluding_nominees(nominated, a)
        # protocol §5: a single one of these that colludes would read any member, although the cohort promises a > 0
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
        drawn = size_committee(members, a, dropped, assumptions.security_bits, assumptions.committee_eta_bits)
    if drawn is None or drawn[0] == members:
        return Committee.EVERYONE, members, min(a, members)
    return Committee.DRAWN, *drawn


def _seconds(cpu_ns: int) -> str:
    return f"{cpu_ns / 1e9:,.2g} s" if cpu_ns < 10**10 else f"{cpu_ns // 10**9:,} s"


def in_bytes(number_bytes: int) -> str:
    """A size in words."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if number_bytes >= size:
            return f"{number_bytes / size:,.1f} {unit}"
    return f"{number_bytes} bytes"
