"""Members leave a proposed sum group by group: the groups are those that the whole ledger would name each time (protocol §4.5)."""

import random
from types import SimpleNamespace
from typing import Any

import pytest

from protocol.ledger import Group, LedgerFault, Opened, check_ledger
from protocol.messages import Family, Survivor
from protocol.narrowing import Narrowing


def some(rng: random.Random, names: str, share: float) -> tuple[Survivor, ...]:
    """Members with few lineages in few versions."""
    return tuple(
        Survivor(name, bytes([rng.choice((0, 0, 0, 1))] * 8), bytes([rng.choice((0, 0, 1))] * 8), bytes(32))
        for name in names
        if rng.random() < share
    )


@pytest.mark.parametrize("seed", range(300))
def test_each_group_is_the_one_that_the_ledger_names(seed: int) -> None:
    rng = random.Random(seed)
    names, most = "abcdefghijklmnop"[: rng.randint(4, 16)], rng.choice((2, 3, 5))
    opened = [
        Opened(
            bytes([rng.randint(1, 6)] * 32),
            rng.choice((Family.EXACT, Family.EXACT, Family.INDICATOR)).value,
            rng.randint(1, most),
            some(rng, names + "xyz", rng.random()),
        )
        for _ in range(rng.randint(0, 6))
    ]
    staying = {each.member: each for each in some(rng, names, 0.9)}
    exceptions: Any = [SimpleNamespace(members=tuple(sorted(rng.sample(names, 2))))]

    def proposal() -> Opened:
        return Opened(bytes([9] * 32), Family.EXACT.value, most, tuple(staying.values()))

    groups = Narrowing(opened, proposal(), exceptions)
    while (named := by_the_ledger(opened, proposal(), exceptions)) is not None:
        assert groups.smallest() == named
        # whoever of it is still proposed leaves, or somebody else
        gone = staying.keys() & {*named.members} or {rng.choice([*staying])}
        staying = {member: each for member, each in staying.items() if member not in gone}
        groups.leave(gone)
    assert groups.smallest() is None


def by_the_ledger(opened: list[Opened], proposal: Opened, exceptions: Any) -> Group | None:
    try:
        check_ledger(opened, proposal, exceptions)
    except LedgerFault as fault:
        return fault.group
    return None


def test_thousands_that_leave_one_by_one_take_no_longer_than_sorting_them_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A file of 1.4 MB in which each of 800 members stands in an older sum of its own took 9 seconds, and four times that for twice as many."""
    names = [f"m-{number:03}" for number in range(300)]
    columns = tuple(Survivor(name, bytes(8), bytes(8), bytes(32)) for name in names)
    opened = [
        Opened(number.to_bytes(32, "big"), "exact", 1, (column,)) for number, column in enumerate(columns)
    ]
    looked: list[object] = []
    entry = Narrowing._entry

    def counted(self: Narrowing, place: Any) -> Any:
        looked.append(place)
        return entry(self, place)

    monkeypatch.setattr(Narrowing, "_entry", counted)
    groups = Narrowing(opened, Opened(b"\xff" * 32, "exact", 3, columns), ())
    for name in names:
        group = groups.smallest()
        assert group is not None
        assert group.members == (name,)
        groups.leave(group.members)
    assert groups.smallest() is None
    assert len(looked) < 20 * len(names)
