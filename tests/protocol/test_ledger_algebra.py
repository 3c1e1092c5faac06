"""The ledger rule held against linear algebra.

A sum is a row of ones and zeros over the columns. If, whichever g − 1 members are crossed out, the rank stays, then
no combination of sums but zero depends on those members alone.
"""

from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import combinations
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from protocol.ledger import READINGS, LedgerFault, Opened, by_lineage, by_version, check_ledger, groups
from tests.protocol.columns import Column, sums


def rank(rows: Iterable[Sequence[int]]) -> int:
    """Gaussian elimination in exact fractions."""
    left = [[Fraction(value) for value in row] for row in rows]
    found = 0
    while left:
        pivot = left.pop()
        at = next((place for place, value in enumerate(pivot) if value), None)
        if at is None:
            continue
        found += 1
        left = [
            [value - row[at] / pivot[at] * other for value, other in zip(row, pivot, strict=True)]
            for row in left
        ]
    return found


def incidence(
    opened: Sequence[Opened], reading: Any
) -> tuple[list[tuple[str, object]], list[tuple[int, ...]]]:
    """The columns, and a row a set."""
    held = [{(s.member, reading(s)) for s in each.survivors} for each in opened]
    columns = sorted({column for row in held for column in row}, key=repr)
    return columns, [tuple(int(column in row) for column in columns) for row in held]


def exposed(opened: Sequence[Opened], reading: Any, floor: int) -> list[tuple[str, ...]]:
    """Members fewer than `floor` of whom, and of nobody else, some combination of the sums depends."""
    columns, rows = incidence(opened, reading)
    whole = rank(rows)
    members = sorted({member for member, _ in columns})
    return [
        few
        for few in combinations(members, min(floor - 1, len(members)))
        if rank([[v for v, (m, _) in zip(row, columns, strict=True) if m not in few] for row in rows]) < whole
    ]


def test_the_algebra_sees_the_known_attacks() -> None:
    p, q = "abcdef", "ghijkl"
    assert exposed(sums(p + "u", q, p + q), by_lineage, 2) == [("u",)]
    assert exposed(sums(p + "u", q), by_lineage, 2) == []
    changed: list[Column] = [*"bcdef", ("a", 0, 1)]
    assert exposed(sums(p, changed), by_version, 2) == [("a",)]
    assert exposed(sums(p, changed), by_lineage, 2) == []


@st.composite
def families(draw: st.DrawFn) -> list[list[Column]]:
    """Up to five rounds of eight members in blocks that mostly keep together."""
    block = draw(st.lists(st.integers(0, 2), min_size=8, max_size=8))
    choice = st.sampled_from([None, (0, 0), (0, 0), (0, 1), (1, 0)])
    rounds: list[list[Column]] = []
    strays = draw(st.sampled_from([0, 0, 0, 1]))
    for _ in range(draw(st.integers(2, 5))):
        kept = draw(st.tuples(choice, choice, choice))
        column = {member: kept[block[place]] for place, member in enumerate("abcdefgh")}
        for stray in draw(st.lists(st.sampled_from("abcdefgh"), max_size=strays)):
            column[stray] = draw(choice)
        if any(column.values()):
            rounds.append([(member, *held) for member, held in column.items() if held])
    return rounds or [["a", "b"]]


@settings(deadline=None)
@given(rounds=families(), floor=st.integers(2, 3))
@example(rounds=[list("abcde"), list("fgh"), list("abcdfgh")], floor=2)
@example(rounds=[list("abcdefgh"), [("a", 0, 1), *"bcdefgh"]], floor=2)
def test_whoever_keeps_the_rule_lets_no_combination_of_sums_expose(
    rounds: list[list[Column]], floor: int
) -> None:
    opened: list[Opened] = []
    for proposal in sums(*rounds, floor=floor):
        small = [
            group
            for reading in READINGS
            for group in groups([*opened, proposal], reading)
            if len(group.members) < floor
        ]
        if small:
            with pytest.raises(LedgerFault) as caught:
                check_ledger(opened, proposal)
            assert caught.value.group in small
        else:
            check_ledger(opened, proposal)
            opened.append(proposal)
    assert [exposed(opened, reading, floor) for reading in READINGS] == [[], []]


@settings(deadline=None)
@given(rounds=families())
def test_groups_are_what_no_round_tells_apart(rounds: list[list[Column]]) -> None:
    family = sums(*rounds)
    for reading in READINGS:
        columns, rows = incidence(family, reading)
        patterns = dict(zip(columns, zip(*rows, strict=True), strict=True))
        expected = {
            (
                tuple(sorted(member for (member, _), other in patterns.items() if other == pattern)),
                tuple(each.context for each, there in zip(family, pattern, strict=True) if there),
            )
            for pattern in patterns.values()
        }
        assert {(group.members, group.rounds) for group in groups(family, reading)} == expected
