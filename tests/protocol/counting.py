"""Counts in the simulator, and the sums that rest on them (member: Count vectors, member: Enough rows)."""

from typing import Any

import numpy as np

from tests.support.simulator import Federation, Vector, of, untampered
from veilsum.protocol.member import Closed, History
from veilsum.protocol.messages import Disclosure

CLASSES = 6
QUESTION: dict[str, Any] = {"classes": list("abcdef")}
HOLD = ((0, 1, 2, 3, 4), (0, 1, 2), (0, 1, 2), (0, 1, 2), (0, 1, 3), (0, 2, 3), (0, 2))
"""The classes that each of seven members holds: 7, 5, 6, 3, 1 and 0 members hold them."""


def counts(federation: Federation) -> dict[str, Vector]:
    """Make count vectors: 1 for each class that the member holds."""
    return {
        member: np.array([int(index in HOLD[place % 7]) for index in range(CLASSES)], np.int64)
        for place, member in enumerate(federation.ids)
    }


def indicated(**changes: Any) -> Federation:
    """Seven members (a = 1, g = 4, so m = 5 with a margin of 1) after their count, not yet disclosed."""
    question = {**QUESTION, **changes.pop("question", {})}
    federation = Federation(7, **{"margin": 1, "question": question, **changes})
    federation.run_round(counts(federation))
    return federation


def count_rows(federation: Federation, reached: dict[str, Vector] | None = None) -> None:
    """Disclose the count, then play and disclose the step `rows`; by default every member reaches every level."""
    federation.disclose()
    federation.run_round(reached, federation.terms("rows"))
    federation.disclose()


def counted(federation: Federation, member: str = "member-0") -> tuple[int, ...] | None:
    history: History = federation.phases[member].history  # type: ignore[attr-defined]  # after a round
    return history.counted[0].sums if history.counted else None


def closed(federation: Federation, member: str = "member-0") -> Closed:
    return of(Closed, federation.phases[member])


def disclosure(federation: Federation) -> Disclosure:
    """Return the disclosure as it is sent."""
    shown: list[Disclosure] = []
    federation.tamper = lambda _to, message: (
        shown.append(message) if isinstance(message, Disclosure) else None
    )
    federation.disclose()
    federation.tamper = untampered
    return Disclosure.from_bytes(shown[0].to_bytes())
