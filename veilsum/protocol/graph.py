"""The mask graph and the drawn committee, both derived from the cards' beacon (analysis: Sizes).

A sparse graph is a Harary graph on a permuted ring: members are sorted by H("ring", beacon, id), and each is joined to the
k/2 next on either side (Bell et al. 2020, "Secure Single-Server Aggregation with (Poly)Logarithmic Overhead"). If every
window of k/2 consecutive places holds an honest survivor, the honest survivors are connected: each is joined to the next
on the ring.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cached_property
from heapq import nsmallest
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from veilsum.protocol.errors import Misuse
from veilsum.protocol.tags import Tag, hash_fields

BEACON_BYTES = 32

_Places = npt.NDArray[np.intp]


class Graph:
    """The mask graph of a cohort: complete, or a ring of degree k. Memory grows with members, not edges.

    `members` are n ids, ascending. A degree k of n − 1 or more gives the complete graph, which needs no beacon. Otherwise k is even and
    at least 2, and the 32 bytes of `beacon` order the ring.
    """

    def __init__(self, members: Sequence[str], degree: int, beacon: bytes | None = None) -> None:
        _check_ids(members)
        self.members = tuple(members)
        self.degree = min(degree, len(members) - 1)
        self._place = {member: place for place, member in enumerate(self.members)}
        self._ring: _Places | None = None
        if degree < len(members) - 1:
            if degree < 2 or degree % 2:
                raise Misuse(f"a sparse graph of {len(members)} members has an even degree, not {degree}")
            order = sorted(self.members, key=_rank_by(Tag.RING, beacon))
            self._ring = np.array([self._place[member] for member in order])
            self._position = np.argsort(self._ring)

    @property
    def window(self) -> int:
        """Window length k/2; every window must hold an honest survivor."""
        return self.degree // 2

    @property
    def ring(self) -> tuple[str, ...]:
        """Ids in ring order; empty on the complete graph."""
        return () if self._ring is None else tuple(self.members[place] for place in self._ring)

    def neighbours_of(self, member: str) -> tuple[str, ...]:
        """Return N(u), the k members that share a mask with `member`, ascending."""
        place = self._place_of(member)
        if self._ring is None:
            return self.members[:place] + self.members[place + 1 :]
        return tuple(
            [self.members[other] for other in np.sort(self._places_around(self._ring, place)).tolist()]
        )

    def followers_of(self, member: str) -> tuple[str, ...]:
        """Return the neighbours that encapsulation leads to from `member`, ascending: of each two neighbours one follows the other.

        On the ring they are the next k/2; on the complete graph the next ⌊(n − 1)/2⌋ in a circle of ids, and, for even n, from the
        lower of two opposite ids the higher (wire: Cohorts).
        """
        place = self._place_of(member)
        if self._ring is not None:
            steps = np.arange(1, self.window + 1)
            around = self._ring[(self._position[place] + steps) % len(self._ring)]
            return tuple([self.members[other] for other in np.sort(around).tolist()])
        count = len(self.members)
        end = place + (count - 1) // 2 + (count % 2 == 0 and place < count // 2)
        return (*self.members[: max(0, end + 1 - count)], *self.members[place + 1 : end + 1])

    def strangers_of(self, member: str, others: Iterable[str]) -> list[str]:
        """Return those of `others` that are neither `member` nor its neighbours, in their order."""
        if self._ring is None:
            return []
        position, size, window = self._position_by_member, len(self.members), self.window
        own = position[member]
        return [other for other in others if window < (position[other] - own) % size < size - window]

    @cached_property
    def _position_by_member(self) -> dict[str, int]:
        return {member: position for position, member in enumerate(self.ring)}

    def window_excess(self, dropped: Collection[str], dropped_max: int) -> tuple[str, ...] | None:
        """Return the dropouts, ascending, in the first window of the closed ring that has more than D_max of them; None without one."""
        places = [self._place_of(member) for member in dropped]
        if self._ring is None:
            return None
        missing = np.zeros(len(self.members), bool)
        missing[self._position[places]] = True
        before = np.concatenate([[0], np.cumsum(np.concatenate([missing, missing[: self.window - 1]]))])
        excessive = np.flatnonzero(before[self.window :] - before[: -self.window] > dropped_max)
        if not excessive.size:
            return None
        positions = (excessive[0] + np.arange(self.window)) % len(self.members)
        return tuple(self.members[place] for place in np.sort(self._ring[positions[missing[positions]]]))

    def _places_around(self, ring: _Places, place: int) -> _Places:
        steps = np.concatenate([np.arange(-self.window, 0), np.arange(1, self.window + 1)])
        around: _Places = ring[(self._position[place] + steps) % len(ring)]
        return around

    def _place_of(self, member: str) -> int:
        if (place := self._place.get(member)) is None:
            raise Misuse(f"{member} is not in the graph")
        return place


def draw_committee(beacon: bytes, ids: Sequence[str], size: int) -> tuple[str, ...]:
    """Return the `size` ids with the least H("committee", beacon, id), ascending. The beacon was unknown when the ids were fixed."""
    _check_ids(ids)
    if not 1 <= size <= len(ids):
        raise Misuse(f"no {size} of {len(ids)} members can be drawn")
    return tuple(sorted(nsmallest(size, ids, key=_rank_by(Tag.COMMITTEE, beacon))))


def _rank_by(tag: Tag, beacon: bytes | None) -> Callable[[str], bytes]:
    if beacon is None or len(beacon) != BEACON_BYTES:
        raise Misuse(f"a beacon is {BEACON_BYTES} bytes")
    return lambda member: hash_fields(tag, beacon, member.encode())


def _check_ids(ids: Sequence[str]) -> None:
    if not ids or any(low >= high for low, high in pairwise(ids)):
        raise Misuse("expected ids in ascending order, each once, and at least one")
