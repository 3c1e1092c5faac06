"""What a process holds of the cohorts and rounds that storage has: what is open, and for a while what was asked for."""

from collections.abc import Iterator, Mapping
from typing import Protocol, TypeVar
from weakref import WeakValueDictionary

from service.rosters import Recent

RECENT = 20_000
"""Members of all cohorts, and of all rounds, that are held although nothing is to be done for them."""
_EACH = 100
"""What any of them takes beside its members, in members."""


class Thing(Protocol):
    """A cohort or a round."""

    @property
    def id(self) -> str:
        """Its name."""
        ...

    @property
    def at_rest(self) -> bool:
        """Whether nothing is to be done for it by itself; it may come to be open again."""
        ...

    @property
    def size(self) -> int:
        """Its members."""
        ...


T = TypeVar("T", bound=Thing)


class Known(Mapping[str, T]):
    """Things by id. Each is one object for as long as anybody holds it: whoever waits for it hears of it."""

    def __init__(self) -> None:
        self._all = WeakValueDictionary[str, T]()
        self._open = dict[str, T]()
        self._recent = Recent[str, T](RECENT)

    def __getitem__(self, name: str) -> T:
        found = self._all[name]
        self._recent.put(name, found, found.size + _EACH)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._all))

    def __len__(self) -> int:
        return len(self._all)

    def put(self, thing: T) -> None:
        """Hold one that was loaded, or for which there is something to do again."""
        self._all[thing.id] = thing
        if not thing.at_rest:
            self._open[thing.id] = thing
        self._recent.put(thing.id, thing, thing.size + _EACH)

    def open(self) -> list[T]:
        """Those for which there is something to do; the others are let go of."""
        for name in [name for name, thing in self._open.items() if thing.at_rest]:
            del self._open[name]
        return list(self._open.values())
