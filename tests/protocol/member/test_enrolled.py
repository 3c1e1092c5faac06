from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.support.forging import again, mlkem_key_above_q
from tests.support.pairing import ciphertexts_for, let_pair
from tests.support.refusals import refused
from tests.support.simulator import Federation, of
from veilsum.protocol.coordinator import Enrolling
from veilsum.protocol.keys import Encapsulated, hash_mlkem_key
from veilsum.protocol.member import Enrolled, History, Lapsed, Paired, Ready
from veilsum.protocol.member.enrolled import Pairable
from veilsum.protocol.messages import Cards, cards_tree
from veilsum.protocol.pairing import recipients_of

VICTIM = "member-0"
Change = Callable[[Federation, Enrolling], Enrolling]


@pytest.fixture
def federation() -> Federation:
    return Federation(8)


@pytest.fixture
def enrolling(federation: Federation) -> Enrolling:
    """All members have sent a card for cohort 1, and none has been shown its manifest."""
    return federation.collect_cards("other-1")


def cards_of(enrolling: Enrolling, member: str = VICTIM) -> Cards:
    return enrolling.cards_for(enrolling.make_manifest(), member)


def secrets_of(phase: Pairable) -> list[bytes]:
    """Return the private keys of a member's card, and what it encapsulated."""
    encapsulated = phase.secrets if isinstance(phase, Paired) else b""
    return [
        bytes(phase.keys.x25519),
        bytes(phase.keys.mlkem_seed),
        *(encapsulated[at : at + 32] for at in range(0, len(encapsulated), 32)),
    ]


# From the cards to the keys of pairs


def test_pairing_turns_private_keys_into_pair_keys(federation: Federation, enrolling: Enrolling) -> None:
    enrolled = of(Enrolled, federation.phases[VICTIM])
    let_pair(federation, enrolling)
    paired = of(Paired, federation.phases[VICTIM])
    ready, replies = federation.ask(VICTIM, ciphertexts_for(federation, VICTIM), Ready)
    assert replies == ()
    for pairs in (ready.masks, ready.boxes):
        assert [pair.peer for pair in pairs] == list(federation.ids[1:])
    assert (ready.sequence, ready.attempt, ready.history) == (0, 0, History())
    assert ready.manifest == enrolling.make_manifest()
    # LAPSE-3: private keys and encapsulated secrets are deleted in the write that stores these keys
    secrets = secrets_of(paired)
    assert len(secrets) == 2 + len(recipients_of(paired.manifest, VICTIM)) == 6
    assert secrets[:2] == secrets_of(enrolled)
    for secret in secrets[:2]:
        assert secret in enrolled.to_bytes()
    for secret in secrets:
        assert secret in paired.to_bytes()
        assert secret not in ready.to_bytes()


def test_what_is_learned_while_a_cohort_forms_is_kept(federation: Federation, enrolling: Enrolling) -> None:
    known = replace(of(Enrolled, federation.phases[VICTIM]).history, length=7)
    federation.phases[VICTIM] = federation.phases[VICTIM].with_history(known)
    let_pair(federation, enrolling)
    assert of(Paired, federation.phases[VICTIM]).history == known
    later = replace(known, length=8)
    federation.phases[VICTIM] = federation.phases[VICTIM].with_history(later)
    ready, _ = federation.ask(VICTIM, ciphertexts_for(federation, VICTIM), Ready)
    assert ready.history == later


# What cards must satisfy


