from collections.abc import Callable
from itertools import pairwise
from random import Random

import networkx as nx  # type: ignore[import-untyped]
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veilsum.protocol.errors import Misuse
from veilsum.protocol.graph import Graph, draw_committee
from veilsum.protocol.sizing import size_graph

BEACON = bytes(range(32))


def ids(count: int) -> tuple[str, ...]:
    return tuple(f"m-{i:05}" for i in range(count))


def edges(graph: Graph) -> nx.Graph:
    joined: nx.Graph = nx.Graph()
    joined.add_nodes_from(graph.members)
    joined.add_edges_from((u, v) for u in graph.members for v in graph.neighbours_of(u))
    return joined


@st.composite
def sparse_graphs(draw: st.DrawFn, most: int = 40) -> Graph:
    members = ids(draw(st.integers(4, most)))
    degree = 2 * draw(st.integers(1, (len(members) - 2) // 2))
    return Graph(members, degree, draw(st.binary(min_size=32, max_size=32)))


# --- Edges ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("degree", [4, 5, 100])
def test_the_complete_graph_joins_everybody_and_has_no_ring(degree: int) -> None:
    graph = Graph(ids(5), degree)
    assert (graph.degree, graph.ring) == (4, ())
    assert graph.neighbours_of("m-00002") == ("m-00000", "m-00001", "m-00003", "m-00004")
    assert graph.window_excess(graph.members, 0) is None


@settings(deadline=None)
@given(graph=sparse_graphs(), data=st.data())
def test_a_ring_s_neighbours_are_those_that_follow_and_those_that_one_follows(
    graph: Graph, data: st.DataObject
) -> None:
    member = data.draw(st.sampled_from(graph.members))
    following = graph.followers_of(member)
    place = graph.ring.index(member)
    onward = [graph.ring[(place + step) % len(graph.ring)] for step in range(1, graph.window + 1)]
    assert following == tuple(sorted(onward))
    before = {other for other in graph.members if member in graph.followers_of(other)}
    assert sorted({*following, *before}) == [*graph.neighbours_of(member)]
    others = data.draw(st.lists(st.sampled_from(graph.members), unique=True))
    near = {member, *graph.neighbours_of(member)}
    assert graph.strangers_of(member, others) == [other for other in others if other not in near]


def test_on_the_complete_graph_there_are_no_strangers() -> None:
    graph = Graph(ids(5), 4)
    assert graph.strangers_of("m-00002", graph.members) == []


# --- The window rule ---------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 2**64), fractions=st.sampled_from([(50, 50), (100, 100), (200, 100), (330, 100)]))
def test_honest_survivors_that_the_rule_lets_pass_hang_together(
    seed: int, fractions: tuple[int, int]
) -> None:
    """Colluders are drawn at random (the degree allows a failure of 2^−40); the coordinator drops as many members as the rule allows."""
    random, n = Random(seed), 120
    colluders, dropped = (n * fraction // 1000 for fraction in fractions)
    sized = size_graph(n, colluders, dropped, 40, 20)
    assert sized is not None
    graph, dropped_max = Graph(ids(n), sized[0], random.randbytes(32)), sized[1]
    honest = set(graph.members) - set(random.sample(graph.members, colluders))
    # around a victim first, then anywhere
    victim = random.choice(sorted(honest))
    targets = [*graph.neighbours_of(victim), *random.sample(graph.members, n)]
    lost: set[str] = set()
    for target in targets:
        if target in honest - {victim} and graph.window_excess(lost | {target}, dropped_max) is None:
            lost.add(target)
    assert len(lost) >= dropped_max
    assert nx.is_connected(edges(graph).subgraph(honest - lost))


@settings(deadline=None)
@given(graph=sparse_graphs(), data=st.data())
def test_one_honest_survivor_in_every_window_is_enough(graph: Graph, data: st.DataObject) -> None:
    gone = data.draw(st.sets(st.sampled_from(graph.members)))
    there = set(graph.members) - gone
    if graph.window_excess(gone, graph.window - 1) is None:
        assert nx.is_connected(edges(graph).subgraph(there))
        kept = [place for place, member in enumerate(graph.ring) if member in there]
        assert all(high - low <= graph.window for low, high in pairwise(kept))


# --- Drawn committees --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "misuse",
    [
        *(lambda degree=degree: Graph(ids(9), degree, BEACON) for degree in (-2, 0, 1, 3, 7)),
        *(lambda beacon=beacon: Graph(ids(9), 4, beacon) for beacon in (None, b"", bytes(31), bytes(33))),
        *(lambda members=members: Graph(members, 2, BEACON) for members in ((), ("b", "a"), ("a", "a"))),
        *(lambda size=size: draw_committee(BEACON, ids(30), size) for size in (-1, 0, 31)),
        lambda: draw_committee(BEACON, ("b", "a"), 1),
        lambda: draw_committee(bytes(31), ids(30), 7),
        *(lambda degree=degree: Graph(ids(9), degree, BEACON).neighbours_of("eve") for degree in (4, 8)),
        *(lambda degree=degree: Graph(ids(9), degree, BEACON).window_excess(["eve"], 9) for degree in (4, 8)),
    ],
)
def test_what_no_graph_has_is_a_misuse(misuse: Callable[[], object]) -> None:
    with pytest.raises(Misuse):
        misuse()
