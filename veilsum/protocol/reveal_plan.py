"""The secrets to rebuild for a certified set, and the shares due (protocol §4.7)."""

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

from veilsum.protocol.attempt import Attempt
from veilsum.protocol.keys import Pair
from veilsum.protocol.messages import COMMITMENT_BYTES, edge_commitment, self_commitment
from veilsum.protocol.messages.base import SHARE_BYTES


@dataclass(frozen=True, slots=True)
class Due:
    """One secret of a dealer: b_u (index 0), or r_uw for a neighbour w that is lost.

    Attributes:
        dealer: u.
        index: its place among the dealer's secrets.
        lost: w, or None for b_u.
    """

    dealer: str
    index: int
    lost: str | None

    def commitment(self, context: bytes, seed: bytes) -> bytes:
        """What the dealer must have committed to if `seed` is this secret."""
        if self.lost is None:
            return self_commitment(context, self.dealer, seed)
        pair = Pair.of(self.dealer, self.lost)
        return edge_commitment(context, pair.low, pair.high, seed)


def due_secrets(attempt: Attempt, dealer: str, staying: Collection[str]) -> tuple[Due, ...]:
    """The dealer's secrets in the order in which a reveal carries their shares.

    Args:
        attempt: gives the neighbours.
        dealer: one of `staying`.
        staying: S∖E, the certified survivors without those evicted.
    """
    edges = [
        Due(dealer, index, other)
        for index, other in enumerate(attempt.neighbours(dealer), start=1)
        if other not in staying
    ]
    return (Due(dealer, 0, None), *edges)


@dataclass(frozen=True)
class Dues:
    """The secrets to rebuild of each dealer, computed once for a certified set.

    Attributes:
        attempt: gives the neighbours.
        staying: S∖E in order, the certified survivors without those evicted.
    """

    attempt: Attempt
    staying: tuple[str, ...]

    @cached_property
    def by_dealer(self) -> dict[str, tuple[Due, ...]]:
        """The secrets due, by dealer."""
        staying = set(self.staying)
        return {dealer: due_secrets(self.attempt, dealer, staying) for dealer in self.staying}


def shares_due(shares: bytes, due: Collection[Due]) -> bytes:
    """One dealer's run: its shares of the secrets due, out of all of its shares for one decryptor."""
    return b"".join([shares[d.index * SHARE_BYTES : (d.index + 1) * SHARE_BYTES] for d in due])


def commitments_due(commitments: bytes, due: Collection[Due]) -> bytes:
    """The same for a row of 16-byte commitments."""
    width = COMMITMENT_BYTES
    return b"".join([commitments[d.index * width : (d.index + 1) * width] for d in due])


def secret_commitment(attempt: Attempt, dealer: str, index: int, seed: bytes) -> bytes:
    """What the dealer must have committed to at `index` if `seed` is that secret."""
    lost = attempt.neighbours(dealer)[index - 1] if index else None
    return Due(dealer, index, lost).commitment(attempt.context, seed)
