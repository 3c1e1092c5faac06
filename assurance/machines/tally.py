"""Counts of machines and rounds in one process."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Tally:
    """Counts.

    Attributes:
        steps: rules that were carried out.
        receives: messages that an honest party accepted or refused.
        reached: how often each state of interest was reached.
    """

    steps: int = 0
    receives: int = 0
    reached: Counter[str] = field(default_factory=Counter)

    def clear(self) -> None:
        """Reset the counts."""
        self.steps, self.receives, self.reached = 0, 0, Counter()


TALLY = Tally()
"""This process's counts."""
