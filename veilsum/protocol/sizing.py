"""Size a cohort: its graph, committee and quorum, from public integers alone (protocol §5).

The coordinator computes them, and every member computes them again and refuses any others. No float takes part. They don't depend on
the vector, so a cohort serves rounds of any length.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum

from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import Misuse, PeerFault
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
SECURITY_BITS = 80
"""Colluders exceed their bound with a chance of at most 2^−80: σ = 40, and 40 more against a coordinator that leaves out cards to bias
order and draw."""
WINDOW_BITS = 20
"""η: a window loses more than D_max members with a chance of at most 2^−20."""
COMMITTEE_BITS = 30
"""η of a drawn committee: fewer than t of it are left with a chance of at most 2^−30."""
LOSS = 100
"""The usual δ: members in a thousand that may drop out."""


class Committee(StrEnum):
    """How decryptors are chosen."""

    EVERYONE = "everyone"
    NOMINATED = "nominated"
    DRAWN = "drawn"


def dropouts(members: int, loss: int) -> int:
    """Members of n that may drop out: ⌊loss·n/1000⌋."""
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

    @property
    def complete(self) -> bool:
        """Whether every pair of members shares a mask."""
        return self.degree == self.quorum.members - 1

    def decryptors(self, members: Sequence[str], nominees: Collection[str], beacon: bytes) -> tuple[str, ...]:
        """D, ascending.

        Args:
            members: ids, ascending.
            nominees: ids that the roster nominates, enrolled or not.
            beacon: seeds the draw of a drawn committee.

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


def size(
    members: int,
    nominated: int | None,
    *,
    roster: int,
    colluders: int,
    honest_min: int = HONEST_MIN,
    loss: int = LOSS,
    present: int | None = None,
) -> Sizes:
    """Size a cohort, each member's way to check a manifest.

    Nominees decrypt if the roster names some. Otherwise all of up to 200 members decrypt, and beyond that a drawn committee, or
    all if no committee fits. The graph is complete up to 200 members, and up to 1,000 unless a sparse one has at most a third
    of the neighbours.

    Args:
        members: n, the enrolled members.
        nominated: decryptors that the roster names, enrolled or not; None if it names none.
        roster: N, members in the roster.
        colluders: a.
        honest_min: h_min.
        loss: δ, members in a thousand that may drop out.
        present: enrolled nominees; None for all.

    Raises:
        Misuse: a number is outside its domain.
        PeerFault: cohort-too-small, with the numbers: too few members, or nominees where some may collude.
    """
    dropped = dropouts(members, loss)
    # n_min before anything is drawn from too few
    quorum = Quorum.derive(members, members, colluders=colluders, honest_min=honest_min, roster=roster)
    committee, decryptors, a_d = _committee(members, nominated, present, colluders, dropped)
    if decryptors > MAX_DECRYPTORS:
        raise PeerFault(
            Cause.COHORT_TOO_SMALL,
            f"{decryptors} of n={members} members would decrypt, at most {MAX_DECRYPTORS} can: nominate some in the roster",
        )
    quorum = Quorum.derive(
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


def _committee(
    members: int, nominated: int | None, present: int | None, a: int, dropped: int
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
        drawn = size_committee(members, a, dropped, SECURITY_BITS, COMMITTEE_BITS)
    if drawn is None or drawn[0] == members:
        return Committee.EVERYONE, members, min(a, members)
    return Committee.DRAWN, *drawn
