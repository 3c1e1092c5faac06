import hashlib
from dataclasses import replace
from typing import Any

import pytest

from protocol.attempt import Attempt, group_floor
from protocol.errors import PeerFault
from protocol.messages import EMPTY_CHAIN, LedgerException, Link, Past, cards_tree
from protocol.messages.opening import extend_chain
from protocol.simulator import Federation

EXCEPTION = LedgerException(
    federation=bytes(32),
    cohort=bytes(32),
    sequence=0,
    members=("member-0",),
    reason="a test",
    signature=bytes(64),
)
LINK = Link(
    cohort=bytes(32), sequence=0, attempt=0, family="exact", floor=3, context=bytes(32), closing=bytes(32)
)


@pytest.fixture(scope="module")
def federation() -> Federation:
    return Federation(5)


@pytest.fixture(scope="module")
def attempt(federation: Federation) -> Attempt:
    return Attempt(federation.roster, federation.manifest, federation.opening(federation.terms(100)))


def h(tag: bytes, *fields: bytes) -> bytes:
    """H(tag, fields) by hand."""
    return hashlib.sha256(
        b"veilsum/3/" + tag + b"\0" + b"".join(len(f).to_bytes(8, "little") + f for f in fields)
    ).digest()


def test_the_context_is_the_hash_of_everything_that_fixes_the_attempt(attempt: Attempt) -> None:
    opening, roster, manifest = attempt.opening, attempt.roster, attempt.manifest
    assert attempt.context == h(
        b"ctx",
        b"x25519-hkdf_sha256-aes256_ctr-aes256_gcm-ed25519-shamir_31",
        roster.federation,
        h(b"roster", roster.to_bytes()),
        h(b"cohort", h(b"roster", roster.to_bytes()), (0).to_bytes(8, "little")),
        h(b"manifest", manifest.to_bytes()),
        (0).to_bytes(8, "little"),
        (0).to_bytes(1, "little"),
        bytes(32),
        h(b"terms", opening.terms.encode_fields()),
        h(b"layout", opening.terms.layout),
        h(b"exception"),
    )


TERMS_CHANGES: list[dict[str, Any]] = [
    {"statistic": "other"},
    {"layout": b"other"},
    {"elements": 101},
    {"ring_bits": 33},
    {"lattice": "features"},
    {"lattice_bits": 1},
    {"chunk_elements": 72},
    {"records_max": 1},
    {"extractor": bytes(32)},
    {"ridges": (1.0,)},
    {"noise": b"other"},
    {"indicator": b"\x01" * 32},
    {"margin": 1},
    {"withheld": (1,), "indicator": b"\x01" * 32},
    {"evicted": ("member-0",), "indicator": b"\x01" * 32},
    {"latest_end_s": 1},
]


@pytest.mark.parametrize("change", TERMS_CHANGES, ids=lambda change: next(iter(change)))
def test_every_term_stands_in_the_context(attempt: Attempt, change: dict[str, Any]) -> None:
    terms = replace(attempt.opening.terms, **change)
    assert replace(attempt, opening=replace(attempt.opening, terms=terms)).context != attempt.context
    assert set(vars(attempt.opening.terms)) == {next(iter(c)) for c in TERMS_CHANGES}


@pytest.mark.parametrize(
    "change",
    [{"sequence": 1}, {"attempt": 1}, {"links": (LINK,)}, {"exceptions": (EXCEPTION,)}],
    ids=lambda change: next(iter(change)),
)
def test_place_and_history_stand_in_the_context(attempt: Attempt, change: dict[str, Any]) -> None:
    assert replace(attempt, opening=replace(attempt.opening, **change)).context != attempt.context


