"""Two members contradict each other and nobody can tell who lies: who leaves the sum (protocol §4.5).

Every dispute has a colluder at one end, so the colluders are a cover of all disputes and a least cover is no larger.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from heapq import heappop, heappush

from protocol.causes import Cause
from protocol.tags import Tag, hash_fields

WORK_MAX = 1_000_000
"""Branchings times disputes of a component: some seconds of work, whatever colluders dispute."""

_Graph = dict[str, frozenset[str]]


@dataclass(frozen=True)
class Dispute:
    """Two members, one of whom is false.

    Attributes:
        cause: edge-disagreement, or box-refused for a decryptor's complaint.
        one: the lower id of an edge; the dealer of a box.
        other: the higher id; the decryptor that complains.
    """

    cause: Cause
    one: str
    other: str

    @property
    def parties(self) -> tuple[str, str]:
        """Both."""
        return self.one, self.other


def vertex_cover(context: bytes, disputes: Collection[Dispute], colluders: int) -> frozenset[str]:
    """Whom to drop so that no dispute is left: as few as possible, the same for whoever computes it.

    Args:
        context: ranks the members, so that nobody can choose whom a tie spares.
        disputes: in any order.
        colluders: a. Who disputes with more than so many disputes with honest members, and is one of them.
    """
    everyone = _joined(disputes)
    dropped = {member for member, others in everyone.items() if len(others) > colluders}
    left = [dispute for dispute in disputes if not dropped.intersection(dispute.parties)]
    graph, about = _joined(left), defaultdict[str, set[Dispute]](set)
    for dispute in left:
        about[dispute.one].add(dispute)
    rank = {member: hash_fields(Tag.PRIORITY, context, member.encode()) for member in graph}
    ordered = {member: frozenset(graph[member]) for member in sorted(graph, key=rank.__getitem__)}
    for component in _components(ordered):
        inside = [dispute for member in component for dispute in about[member]]
        if len(inside) == 1 and inside[0].cause is Cause.BOX_REFUSED:
            dropped.add(inside[0].one)
        else:
            dropped |= _least_cover(component) or _matching(component)
    return frozenset(dropped)


def _joined(disputes: Iterable[Dispute]) -> dict[str, set[str]]:
    """With whom each member disputes."""
    graph = defaultdict[str, set[str]](set)
    for dispute in disputes:
        graph[dispute.one].add(dispute.other)
        graph[dispute.other].add(dispute.one)
    return graph


def _components(graph: _Graph) -> Iterable[_Graph]:
    place = {member: index for index, member in enumerate(graph)}
    seen = set[str]()
    for first in graph:
        found, reached = set[str](), [] if first in seen else [first]
        while reached:
            member = reached.pop()
            if member not in found:
                found.add(member)
                reached.extend(graph[member] - found)
        if found:
            seen |= found
            yield {member: graph[member] for member in sorted(found, key=place.__getitem__)}


def _least_cover(component: _Graph) -> frozenset[str] | None:
    """A least cover, or None where it takes too many branchings.

    A stack of what is dropped, not recursion: 10,000 members would go deeper than Python does.
    """
    work_per_branching = sum(map(len, component.values())) // 2
    best: frozenset[str] | None = None
    branchings, waiting = 0, [frozenset[str]()]
    while waiting:
        dropped, graph = _reduced(component, waiting.pop())
        # No cover takes fewer than one member of each pair.
        if best is not None and len(dropped) + len(_matching(graph)) // 2 >= len(best):
            continue
        if not graph:
            best = dropped
            continue
        branchings += 1
        if branchings * work_per_branching > WORK_MAX:
            return None
        widest = max(graph, key=lambda member: len(graph[member]))
        waiting += [dropped | graph[widest], dropped | {widest}]
    return best


def _reduced(component: _Graph, gone: frozenset[str]) -> tuple[frozenset[str], _Graph]:
    """Drop these; then, while a member has one neighbour left, the neighbour of the first of those.

    Returns:
        All who are dropped, and the graph that is left, in the same order and without members that are left alone.
    """
    members = tuple(component)
    place = {member: index for index, member in enumerate(members)}
    left = {member: set(others - gone) for member, others in component.items() if member not in gone}
    dropped = set(gone)
    ends = [place[member] for member, others in left.items() if len(others) == 1]  # ascending, so a heap
    while ends:
        member = members[heappop(ends)]
        if len(left.get(member, ())) != 1:
            continue
        (other,) = left[member]
        dropped.add(other)
        for near in left.pop(other):
            left[near].discard(other)
            if len(left[near]) == 1:
                heappush(ends, place[near])
    return frozenset(dropped), {member: frozenset(others) for member, others in left.items() if others}


def _matching(graph: _Graph) -> frozenset[str]:
    """Both ends of disjoint pairs: each member with the first of its neighbours that is left."""
    rank = {member: place for place, member in enumerate(graph)}
    taken: set[str] = set()
    for member, others in graph.items():
        if member not in taken and (free := others - taken):
            taken |= {member, min(free, key=rank.__getitem__)}
    return frozenset(taken)
