"""Whom the ledger has leave a proposed sum, group by group: found without sorting all columns anew for each (protocol §4.5)."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from heapq import heapify, heappop, heappush

from protocol.ledger import READINGS, Group, Opened
from protocol.messages import LedgerException, Survivor

_Rounds = tuple[int, ...]
_Place = tuple[int, _Rounds]
"""A group: its reading, and the numbers of its rounds."""


class Narrowing:
    """The groups of a proposal and of the sums that it is linked to, kept while members leave it.

    `smallest` is what `check_ledger` names of exact and indicator sums.
    """

    def __init__(
        self, opened: Iterable[Opened], proposal: Opened, exceptions: Iterable[LedgerException]
    ) -> None:
        self._sets = [*(each for each in opened if each.family == proposal.family), proposal]
        self._own = len(self._sets) - 1
        self._excused = {exception.members for exception in exceptions}
        self._proposed = {survivor.member: survivor for survivor in proposal.survivors}
        self._held = [defaultdict[tuple[str, object], list[int]](list) for _ in READINGS]
        for number, each in enumerate(self._sets):
            for survivor in each.survivors:
                for held, column in zip(self._held, READINGS, strict=True):
                    held[survivor.member, column(survivor)].append(number)
        self._linked = _components(self._held[0].values(), self._own)
        # How many columns of the proposal stand in sums of each component: with none, these tell nothing together with it.
        self._touching = Counter[int]()
        self._groups = defaultdict[_Place, set[str]](set)  # no member has two columns in one sum
        for reading, held in enumerate(self._held):
            for (member, _), numbers in held.items():
                self._groups[reading, tuple(numbers)].add(member)
                if not reading and numbers[-1] == self._own and len(numbers) > 1:
                    self._touching[self._linked[numbers[0]]] += 1
        self._small = [entry for place in self._groups for entry in self._entry(place)]
        heapify(self._small)

    def smallest(self) -> Group | None:
        """The smallest group below its floor, and of equal ones the first by its ids; None where there is none."""
        while self._small:
            entry = self._small[0]
            _, members, reading, numbers = entry
            apart = numbers[-1] != self._own and not self._touching[self._linked[numbers[0]]]
            if apart or [*self._entry((reading, numbers))] != [entry]:
                heappop(self._small)  # it is not as it was, or no longer linked
                continue
            contexts = tuple(dict.fromkeys(self._sets[number].context for number in numbers))
            return Group(members, contexts, self._floor(numbers))
        return None

    def leave(self, members: Collection[str]) -> None:
        """These are proposed no more."""
        for survivor in map(self._proposed.pop, members):
            for reading, column in enumerate(READINGS):
                self._move(reading, survivor, self._held[reading][survivor.member, column(survivor)])

    def _move(self, reading: int, survivor: Survivor, numbers: list[int]) -> None:
        self._groups[reading, tuple(numbers)].remove(survivor.member)
        changed = [tuple(numbers)]
        numbers.pop()
        if numbers:
            changed.append(tuple(numbers))
            self._groups[reading, changed[1]].add(survivor.member)
            if not reading:
                self._touching[self._linked[numbers[0]]] -= 1
        for each in changed:
            for entry in self._entry((reading, each)):
                heappush(self._small, entry)

    def _entry(self, place: _Place) -> Iterable[tuple[int, tuple[str, ...], int, _Rounds]]:
        """A group below its floor as it stands in the heap."""
        group = self._groups[place]
        if 0 < len(group) < self._floor(place[1]):
            members = tuple(sorted(group))
            if members not in self._excused:
                yield len(members), members, *place

    def _floor(self, numbers: _Rounds) -> int:
        return max(self._sets[number].floor for number in numbers)


def _components(columns: Iterable[Sequence[int]], own: int) -> list[int]:
    """For each opened set the least number of those that it shares a lineage with, directly or through one another."""
    least = list(range(own + 1))

    def root(number: int) -> int:
        while least[number] != number:
            least[number] = least[least[number]]
            number = least[number]
        return number

    for numbers in columns:
        for number in numbers:
            if number != own:
                low, high = sorted((root(numbers[0]), root(number)))
                least[high] = low
    return [root(number) for number in range(own + 1)]
