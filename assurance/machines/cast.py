"""Federations and their members' cards, made once: phases are immutable, so every run of a machine starts from the same ones."""

import copy
import hashlib
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from tests.support.forging import again
from tests.support.simulator import Federation, SeededRandom
from veilsum.protocol.coordinator import Enrolling
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.member import Enrolled
from veilsum.protocol.messages import NO_CONTEXT, Roster, Study, Survivor

CLASSES, DIM = 2, 2
MARGIN = 1


@dataclass(frozen=True)
class Shape:
    """A federation's size, `a`, and the places of the nominated decryptors."""

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
SMALL = {"dim": DIM, "classes": ["a", "b"]}
"""A question with vectors of nine elements."""
ANOTHER = {"extractor": hashlib.sha256(b"another").hexdigest(), "dim": 3}
STUDIES: dict[str, dict[str, Any]] = {
    "plain": {},
    "another question": {"loss": 90},
    "another extractor": ANOTHER,
    "withholding": {"withhold": {"margin": MARGIN}},
    "withholding, another extractor": {**ANOTHER, "withhold": {"margin": MARGIN}},
    "noisy": {
        "noise": {"epsilon": 1.0, "delta": 1e-6, "unit": "record", "recipe": "mean+sum"},
        "ring_bits": 48,
    },
}
"""Differences from the plain study's question."""


@dataclass(frozen=True)
class Place:
    """A cohort over fresh records: its study, period, and its roster's number."""

    study: str
    period: str = "p0"
    counter: int = 0
    roster: int = 1


PLACES = (
    Place("plain"),
    Place("plain", counter=1),
    Place("another question"),
    Place("plain", period="p1"),
    Place("withholding"),
    Place("withholding", counter=1),
    Place("noisy"),
    Place("another extractor"),
    Place("plain", counter=2, roster=2),
)
"""The cohorts that a hostile coordinator may form, at any time and in any order."""


@dataclass(frozen=True)
class Collected:
    """The cards of a cohort.

    Attributes:
        study: a key of `STUDIES`.
        enrolling: the coordinator's, with all cards.
        enrolled: each member, as it sent its card.
        second: each member with a second card, which only a colluder signs.
    """

    study: str
    signed: Study
    roster: Roster
    enrolling: Enrolling
    enrolled: dict[str, Enrolled]
    second: dict[str, Enrolled]


@dataclass(frozen=True)
class Cast:
    """The parties' keys, studies and rosters."""

    federation: Federation
    studies: dict[str, Study]
    rosters: dict[int, Roster]

    @property
    def keys(self) -> dict[str, SigningKey]:
        return self.federation.keys

    @property
    def ids(self) -> tuple[str, ...]:
        return self.federation.ids


@cache
def cast(shape: Shape) -> Cast:
    """Return the federation of this shape before any enrolment."""
    federation = Federation(
        shape.members,
        seed=shape.members,
        colluders=shape.colluders,
        decryptors=shape.nominated,
        question={**SMALL, "members_min": shape.colluders + 3},
    )
    least = shape.colluders + 3 + MARGIN
    studies = {
        name: federation.study_of(**changes, **({"members_min": least} if "withhold" in changes else {}))
        for name, changes in STUDIES.items()
        if "withhold" not in changes or least <= shape.members
    }
    rosters = {1: federation.roster, 2: again(federation.roster, federation.admin, number=2)}
    return Cast(federation, studies, rosters)


def collect(
    shape: Shape,
    place: Place,
    members: tuple[str, ...],
    repeats: bytes = NO_CONTEXT,
    repeated: tuple[Survivor, ...] = (),
) -> Collected:
    """Collect the cards of a cohort. Members have no history yet.

    Args:
        shape: of the federation.
        place: the study, period and roster.
        members: those that send a card.
        repeats: context of the attempt that the run repeats.
        repeated: the certified set of that attempt.
    """
    everybody = cast(shape)
    study, roster = everybody.studies[place.study], everybody.rosters[place.roster]
    seed = hashlib.sha256(repr((place, members, repeats.hex())).encode()).digest()
    random = SeededRandom(int.from_bytes(seed[:8], "little"))

    def enrol(member: str) -> Enrolled:
        phase, _ = Enrolled.begin_enrolment(
            member,
            roster,
            study,
            everybody.keys[member],
            counter=place.counter,
            period=place.period,
            serial=place.counter + 1,
            now_s=everybody.federation.now_s,
            repeats=repeats,
            random_bytes=random,
        )
        assert isinstance(phase, Enrolled)
        return phase

    enrolled, second = ({member: enrol(member) for member in members} for _ in range(2))
    enrolling = Enrolling(roster, study, place.counter, place.period, repeats, repeated)
    enrolling = enrolling.with_enrolments(phase.enrolment for phase in enrolled.values())
    return Collected(place.study, study, roster, enrolling, enrolled, second)


@lru_cache(maxsize=256)
def fresh(shape: Shape, place: Place, members: tuple[str, ...]) -> Collected:
    """Return the cards of a cohort over fresh records, which are made once."""
    return collect(shape, place, members)


class Mutable:
    """State that a machine changes; all else that it holds is immutable."""


def fork(value: Any) -> Any:
    """Return a copy that shares no mutable state with the original."""
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
