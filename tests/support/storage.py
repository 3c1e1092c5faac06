"""Where a simulation keeps what grows with the cohort: in memory, unless it is told otherwise."""

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt

from veilsum.protocol.member import MemberPhase
from veilsum.protocol.shelf import MemoryShelf, Shelf
from veilsum.protocol.transcript import Transcript

Vector = npt.NDArray[np.int64]
Phases = MutableMapping[str, MemberPhase]
Chunks = MutableMapping[tuple[str, int], bytes]


class Storage(Protocol):
    """Makes the stores of a simulation."""

    def phases(self) -> Phases:
        """Members' phases; once a simulation."""
        ...

    def chunks(self) -> Chunks:
        """Packed chunks by member and index; afresh for each attempt, whose predecessor's are no longer read."""
        ...

    def shelf(self) -> Shelf:
        """The coordinator's announcements; afresh for each attempt, as the chunks."""
        ...


class Memory:
    """Keeps everything in dicts."""

    def phases(self) -> Phases:
        """A dict."""
        return {}

    def chunks(self) -> Chunks:
        """A dict."""
        return {}

    def shelf(self) -> Shelf:
        """A `MemoryShelf`."""
        return MemoryShelf()


class Generated(Mapping[str, Vector]):
    """Vectors that are made when they are asked for, and not kept.

    Args:
        members: whose.
        make: gives a member's vector, the same whenever it is asked.
    """

    def __init__(self, members: Sequence[str], make: Callable[[str], Vector]) -> None:
        self._members, self._make = members, make

    def __getitem__(self, member: str) -> Vector:
        return self._make(member)

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)


class Unwritten(Transcript):
    """A transcript that nobody reads: at thousands of members it would be as large as everything else in memory."""

    def received(self, *_: object) -> Self:
        """Nothing is noted."""
        return self

    def refused(self, *_: object) -> Self:
        """Nothing is noted."""
        return self

    def moved(self, *_: object) -> Self:
        """Nothing is noted."""
        return self

    def signed(self, *_: object) -> Self:
        """Nothing is signed."""
        return self
