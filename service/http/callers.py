"""Callers and their limits: requests per second, processor time per second, and requests at once.

Authenticated callers have their own limits. All other requests share the limits of their address (docs/decisions.md).
"""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from ipaddress import IPv6Address, IPv6Network, ip_address

from fastapi import Request

from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.rest import Scope

CALLER_BODY_BYTES_MAX = 128 << 20
"""Limit on the bytes of all bodies that one caller sends at once: four lanes of the longest chunks. A single longer body is allowed."""
_FORGET_FROM = 1024
"""Full buckets are dropped from this number on, and again whenever the number has doubled."""


class Role(StrEnum):
    """The role of a caller at this coordinator."""

    ANONYMOUS = "anybody"
    MEMBER = "member"
    ADMIN = "admin"
    OPERATOR = "operator"


@dataclass(frozen=True)
class Caller:
    """The sender of a request.

    Attributes:
        name: a member's id, a token's id, or the subject of an issuer's token; empty for anonymous callers.
        federation: of a member or admin, or the only one that an operator's token works for; in hexadecimal.
        scopes: of an operator.
        superseded: a member by a key that the newest roster does not list; it may end what it began, and is shown nothing.
    """

    role: Role
    name: str = ""
    federation: str = ""
    scopes: frozenset[Scope] = frozenset()
    superseded: bool = False

    def __str__(self) -> str:
        return f"{self.role} {self.name}" if self.role in {Role.MEMBER, Role.OPERATOR} else str(self.role)

    def has_scope(self, scope: Scope) -> bool:
        return scope in self.scopes or Scope.ADMIN in self.scopes


ANONYMOUS_CALLER = Caller(Role.ANONYMOUS)


@dataclass(frozen=True)
class Allowance:
    """The limits of one caller.

    Attributes:
        streams: how many of those may be event streams, which stay open while a round runs.
        share: sustained processor seconds per second.
        busy_s: processor seconds above the sustained rate.
    """

    per_s: float
    burst: int
    at_once: int
    streams: int = 0
    share: float = 1.0
    busy_s: float = 60.0

    def at_rate(self, per_s: float) -> "Allowance":
        """Scale all limits to another rate."""
        scale = per_s / self.per_s
        counts = self.burst, self.at_once, self.streams
        burst, at_once, streams = (math.ceil(count * scale) for count in counts)
        return Allowance(per_s, burst, at_once, streams, self.share * scale, self.busy_s * scale)


CALLER_ALLOWANCE = Allowance(100.0, 2000, 64, streams=64, share=0.5, busy_s=10.0)
ADDRESS_ALLOWANCE = Allowance(200.0, 20_000, 1024, streams=100, share=0.25, busy_s=2.0)
ANYONE_ADDRESSES, ANYONE_SHARE, ANYONE_BUSY_S = 10, 0.75, 6.0
"""Limits of all callers without a name together: of how many addresses, and of the processor. The rest of the process is for the others."""
NETWORKS = ((64, 1), (56, 4), (48, 8))
"""Networks of IPv6 that have buckets, by prefix, with how many addresses' allowances each has: a site is given a /56 or a /48."""
PROCESSOR_DEBT_MAX_S = 10.0
"""Longest wait for processor time that a caller owes. The cost of a request is known only afterwards."""
REFUSALS_PER_S = 20.0
"""Refusals sent to one address per second. Further refusals wait, so that refusing a flood is cheap."""
REFUSAL_WAIT_MAX_S = 10.0
"""Longest time that a refusal waits."""


class TooMany(PeerFault):
    """too-many-requests, with the whole seconds until the next attempt."""

    def __init__(self, detail: str, after_s: int) -> None:
        super().__init__(Cause.TOO_MANY_REQUESTS, f"{detail}: wait {after_s} s")
        self.after_s = after_s


