"""Cards, and what opens an attempt."""

from dataclasses import replace

from protocol.causes import Cause
from protocol.helpers.coordinator import Enrolling
from protocol.helpers.messages import HelperCard
from protocol.helpers.simulator import HelperFederation
from tests.protocol.helpers.coordinator.answers import cards, cause


def test_cards_are_admitted_once_until_they_expire(federation: HelperFederation) -> None:
    enrolling, now = Enrolling.after(federation.roster, (), 1000), federation.now_s
    first, second = cards(federation)["helper-0"], cards(federation)["helper-0"]
    enrolling = enrolling.receive(first, now)
    assert enrolling.receive(first, now) == enrolling
    assert cause(enrolling.receive, second, now) == Cause.CARD_CONFLICT
    later = HelperCard.make(
        federation.keys["helper-0"],
        cohort=second.cohort,
        member="helper-0",
        box_key=second.box_key,
        expires_s=3_000_000,
    )
    assert enrolling.receive(later, 2_000_000).cards == {"helper-0": later}
    assert cause(Enrolling.after(federation.roster, (), 1000).receive, first, 2e6) == Cause.CARD_EXPIRED
    assert cause(replace(enrolling, counter=1).receive, second, now) == Cause.WRONG_COHORT


def test_an_opening_needs_three_cards(federation: HelperFederation) -> None:
    enrolling = Enrolling.after(federation.roster, (), 1000)
    terms, now = federation.terms(100), federation.now_s
    for place, card in enumerate(reversed(cards(federation).values())):
        if place < 3:
            assert cause(enrolling.attempt, terms, federation.coordinator, now) == Cause.COHORT_TOO_SMALL
        enrolling = enrolling.receive(card, now)
    manifest = enrolling.attempt(terms, federation.coordinator, now).manifest
    assert [card.member for card in manifest.cards] == list(federation.helpers)
    assert (manifest.clients, manifest.colluders, manifest.survivors_min, manifest.floor) == (8, 2, 5, 5)


def test_the_operator_may_ask_for_more(federation: HelperFederation) -> None:
    enrolling = Enrolling.after(federation.roster, (), 1000, 3)
    for card in cards(federation).values():
        enrolling = enrolling.receive(card, federation.now_s)
    terms = federation.terms(100)
    attempt = replace(enrolling, survivors_min=7).attempt(terms, federation.coordinator, federation.now_s)
    assert (attempt.manifest.colluders, attempt.manifest.survivors_min) == (3, 7)
