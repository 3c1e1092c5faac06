"""Which members leave the sum if two members contradict each other (wire: Survivors)."""

import random
from collections.abc import Collection, Sequence
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veilsum.protocol import disputes
from veilsum.protocol.causes import Cause
from veilsum.protocol.disputes import Dispute
from veilsum.protocol.tags import Tag, hash_fields

CONTEXT = b"\x07" * 32
MEMBERS = tuple(f"m-{index}" for index in range(9))


def vertex_cover(context: bytes, disputed: Collection[Dispute], colluders: int = 1000) -> frozenset[str]:
    return disputes.vertex_cover(context, disputed, colluders)


def rank(member: str, context: bytes = CONTEXT) -> bytes:
    return hash_fields(Tag.PRIORITY, context, member.encode())


BY_RANK = tuple(sorted(MEMBERS, key=rank))


def edge(one: str, other: str) -> Dispute:
    return Dispute(Cause.EDGE_DISAGREEMENT, min(one, other), max(one, other))


def complaint(dealer: str, decryptor: str) -> Dispute:
    return Dispute(Cause.BOX_REFUSED, dealer, decryptor)


def covers(dropped: Collection[str], disputed: Collection[Dispute]) -> bool:
    return all(set(dispute.parties) & set(dropped) for dispute in disputed)


def least(disputed: Collection[Dispute]) -> int:
    """Return how few members cover all disputes, by trying all sets."""
    named = sorted({party for dispute in disputed for party in dispute.parties})
    return next(
        size for size in range(len(named) + 1) for some in combinations(named, size) if covers(some, disputed)
    )


pairs = st.tuples(st.sampled_from(MEMBERS), st.sampled_from(MEMBERS)).filter(lambda pair: pair[0] != pair[1])
disputed_by_anybody = st.lists(
    st.tuples(pairs, st.booleans()).map(lambda it: complaint(*it[0]) if it[1] else edge(*it[0])),
    unique=True,
    max_size=24,
)


@given(disputed=disputed_by_anybody)
def test_the_cover_leaves_no_dispute_and_is_least(disputed: list[Dispute]) -> None:
    dropped = vertex_cover(CONTEXT, disputed)
    assert covers(dropped, disputed)
    assert len(dropped) == least(disputed)


@given(disputed=disputed_by_anybody, order=st.randoms(use_true_random=False))
def test_whoever_computes_it_drops_the_same(disputed: list[Dispute], order: random.Random) -> None:
    shuffled = list(disputed)
    order.shuffle(shuffled)
    assert vertex_cover(CONTEXT, shuffled) == vertex_cover(CONTEXT, disputed)


def bipartite(members: int, degree: int) -> list[Dispute]:
    """As many liars as honest members, each in dispute with the same number of them, so nothing can be reduced."""
    rng = random.Random(1)
    honest = [f"h-{index}" for index in range(members)]
    found = set()
    for _ in range(degree):
        order = rng.sample(honest, members)
        found |= {edge(f"c-{index}", other) for index, other in enumerate(order)}
    return sorted(found, key=lambda dispute: dispute.parties)


def matching(disputed: Sequence[Dispute]) -> set[str]:
    """Match each member, first to last, with its first free neighbour."""
    named = sorted({party for dispute in disputed for party in dispute.parties}, key=rank)
    joined = {frozenset(dispute.parties) for dispute in disputed}
    taken: set[str] = set()
    for member in named:
        free = [other for other in named if frozenset({member, other}) in joined and other not in taken]
        if member not in taken and free:
            taken |= {member, free[0]}
    return taken


@pytest.mark.parametrize("limit", [0, 199])
def test_what_takes_too_many_branchings_drops_both_ends_of_a_matching(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disputes, "SEARCH_WORK_MAX", limit)
    disputed = bipartite(50, 4)
    dropped = vertex_cover(CONTEXT, disputed)
    assert covers(dropped, disputed)
    assert dropped == matching(disputed)
    # both ends of disjoint pairs, each with one liar
    assert len(dropped) % 2 == 0
    assert len({m for m in dropped if m.startswith("h-")}) <= 50


def test_a_component_is_allowed_fewer_branchings_the_more_disputes_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ring = [edge(BY_RANK[i], BY_RANK[(i + 1) % 5]) for i in range(5)]
    for limit, dropped in ((5, 3), (4, 4)):
        monkeypatch.setattr(disputes, "SEARCH_WORK_MAX", limit)
        assert len(vertex_cover(CONTEXT, ring)) == dropped


def test_who_disputes_with_more_than_can_lie_is_a_liar() -> None:
    liars, honest = [f"c-{i}" for i in range(75)], [f"h-{i}" for i in range(225)]
    disputed = [edge(liar, other) for liar in liars for other in honest]
    assert vertex_cover(CONTEXT, disputed, 75) == {*liars}
    # what is left of theirs after that counts as ever
    disputed.append(edge("h-0", "z"))
    assert vertex_cover(CONTEXT, disputed, 76) == {*liars, max("h-0", "z", key=rank)}


def misleading(liars: int) -> list[Dispute]:
    """One honest member disputes with all liars, two with half of them each, and so on: the one with most disputes is honest."""
    found = []
    for width in range(2, liars + 1):
        for group in range(liars // width):
            members = range(group * width, (group + 1) * width)
            found += [edge(f"c-{index}", f"h-{width}-{group}") for index in members]
    return found


def triangles(liars: int) -> list[Dispute]:
    """Two liars in dispute with each other, with an honest member and with the next two: no matching shows how many they are."""
    found = [edge(f"t-{index}", f"t-{index + 1}") for index in range(liars - 1)]
    return found + [edge(f"t-{index}", f"u-{index // 2}") for index in range(liars)]


@pytest.mark.parametrize("liars", [50, 100])
def test_liars_cannot_have_honest_members_dropped_as_the_widest(liars: int) -> None:
    disputed = misleading(liars)
    dropped = vertex_cover(CONTEXT, disputed, liars)
    assert covers(dropped, disputed)
    assert len(dropped) == liars


@pytest.mark.parametrize("liars", [50])
def test_the_best_result_stands_where_the_search_is_cut_off(liars: int) -> None:
    disputed = triangles(liars)
    dropped = vertex_cover(CONTEXT, disputed, liars)
    assert covers(dropped, disputed)
    assert len(dropped) <= liars < len(matching(disputed))


def test_hundreds_of_liars_do_not_keep_the_coordinator_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disputes, "SEARCH_WORK_MAX", 100_000)  # a tenth of it, as quick a machine
    disputed = bipartite(600, 4)
    dropped = vertex_cover(CONTEXT, disputed)
    assert covers(dropped, disputed)
    assert len({m for m in dropped if m.startswith("h-")}) <= 600
