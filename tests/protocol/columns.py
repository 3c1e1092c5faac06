"""Rounds written by their columns.

Members are letters. "abc" are three members under their first lineage, in its first version; `("a", 1)` is another
lineage of a, `("a", 0, 1)` the first one with other records.
"""

from collections.abc import Iterable

from protocol.ledger import Opened
from protocol.messages import Family, Survivor

Column = str | tuple[str, int] | tuple[str, int, int]


def context(number: int) -> bytes:
    return bytes([number]) * 32


def survivors(columns: Iterable[Column], round_: int = 0) -> tuple[Survivor, ...]:
    """One each, in order; the digest is another in every round, as an upload's is."""
    whole = sorted((*column, *(0, 0))[:3] for column in columns)
    return tuple(
        Survivor(str(member), bytes([1 + lineage]) * 8, bytes([lineage, records] * 4), bytes([round_]) * 32)
        for member, lineage, records in whole
    )


def sums(*rounds: Iterable[Column], family: str = Family.EXACT, floor: int = 3) -> list[Opened]:
    """Rounds of one family and one g, their contexts counted from 1."""
    return [Opened(context(n), family, floor, survivors(columns, n)) for n, columns in enumerate(rounds, 1)]
