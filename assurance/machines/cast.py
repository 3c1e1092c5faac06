"""Enrolled federations, made once: phases are immutable, so every run of a machine starts from the same ones."""

import copy
import hashlib
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from tests.support.forging import again
from tests.support.simulator import Federation, SeededRandom
from veilsum.protocol.coordinator import Enrolling
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.member import Enrolled, History, MemberPhase
from veilsum.protocol.messages import NO_CONTEXT, Cards, Manifest, Roster, Study, Survivor

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
class Cohort:
    """A formed cohort: the manifest with its cards, and each member between rounds.

    Attributes:
        study: a key of `STUDIES`.
        ready: phases by member, of members that accepted the manifest.
    """

    study: str
    signed: Study
    roster: Roster
    manifest: Manifest
    cards: Cards
    ready: dict[str, MemberPhase]


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


def form(
    shape: Shape,
    place: Place,
    members: tuple[str, ...],
    repeats: bytes = NO_CONTEXT,
    repeated: tuple[Survivor, ...] = (),
    histories: dict[str, History] | None = None,
) -> Cohort:
    """Form a cohort of these members. Members that refuse the manifest stay out.

    Args:
        shape: of the federation.
        place: the study, period and roster.
        members: those that send a card.
        repeats: context of the attempt that the run repeats.
        repeated: the certified set of that attempt.
        histories: members' histories; empty for members without an entry.

    Raises:
        PeerFault: cohort-too-small.
    """
    everybody = cast(shape)
    study, roster = everybody.studies[place.study], everybody.rosters[place.roster]
    seed = hashlib.sha256(repr((place, members, repeats.hex())).encode()).digest()
    random = SeededRandom(int.from_bytes(seed[:8], "little"))
    enrolling = Enrolling(roster, study, place.counter, place.period, repeats, repeated)
    enrolled: dict[str, MemberPhase] = {}
    for member in members:
        phase, (card,) = Enrolled.begin_enrolment(
            member,
            roster,
            study,
            everybody.keys[member],
            counter=place.counter,
            period=place.period,
            serial=place.counter + 1,
            repeats=repeats,
            history=(histories or {}).get(member, History()),
            random_bytes=random,
        )
        enrolled[member] = phase
        enrolling = enrolling.with_cards([card])  # type: ignore[list-item]  # the one message of that phase
    manifest = enrolling.make_manifest()
    ready = {}
    for member, phase in enrolled.items():
        try:
            ready[member], _ = phase.receive(
                enrolling.cards_for(manifest, member), everybody.keys[member], everybody.federation.now_s
            )
        except PeerFault:
            continue
    return Cohort(place.study, study, roster, manifest, enrolling.cards_for(manifest, members[0]), ready)


@lru_cache(maxsize=256)
def fresh(shape: Shape, place: Place, members: tuple[str, ...]) -> Cohort:
    """Return a cohort over fresh records, which is made once."""
    return form(shape, place, members)


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
