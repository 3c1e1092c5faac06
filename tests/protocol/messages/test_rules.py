"""What a message refuses when it is decoded (wire: Encoding)."""

from dataclasses import replace
from typing import Any

import pytest

from tests.protocol.messages.forms import named, sample
from tests.support.forging import again
from tests.support.refusals import refused
from veilsum.protocol.codec import Struct
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.merkle import Tree
from veilsum.protocol.messages import (
    NO_CONTEXT,
    Cards,
    Certificate,
    Chain,
    Entry,
    Freeze,
    KeyCard,
    Link,
    Manifest,
    Message,
    Opening,
    Roster,
    Shown,
    Study,
    SurvivorSet,
    Terms,
    VoidRequest,
    cards_tree,
)

KEY = SigningKey(b"\xad" * 32)
LINK: Link = sample(Link)
TERMS: Terms = sample(Terms)
ROSTER: Roster = sample(Roster)
CERTIFICATE: Certificate = sample(Certificate)
OPENING: Opening = sample(Opening)
VOID = replace(CERTIFICATE, survivors=(), reason="cancelled")


def opening(**changes: Any) -> Opening:
    return replace(OPENING, **changes)


def terms(**changes: Any) -> Opening:
    return opening(terms=replace(TERMS, **changes))


def links(**changes: Any) -> Opening:
    return opening(links=(replace(LINK, **changes),))


def members(*entries: tuple[str, bytes], **changes: Any) -> Roster:
    return replace(ROSTER, members=tuple(Entry(name, key * 32) for name, key in entries), **changes)


REFUSED: list[tuple[str, Message]] = [
    *(
        ("malformed", members(("a", b"\x01"), (name, b"\x02")))
        for name in ("admin", "coordinator", "operator")
    ),
    ("malformed", replace(sample(Manifest), decryptors=("eve",))),
    ("wrong-sequence", Chain(b"\x01" * 32, (replace(LINK, attempt=8),))),
    ("terms-refused", terms(count=NO_CONTEXT, evicted=())),
    ("terms-refused", terms(count=NO_CONTEXT, withheld=())),
    ("malformed", replace(sample(Freeze), earlier=(SurvivorSet(()),))),
    ("malformed", VoidRequest(NO_CONTEXT, "erased")),
    *(("malformed", replace(CERTIFICATE, reason=reason)) for reason in ("cancelled", "erased", "lost")),
    *(("malformed", replace(VOID, reason=reason)) for reason in ("none", "erased", "lost")),
]
"""Others are in `assurance/attacks/to_decoders.py`."""


@pytest.mark.parametrize(("cause", "message"), REFUSED)
def test_what_breaks_a_rule_is_not_decoded(cause: str, message: Message) -> None:
    with refused(cause, ...):
        type(message).from_bytes(message.to_bytes())


@pytest.mark.parametrize(
    "message",
    [
        members(("a", b"\x01"), ("b", b"\x02")),
        opening(attempt=7),
        links(reason="lost", survivors=NO_CONTEXT),
        terms(count=NO_CONTEXT, rows=NO_CONTEXT, withheld=(), evicted=()),
        terms(withheld=(0, (1 << 32) - 1)),
        replace(sample(Freeze), earlier=()),
        VOID,
    ],
)
def test_what_keeps_the_rules_is(message: Message) -> None:
    assert type(message).from_bytes(message.to_bytes()) == message


# The admin's word


def signed(**changes: Any) -> Roster:
    return again(ROSTER, KEY, **{"federation": KEY.public, "number": 7, **changes})


def test_a_roster_is_of_its_federation_then_signed_and_follows_on_the_one_seen() -> None:
    seen = signed()
    seen.verify_admin(KEY.public)
    signed().check_after(seen)
    signed(number=8).check_after(seen)
    with refused("wrong-federation"):
        replace(seen, number=6).verify_admin(bytes(32))
    with refused("bad-signature", "admin"):
        replace(seen, number=6).verify_admin(KEY.public)
    for rolled_back, blamed in (({"number": 6}, "coordinator"), ({"name": "another"}, "admin")):
        with refused("roster-rollback", blamed):
            signed(**rolled_back).check_after(seen)


# Cards and the root that binds them

NAMES = ("ann", "bob", "cat", "dan", "eve")
CARDS = {name: replace(sample(KeyCard), member=name) for name in NAMES}
TREE = cards_tree(CARDS.values())
BOUND = replace(sample(Manifest), members=NAMES, decryptors=(), cards_root=TREE.root)


def show(*names: str, paths: bool = True, **changes: Any) -> Cards:
    """Return these members' cards with their paths, or all cards without paths."""
    return Cards(
        replace(BOUND, **changes),
        tuple(
            Shown(CARDS[name], b"", tuple(TREE.path_to(BOUND.member_places[name])) if paths else ())
            for name in names
        ),
    )


@pytest.mark.parametrize("cards", [show(*NAMES, paths=False), show("bob", "eve"), show("cat"), show()])
def test_cards_shown_all_without_paths_or_some_with_theirs_are_bound(cards: Cards) -> None:
    cards.check_bound()
    assert cards.by_member == {shown.member: CARDS[shown.member] for shown in cards.shown}


@pytest.mark.parametrize(
    "cards",
    [
        show(*NAMES, paths=False, cards_root=bytes(32)),
        show(*NAMES),
        show("bob", "eve", paths=False),
        show("bob", cards_root=bytes(32)),
        show("bob", members=NAMES[:4]),
        show("eve", members=NAMES[:4]),
        show("bob", members=NAMES[1:]),
        show(paths=False, members=(), cards_root=TREE.root),
    ],
    ids=["root", "paths-beside-all", "no-paths", "other-root", "count", "stranger", "place", "nobody"],
)
def test_cards_that_the_root_does_not_bind_are_the_coordinators_fault(cards: Cards) -> None:
    with refused("manifest-mismatch", "coordinator"):
        cards.check_bound()


@pytest.mark.parametrize("field", ["x25519_key", "mlkem_key_hash", "nonce", "signature"])
def test_one_changed_card_is_seen_however_it_is_shown(field: str) -> None:
    for cards in (show(*NAMES, paths=False), show("ann", "cat")):
        first = cards.shown[0]
        changed: dict[str, Any] = {field: bytes(len(getattr(first.card, field)))}
        shown = (replace(first, card=replace(first.card, **changed)), *cards.shown[1:])
        with refused("manifest-mismatch", "coordinator"):
            replace(cards, shown=shown).check_bound()


def test_a_cohort_of_nobody_is_bound_by_the_root_over_nothing() -> None:
    show(paths=False, members=(), cards_root=Tree([b""]).root).check_bound()


@pytest.mark.parametrize("form", [Link, Manifest, Roster, Study], ids=named)
def test_what_many_messages_repeat_is_one_object_and_encoded_once(form: type[Struct]) -> None:
    made = sample(form)
    (first, _), (second, _) = (form.decode(made.encode(), 0) for _ in range(2))
    assert first is second is not made
    assert first.encode() is first.encode() == made.encode()
