from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.support.forging import again, mlkem_key_above_q
from tests.support.pairing import enrolments_of
from tests.support.refusals import refused
from tests.support.simulator import After, Federation
from veilsum.protocol.coordinator import Enrolling
from veilsum.protocol.coordinator import enrolling as enrolling_module
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.keys import hash_mlkem_key
from veilsum.protocol.member import Enrolled
from veilsum.protocol.messages import Enrolment

FEDERATION = Federation(5)
FULL = FEDERATION.collect_cards("period-1")
ENROLMENTS = enrolments_of(FULL)
LOW_ORDER = bytes(32)


@pytest.fixture
def enrolling() -> Enrolling:
    """Cohort 1, with the card of member-0."""
    return Enrolling(FEDERATION.roster, FEDERATION.study, 1, "period-1").receive(
        ENROLMENTS[0], FEDERATION.now_s
    )


def signed(
    index: int, key: SigningKey | None = None, mlkem_key: bytes | None = None, **changes: Any
) -> Enrolment:
    """Change fields of a card, or the ML-KEM key beside it."""
    card = ENROLMENTS[index].card
    return Enrolment(
        again(card, key or FEDERATION.keys[card.member], **changes),
        ENROLMENTS[index].mlkem_key if mlkem_key is None else mlkem_key,
    )


def full(enrolling: Enrolling) -> Enrolling:
    for enrolment in ENROLMENTS[::-1]:
        enrolling = enrolling.receive(enrolment, FEDERATION.now_s)
    return enrolling


def test_a_cohort_is_complete_when_everyone_has_sent_a_card(enrolling: Enrolling) -> None:
    assert not enrolling.is_complete
    assert full(enrolling).is_complete
    assert full(enrolling) == FULL


def test_a_card_is_checked_in_this_order(enrolling: Enrolling) -> None:
    """What is wrong first is the cause, whatever else is wrong (ENROL-1 to ENROL-8)."""
    first = ENROLMENTS[0].card
    above_q = mlkem_key_above_q(ENROLMENTS[1].mlkem_key)
    wrongs: list[tuple[str, dict[str, Any]]] = [
        ("wrong-cohort", {"cohort": bytes(32)}),
        ("bad-signature", {"key": FEDERATION.admin}),
        ("card-expired", {"expires_s": 1}),
        ("mlkem-key-invalid", {"mlkem_key": ENROLMENTS[2].mlkem_key}),
        ("mlkem-key-invalid", {"mlkem_key": above_q, "mlkem_key_hash": hash_mlkem_key(above_q)}),
        ("low-order-point", {"x25519_key": LOW_ORDER}),
        ("duplicate", {"x25519_key": first.x25519_key}),
    ]
    for at, (cause, _) in enumerate(wrongs):
        changes: dict[str, Any] = {}
        for _, change in reversed(wrongs[at:]):
            changes |= change
        with refused(cause, "member-1"):
            enrolling.receive(signed(1, **changes), FEDERATION.now_s)
    with refused("card-conflict", "member-0"):  # whatever its keys
        enrolling.receive(signed(0, x25519_key=LOW_ORDER, mlkem_key=bytes(1184)), FEDERATION.now_s)
    stranger = signed(1, member="stranger")
    with refused("unknown-member", "stranger"):
        enrolling.receive(stranger, FEDERATION.now_s)


def test_no_card_is_admitted_once_the_study_has_expired(enrolling: Enrolling) -> None:
    expires_s = FEDERATION.content.notes.expires
    enrolling.receive(ENROLMENTS[1], expires_s - 1)
    with refused("card-expired", "member-1"):
        enrolling.receive(ENROLMENTS[1], expires_s)


def test_a_repeated_run_is_for_the_members_of_the_repeated_attempt_all_of_them() -> None:
    federation = Federation(6, drop={5: After.CARD})
    repeats = federation.run_round().phase.attempt.context
    enrolling = Enrolling(
        federation.roster, federation.study, 1, "period-0", repeats, federation.sets[repeats]
    )
    assert enrolling.invited_members == federation.ids[:5]
    for member in federation.ids[:5]:
        _, (sent,) = Enrolled.begin_enrolment(
            member,
            federation.roster,
            federation.study,
            federation.keys[member],
            counter=1,
            period="period-0",
            serial=2,
            now_s=federation.now_s,
            repeats=repeats,
        )
        assert isinstance(sent, Enrolment)
        if member == "member-4":
            with refused("cohort-too-small", "member-4"):
                enrolling.make_manifest()
            stranger = replace(sent, card=again(sent.card, federation.keys["member-5"], member="member-5"))
            with refused("unknown-member", "member-5"):
                enrolling.receive(stranger, federation.now_s)
        enrolling = enrolling.receive(sent, federation.now_s)
    assert enrolling.is_complete
    assert enrolling.make_manifest().survivors_min == 5


def test_a_key_that_came_before_a_restart_is_in_use_too(enrolling: Enrolling) -> None:
    fresh = replace(enrolling, cards={}, mlkem_keys={}, taken=frozenset())
    loaded = fresh.with_enrolments(enrolments_of(enrolling))
    assert loaded == enrolling
    with refused("duplicate", "member-1"):
        loaded.receive(signed(1, x25519_key=ENROLMENTS[0].card.x25519_key), FEDERATION.now_s)


@pytest.mark.parametrize(("most", "whole"), [(11, False), (12, True)])
def test_a_small_cohort_on_a_ring_is_shown_all_cards(
    sparse: Callable[..., Federation], monkeypatch: pytest.MonkeyPatch, most: int, *, whole: bool
) -> None:
    federation = sparse()
    collected = federation.collect_cards("other-1")
    monkeypatch.setattr(enrolling_module, "ALL_CARDS_MAX", most)
    cards = collected.cards_for(collected.make_manifest(), "member-01")
    assert (len(cards.shown) == 12) is whole
    assert all(bool(shown.path) is not whole for shown in cards.shown)