def forge_cards(
    federation: Federation,
    enrolling: Enrolling,
    *,
    signer: str = "member-1",
    mlkem_key: bytes | None = None,
    path: tuple[bytes, ...] = (),
    own: bytes | None = None,
    manifest: dict[str, Any] | None = None,
    **card: Any,
) -> Cards:
    """Return the victim's cards with another card of member-1's, bound by the root.

    Args:
        signer: of that card.
        mlkem_key: beside it.
        path: to it.
        own: nonce of another card of the victim's.
        manifest: fields of the manifest.
        card: fields of that card.
    """
    cards = {**enrolling.cards}
    cards["member-1"] = again(cards["member-1"], federation.keys[signer], **card)
    if own is not None:
        cards[VICTIM] = again(cards[VICTIM], federation.keys[VICTIM], nonce=own)
    keys = enrolling.mlkem_keys if mlkem_key is None else {**enrolling.mlkem_keys, "member-1": mlkem_key}
    made = cards_of(replace(enrolling, cards=cards, mlkem_keys=keys))
    shown = (made.shown[0], replace(made.shown[1], path=path), *made.shown[2:])
    return Cards(replace(made.manifest, **(manifest or {})), shown)


def test_cards_are_checked_in_this_order(federation: Federation, enrolling: Enrolling) -> None:
    """What is wrong first is the cause, whatever else is wrong (CARDS-1 to CARDS-17)."""
    above_q = mlkem_key_above_q(enrolling.mlkem_keys["member-1"])
    second = enrolling.cards["member-2"]
    wrongs: list[tuple[str, tuple[str, ...], dict[str, Any]]] = [
        ("wrong-cohort", (), {"manifest": {"cohort": bytes(32)}}),
        ("weak-parameters", (), {"manifest": {"threshold": 2}}),
        ("wrong-cohort", ("coordinator",), {"cohort": bytes(32)}),
        ("bad-signature", ("member-1",), {"signer": "member-2"}),
        ("manifest-mismatch", ("coordinator",), {"path": (bytes(32),)}),
        ("duplicate", (), {"x25519_key": second.x25519_key}),
        ("duplicate", (), {"mlkem_key_hash": second.mlkem_key_hash}),
        ("manifest-mismatch", (), {"own": bytes([1] * 32)}),
        ("manifest-mismatch", ("coordinator",), {"mlkem_key": enrolling.mlkem_keys["member-3"]}),
        (
            "mlkem-key-invalid",
            ("member-1",),
            {"mlkem_key": above_q, "mlkem_key_hash": hash_mlkem_key(above_q)},
        ),
        ("low-order-point", ("member-1",), {"x25519_key": bytes(32)}),
    ]
    before = federation.phases[VICTIM].to_bytes()
    for at, (cause, parties, _) in enumerate(wrongs):
        changes: dict[str, Any] = {}
        for _, _, change in reversed(wrongs[at:]):
            changes |= change
        with refused(cause, *parties):
            federation.ask(VICTIM, forge_cards(federation, enrolling, **changes))
        assert federation.phases[VICTIM].to_bytes() == before
    federation.ask(VICTIM, forge_cards(federation, enrolling), Paired)


def test_a_bad_key_of_a_member_that_encapsulates_to_this_one_is_not_shown(
    federation: Federation, enrolling: Enrolling
) -> None:
    """Who encapsulates to that key finds it. The member itself agrees on an X25519 secret with its owner."""
    recipients = recipients_of(enrolling.make_manifest(), VICTIM)
    sender = next(m for m in federation.ids[1:] if m not in recipients)
    above_q = mlkem_key_above_q(enrolling.mlkem_keys[sender])
    hashed = {"mlkem_key_hash": hash_mlkem_key(above_q)}
    low_order = {"x25519_key": bytes(32)}
    for changes, cause in ((hashed, None), (low_order, "low-order-point")):
        card = again(enrolling.cards[sender], federation.keys[sender], **changes)
        cards = cards_of(replace(enrolling, cards={**enrolling.cards, sender: card}))
        if cause is None:
            federation.ask(VICTIM, cards, Paired)
        else:
            with refused(cause, sender):
                federation.ask(VICTIM, cards)


# Other manifests of the cohort


def test_the_cards_again_are_answered_by_the_same_pairing(
    federation: Federation, enrolling: Enrolling
) -> None:
    let_pair(federation, enrolling)
    paired = of(Paired, federation.phases[VICTIM])

    def draw(_mlkem_key: bytes, _owner: str) -> Encapsulated:
        raise AssertionError("nothing is encapsulated again")

    federation.encapsulate = draw
    again_, (answer,) = federation.ask(VICTIM, cards_of(enrolling))
    assert again_ is paired
    assert answer.to_bytes() == paired.pairing.to_bytes()


