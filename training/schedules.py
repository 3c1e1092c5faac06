"""How the members' learning rate changes from round to round."""

from __future__ import annotations

from dataclasses import dataclass
from math import cos, pi
from typing import Protocol

from training.ranges import not_negative, positive


class Schedule(Protocol):
    """A factor for each round."""

    def factor(self, round_: int, rounds: int) -> float:
        """What η is multiplied by in round t = 0..R−1."""


@dataclass(frozen=True)
class Constant:
    """η in every round."""

    def factor(self, round_: int, rounds: int) -> float:
        """One."""
        del round_, rounds
        return 1.0


@dataclass(frozen=True)
class Cosine:
    """½(1 + cos(πt/R)): from η down, never quite to zero (Dong et al. 2022, §5.1)."""

    def factor(self, round_: int, rounds: int) -> float:
        """The cosine's, in (0, 1]."""
        return (1 + cos(pi * round_ / rounds)) / 2


@dataclass(frozen=True)
class MultiStep:
    """Times γ at each milestone (Dong et al. 2022, appendix A.3).

    Attributes:
        milestones: the rounds, from 0, at which it happens.
        gamma: γ > 0.
    """

    milestones: tuple[int, ...]
    gamma: float = 0.1

    def __post_init__(self) -> None:
        positive(gamma=self.gamma)
        not_negative(milestones=min(self.milestones, default=0))

    def factor(self, round_: int, rounds: int) -> float:
        """γ to the number of milestones reached."""
        del rounds
        return self.gamma ** sum(round_ >= milestone for milestone in self.milestones)


SCHEDULES = {"constant": Constant, "cosine": Cosine, "multi-step": MultiStep}
