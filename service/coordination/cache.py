"""Caches: what was used last, and one object for each cohort and round in use."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, Protocol, TypeVar
from weakref import WeakValueDictionary

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
RECENT_MEMBERS_MAX = 20_000
"""Members of all cohorts, and of all rounds, that are cached although there is nothing to do for them."""
_OBJECT_WEIGHT = 100
"""What a cohort or round weighs beside its members, in members."""


class Recent(Generic[K, V]):
    """The values that were used last, up to a total weight; a single one may be heavier.

    Args:
        most: total weight.
    """

    def __init__(self, most: int) -> None:
        self._most, self._weight = most, 0
        self._kept: OrderedDict[K, tuple[V, int]] = OrderedDict()

    def get_value(self, key: K) -> V | None:
        if key not in self._kept:
            return None
        self._kept.move_to_end(key)
        return self._kept[key][0]

    def put_value(self, key: K, value: V, weight: int) -> None:
        """Cache a value, and drop the least recently used ones."""
        self._weight += weight - self._kept.pop(key, (None, 0))[1]
        self._kept[key] = value, weight
        while self._weight > self._most and len(self._kept) > 1:
            _, (_, lighter) = self._kept.popitem(last=False)
            self._weight -= lighter

    def remove_value(self, key: K) -> None:
        self._weight -= self._kept.pop(key, (None, 0))[1]


class Cached(Protocol):
    """A cohort or a round.

    Attributes:
        federation: its own.
        at_rest: whether there is nothing to do for it; that may change.
        size: how many members it has.
    """

    federation: str

    @property
    def id(self) -> str: ...
    @property
    def at_rest(self) -> bool: ...
    @property
    def size(self) -> int: ...


T = TypeVar("T", bound=Cached)


class ObjectCache(Generic[T]):
    """Cohorts or rounds by id. Each is one object while it is referenced, so that all waiters are notified of its changes."""

    def __init__(self) -> None:
        self._all = WeakValueDictionary[str, T]()
        self._open = dict[str, T]()
        self._recent = Recent[str, T](RECENT_MEMBERS_MAX)

    def __getitem__(self, name: str) -> T:
        found = self._all[name]
        self._recent.put_value(name, found, found.size + _OBJECT_WEIGHT)
        return found

    def __contains__(self, name: str) -> bool:
        return name in self._all

    def get(self, name: str) -> T | None:
        try:
            return self[name]
        except KeyError:
            return None

    def snapshot(self) -> dict[str, T]:
        """Return all by id. Using one makes the cache drop another, so nothing iterates over the cache itself."""
        return dict(self._all.items())  # skips what the collector takes meanwhile

    def put_object(self, found: T) -> None:
        """Cache one that was loaded, or for which there is something to do again."""
        self._all[found.id] = found
        if not found.at_rest:
            self._open[found.id] = found
        self._recent.put_value(found.id, found, found.size + _OBJECT_WEIGHT)

    def remove_object(self, name: str) -> None:
        """Forget one that exists no more."""
        self._all.pop(name, None)
        self._open.pop(name, None)
        self._recent.remove_value(name)

    def of_federation(self, federation: str) -> list[T]:
        return [each for each in self._all.values() if each.federation == federation]

    def open_objects(self) -> list[T]:
        """Return those for which there is something to do, and stop holding the others."""
        self._open = {name: each for name, each in self._open.items() if not each.at_rest}
        return list(self._open.values())
