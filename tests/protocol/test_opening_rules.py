"""What of an opening can be checked without a clock and without a member's own history."""

from dataclasses import replace
from typing import Any

import pytest

from protocol.errors import PeerFault
from protocol.messages import Link, Opening
from protocol.opening_rules import check_exceptions, check_opening, check_places, check_terms
from protocol.simulator import Federation
from tests.protocol.forging import again


@pytest.fixture
def federation() -> Federation:
    return Federation(4)


def opening(federation: Federation, **changes: Any) -> Opening:
    return again(federation.opening(federation.terms(8)), federation.coordinator, **changes)


def link(federation: Federation, sequence: int, attempt: int, cohort: bytes | None = None) -> Link:
    here = federation.manifest.cohort if cohort is None else cohort
    return Link(here, sequence, attempt, "exact", 3, bytes([sequence, attempt]) * 16, bytes(32))


def test_an_honest_opening_passes(federation: Federation) -> None:
    check_opening(federation.roster, federation.manifest, opening(federation))


@pytest.mark.parametrize(
    ("before", "place"),
    [
        ([], (0, 0)),
        ([(0, 0)], (0, 1)),
        ([(0, 0)], (1, 0)),
        ([(0, 0), (0, 1), (1, 0)], (2, 0)),
    ],
)
def test_places_follow_one_another(
    federation: Federation, before: list[tuple[int, int]], place: tuple[int, int]
) -> None:
    links = tuple(link(federation, *each) for each in before)
    # another cohort's places are its own
    links = (link(federation, 7, 3, bytes(32)), *links)
    check_places(opening(federation, links=links, sequence=place[0], attempt=place[1]))


@pytest.mark.parametrize(
    ("before", "place"),
    [
        ([], (0, 1)),
        ([], (1, 0)),
        ([(0, 0)], (0, 0)),
        ([(0, 0)], (0, 2)),
        ([(0, 0)], (2, 0)),
        ([(0, 0)], (1, 1)),
        ([(1, 0)], (2, 0)),
        ([(0, 0), (2, 0)], (3, 0)),
        ([(1, 0), (0, 0)], (2, 0)),
    ],
)
def test_a_place_left_out_is_seen(
    federation: Federation, before: list[tuple[int, int]], place: tuple[int, int]
) -> None:
    links = tuple(link(federation, *each) for each in before)
    with pytest.raises(PeerFault, match=r"^chain-broken: .*\[coordinator\]$"):
        check_places(opening(federation, links=links, sequence=place[0], attempt=place[1]))


@pytest.mark.parametrize(
    "changes", [{"extractor": bytes(32)}, {"records_max": 3_999_999}], ids=lambda changes: next(iter(changes))
)
def test_terms_against_roster_and_caps(federation: Federation, changes: dict[str, Any]) -> None:
    terms = federation.terms(8, **{"records_max": 4_000_000} | changes)
    with pytest.raises(PeerFault, match=r"^terms-refused: .*\[coordinator\]$"):
        check_terms(federation.roster, federation.manifest, opening(federation, terms=terms))


def test_an_indicator_is_named_where_the_admin_demands_one() -> None:
    federation = Federation(4, withhold=True)
    roster, manifest = federation.roster, federation.manifest
    with pytest.raises(PeerFault, match=r"^terms-refused: .*\[coordinator\]$"):
        check_terms(roster, manifest, opening(federation))
    for terms in (federation.terms(8, indicator=b"\x01" * 32), federation.terms(8, statistic="indicator")):
        check_terms(roster, manifest, opening(federation, terms=terms))


def test_exceptions_are_the_admins_for_this_sequence(federation: Federation) -> None:
    roster, good = federation.roster, federation.excepting(("member-0",))
    check_exceptions(roster, opening(federation, exceptions=(good, good)))
    for changes in ({"federation": bytes(32)}, {"cohort": bytes(32)}, {"sequence": 1}):
        other = again(good, federation.admin, **changes)
        with pytest.raises(PeerFault, match=r"^exception-refused: .*\[coordinator\]$"):
            check_exceptions(roster, opening(federation, exceptions=(good, other)))
    with pytest.raises(PeerFault, match=r"^bad-signature: .*\[admin\]$"):
        check_exceptions(roster, opening(federation, exceptions=(again(good, federation.coordinator),)))


def test_cohort_and_signature_come_first(federation: Federation) -> None:
    roster, manifest = federation.roster, federation.manifest
    other = opening(federation, cohort=bytes(32), sequence=9)
    with pytest.raises(PeerFault, match=r"^wrong-cohort: .*\[coordinator\]$"):
        check_opening(roster, manifest, other)
    with pytest.raises(PeerFault, match=r"^bad-signature: .*\[coordinator\]$"):
        check_opening(roster, manifest, replace(opening(federation), sequence=9))