class Limits:
    """Token buckets of requests and processor time, and concurrent requests, of each active caller.

    `named` limits each member, admin and operator, and `address` each address, for all other requests from there; `ANYONE_ADDRESSES` of these
    limit all such requests together. The clock gives monotonic seconds.
    """

    def __init__(
        self, named: Allowance, address: Allowance, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._named, self._clock = named, clock
        together = address.at_rate(address.per_s * ANYONE_ADDRESSES)
        self._anyone = replace(together, share=ANYONE_SHARE, busy_s=ANYONE_BUSY_S)
        self._networks = {times: address.at_rate(address.per_s * times) for _, times in NETWORKS}
        # A bucket is the time at which it will be full again.
        self._full_s, self._busy_s, self._refused_s = (
            dict[str, float](),
            dict[str, float](),
            dict[str, float](),
        )
        self._under_way, self._bytes, self._streams = Counter[str](), Counter[str](), Counter[str]()
        self._forget_at = _FORGET_FROM

    def charge_request(self, caller: Caller, request: Request) -> None:
        """Take one token. Raises TooMany if none is left."""
        now_s, full_s = self._clock(), dict[str, float]()
        for who, allowed in self._buckets_of(caller, request):
            busy_s = self._busy_s.get(who, now_s) - now_s - allowed.busy_s / allowed.share
            if busy_s > 0:
                raise TooMany(f"{who} may use {allowed.share:.2g} of a processor", math.ceil(busy_s))
            full_s[who] = max(now_s, self._full_s.get(who, now_s)) + 1 / allowed.per_s
            late_s = full_s[who] - now_s - allowed.burst / allowed.per_s
            if late_s > 1e-9:
                raise TooMany(f"{who} may send {allowed.per_s:g} requests a second", math.ceil(late_s))
        self._full_s |= full_s
        if len(self._full_s) >= self._forget_at:
            for buckets in (self._full_s, self._busy_s, self._refused_s):
                for each in [each for each, at_s in buckets.items() if at_s <= now_s]:
                    del buckets[each]
            self._forget_at = max(_FORGET_FROM, 2 * len(self._full_s))

    def account_for(self, caller: Caller, request: Request) -> Callable[[float], None]:
        """Return a function that charges processor seconds to a caller's buckets, which may go into debt."""
        buckets = self._buckets_of(caller, request)

        def spend(seconds: float) -> None:
            now_s = self._clock()
            for who, allowed in buckets:
                full_s = max(now_s, self._busy_s.get(who, now_s)) + seconds / allowed.share
                self._busy_s[who] = min(full_s, now_s + allowed.busy_s / allowed.share + PROCESSOR_DEBT_MAX_S)

        return spend

    async def delay_refusal(self, request: Request) -> None:
        """Delay a refusal until its turn among the refusals to its address, or its site."""
        who, now_s = networks_of(_host_of(request))[-1][0], self._clock()
        turn_s = max(now_s, self._refused_s.get(who, now_s)) + 1 / REFUSALS_PER_S
        self._refused_s[who] = min(turn_s, now_s + REFUSAL_WAIT_MAX_S)
        await asyncio.sleep(self._refused_s[who] - now_s)

    @contextmanager
    def under_way(self, caller: Caller, request: Request, size: int = 0) -> Iterator[None]:
        """Count a request with a body of `size` bytes while it is answered. Raises TooMany for too many requests or bytes."""
        buckets = self._buckets_of(caller, request)
        who, _ = buckets[0]
        if self._bytes[who] and self._bytes[who] + size > CALLER_BODY_BYTES_MAX:
            raise TooMany(f"{who} has {self._bytes[who]} bytes in progress", 1)
        with ExitStack() as open_:
            for each, allowed in buckets:
                open_.enter_context(
                    _count_open(self._under_way, each, allowed.at_once, "requests in progress", 1)
                )
            self._bytes[who] += size
            try:
                yield
            finally:
                self._bytes[who] -= size
                if not self._bytes[who]:
                    del self._bytes[who]

    @contextmanager
    def count_stream(self, caller: Caller, request: Request) -> Iterator[None]:
        """Count an event stream while it is open. Raises TooMany for too many."""
        with ExitStack() as open_:
            for who, allowed in self._buckets_of(caller, request):
                open_.enter_context(_count_open(self._streams, who, allowed.streams, "streams open", 5))
            yield

    def _buckets_of(self, caller: Caller, request: Request) -> list[tuple[str, Allowance]]:
        """Return the buckets that a request is taken from, its caller's own first."""
        if caller.role is Role.ANONYMOUS:
            networks = [
                (f"address {name}", self._networks[times]) for name, times in networks_of(_host_of(request))
            ]
            return [*networks, ("everyone without a signature or token", self._anyone)]
        return [(" ".join(filter(None, (str(caller), caller.federation))), self._named)]


@contextmanager
def _count_open(counts: Counter[str], who: str, most: int, what: str, after_s: int) -> Iterator[None]:
    if counts[who] >= most:
        raise TooMany(f"{who} has {most} {what}", after_s)
    counts[who] += 1
    try:
        yield
    finally:
        counts[who] -= 1
        if not counts[who]:
            del counts[who]


def networks_of(host: str) -> tuple[tuple[str, int], ...]:
    """Return an IPv4 address, or the networks of an IPv6 address, each with how many addresses' allowances it has."""
    try:
        address = ip_address(host)
    except ValueError:  # a socket of the file system
        return ((host, 1),)
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else address
    if mapped is not None:
        return ((str(mapped), 1),)
    return tuple((str(IPv6Network((int(address), bits), strict=False)), times) for bits, times in NETWORKS)


def _host_of(request: Request) -> str:
    return request.client.host if request.client else "unknown"
