"""How much one caller may ask of this process: so many requests a second, and so many at once (docs/decisions/coordinator.md).

Callers that prove who they are have limits of their own. All others share those of their address, and so do requests that prove nothing.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv6Address, IPv6Network, ip_address

from fastapi import Request

from service.access.callers import Caller, Role
from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import PeerFault

BYTES_AT_ONCE = 128 << 20
"""Most bytes of all bodies that one caller has under way, or one body alone: four lanes of the longest chunks."""
_FORGET_FROM = 1024
"""Number of buckets from which full ones are dropped, each time there are twice as many as after the last time."""


@dataclass(frozen=True)
class Allowance:
    """What one caller may do.

    Attributes:
        per_s: requests a second in the long run.
        burst: requests at once before that counts.
        at_once: requests under way at the same time.
        streams: how many of those may be streams of events, which are open for as long as a round runs.
    """

    per_s: float
    burst: int
    at_once: int
    streams: int = 0

    def at(self, per_s: float) -> "Allowance":
        """Scale everything to another rate."""
        counts = (self.burst, self.at_once, self.streams)
        return Allowance(per_s, *(math.ceil(count * per_s / self.per_s) for count in counts))


CALLER = Allowance(100.0, 2000, 64, streams=64)
ADDRESS = Allowance(200.0, 20_000, 1024, streams=100)


class TooMany(PeerFault):
    """too-many-requests, and after how many whole seconds to ask again."""

    def __init__(self, detail: str, after_s: int) -> None:
        super().__init__(Cause.TOO_MANY_REQUESTS, f"{detail}: wait {after_s} s")
        self.after_s = after_s


class Limits:
    """A token bucket, and a count of what is under way, for each caller that is not idle.

    Args:
        named: for each member, admin and operator.
        address: for each address, over all other requests from there.
        clock: monotonic seconds.
    """

    def __init__(
        self, named: Allowance, address: Allowance, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._named, self._address, self._clock = named, address, clock
        self._full_s: dict[str, float] = {}  # a bucket is the time at which it will be full again
        self._under_way, self._bytes, self._streams = Counter[str](), Counter[str](), Counter[str]()
        self._forget_at = _FORGET_FROM

    def charge(self, caller: Caller, request: Request) -> None:
        """Take one token; TooMany, which takes none, where none is left."""
        who, allowed = self._of(caller, request)
        now_s = self._clock()
        full_s = max(now_s, self._full_s.get(who, now_s)) + 1 / allowed.per_s
        late_s = full_s - now_s - allowed.burst / allowed.per_s
        if late_s > 1e-9:
            raise TooMany(f"{who} may send {allowed.per_s:g} requests a second", math.ceil(late_s))
        self._full_s[who] = full_s
        if len(self._full_s) >= self._forget_at:
            self._full_s = {each: at_s for each, at_s in self._full_s.items() if at_s > now_s}
            self._forget_at = max(_FORGET_FROM, 2 * len(self._full_s))

    def give_back(self, caller: Caller, request: Request) -> None:
        """Return the token of a request that turned out not to be the caller's own."""
        who, allowed = self._of(caller, request)
        if who in self._full_s:
            self._full_s[who] -= 1 / allowed.per_s

    @contextmanager
    def under_way(self, caller: Caller, request: Request, size: int = 0) -> Iterator[None]:
        """Count a request with a body of `size` bytes while it is answered; TooMany for too many requests or bytes."""
        who, allowed = self._of(caller, request)
        if self._bytes[who] and self._bytes[who] + size > BYTES_AT_ONCE:
            raise TooMany(f"{who} has {self._bytes[who]} bytes under way", 1)
        with _counted(self._under_way, who, allowed.at_once, "requests under way", 1):
            self._bytes[who] += size
            try:
                yield
            finally:
                self._bytes[who] -= size
                if not self._bytes[who]:
                    del self._bytes[who]

    @contextmanager
    def streaming(self, caller: Caller, request: Request) -> Iterator[None]:
        """Count a stream of events while it is open; TooMany for too many."""
        who, allowed = self._of(caller, request)
        with _counted(self._streams, who, allowed.streams, "streams open", 5):
            yield

    def _of(self, caller: Caller, request: Request) -> tuple[str, Allowance]:
        if caller.role is Role.ANYBODY:
            return f"address {_network(request)}", self._address
        return " ".join(filter(None, (str(caller), caller.federation))), self._named


@contextmanager
def _counted(counts: Counter[str], who: str, most: int, what: str, after_s: int) -> Iterator[None]:
    if counts[who] >= most:
        raise TooMany(f"{who} has {most} {what}", after_s)
    counts[who] += 1
    try:
        yield
    finally:
        counts[who] -= 1
        if not counts[who]:
            del counts[who]


def _network(request: Request) -> str:
    """Return an IPv4 address, or the 64 bits of an IPv6 address that a site is given."""
    host = request.client.host if request.client else "unknown"
    try:
        address = ip_address(host)
    except ValueError:  # a socket of the file system
        return host
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else address
    return str(mapped or IPv6Network((int(address), 64), strict=False))