@pytest.mark.parametrize(
    "change",
    [
        {"cohort": bytes(32)},
        {"counter": 9},
        {"members": ()},
        {"cards_root": bytes(32)},
        {"loss": 99},
        {"colluders": 0},
        {"decryptor_colluders": 0},
        {"honest_min": 4},
        {"survivors_min": 5},
        {"threshold": 3},
        {"degree": 3},
        {"window_dropped_max": 1},
        {"decryptors": ()},
        {"caps": (1,)},
        {"roster_hash": bytes(32)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_the_whole_manifest_stands_in_the_context(attempt: Attempt, change: dict[str, Any]) -> None:
    manifest = replace(attempt.manifest, **change)
    assert replace(attempt, manifest=manifest).context != attempt.context


@pytest.mark.parametrize(
    "change",
    [
        {"version_number": 2},
        {"federation": bytes(32)},
        {"coordinator": bytes(32)},
        {"members": ()},
        {"decryptors": ("member-0",)},
        {"extractors": ()},
        {"readers": ("member-0",)},
        {"withhold": 1},
        {"signature": bytes(64)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_the_whole_roster_stands_in_the_context(attempt: Attempt, change: dict[str, Any]) -> None:
    assert replace(attempt, roster=replace(attempt.roster, **change)).context != attempt.context


def test_a_card_stands_in_the_context(federation: Federation, attempt: Attempt) -> None:
    cards = [shown.card for shown in federation.cards.shown]
    root = cards_tree([replace(cards[0], nonce=bytes(32)), *cards[1:]]).root
    manifest = replace(attempt.manifest, cards_root=root)
    assert cards_tree(cards).root == attempt.manifest.cards_root
    assert replace(attempt, manifest=manifest).context != attempt.context


def test_the_coordinators_signature_does_not_stand_in_the_context(attempt: Attempt) -> None:
    # a malleable or renewed signature must not split members
    assert replace(attempt, opening=replace(attempt.opening, signature=bytes(64))).context == attempt.context


def test_a_link_names_the_attempt_and_its_end(attempt: Attempt) -> None:
    past = Past(attempt.context, "cancelled", ())
    link = attempt.link(past)
    floor = group_floor(attempt.manifest)
    assert link == Link(attempt.manifest.cohort, 0, 0, "exact", floor, attempt.context, past.closing)
    assert past.closing == h(b"closing", attempt.context, b"cancelled")
    following = replace(attempt, opening=replace(attempt.opening, links=(link,), sequence=1))
    assert extend_chain(EMPTY_CHAIN, (link,)) == h(b"link", bytes(32), link.encode_fields())
    assert following.context != attempt.context


@pytest.mark.parametrize(
    ("elements", "lengths"), [(1, [1]), (64, [64]), (65, [64, 1]), (200, [64, 64, 64, 8])]
)
def test_chunks_are_alike_but_for_a_shorter_last(
    federation: Federation, elements: int, lengths: list[int]
) -> None:
    terms = federation.terms(elements, chunk_elements=64)
    attempt = Attempt(federation.roster, federation.manifest, federation.opening(terms))
    assert [attempt.chunk_elements(index) for index in range(attempt.chunks)] == lengths
    assert attempt.ring.bits == 32


def test_a_member_deals_its_own_seed_then_its_neighbours_in_order(attempt: Attempt) -> None:
    for member in attempt.members:
        neighbours = attempt.neighbours(member)
        assert len(neighbours) == attempt.neighbour_count
        assert list(neighbours) == sorted(set(attempt.members) - {member})
        assert [attempt.secret_index(member, other) for other in neighbours] == [1, 2, 3, 4]


# A sparse graph


@pytest.fixture(scope="module")
def sparse() -> Attempt:
    """Twelve members on a ring, each joined to the two next on either side; one of two in a row may be lost."""
    federation = Federation(12)
    manifest = replace(federation.manifest, degree=4, window_dropped_max=1)
    return Attempt(federation.roster, manifest, federation.opening(federation.terms(8)))


def test_on_a_ring_a_member_deals_its_own_seed_then_its_neighbours(sparse: Attempt) -> None:
    ring = sparse.graph.ring
    assert sorted(ring) == list(sparse.members)
    assert sparse.neighbour_count == 4
    for place, member in enumerate(ring):
        around = sorted(ring[(place + step) % 12] for step in (-2, -1, 1, 2))
        assert sparse.neighbours(member) == tuple(around)
        assert [sparse.secret_index(member, other) for other in around] == [1, 2, 3, 4]


def test_two_lost_next_to_each_other_are_too_many_for_a_window(sparse: Attempt) -> None:
    ring = sparse.graph.ring
    everyone = set(sparse.members)
    sparse.check_windows(everyone)
    sparse.check_windows(everyone - {ring[0], ring[2], ring[4], ring[6], ring[8], ring[10]})
    for place in range(12):
        pair = {ring[place], ring[(place + 1) % 12]}
        with pytest.raises(
            PeerFault, match=r"^window-exceeded: 2 lost members in one window, D_max is 1"
        ) as it:
            sparse.check_windows(everyone - pair)
        assert set(it.value.parties) == pair


def test_a_complete_graph_has_no_windows(attempt: Attempt) -> None:
    attempt.check_windows(())
