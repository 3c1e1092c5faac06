"""Which connections a process keeps open: a share for each network, and places that strangers can't take.

A connection waits while no request of it is admitted: during its handshake, its head, its authentication, and after an answer.
"""

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from service.http.callers import networks_of

STRANGERS_SHARE = 0.75
"""Share of all connections that addresses without a recent signer may have."""
WAITING_SHARE = 1 / 16
"""Share of all connections that may wait at one address, or IPv6 /64."""
SIGNER_REMEMBERED_S = 600.0
SIGNERS_REMEMBERED_MAX = 10_000
PROBE_CONNECTIONS = 16
"""Connections beyond all others, for probes."""
PROBE_PATHS = frozenset({b"/healthz", b"/readyz", b"/metrics"})
PLACE_KEY = "veilsum.place"
"""Name of a connection's place in the scope of its requests."""


@dataclass(eq=False)
class Place:
    """An open connection's place in a pool.

    Attributes:
        end: disconnects it.
        networks: its address, or its IPv6 networks, each with how many addresses' shares it has; empty for a trusted proxy.
        has_sent_head: whether a whole request head has come.
        signed: whether one of its requests was admitted by a signature or token.
        for_probes: whether it is beyond what its address may have, so that only probes are answered.
    """

    pool: "Pool"
    end: Callable[[], None]
    networks: tuple[tuple[str, int], ...]
    has_sent_head: bool = False
    signed: bool = False
    for_probes: bool = False

    def note_head(self) -> None:
        """Note that a request's head has come."""
        self.has_sent_head = True
        self.pool.headless.pop(self, None)

    def note_admission(self, *, signed: bool) -> None:
        """Note that a request was admitted; `signed` if by a signature or token."""
        self._stop_waiting()
        if signed:
            self.signed = True
            self.pool.remember_signer(self)

    def await_request(self) -> None:
        """Note that the connection's requests are answered."""
        if self in self.pool.open and not self.signed:
            for name, _ in self.networks:
                self.pool.waiting[name][self] = None

    def release(self) -> None:
        """Give the place back; again is harmless."""
        self.pool.open.discard(self)
        self.pool.headless.pop(self, None)
        self._stop_waiting()

    def _stop_waiting(self) -> None:
        waiting = self.pool.waiting
        for name, _ in self.networks:
            if self in waiting.get(name, ()):
                del waiting[name][self]
                if not waiting[name]:
                    del waiting[name]


@dataclass
class Pool:
    """The open connections of a process.

    Attributes:
        most: how many it keeps open, `PROBE_CONNECTIONS` aside.
        is_proxy: whether an address is a trusted proxy, whose connections carry many callers.
        headless: those that have sent no request head yet, the oldest first.
        waiting: by network, those without an admitted request, the oldest first.
    """

    most: int
    is_proxy: Callable[[str], bool] = lambda _host: False
    clock: Callable[[], float] = time.monotonic
    open: set[Place] = field(default_factory=set, init=False)
    headless: dict[Place, None] = field(default_factory=dict, init=False)
    waiting: dict[str, dict[Place, None]] = field(default_factory=lambda: defaultdict(dict), init=False)
    _signers: dict[str, float] = field(default_factory=dict, init=False)

    def take(self, host: str, end: Callable[[], None]) -> Place | None:
        """Give a new connection a place, for which the oldest that has sent no request head may have to go; None if there is no room."""
        place = Place(self, end, () if self.is_proxy(host) else networks_of(host))
        for name, times in place.networks:
            crowd = self.waiting.get(name, {})
            if len(crowd) >= max(1, times * WAITING_SHARE * self.most) and not _make_room(crowd):
                return None
        if len(self.open) >= self._limit_of(place) and not _make_room(self.headless):
            if len(self.open) >= self.most + PROBE_CONNECTIONS:
                return None
            place.for_probes = True
        self.open.add(place)
        self.headless[place] = None
        place.await_request()
        return place

    def remember_signer(self, place: Place) -> None:
        """Remember the address of a signed request."""
        for name, _ in place.networks[:1]:
            self._signers.pop(name, None)  # so that the newest is the last
            self._signers[name] = self.clock()
            if len(self._signers) > SIGNERS_REMEMBERED_MAX:
                del self._signers[next(iter(self._signers))]

    def _limit_of(self, place: Place) -> int:
        if not place.networks:
            return self.most
        seen_s = self._signers.get(place.networks[0][0])
        known = seen_s is not None and self.clock() - seen_s < SIGNER_REMEMBERED_S
        return self.most if known else max(1, int(STRANGERS_SHARE * self.most))


def _make_room(crowd: dict[Place, None]) -> bool:
    """Disconnect the oldest of these that has sent no head, and return whether there was one."""
    oldest = next((place for place in crowd if not place.has_sent_head), None)
    if oldest is not None:
        oldest.release()
        oldest.end()
    return oldest is not None
