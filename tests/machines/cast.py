"""Federations that have enrolled already, made once: phases are values, so every run of a machine begins with the same ones."""

import copy
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cache
from typing import Any

from protocol.identity import SigningKey
from protocol.member import MemberPhase
from protocol.messages import Cards, Manifest
from protocol.simulator import Federation

COHORTS = 2


@dataclass(frozen=True)
class Shape:
    """How large a federation is, `a`, and whose places the admin nominates to decrypt."""

    members: int
    colluders: int
    nominated: tuple[int, ...] = ()


SHAPES = (
    Shape(5, 1),
    Shape(4, 1),
    Shape(6, 1),
    Shape(7, 2),
    Shape(6, 1, (0, 1, 2, 3)),
    Shape(6, 1, (2, 3, 4, 5)),
)


@dataclass(frozen=True)
class Cohort:
    """What everybody begins with: the manifest with its cards, and each member between rounds."""

    manifest: Manifest
    cards: Cards
    ready: dict[str, MemberPhase]


@dataclass(frozen=True)
class Cast:
    """The parties' keys and two cohorts of them."""

    federation: Federation
    cohorts: tuple[Cohort, ...]

    @property
    def keys(self) -> dict[str, SigningKey]:
        """By member."""
        return self.federation.keys

    @property
    def ids(self) -> tuple[str, ...]:
        """The members, in order."""
        return self.federation.ids


@cache
def cast(shape: Shape) -> Cast:
    """The federation of this shape after two enrolments, neither of which has seen a round."""
    federation = Federation(
        shape.members, seed=shape.members, colluders=shape.colluders, decryptors=shape.nominated
    )
    cohorts = []
    for counter in range(COHORTS):
        federation.enrol(counter)
        cohorts.append(Cohort(federation.manifest, federation.cards, dict(federation.phases)))
    return Cast(federation, tuple(cohorts))


class Mutable:
    """What a machine changes as it goes; everything else it holds is a value."""


def fork(value: Any) -> Any:
    """A copy whose changes do not show in the original."""
    if isinstance(value, defaultdict):
        return defaultdict(value.default_factory, {key: fork(each) for key, each in value.items()})
    if isinstance(value, Counter | set):
        return value.copy()
    if isinstance(value, dict):
        return {key: fork(each) for key, each in value.items()}
    if isinstance(value, list):
        return [fork(each) for each in value]
    if isinstance(value, Mutable):
        copied = copy.copy(value)
        vars(copied).update({name: fork(each) for name, each in vars(value).items()})
        return copied
    return value
