"""Refusals by their causes and parties. What they say is for people, and no test reads it."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import EllipsisType

import httpx
import pytest

from client_sdk.errors import NoResult
from veilsum.protocol.errors import PeerFault


@contextmanager
def refused(cause: str, *parties: str | EllipsisType) -> Iterator[pytest.ExceptionInfo[PeerFault]]:
    """Expect a PeerFault of this cause that names exactly these parties in the block; `...` stands for any."""
    with pytest.raises(PeerFault) as caught:
        yield caught
    assert caught.value.cause == cause, caught.value
    assert parties in {(...,), caught.value.parties}, caught.value


@contextmanager
def ended(state: str, cause: str = "") -> Iterator[None]:
    """Expect that a round ends in this state for a member, and for this cause if one is given, in the block."""
    with pytest.raises(NoResult) as caught:
        yield
    assert caught.value.state == state, caught.value
    assert cause in {"", caught.value.cause}, caught.value


def refusal(answer: httpx.Response) -> tuple[int, str]:
    """Return the status and cause of a problem response."""
    return answer.status_code, answer.json()["cause"]
