"""The effects that a flow can ask of its driver, and where its time, randomness and signatures come from.

A flow is a generator: it yields effects, is sent their outcomes, and returns its result. It opens no socket
and never sleeps, so the blocking and the asynchronous driver share every line of the conversation, and a test
can stop it between any two effects.
"""

import os
import random
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar

from veilsum.protocol.identity import SigningKey
from veilsum.protocol.request_signature import Target, sign_request
from veilsum.protocol.rest import MAX_MESSAGE_BYTES

T = TypeVar("T")
NONCE_BYTES = 16


@dataclass(frozen=True)
class Surroundings:
    """Where a member's time and randomness come from; a test passes others, to replay any hour and any failure.

    Attributes:
        now_s: Unix time in seconds, for expiry.
        monotonic_s: seconds that only ever grow, for patience.
        random_bytes: secret randomness; never anything but the operating system's outside a test.
        jitter: a number in [0, 1), so that members don't all retry in the same moment.
    """

    now_s: Callable[[], float] = time.time
    monotonic_s: Callable[[], float] = time.monotonic
    random_bytes: Callable[[int], bytes] = os.urandom
    jitter: Callable[[], float] = random.random


THIS_MACHINE = Surroundings()


@dataclass(frozen=True, repr=False)
class Signer:
    """In whose name requests are sent (docs/access.md).

    Attributes:
        keyid: the member's id, or "admin".
        key: its long-term key.
        surroundings: clock, and randomness for nonces.
    """

    keyid: str
    key: SigningKey
    surroundings: Surroundings

    def headers(self, target: Target, request: "Request") -> dict[str, str]:
        """The headers that sign one request as it is sent now; anew for each time it is sent."""
        return sign_request(
            self.key,
            self.keyid,
            target,
            request.body,
            created_s=self.surroundings.now_s(),
            nonce=self.surroundings.random_bytes(NONCE_BYTES),
            digest=request.digest,
        )

    def __repr__(self) -> str:
        return f"<Signer {self.keyid}>"


@dataclass(frozen=True, repr=False)
class Token:
    """An operator's token, instead of a signature."""

    secret: str

    def headers(self, _target: Target, _request: "Request") -> dict[str, str]:
        """The header that shows it."""
        return {"authorization": f"Bearer {self.secret}"}

    def __repr__(self) -> str:
        return "<Token>"


@dataclass(frozen=True)
class Request:
    """One HTTP request; the outcome is a `Response`, or `Unreached` where none came.

    Attributes:
        path: below the coordinator's address, with a leading slash.
        wait_s: how long the coordinator may hold the answer back; the read timeout is longer.
        limit_bytes: the longest body that is read.
        signer: says who asks, as the request is sent; None for public resources.
        digest: SHA-256 of the body; b"" if it is not known.
        shown_in: of what creates something at each call, where to look for it; "" for what may be asked again.
    """

    method: str
    path: str
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, str] = field(default_factory=dict)
    wait_s: float = 0.0
    limit_bytes: int = MAX_MESSAGE_BYTES
    signer: Signer | Token | None = None
    digest: bytes = b""
    shown_in: str = ""

    def __repr__(self) -> str:
        return f"<Request {self.method} {self.path} {len(self.body)} B>"


@dataclass(frozen=True)
class Response:
    """An answer with its headers' names in lower case."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    def __repr__(self) -> str:
        return f"<Response {self.status} {len(self.body)} B>"


@dataclass(frozen=True)
class Unreached:
    """No answer came: the connection failed or timed out.

    Attributes:
        sent: whether the coordinator may have the request; False where no connection was made.
    """

    reason: str
    sent: bool = True


@dataclass(frozen=True)
class Pause:
    """Wait; the outcome is None."""

    seconds: float


@dataclass(frozen=True)
class Compute(Generic[T]):
    """Heavy arithmetic: a flow can be stopped before and after it. The outcome is what it returns."""

    work: Callable[[], T]

    def __repr__(self) -> str:
        return "<Compute>"  # the callable may hold secrets


@dataclass(frozen=True)
class Together(Generic[T]):
    """Run flows side by side, `lanes` of them at a time; the outcome is their results in order.

    The first exception of one of them stops the others and becomes the outcome.
    """

    flows: "Sequence[Callable[[], Flow[T]]]"
    lanes: int


Effect: TypeAlias = Request | Pause | Compute[Any] | Together[Any]
Flow: TypeAlias = Generator[Effect, Any, T]


def compute(work: Callable[[], T]) -> Flow[T]:
    """`yield Compute(work)` with the outcome's type."""
    outcome: T = yield Compute(work)
    return outcome


def together(flows: Sequence[Callable[[], Flow[T]]], lanes: int) -> Flow[list[T]]:
    """`yield Together(flows, lanes)` with the outcome's type."""
    outcome: list[T] = yield Together(flows, lanes)
    return outcome
