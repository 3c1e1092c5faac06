"""What machines and rounds count, over all that one process runs."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Tally:
    """Counts.

    Attributes:
        steps: rules that were carried out.
        receives: messages that an honest party took or refused.
        reached: how often something worth reaching was reached.
    """

    steps: int = 0
    receives: int = 0
    reached: Counter[str] = field(default_factory=Counter)

    def clear(self) -> None:
        """Begin anew."""
        self.steps, self.receives, self.reached = 0, 0, Counter()


TALLY = Tally()
"""This process's."""