def test_fewer_members_pair_afresh_over_their_cards(federation: Federation, enrolling: Enrolling) -> None:
    let_pair(federation, enrolling)
    before = of(Paired, federation.phases[VICTIM])
    fewer = enrolling.of_members(federation.ids[:7])
    let_pair(federation, fewer, *federation.ids[:7])
    after = of(Paired, federation.phases[VICTIM])
    assert (before.number, after.number) == (1, 2)
    assert after.manifest.members == federation.ids[:7]
    assert (after.card, after.keys, after.lapses_s) == (before.card, before.keys, before.lapses_s)
    assert after.pairing.manifest == after.manifest.hash
    assert set(after.pairing.ciphertexts).isdisjoint(before.pairing.ciphertexts)
    assert set(secrets_of(after)[2:]).isdisjoint(secrets_of(before)[2:])
    for secret in secrets_of(before)[2:]:
        assert secret not in after.to_bytes()
    ready, _ = federation.ask(VICTIM, ciphertexts_for(federation, VICTIM), Ready)
    assert [pair.peer for pair in ready.masks] == list(federation.ids[1:7])


def test_the_first_manifest_that_a_member_is_shown_may_be_a_later_one(
    federation: Federation, enrolling: Enrolling
) -> None:
    fewer = enrolling.of_members(federation.ids[:7])
    let_pair(federation, fewer, VICTIM)
    assert of(Paired, federation.phases[VICTIM]).number == 1


def test_the_third_manifest_is_the_last() -> None:
    federation = Federation(12)
    enrolling = federation.collect_cards("other-1")
    for number, count in enumerate((12, 11, 10), 1):
        let_pair(federation, enrolling.of_members(federation.ids[:count]), federation.ids[0])
        assert of(Paired, federation.phases[federation.ids[0]]).number == number
    with refused("manifest-mismatch", "coordinator"):
        federation.ask(
            federation.ids[0], cards_of(enrolling.of_members(federation.ids[:9]), federation.ids[0])
        )


def with_other_card(federation: Federation, enrolling: Enrolling, member: str) -> Enrolling:
    """Replace a member's card by another that it signed."""
    other = again(enrolling.cards[member], federation.keys[member], nonce=bytes([1] * 32))
    return replace(enrolling, cards={**enrolling.cards, member: other})


@pytest.mark.parametrize(
    ("first", "following"),
    [
        (lambda _, e: e, lambda f, e: with_other_card(f, e, "member-7")),
        (lambda _, e: e, lambda f, e: with_other_card(f, e, "member-6").of_members(f.ids[:7])),
        (lambda f, e: e.of_members(f.ids[:7]), lambda f, e: e.of_members((*f.ids[:5], "member-7"))),
        (lambda f, e: e.of_members(f.ids[:7]), lambda _, e: e),
    ],
    ids=["the-same-members", "a-card-changed", "a-member-that-was-out", "more-members"],
)
def test_no_other_manifest_is_taken(
    federation: Federation, enrolling: Enrolling, first: Change, following: Change
) -> None:
    let_pair(federation, first(federation, enrolling), VICTIM)
    before = federation.phases[VICTIM].to_bytes()
    with refused("manifest-mismatch", "coordinator"):
        federation.ask(VICTIM, cards_of(following(federation, enrolling)))
    assert federation.phases[VICTIM].to_bytes() == before


# The clock


