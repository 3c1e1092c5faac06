"""Choose the members to drop when members contradict each other and the liars are unknown (wire: Survivors).

Every dispute involves a colluder. So the colluders cover all disputes, and a minimum cover is no larger.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from heapq import heappop, heappush

from veilsum.protocol.causes import Cause
from veilsum.protocol.tags import Tag, hash_fields

SEARCH_WORK_MAX = 1_000_000
"""Limit of branchings times disputes: a few seconds of work, whatever the colluders dispute."""

_Graph = dict[str, frozenset[str]]


@dataclass(frozen=True)
class Dispute:
    """A contradiction between two members, at least one of them false.

    For an edge, `one` is the lower id and `other` the higher. For a refused box, `one` is the dealer and `other` the complaining decryptor.
    """

    cause: Cause
    one: str
    other: str

    @property
    def parties(self) -> tuple[str, str]:
        return self.one, self.other


def vertex_cover(context: bytes, disputes: Collection[Dispute], colluders: int) -> frozenset[str]:
    """Find a deterministic set of members, as small as possible, whose removal ends all disputes.

    `context` ranks the members, so that no party can choose how ties are broken. A member in dispute with more than `colluders` members
    contradicts an honest one, so it is a colluder.
    """
    if not disputes:
        return frozenset()
    everyone = _build_graph(disputes)
    dropped = {member for member, others in everyone.items() if len(others) > colluders}
    left = [dispute for dispute in disputes if not dropped.intersection(dispute.parties)]
    graph, about = _build_graph(left), defaultdict[str, set[Dispute]](set)
    for dispute in left:
        about[dispute.one].add(dispute)
    pairs = sum(map(len, graph.values())) // 2
    rank = {member: hash_fields(Tag.PRIORITY, context, member.encode()) for member in graph}
    ordered = {member: frozenset(graph[member]) for member in sorted(graph, key=rank.__getitem__)}
    components = [
        (component, len(_match_greedily(component)) // 2) for component in _split_components(ordered)
    ]
    # Colluders left over after each component takes its minimum.
    spare = colluders - len(dropped) - sum(least for _, least in components)
    for component, least in components:
        inside = [dispute for member in component for dispute in about[member]]
        if len(inside) == 1 and inside[0].cause is Cause.BOX_REFUSED:
            dropped.add(inside[0].one)
        else:
            dropped |= _least_cover(component, least + spare, SEARCH_WORK_MAX // pairs)
    return frozenset(dropped)


def _build_graph(disputes: Iterable[Dispute]) -> dict[str, set[str]]:
    """Map each member to the members that it disputes with."""
    graph = defaultdict[str, set[str]](set)
    for dispute in disputes:
        graph[dispute.one].add(dispute.other)
        graph[dispute.other].add(dispute.one)
    return graph


def _split_components(graph: _Graph) -> Iterable[_Graph]:
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


def _least_cover(component: _Graph, liars: int, branchings: int) -> frozenset[str]:
    """Find a minimum cover; if the search exceeds `branchings`, the smallest so far, or a matching's ends if there are no more of them.

    The search first considers only covers of at most `liars` members, which prunes misleading branches early. If it finds none, it
    runs again without that bound.
    """
    first, _ = _search_cover(component, len(component), branchings, once=True)
    best = first or frozenset(component)
    found, whole = _search_cover(component, min(len(best), liars + 1), branchings)
    if whole and found is None:
        found, whole = _search_cover(component, len(best), branchings)
    best = found or best
    matching = _match_greedily(component)
    return best if whole or len(best) < len(matching) else matching


def _search_cover(
    component: _Graph, fewer_than: int, branchings: int, *, once: bool = False
) -> tuple[frozenset[str] | None, bool]:
    """Find the first smallest cover below `fewer_than`, or with `once` the first cover; also return whether the search completed.

    Uses a stack instead of recursion: 10,000 members would exceed Python's recursion limit.
    """
    best: frozenset[str] | None = None
    waiting = [frozenset[str]()]
    while waiting and not (once and best):
        dropped, graph = _reduce_graph(component, waiting.pop())
        # Every cover has at least one member of each pair.
        if len(dropped) + len(_match_greedily(graph)) // 2 >= fewer_than:
            continue
        if not graph:
            best, fewer_than = dropped, len(dropped)
            continue
        if not branchings:
            return best, False
        branchings -= 1
        widest = max(graph, key=lambda member: len(graph[member]))
        waiting += [dropped | graph[widest], dropped | {widest}]
    return best, True


def _reduce_graph(component: _Graph, gone: frozenset[str]) -> tuple[frozenset[str], _Graph]:
    """Drop `gone`; then, while members with a single neighbour remain, drop the neighbour of the first."""
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


def _match_greedily(graph: _Graph) -> frozenset[str]:
    """Return the ends of a greedy matching, which pairs each member with its first free neighbour."""
    rank = {member: place for place, member in enumerate(graph)}
    taken: set[str] = set()
    for member, others in graph.items():
        if member not in taken and (free := others - taken):
            taken |= {member, min(free, key=rank.__getitem__)}
    return frozenset(taken)
