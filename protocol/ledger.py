"""The ledger rule: what sums of several rounds would tell together (protocol §8).

Sufficient statistics are deterministic: who is in one sum and not in another is the difference of the two. Columns
(members' lineages) that were always in the same rounds form a group, and the span of all sums is that of the groups'
sums. A decryptor signs a set only if no group would be smaller than the largest g of the rounds that hold it.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from protocol.causes import Cause
from protocol.errors import PeerFault
from protocol.messages import Family, LedgerException, Link, Past, Survivor

Survivors = tuple[Survivor, ...]


@dataclass(frozen=True)
class Opened:
    """A set of members whose sum is known, or has to be taken as known.

    Attributes:
        context: of its attempt.
        family: which sums it can be combined with.
        floor: g of its cohort.
        survivors: the set.
    """

    context: bytes
    family: str
    floor: int
    survivors: Survivors


@dataclass(frozen=True)
class Group:
    """Columns that stand in the same opened rounds and in no other.

    Attributes:
        members: whose columns they are, in order.
        rounds: contexts of those rounds, in order of the history.
        floor: the largest g of those rounds, the fewest members that it may have.
    """

    members: tuple[str, ...]
    rounds: tuple[bytes, ...]
    floor: int


class LedgerFault(PeerFault):
    """ledger-refused, with the group that the proposed sum would expose."""

    said = "the columns of {members} members, g is {floor}, would stand alone in {rounds} rounds: {names}"

    def __init__(self, group: Group) -> None:
        self.group = group
        detail = self.said.format(
            members=len(group.members),
            floor=group.floor,
            rounds=len(group.rounds),
            names=", ".join(group.members),
        )
        super().__init__(Cause.LEDGER_REFUSED, detail, group.members)

    def __reduce__(self) -> tuple[type[Self], tuple[Group]]:
        return type(self), (self.group,)


class ForkFault(LedgerFault):
    """ledger-refused, with the older sum of which the proposed one takes too little."""

    said = "{members} members stood in an older sum; this one takes some of them, and no majority: {names}"


def opened_sets(links: Sequence[Link], history: Sequence[Past]) -> tuple[Opened, ...]:
    """Every set that the chain says was opened.

    Raises:
        PeerFault: chain-broken where the history is not that of these links.
    """
    if [(link.context, link.closing) for link in links] != [(past.context, past.closing) for past in history]:
        raise PeerFault(
            Cause.CHAIN_BROKEN, "the history shown does not follow from the opening's links", ["coordinator"]
        )
    return tuple(
        Opened(past.context, link.family, link.floor, opened.survivors)
        for link, past in zip(links, history, strict=True)
        for opened in past.sets
    )


def groups(opened: Sequence[Opened], column: Callable[[Survivor], object]) -> list[Group]:
    """Sort columns by the exact set of rounds that hold them."""
    return [_group(opened, numbers, names) for numbers, names in _partition(opened, column).items()]


def _partition(
    opened: Iterable[Opened], column: Callable[[Survivor], object]
) -> dict[tuple[int, ...], set[str]]:
    """The members of each group, by the numbers of the sets that hold it."""
    held: dict[tuple[str, object], list[int]] = defaultdict(list)
    for number, each in enumerate(opened):
        for survivor in each.survivors:
            held[survivor.member, column(survivor)].append(number)
    members: dict[tuple[int, ...], set[str]] = defaultdict(set)
    for (member, _), numbers in held.items():
        members[tuple(numbers)].add(member)
    return members


def _group(opened: Sequence[Opened], numbers: tuple[int, ...], names: set[str]) -> Group:
    rounds = [opened[number] for number in numbers]
    contexts = tuple(dict.fromkeys(each.context for each in rounds))
    return Group(tuple(sorted(names)), contexts, max(each.floor for each in rounds))


def linked(opened: Sequence[Opened], proposal: Opened) -> list[Opened]:
    """The opened sets that share a lineage with the proposal, directly or through one another, in their order.

    The others' columns are all apart from these: no combination of sums that tells anything holds both.
    """
    holding: dict[tuple[str, bytes], list[int]] = defaultdict(list)
    for number, each in enumerate(opened):
        for survivor in each.survivors:
            holding[survivor.member, survivor.lineage].append(number)
    found, left = set[int](), [proposal]
    while left:
        for survivor in left.pop().survivors:
            new = set(holding.pop((survivor.member, survivor.lineage), ())) - found
            found |= new
            left += [opened[number] for number in new]
    return [opened[number] for number in sorted(found)]


def by_lineage(survivor: Survivor) -> object:
    """The first reading: a member's data set."""
    return survivor.lineage


