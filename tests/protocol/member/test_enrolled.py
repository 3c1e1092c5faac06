from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from protocol.errors import PeerFault
from protocol.member import Enrolled, MemberPhase, Ready
from protocol.messages import KeyCard, Manifest, Message, cohort_id
from protocol.simulator import Federation, SeededRandom

Answer = Callable[[Federation, str, Message], tuple[MemberPhase, tuple[Message, ...]]]


@pytest.fixture
def federation() -> Federation:
    """Everyone has sent a card for cohort 1, and nobody has seen its manifest."""
    federation = Federation(5)
    federation.tamper = lambda sender, message: None if ">" in sender else message
    federation.enrol(1)
    return federation


def recarded(federation: Federation, index: int, **changes: Any) -> Manifest:
    cards = list(federation.manifest.cards)
    card = cards[index]
    values = {name: getattr(card, name) for name in vars(card) if name != "signature"}
    cards[index] = KeyCard.make(federation.keys[card.member], **{**values, **changes})
    return replace(federation.manifest, cards=tuple(cards))


def test_the_manifest_turns_private_keys_into_pair_secrets(federation: Federation, answer: Answer) -> None:
    enrolled = federation.phases["member-0"]
    assert isinstance(enrolled, Enrolled)
    ready, replies = answer(federation, "member-0", federation.manifest)
    assert isinstance(ready, Ready)
    assert replies == ()
    assert [pair.peer for pair in ready.pairs] == list(federation.ids[1:])
    assert (ready.sequence, ready.attempt, ready.chain_length) == (0, 0, 0)
    # protocol "Keys": once the pair secrets are stored, the X25519 private keys are gone
    for private in (enrolled.mask_private, enrolled.box_private):
        assert private in enrolled.to_bytes()
        assert private not in ready.to_bytes()


def test_every_two_members_hold_the_same_pair_secrets(federation: Federation, answer: Answer) -> None:
    pairs: dict[tuple[str, str], tuple[bytes, bytes]] = {}
    for member in federation.ids:
        ready, _ = answer(federation, member, federation.manifest)
        assert isinstance(ready, Ready)
        pairs |= {(member, pair.peer): (pair.mask, pair.box) for pair in ready.pairs}
    assert all(keys == pairs[peer, member] for (member, peer), keys in pairs.items())
    assert len(set(pairs.values())) == 10


def test_the_card_is_what_is_sent_again(federation: Federation) -> None:
    phase = federation.phases["member-0"]
    assert isinstance(phase, Enrolled)
    assert phase.outbox() == (phase.card,)
    phase.card.verify(federation.keys["member-0"].public, "member-0")


def test_every_enrolment_draws_fresh_keys(federation: Federation) -> None:
    random = SeededRandom(9)
    cards = [
        Enrolled.start(
            "member-0",
            federation.roster,
            federation.manifest.cohort,
            federation.keys["member-0"],
            expires_s=1,
            random_bytes=random,
        )[1][0]
        for _ in range(2)
    ]
    assert isinstance(cards[0], KeyCard)
    assert isinstance(cards[1], KeyCard)
    drawn = {getattr(card, key) for card in cards for key in ("mask_key", "box_key", "nonce")}
    assert len(drawn) == 6


@pytest.mark.parametrize("member", ["member-1", "eve"])
def test_whom_the_roster_does_not_hold_under_this_id_does_not_enrol(
    federation: Federation, member: str
) -> None:
    with pytest.raises(PeerFault, match=rf"^unknown-member: .*\[{member}\]$"):
        Enrolled.start(member, federation.roster, bytes(32), federation.keys["member-0"], expires_s=1)


def test_a_manifest_of_another_cohort_is_refused(federation: Federation, answer: Answer) -> None:
    with pytest.raises(PeerFault, match=r"^wrong-cohort:"):
        answer(federation, "member-0", Federation(5).manifest)


def test_a_true_manifest_of_another_cohort_than_the_own_cards_is_refused(federation: Federation) -> None:
    elsewhere, _ = Enrolled.start(
        "member-0",
        federation.roster,
        cohort_id(federation.roster.hash, 2),
        federation.keys["member-0"],
        expires_s=1,
        random_bytes=SeededRandom(9),
    )
    with pytest.raises(
        PeerFault, match=r"^wrong-cohort: the manifest is for another cohort than this member's"
    ):
        elsewhere.receive(federation.manifest, federation.keys["member-0"], 0.0)


def test_a_manifest_with_another_card_of_ones_own_is_refused(federation: Federation, answer: Answer) -> None:
    # signed by the member's own identity: a card of an earlier enrolment
    with pytest.raises(PeerFault, match=r"^manifest-mismatch:"):
        answer(federation, "member-0", recarded(federation, 0, nonce=bytes(32)))


def test_a_manifest_without_the_own_card_is_refused(federation: Federation, answer: Answer) -> None:
    manifest = replace(
        federation.manifest,
        cards=federation.manifest.cards[1:],
        caps=federation.manifest.caps[1:],
        decryptors=federation.ids[1:],
        threshold=3,
        degree=3,
    )
    with pytest.raises(PeerFault, match=r"^manifest-mismatch:"):
        answer(federation, "member-0", manifest)


@pytest.mark.parametrize("field", ["mask_key", "box_key"])
def test_a_colluders_low_order_key_is_refused_by_the_member_too(
    federation: Federation, answer: Answer, field: str
) -> None:
    # a coordinator that admits it, so that the pair secret is known to all
    with pytest.raises(PeerFault, match=r"^low-order-point: .*\[member-3\]$"):
        answer(federation, "member-0", recarded(federation, 3, **{field: bytes(32)}))


def test_a_refused_manifest_leaves_the_member_as_it_was(federation: Federation, answer: Answer) -> None:
    with pytest.raises(PeerFault):
        answer(federation, "member-0", replace(federation.manifest, threshold=2))
    ready, _ = answer(federation, "member-0", federation.manifest)
    assert isinstance(ready, Ready)
