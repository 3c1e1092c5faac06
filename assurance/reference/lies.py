"""False dealings, made alike in both implementations."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any
from unittest.mock import patch

import numpy as np

from assurance.reference import reference, wire
from veilsum.protocol import sealing
from veilsum.protocol.attempt import Attempt


@dataclass(frozen=True)
class Lie:
    """A dealer's fault in its next upload.

    Attributes:
        kind: "dealing" (shares of another secret), "range" (shares of an invalid secret), "row" (a decryptor's row doesn't match its
            shares) or "edge" (a commitment to another seed than the neighbour's).
        place: index of the secret, decryptor or neighbour, modulo their number.
    """

    kind: str
    place: int


@contextmanager
def lying(lie: Lie | None, attempt: Attempt, twin: reference.Member) -> Iterator[None]:
    """Make both implementations deal alike, and falsely, for one upload."""
    with ExitStack() as stack:
        if lie:
            forgery = Forgery(lie, twin.name, attempt)
            module, name, place, twins_name = FORGED[lie.kind]
            for owner, true in ((module, name), (place or twin, twins_name)):
                false = partial(getattr(forgery, true), getattr(owner, true))
                stack.enter_context(patch.object(owner, true, false))
        yield


FORGED: dict[str, tuple[Any, str, Any, str]] = {
    "dealing": (sealing, "share_secrets", wire, "split"),
    "range": (sealing, "share_secrets", wire, "split"),
    "row": (sealing, "commit_row", None, "commit_share"),
    "edge": (sealing, "edge_commitment", None, "commit"),
}
"""By kind: the function to replace in `protocol`, and the one in the reference's module or member."""


class Forgery:
    """Functions that call the true one, then falsify its result."""

    def __init__(self, lie: Lie, member: str, attempt: Attempt) -> None:
        self.kind, self.secrets = lie.kind, count()
        self.place = lie.place % (1 + attempt.manifest.degree)
        self.decryptor = attempt.decryptors[lie.place % len(attempt.decryptors)]
        self.edge = 1 + lie.place % attempt.manifest.degree
        self.peer = attempt.neighbours_of(member)[self.edge - 1]

    def share_secrets(self, share: Any, secrets: Any, *rest: Any) -> Any:
        if self.kind == "dealing":
            return share([flipped(each) if i == self.place else each for i, each in enumerate(secrets)], *rest)
        dealt = share(secrets, *rest).copy()
        for holder in dealt:
            holder[self.place] = np.frombuffer(beyond(holder[self.place].tobytes()), np.uint8)
        return dealt

    def split(self, share: Any, secret: bytes, *rest: Any) -> Any:
        if next(self.secrets) != self.place:
            return share(secret, *rest)
        return share(flipped(secret), *rest) if self.kind == "dealing" else [*map(beyond, share(secret, *rest))]

    def commit_row(self, commit: Any, context: bytes, dealer: str, holder: str, shares: bytes) -> Any:
        true = commit(context, dealer, holder, shares)
        return flipped(true) if holder == self.decryptor else true

    def commit_share(self, commit: Any, dealer: str, holder: str, index: int, share: bytes) -> Any:
        true = commit(dealer, holder, index, share)
        return flipped(true) if holder == self.decryptor and index == 0 else true

    def edge_commitment(self, commit: Any, context: bytes, one: str, other: str, seed: bytes) -> Any:
        true = commit(context, one, other, seed)
        return flipped(true) if self.peer in {one, other} else true

    def commit(self, commit: Any, member: str, index: int, secret: bytes) -> Any:
        true = commit(member, index, secret)
        return flipped(true) if index == self.edge else true


def flipped(data: bytes) -> bytes:
    """Return another secret or commitment."""
    return bytes((data[0] ^ 1, *data[1:]))


def beyond(share: bytes) -> bytes:
    """Add 2^20 to the top limb of a share, and so of its secret, which then exceeds 32 bytes."""
    top = (int.from_bytes(share[32:], "little") + 2**20) % wire.P
    return share[:32] + top.to_bytes(4, "little")