def by_version(survivor: Survivor) -> object:
    """The second reading: a data set with exactly these records."""
    return survivor.lineage, survivor.records


READINGS: tuple[Callable[[Survivor], object], ...] = (by_lineage, by_version)


def check_forks(opened: Collection[Opened], proposal: Opened, colluders: int) -> None:
    """Refuse a sum that takes part of an older one, and too little to be the only one that does.

    Two sums that each take more than (|O| + a)/2 columns of an older one O share an honest one's, who refuses a history that
    leaves out either: no two parts of a federation can each be shown what the other is not, under whatever rosters and cohorts.
    An honest member of O stands in both, so both are shown O; a set that was never opened, in the history of an attempt that
    nobody who takes part was in, can but forbid more. (It can split groups: a majority of each group would not do.)

    Args:
        opened: everything opened before.
        proposal: the sum to be signed.
        colluders: a.

    Raises:
        ForkFault: the first older sum of which it takes too little.
    """
    columns = {(each.member, each.lineage) for each in proposal.survivors}
    for older in opened:
        if older.family != proposal.family:
            continue
        taken = sum((each.member, each.lineage) in columns for each in older.survivors)
        if taken and 2 * taken <= len(older.survivors) + colluders:
            names = tuple(each.member for each in older.survivors)
            raise ForkFault(Group(names, (older.context,), older.floor))


def check_ledger(
    opened: Collection[Opened],
    proposal: Opened,
    exceptions: Iterable[LedgerException] = (),
) -> None:
    """Refuse a proposed sum that would expose a group, or mix exact sums and counts with noisy ones.

    Args:
        opened: everything opened before.
        proposal: the sum to be signed.
        exceptions: the admin's, each of which names the members of one group that may be smaller.

    Raises:
        PeerFault: lineage-mixed where a lineage stands in noisy rounds and in others.
        LedgerFault: the smallest group below its floor.
    """
    if twice := mixed(opened, proposal):
        others = "exact or indicator" if proposal.family == Family.NOISY else "noisy"
        raise PeerFault(Cause.LINEAGE_MIXED, f"their lineages stand in {others} rounds", twice)
    if exposed := _exposed(opened, proposal, exceptions):
        raise LedgerFault(min(exposed, key=lambda group: (len(group.members), group.members)))


def alone(
    opened: Collection[Opened],
    proposal: Opened,
    exceptions: Iterable[LedgerException] = (),
) -> set[str]:
    """Members whose columns of this very sum `check_ledger` would refuse: who brings an old lineage, or comes anew.

    Without them the others' groups stay as they are: what is refused then, a sum without somebody would not mend.
    """
    small = [group for group in _exposed(opened, proposal, exceptions) if proposal.context in group.rounds]
    return {*mixed(opened, proposal), *(name for group in small for name in group.members)}


def _exposed(
    opened: Collection[Opened], proposal: Opened, exceptions: Iterable[LedgerException]
) -> list[Group]:
    # A part of those that one names would be another group: the admin judged the sum of them all.
    excused = {exception.members for exception in exceptions}
    return [group for group in _small(opened, proposal) if group.members not in excused]


def mixed(opened: Iterable[Opened], proposal: Opened) -> list[str]:
    """Members whose lineages stand in exact rounds, or were counted, and in noisy ones."""
    noisy = proposal.family == Family.NOISY
    others = (each for each in opened if (each.family == Family.NOISY) != noisy)
    columns = {(s.member, s.lineage) for each in others for s in each.survivors}
    return sorted({s.member for s in proposal.survivors if (s.member, s.lineage) in columns})


def _small(opened: Collection[Opened], proposal: Opened) -> list[Group]:
    """The groups below their floors, in both readings. Noisy rounds have no such rule: what they tell is bounded by their μ alone."""
    if proposal.family == Family.NOISY:
        return []
    family = linked([each for each in opened if each.family == proposal.family], proposal)
    return [
        group
        for reading in READINGS
        for group in groups([*family, proposal], reading)
        if len(group.members) < group.floor
    ]
