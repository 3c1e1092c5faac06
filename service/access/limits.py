"""How much one caller may ask of this process: so many requests a second, and so many at once (docs/decisions/0020).

Whoever proves who it is has limits of its own; everybody else shares those of its address, and so do requests that prove nothing.
"""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import IPv6Address, IPv6Network, ip_address

from fastapi import Request

from protocol.causes import Cause
from protocol.errors import PeerFault
from service.access.callers import Caller, Kind

BYTES_AT_ONCE = 128 << 20
"""Of all bodies that one caller has under way, unless it is one alone: four lanes of the longest chunks."""
_FORGET_FROM = 1024
"""Full buckets are the same as none: they are dropped when there are twice as many as after the last time, from here on."""


@dataclass(frozen=True)
class Allowance:
    """What one caller may do.

    Attributes:
        per_s: requests a second in the long run.
        burst: how many may come at once before that counts.
        at_once: how many may be under way at the same time.
        streams: how many of those may be streams of events, which are open for as long as a round runs.
    """

    per_s: float
    burst: int
    at_once: int
    streams: int = 100


class TooMany(PeerFault):
    """too-many-requests, and when to ask again.

    Attributes:
        after_s: whole seconds.
    """

    def __init__(self, detail: str, after_s: int) -> None:
        super().__init__(Cause.TOO_MANY_REQUESTS, f"{detail}: wait {after_s} s")
        self.after_s = after_s


class Limits:
    """A token bucket, and a count of what is under way, for each caller that is not idle.

    Args:
        named: for each member, admin and operator.
        address: for each address, over everybody there who is none of those.
        clock: seconds that only ever grow.
    """

    def __init__(
        self, named: Allowance, address: Allowance, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._named, self._address, self._clock = named, address, clock
        self._full_s: dict[str, float] = {}  # a bucket is the time at which it will be full again
        self._under_way, self._bytes, self._streams = Counter[str](), Counter[str](), Counter[str]()
        self._forget_at = _FORGET_FROM

    def charge(self, caller: Caller, request: Request) -> None:
        """Take one token; TooMany, which takes none, where there is none left."""
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
        """The token that was taken for a request which turned out not to be the caller's own."""
        who, allowed = self._of(caller, request)
        if who in self._full_s:
            self._full_s[who] -= 1 / allowed.per_s

    @contextmanager
    def under_way(self, caller: Caller, request: Request, size: int = 0) -> Iterator[None]:
        """While a request, with a body of `size` bytes, is answered; TooMany where too many are, or too much of bodies."""
        who, allowed = self._of(caller, request)
        if self._under_way[who] >= allowed.at_once:
            raise TooMany(f"{who} has {allowed.at_once} requests under way", 1)
        if self._bytes[who] and self._bytes[who] + size > BYTES_AT_ONCE:
            raise TooMany(f"{who} has {self._bytes[who]} bytes under way", 1)
        self._under_way[who] += 1
        self._bytes[who] += size
        try:
            yield
        finally:
            self._under_way[who] -= 1
            self._bytes[who] -= size
            if not self._under_way[who]:
                del self._under_way[who], self._bytes[who]

    @contextmanager
    def streaming(self, caller: Caller, request: Request) -> Iterator[None]:
        """While a stream of events is open; TooMany where too many are."""
        who, allowed = self._of(caller, request)
        if self._streams[who] >= allowed.streams:
            raise TooMany(f"{who} has {allowed.streams} streams open", 5)
        self._streams[who] += 1
        try:
            yield
        finally:
            self._streams[who] -= 1
            if not self._streams[who]:
                del self._streams[who]

    def _of(self, caller: Caller, request: Request) -> tuple[str, Allowance]:
        if caller.kind is Kind.ANYBODY:
            return f"address {_network(request)}", self._address
        return " ".join(filter(None, (str(caller), caller.federation))), self._named


def _network(request: Request) -> str:
    """An IPv4 address, or the 64 bits of an IPv6 one that a site is given."""
    host = request.client.host if request.client else "unknown"
    try:
        address = ip_address(host)
    except ValueError:  # a socket of the file system
        return host
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else address
    return str(mapped or IPv6Network((int(address), 64), strict=False))
