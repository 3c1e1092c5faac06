"""The effects that a flow can ask of its driver.

A flow is a generator: it yields effects, is sent their outcomes, and returns its result. It opens no socket
and never sleeps, so the blocking and the asynchronous driver share every line of the conversation, and a test
can stop it between any two effects.
"""

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar

from client_sdk.signing import Signer, Token
from veilsum.protocol.rest import MAX_MESSAGE_BYTES, OCTETS_TYPE

T = TypeVar("T")


@dataclass(frozen=True)
class Request:
    """One HTTP request; the outcome is a `Response`, or `Unreached` without one.

    Attributes:
        path: below the coordinator's address, with a leading slash.
        content_type: of the body, if there is one.
        wait_s: how long the coordinator may hold the answer back; the read timeout is longer.
        limit_bytes: the longest body accepted.
        limit_s: the longest time that the request may take, whatever its size.
        signer: authenticates the request when it is sent; None for public resources.
        digest: SHA-256 of the body; b"" if it is not known.
        shown_in: for a request that creates something at each call, where to look for it; "" if it may be repeated.
        on_too_large: called once, with the body's size and an explanation, if a proxy refuses it for that; the request is tried again.
    """

    method: str
    path: str
    body: bytes = b""
    content_type: str = OCTETS_TYPE
    params: Mapping[str, str] = field(default_factory=dict)
    wait_s: float = 0.0
    limit_bytes: int = MAX_MESSAGE_BYTES
    limit_s: float = math.inf
    signer: Signer | Token | None = None
    digest: bytes = b""
    shown_in: str = ""
    on_too_large: "Callable[[int, str], Flow[None]] | None" = None

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
        sent: whether the coordinator may have received the request; False if no connection was made.
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

    flows: "Sequence[Flow[T]]"
    lanes: int


Effect: TypeAlias = Request | Pause | Compute[Any] | Together[Any]
Flow: TypeAlias = Generator[Effect, Any, T]


def compute(work: Callable[[], T]) -> Flow[T]:
    """`yield Compute(work)` with the outcome's type."""
    outcome: T = yield Compute(work)
    return outcome


def together(flows: Sequence[Flow[T]], lanes: int) -> Flow[list[T]]:
    """`yield Together(flows, lanes)` with the outcome's type."""
    outcome: list[T] = yield Together(flows, lanes)
    return outcome
