from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.support.simulator import Federation, of
from veilsum.protocol.coordinator import Enrolling
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.member import Enrolled, History, Ready
from veilsum.protocol.messages import Cards, Shown, cards_tree


@pytest.fixture
def federation() -> Federation:
    """All members have sent a card for cohort 1; none has seen its manifest."""
    federation = Federation(5)
    federation.tamper = lambda sender, message: None if ">" in sender else message
    federation.enrol("other-1")
    return federation


def test_the_manifest_turns_private_keys_into_pair_secrets(federation: Federation) -> None:
    enrolled = of(Enrolled, federation.phases["member-0"])
    ready, replies = federation.ask("member-0", federation.cards, Ready)
    assert replies == ()
    for pairs in (ready.masks, ready.boxes):
        assert [pair.peer for pair in pairs] == list(federation.ids[1:])
    assert (ready.sequence, ready.attempt, ready.history) == (0, 0, History())
    # protocol "Keys": once the pair secrets are stored, the X25519 private keys are gone
    for private in (enrolled.mask_private, enrolled.box_private):
        assert private in enrolled.to_bytes()
        assert private not in ready.to_bytes()


def test_the_card_is_what_is_sent_again(federation: Federation) -> None:
    phase = of(Enrolled, federation.phases["member-0"])
    assert phase.messages_to_resend() == (phase.card,)
    phase.card.verify(federation.keys["member-0"].public, "member-0")


# Large cohorts: some cards, each with its path


@pytest.fixture
def large(sparse: Callable[..., Federation]) -> Federation:
    """Twelve members on a ring have sent a card for cohort 1; none has seen its manifest."""
    federation = sparse()
    federation.tamper = lambda sender, message: None if ">" in sender else message
    federation.enrol("other-1")
    return federation


def shown_to(federation: Federation, member: str) -> Cards:
    enrolling = Enrolling(federation.roster, federation.study, 1, "other-1")
    for shown in federation.cards.shown:
        enrolling = enrolling.receive(shown.card, federation.now_s)
    return enrolling.cards_for(federation.manifest, member)


def test_a_member_is_shown_its_neighbours_and_the_decryptors(large: Federation) -> None:
    neighbours = large.manifest.graph.neighbours_of("member-01")
    cards = shown_to(large, "member-01")
    assert set(cards.by_member) == {"member-01", *neighbours, *large.manifest.decryptors}
    assert len(cards.shown) < 12
    assert all(shown.path for shown in cards.shown)
    ready, _ = large.ask("member-01", cards, Ready)
    assert tuple(pair.peer for pair in ready.masks) == neighbours
    assert tuple(pair.peer for pair in ready.boxes) == large.manifest.decryptors


def test_a_decryptor_is_shown_all_and_needs_all(large: Federation) -> None:
    cards = shown_to(large, "member-03")
    assert tuple(cards.by_member) == large.ids
    assert not any(shown.path for shown in cards.shown)
    ready, _ = large.ask("member-03", cards, Ready)
    assert [pair.peer for pair in ready.boxes] == [m for m in large.ids if m != "member-03"]
    assert tuple(pair.peer for pair in ready.masks) == large.manifest.graph.neighbours_of("member-03")
    # its own card, and those of its neighbours and of the other decryptors: it has no key for other boxes
    needed = {"member-03", *large.manifest.graph.neighbours_of("member-03"), *large.manifest.decryptors}
    tree = cards_tree(shown.card for shown in cards.shown)
    some = tuple(
        Shown(shown.card, tuple(tree.path_to(large.manifest.member_places[shown.member])))
        for shown in cards.shown
        if shown.member in needed
    )
    stranger = next(m for m in large.ids if m not in needed)
    with pytest.raises(
        PeerFault, match=rf"^manifest-mismatch: the card of {stranger} is not shown \[coordinator\]$"
    ):
        large.ask("member-03", replace(cards, shown=some))


def test_a_card_that_is_needed_and_not_shown_is_named(large: Federation) -> None:
    cards = shown_to(large, "member-01")
    neighbour = next(m for m in large.manifest.graph.neighbours_of("member-01"))
    for hidden in (neighbour, "member-09"):
        rest = replace(cards, shown=tuple(shown for shown in cards.shown if shown.member != hidden))
        with pytest.raises(PeerFault, match=rf"^manifest-mismatch: the card of {hidden} is not shown"):
            large.ask("member-01", rest)
    without = replace(cards, shown=tuple(shown for shown in cards.shown if shown.member != "member-01"))
    with pytest.raises(PeerFault, match=r"^manifest-mismatch: the manifest does not hold this member's card"):
        large.ask("member-01", without)


def test_what_is_learned_while_the_cards_come_in_is_kept(federation: Federation) -> None:
    enrolled = of(Enrolled, federation.phases["member-0"])
    known = replace(enrolled.history, length=7)
    federation.phases["member-0"] = enrolled.with_history(known)
    ready, _ = federation.ask("member-0", federation.cards, Ready)
    assert ready.history == known
