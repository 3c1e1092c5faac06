"""What a manifest and its cards must satisfy."""

from dataclasses import replace
from typing import Any

import pytest

from protocol.attempt import check_cards, check_manifest, colluders_assumed, group_floor
from protocol.errors import PeerFault
from protocol.identity import SigningKey
from protocol.keys import AgreementKey
from protocol.messages import Cards, Entry, KeyCard, Manifest, Shown, cards_tree, cohort_id
from protocol.simulator import Federation
from tests.protocol.forging import again


@pytest.fixture(scope="module")
def federation() -> Federation:
    return Federation(5)


def changed(federation: Federation, **changes: Any) -> Manifest:
    return replace(federation.manifest, **changes)


def recarded(federation: Federation, index: int, card: KeyCard) -> Cards:
    """All cards with another one at this place, under the root that they then have."""
    cards = [shown.card for shown in federation.cards.shown]
    cards[index] = card
    manifest = changed(federation, cards_root=cards_tree(cards).root)
    return Cards(manifest, tuple(Shown(each, ()) for each in cards))


def card_of(federation: Federation, index: int, **changes: Any) -> KeyCard:
    """A member's card, changed and signed again by it."""
    card = federation.cards.shown[index].card
    return again(card, federation.keys[card.member], **changes)


def test_an_honest_manifest_passes(federation: Federation) -> None:
    assert check_manifest(federation.roster, federation.manifest).threshold == 4


def test_a_manifest_of_another_roster_is_refused(federation: Federation) -> None:
    with pytest.raises(PeerFault, match=r"^wrong-cohort:"):
        check_manifest(federation.roster, changed(federation, roster_hash=bytes(32)))
    with pytest.raises(PeerFault, match=r"^wrong-cohort:"):
        check_manifest(replace(federation.roster, version_number=2), federation.manifest)


@pytest.mark.parametrize("change", [{"counter": 1}, {"cohort": bytes(32)}])
def test_a_cohort_id_that_does_not_follow_is_refused(federation: Federation, change: dict[str, Any]) -> None:
    with pytest.raises(PeerFault, match=r"^wrong-cohort:"):
        check_manifest(federation.roster, changed(federation, **change))


def test_a_card_of_another_cohort_is_refused(federation: Federation) -> None:
    other = cohort_id(federation.roster.hash, 1)
    with pytest.raises(PeerFault, match=r"^wrong-cohort: the card of member-2 .*\[coordinator\]$"):
        check_cards(federation.roster, recarded(federation, 2, card_of(federation, 2, cohort=other)))


def test_a_stranger_is_no_member(federation: Federation) -> None:
    names = (*federation.ids[:4], "sybil")
    manifest = changed(federation, members=names, decryptors=names)
    with pytest.raises(PeerFault, match=r"^unknown-member: .*\[sybil\]$"):
        check_manifest(federation.roster, manifest)
    sybil = again(federation.cards.shown[4].card, SigningKey(bytes(32)), member="sybil")
    with pytest.raises(PeerFault, match=r"^unknown-member: .*\[sybil\]$"):
        check_cards(federation.roster, recarded(federation, 4, sybil))


def test_a_card_that_its_member_did_not_sign_is_refused(federation: Federation) -> None:
    forged = replace(federation.cards.shown[1].card, mask_key=AgreementKey(bytes(32)).public)
    with pytest.raises(PeerFault, match=r"^bad-signature: .*\[member-1\]$"):
        check_cards(federation.roster, recarded(federation, 1, forged))


def test_cards_that_the_root_does_not_bind_are_refused(federation: Federation) -> None:
    cards = recarded(federation, 1, card_of(federation, 1, nonce=bytes(32)))
    check_cards(federation.roster, cards)
    with pytest.raises(PeerFault, match=r"^manifest-mismatch: .*: all \[coordinator\]$"):
        check_cards(federation.roster, replace(cards, manifest=federation.manifest))


