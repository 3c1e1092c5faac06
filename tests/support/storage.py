"""Where a simulation stores what grows with the cohort: by default in memory."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt

from veilsum.protocol.member import MemberPhase
from veilsum.protocol.messages import ShownCiphertext
from veilsum.protocol.shelf import MemoryShelf, Shelf
from veilsum.protocol.transcript import Transcript

Vector = npt.NDArray[np.int64]
Phases = MutableMapping[str, MemberPhase]
Chunks = MutableMapping[tuple[str, int], bytes]


class Storage(Protocol):
    """Factory of a simulation's stores."""

    def phases(self) -> Phases:
        """Make the store of members' phases, once for each simulation."""
        ...

    def chunks(self) -> Chunks:
        """Make a store of packed chunks by member and index, for each attempt. Chunks of the attempt before are no longer read."""
        ...

    def shelf(self) -> Shelf:
        """Make a store of the coordinator's announcements, for each attempt."""
        ...

    def mailbox(self) -> "Mailbox":
        """Make a store of the ciphertexts of one manifest."""
        ...


class Mailbox(Protocol):
    """Ciphertexts by recipient, until the recipient is shown them."""

    def put(self, recipient: str, shown: ShownCiphertext) -> None:
        """Keep a ciphertext. Senders put theirs in ascending order."""
        ...

    def take(self, recipient: str) -> tuple[ShownCiphertext, ...]:
        """Return what was put for a recipient, in ascending order of senders, and forget it."""
        ...


class MemoryMailbox:
    """Keep ciphertexts in a dict."""

    def __init__(self) -> None:
        self._shown = defaultdict[str, list[ShownCiphertext]](list)

    def put(self, recipient: str, shown: ShownCiphertext) -> None:
        self._shown[recipient].append(shown)

    def take(self, recipient: str) -> tuple[ShownCiphertext, ...]:
        return tuple(self._shown.pop(recipient, ()))


class Memory:
    """Store everything in dicts."""

    def phases(self) -> Phases:
        return {}

    def chunks(self) -> Chunks:
        return {}

    def shelf(self) -> Shelf:
        return MemoryShelf()

    def mailbox(self) -> Mailbox:
        return MemoryMailbox()


class Generated(Mapping[str, Vector]):
    """Vectors that are made on demand and not stored.

    Args:
        members: their ids.
        make: returns a member's vector, the same at each call.
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
    """A transcript that records nothing, because one of thousands of members would take as much memory as all else."""

    def note_accepted(self, *_: object) -> Self:
        return self

    def note_accusation(self, *_: object) -> Self:
        return self

    def note_phase_change(self, *_: object) -> Self:
        return self

    def sign(self, *_: object) -> Self:
        return self
