"""The secrets to rebuild for a certified set, and the shares due (wire: Reveals)."""

from collections.abc import Collection
from dataclasses import dataclass

from veilsum.protocol.attempt import Attempt
from veilsum.protocol.messages import edge_commitment, self_commitment


@dataclass(frozen=True, slots=True)
class Due:
    """One secret of a dealer: b_u (index 0), or r_uw for a neighbour w that dropped out."""

    dealer: str
    index: int
    lost: str | None

    def commit_to(self, context: bytes, seed: bytes) -> bytes:
        """Compute the dealer's commitment if `seed` is this secret."""
        if self.lost is None:
            return self_commitment(context, self.dealer, seed)
        return edge_commitment(context, self.dealer, self.lost, seed)


def due_secrets(attempt: Attempt, dealer: str, staying: Collection[str]) -> tuple[Due, ...]:
    """Return a dealer's secrets to rebuild, in the order of their shares in a reveal.

    `staying` is S∖E, the certified survivors without the evicted; the dealer is one of them.
    """
    edges = [
        Due(dealer, index, other)
        for index, other in enumerate(attempt.neighbours_of(dealer), start=1)
        if other not in staying
    ]
    return (Due(dealer, 0, None), *edges)


def secrets_due(attempt: Attempt, staying: Collection[str]) -> dict[str, tuple[Due, ...]]:
    """Return the secrets to rebuild of each dealer in S∖E, in order."""
    members = set(staying)
    return {dealer: due_secrets(attempt, dealer, members) for dealer in staying}


def entries_due(joined: bytes, due: Collection[Due], size: int) -> bytes:
    """Select the entries of the secrets due from a dealer's joined shares for a decryptor, or commitments to them, of `size` bytes each."""
    return b"".join([joined[each.index * size : (each.index + 1) * size] for each in due])


def secret_commitment(attempt: Attempt, dealer: str, index: int, seed: bytes) -> bytes:
    """Compute the dealer's commitment at `index` if `seed` is that secret."""
    lost = attempt.neighbours_of(dealer)[index - 1] if index else None
    return Due(dealer, index, lost).commit_to(attempt.context, seed)
