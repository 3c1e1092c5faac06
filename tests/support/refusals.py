"""Refusals by their causes and parties. What they say is for people, and no test reads it."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import EllipsisType

import pytest

from veilsum.protocol.errors import PeerFault


@contextmanager
def refused(cause: str, *parties: str | EllipsisType) -> Iterator[pytest.ExceptionInfo[PeerFault]]:
    """Expect a PeerFault of this cause that names exactly these parties in the block; `...` stands for any."""
    with pytest.raises(PeerFault) as caught:
        yield caught
    assert caught.value.cause == cause, caught.value
    assert parties in {(...,), caught.value.parties}, caught.value