@pytest.mark.parametrize("has_paired", [False, True])
def test_private_keys_lapse_after_the_window_to_enrol_and_four_to_answer(
    federation: Federation, enrolling: Enrolling, *, has_paired: bool
) -> None:
    if has_paired:
        let_pair(federation, enrolling)
    phase = of(Pairable, federation.phases[VICTIM])
    windows, lapses_s = federation.content.question.windows, phase.lapses_s
    assert lapses_s == phase.expiry_s == federation.now_s + windows.enrol + 4 * windows.answer
    assert phase.erase_expired(lapses_s - 1) is phase
    lapsed = of(Lapsed, phase.erase_expired(lapses_s))
    assert lapsed == phase.erase_expired(1e12)
    assert (lapsed.card, lapsed.history) == (phase.card, phase.history)
    for secret in secrets_of(phase):
        assert secret not in lapsed.to_bytes()
    assert lapsed.messages_to_resend() == ()
    assert lapsed.erase_expired(1e12) is lapsed
    known = replace(phase.history, length=7)
    assert lapsed.with_history(known) == replace(lapsed, history=known)


def test_time_is_counted_from_when_the_card_was_made(federation: Federation) -> None:
    federation.now_s += 7.9
    federation.collect_cards("other-1")
    windows = federation.content.question.windows
    made = of(Enrolled, federation.phases[VICTIM])
    assert made.lapses_s == 1_000_007 + windows.enrol + 4 * windows.answer


# Large cohorts: some cards, each with its path


@pytest.fixture
def large(sparse: Callable[..., Federation]) -> Federation:
    return sparse()


@pytest.fixture
def many(large: Federation) -> Enrolling:
    """Twelve members on a ring have sent a card for cohort 1."""
    return large.collect_cards("other-1")


def test_a_decryptor_is_shown_all_and_needs_all(large: Federation, many: Enrolling) -> None:
    manifest, cards = many.make_manifest(), cards_of(many, "member-03")
    assert tuple(cards.by_member) == large.ids
    assert not any(shown.path for shown in cards.shown)
    # its own card, and those of its neighbours and of the other decryptors: it has no key for other boxes
    needed = {"member-03", *manifest.graph.neighbours_of("member-03"), *manifest.decryptors}
    stranger = next(m for m in large.ids if m not in needed)
    with refused("manifest-mismatch", "coordinator") as caught:
        large.ask("member-03", with_paths(cards, *needed))
    assert stranger in caught.value.detail
    let_pair(large, many)
    ready, _ = large.ask("member-03", ciphertexts_for(large, "member-03"), Ready)
    assert [pair.peer for pair in ready.boxes] == [m for m in large.ids if m != "member-03"]
    assert tuple(pair.peer for pair in ready.masks) == manifest.graph.neighbours_of("member-03")


def with_paths(cards: Cards, *members: str) -> Cards:
    """Show only these members' cards, each with its path."""
    tree = cards_tree(shown.card for shown in cards.shown)
    return replace(
        cards,
        shown=tuple(
            replace(shown, path=tuple(tree.path_to(cards.manifest.member_places[shown.member])))
            for shown in cards.shown
            if shown.member in members
        ),
    )


def test_a_card_that_is_needed_and_not_shown_is_named(large: Federation, many: Enrolling) -> None:
    cards = cards_of(many, "member-01")
    neighbour = next(m for m in cards.manifest.graph.neighbours_of("member-01"))
    for hidden in (neighbour, "member-09"):
        rest = replace(cards, shown=tuple(shown for shown in cards.shown if shown.member != hidden))
        with refused("manifest-mismatch", "coordinator") as caught:
            large.ask("member-01", rest)
        assert hidden in caught.value.detail
    without = replace(cards, shown=tuple(shown for shown in cards.shown if shown.member != "member-01"))
    with refused("manifest-mismatch"):
        large.ask("member-01", without)


def test_no_other_manifest_of_the_same_members_is_taken_where_the_changed_card_is_not_shown(
    large: Federation, many: Enrolling
) -> None:
    let_pair(large, many, "member-01")
    shown = of(Paired, large.phases["member-01"]).cards
    for hidden in sorted({*large.ids} - {card.member for card in shown}):
        other = with_other_card(large, many, hidden)
        cards = cards_of(other, "member-01")
        assert cards.manifest != many.make_manifest()
        with refused("manifest-mismatch", "coordinator"):
            large.ask("member-01", cards)
