"""Federations that have enrolled already, made once: phases are values, so every run of a machine begins with the same ones."""

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
SMALL = {"dim": DIM, "classes": ["a", "b"]}
"""Vectors of nine elements."""
ANOTHER = {"extractor": hashlib.sha256(b"another").hexdigest(), "dim": 3}
STUDIES: dict[str, dict[str, Any]] = {
    "plain": {},
    "another question": {"loss": 90},
    "another extractor": ANOTHER,
    "withholding": {"withhold": {"margin": MARGIN}, "thin_classes": False},
    "withholding, another extractor": {**ANOTHER, "withhold": {"margin": MARGIN}, "thin_classes": False},
    "noisy": {
        "noise": {"epsilon": 1.0, "delta": 1e-6, "unit": "record", "recipe": "mean+sum"},
        "ring_bits": 48,
    },
}
"""What differs from the plain study's question."""


@dataclass(frozen=True)
class Place:
    """Which cohort over fresh records: its study, period, and the number of its roster."""

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
    """What everybody begins with: the manifest with its cards, and each member between rounds.

    Attributes:
        study: a key of `STUDIES`.
        ready: by member that took the manifest.
    """

    study: str
    signed: Study
    roster: Roster
    manifest: Manifest
    cards: Cards
    ready: dict[str, MemberPhase]


@dataclass(frozen=True)
class Cast:
    """The parties' keys, their studies and rosters."""

    federation: Federation
    studies: dict[str, Study]
    rosters: dict[int, Roster]

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
    """The federation of this shape, before anything was enrolled."""
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
    """Form a cohort of these members; those that refuse the manifest stay out.

    Args:
        shape: of the federation.
        place: which study, period and roster.
        members: who sends a card.
        repeats: context of the attempt that the run repeats.
        repeated: its certified set.
        histories: what members know; an empty one where a member stands not there.

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
        phase, (card,) = Enrolled.start(
            member,
            roster,
            study,
            everybody.keys[member],
            counter=place.counter,
            period=place.period,
            repeats=repeats,
            history=(histories or {}).get(member, History()),
            random_bytes=random,
        )
        enrolled[member] = phase
        enrolling = enrolling.with_cards([card])  # type: ignore[list-item]  # the one message of that phase
    manifest = enrolling.manifest()
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
    """A cohort over fresh records, made once."""
    return form(shape, place, members)


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