@pytest.mark.parametrize("field", ["mask_key", "box_key"])
@pytest.mark.parametrize("top_bit", [0, 0x80])
def test_a_key_that_stands_twice_is_refused_in_any_encoding(
    federation: Federation, field: str, top_bit: int
) -> None:
    copied = federation.cards.shown[0].card.mask_key
    copied = copied[:31] + bytes([copied[31] | top_bit])
    with pytest.raises(PeerFault, match=r"^duplicate: an X25519 key stands twice"):
        check_cards(federation.roster, recarded(federation, 3, card_of(federation, 3, **{field: copied})))


@pytest.mark.parametrize(
    "change",
    [
        {"threshold": 3},
        {"threshold": 5},
        {"survivors_min": 3},
        {"survivors_min": 5},
        {"decryptor_colluders": 0},
        {"degree": 3},
        {"window_dropped_max": 1},
        {"decryptors": ("member-0", "member-1", "member-2", "member-3")},
        {"colluders": 0},
        {"honest_min": 4, "survivors_min": 4},
        {"honest_min": 2},
        {"honest_min": 0, "survivors_min": 1},
        {"loss": 375},
        {"loss": 2**32 - 1},
    ],
    ids=str,
)
def test_numbers_that_do_not_follow_are_refused(federation: Federation, change: dict[str, Any]) -> None:
    with pytest.raises(PeerFault, match=r"^weak-parameters:"):
        check_manifest(federation.roster, changed(federation, **change))


@pytest.mark.parametrize("colluders", [3, 5, 6, 2**32 - 1])
def test_more_colluders_than_the_cohort_stands_are_refused(federation: Federation, colluders: int) -> None:
    with pytest.raises(PeerFault, match=r"^cohort-too-small:"):
        check_manifest(federation.roster, changed(federation, colluders=colluders))


def test_a_manifest_without_members_is_refused(federation: Federation) -> None:
    with pytest.raises(PeerFault, match=r"^cohort-too-small: 0 members"):
        check_manifest(federation.roster, changed(federation, members=(), caps=(), decryptors=()))


@pytest.mark.parametrize("loss", [0, 1, 374])
def test_losses_change_no_number_of_a_complete_graph(federation: Federation, loss: int) -> None:
    check_manifest(federation.roster, changed(federation, loss=loss))


def test_a_nominated_committee_is_not_replaced_by_everyone() -> None:
    federation = Federation(8, decryptors=(1, 2, 4), colluders=0)
    check_manifest(federation.roster, federation.manifest)
    with pytest.raises(PeerFault, match=r"^weak-parameters:"):
        check_manifest(federation.roster, changed(federation, decryptors=federation.ids, threshold=4))
    kept = [0, 3, 5, 6, 7]  # nobody of those nominated
    without = changed(
        federation,
        members=tuple(federation.ids[i] for i in kept),
        caps=(1,) * 5,
        colluders=0,
        decryptor_colluders=0,
        survivors_min=5,
        threshold=3,
        degree=4,
        decryptors=tuple(federation.ids[i] for i in kept),
    )
    with pytest.raises(PeerFault, match=r"^cohort-too-small: .* L=0"):
        check_manifest(federation.roster, without)


def test_a_manifest_that_states_colluders_beside_three_nominees_is_refused() -> None:
    federation = Federation(8, decryptors=(1, 2, 4), colluders=0)
    stated = changed(federation, colluders=2, decryptor_colluders=0, survivors_min=6, threshold=2)
    with pytest.raises(
        PeerFault, match=r"^cohort-too-small: of 3 nominated decryptors none may collude, .* 7 to"
    ):
        check_manifest(federation.roster, stated)


def test_a_roster_key_decides_who_is_a_member(federation: Federation) -> None:
    members = (Entry("member-0", bytes(32)), *federation.roster.members[1:])
    roster = replace(federation.roster, members=members)
    with pytest.raises(PeerFault, match=r"^bad-signature: member-0's .*\[member-0\]$"):
        check_cards(roster, federation.cards)


def test_assumptions_of_roster_and_manifest(federation: Federation) -> None:
    assert colluders_assumed(Federation(11).roster) == 2
    assert group_floor(federation.manifest) == 4
