import hashlib
from dataclasses import replace
from typing import Any

import pytest

from protocol.attempt import Attempt, check_cards, check_manifest, colluders_assumed, group_floor
from protocol.errors import PeerFault
from protocol.identity import SigningKey
from protocol.keys import AgreementKey
from protocol.messages import (
    EMPTY_CHAIN,
    Cards,
    Certificate,
    Entry,
    KeyCard,
    LedgerException,
    Link,
    Manifest,
    Past,
    Report,
    Shown,
    Survivor,
    SurvivorSet,
    Vote,
    cards_tree,
    cohort_id,
)
from protocol.messages.opening import extend_chain
from protocol.messages.outcome import survivors_hash, void_hash
from protocol.simulator import Federation
from tests.protocol.forging import again, lost

EXCEPTION = LedgerException(
    federation=bytes(32),
    cohort=bytes(32),
    sequence=0,
    members=("member-0",),
    reason="a test",
    signature=bytes(64),
)
LINK = Link(cohort=bytes(32), sequence=0, attempt=0, family="exact", context=bytes(32), closing=bytes(32))


@pytest.fixture(scope="module")
def federation() -> Federation:
    return Federation(5)


@pytest.fixture(scope="module")
def attempt(federation: Federation) -> Attempt:
    return Attempt(federation.roster, federation.manifest, federation.opening(federation.terms(100)))


def h(tag: bytes, *fields: bytes) -> bytes:
    """H(tag, fields) by hand."""
    return hashlib.sha256(
        b"veilsum/2/" + tag + b"\0" + b"".join(len(f).to_bytes(8, "little") + f for f in fields)
    ).digest()


def test_the_context_is_the_hash_of_everything_that_fixes_the_attempt(attempt: Attempt) -> None:
    opening, roster, manifest = attempt.opening, attempt.roster, attempt.manifest
    assert attempt.context == h(
        b"ctx",
        b"x25519-hkdf_sha256-aes256_ctr-aes256_gcm-ed25519-shamir_31",
        b"pairwise",
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
        {"helpers": ("member-0",)},
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
    assert link == Link(attempt.manifest.cohort, 0, 0, "exact", attempt.context, past.closing)
    assert past.closing == h(b"closing", attempt.context, b"cancelled")
    following = replace(attempt, opening=replace(attempt.opening, links=(link,), sequence=1))
    assert extend_chain(EMPTY_CHAIN, (link,)) == h(b"link", bytes(32), link.encode_fields())
    assert following.context != attempt.context


def test_the_last_chunk_is_the_rest(attempt: Attempt) -> None:
    assert attempt.chunks == 2
    assert [attempt.chunk_elements(index) for index in range(2)] == [64, 36]
    assert attempt.ring.bits == 32


def test_a_member_deals_its_own_seed_then_its_neighbours_in_order(attempt: Attempt) -> None:
    for member in attempt.members:
        neighbours = attempt.neighbours(member)
        assert len(neighbours) == attempt.neighbour_count
        assert list(neighbours) == sorted(set(attempt.members) - {member})
        assert [attempt.secret_index(member, other) for other in neighbours] == [1, 2, 3, 4]


# What a manifest must satisfy


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
    federation = Federation(8, decryptors=(1, 2, 4))
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


def test_a_roster_key_decides_who_is_a_member(federation: Federation) -> None:
    members = (Entry("member-0", bytes(32)), *federation.roster.members[1:])
    roster = replace(federation.roster, members=members)
    with pytest.raises(PeerFault, match=r"^bad-signature: member-0's .*\[member-0\]$"):
        check_cards(roster, federation.cards)


def test_assumptions_of_roster_and_manifest(federation: Federation) -> None:
    assert colluders_assumed(Federation(11).roster) == 2
    assert group_floor(federation.manifest) == 4


# What a certificate must satisfy


def survivors_of(count: int) -> tuple[Survivor, ...]:
    return tuple(Survivor(f"member-{i}", bytes(8), bytes(8), bytes(32)) for i in range(count))


def certificate(
    federation: Federation,
    attempt: Attempt,
    voters: tuple[int, ...] = (0, 1, 2, 3),
    survivors: tuple[Survivor, ...] = survivors_of(4),
    outcome: bytes | None = None,
) -> Certificate:
    outcome = outcome or survivors_hash(attempt.context, survivors)
    votes = tuple(
        Vote.make(federation.keys[m], context=attempt.context, member=m, outcome=outcome)
        for m in (federation.ids[v] for v in voters)
    )
    return Certificate(attempt.context, survivors, "none", votes)


def test_a_threshold_of_votes_is_a_certificate(federation: Federation, attempt: Attempt) -> None:
    attempt.check_certificate(certificate(federation, attempt))
    attempt.check_certificate(certificate(federation, attempt, voters=(0, 1, 3, 4)))
    void = certificate(federation, attempt, outcome=void_hash(attempt.context, "cancelled"))
    attempt.check_certificate(replace(void, survivors=(), reason="cancelled"))


def test_one_vote_less_is_none(federation: Federation, attempt: Attempt) -> None:
    with pytest.raises(PeerFault, match=r"^certificate-invalid: 3 votes, the threshold is 4"):
        attempt.check_certificate(certificate(federation, attempt, voters=(0, 1, 2)))


def test_one_decryptors_vote_counts_once(federation: Federation, attempt: Attempt) -> None:
    with pytest.raises(PeerFault, match=r"^certificate-invalid: .* threshold is 4"):
        attempt.check_certificate(certificate(federation, attempt, voters=(0, 1, 2, 2)))


def test_votes_for_another_outcome_are_refused(federation: Federation, attempt: Attempt) -> None:
    other = certificate(federation, attempt, outcome=survivors_hash(attempt.context, survivors_of(5)))
    with pytest.raises(PeerFault, match=r"^certificate-invalid: a vote in the certificate is for another"):
        attempt.check_certificate(other)


def test_void_dressed_as_survivors_is_refused(federation: Federation, attempt: Attempt) -> None:
    void = certificate(federation, attempt, outcome=void_hash(attempt.context, "cancelled"))
    with pytest.raises(PeerFault, match=r"^certificate-invalid:"):
        attempt.check_certificate(void)


def test_survivors_dressed_as_void_are_refused(federation: Federation, attempt: Attempt) -> None:
    dressed = replace(certificate(federation, attempt), survivors=(), reason="cancelled")
    with pytest.raises(PeerFault, match=r"^certificate-invalid:"):
        attempt.check_certificate(dressed)


def test_void_for_another_reason_is_refused(federation: Federation, attempt: Attempt) -> None:
    void = certificate(federation, attempt, outcome=void_hash(attempt.context, "cancelled"))
    with pytest.raises(PeerFault, match=r"^certificate-invalid:"):
        attempt.check_certificate(replace(void, survivors=(), reason="quorum-lost"))


def test_a_forged_vote_is_refused(federation: Federation, attempt: Attempt) -> None:
    true = certificate(federation, attempt)
    forged = replace(true, votes=(*true.votes[:3], replace(true.votes[3], signature=bytes(64))))
    with pytest.raises(PeerFault, match=r"^bad-signature: .*\[member-3\]$"):
        attempt.check_certificate(forged)


def test_a_strangers_vote_is_refused(federation: Federation, attempt: Attempt) -> None:
    true = certificate(federation, attempt)
    vote = Vote.make(SigningKey(bytes(32)), context=attempt.context, member="sybil", outcome=true.outcome)
    with pytest.raises(PeerFault, match=r"^not-a-decryptor: .*\[sybil\]$"):
        attempt.check_certificate(replace(true, votes=(*true.votes, vote)))


def test_a_members_vote_who_is_no_decryptor_is_refused() -> None:
    federation = Federation(6, decryptors=(0, 1, 2, 3))
    attempt = Attempt(federation.roster, federation.manifest, federation.opening(federation.terms(8)))
    with pytest.raises(PeerFault, match=r"^not-a-decryptor: .*\[member-5\]$"):
        attempt.check_certificate(certificate(federation, attempt, voters=(0, 1, 5)))


def test_a_certificate_of_another_context_is_refused(federation: Federation, attempt: Attempt) -> None:
    true = certificate(federation, attempt)
    with pytest.raises(PeerFault, match=r"^wrong-context: .*\[coordinator\]$"):
        attempt.check_certificate(replace(true, context=bytes(32)))
    smuggled = replace(true.votes[0], context=bytes(32))
    with pytest.raises(PeerFault, match=r"^wrong-context: .*\[member-0\]$"):
        attempt.check_certificate(replace(true, votes=(smuggled, *true.votes[1:])))


@pytest.mark.parametrize(
    "members", [("member-1", "member-0"), ("member-0", "member-0"), ("member-0", "sybil")]
)
def test_survivors_out_of_order_repeated_or_strange_are_refused(
    federation: Federation, attempt: Attempt, members: tuple[str, ...]
) -> None:
    survivors = tuple(Survivor(m, bytes(8), bytes(8), bytes(32)) for m in members)
    with pytest.raises(PeerFault, match=r"^survivors-invalid:"):
        attempt.check_certificate(certificate(federation, attempt, survivors=survivors))


def test_regression_the_shamir_threshold_and_n_min_confused() -> None:
    """A set of t survivors, fewer than n_min, is refused although t shares would open it.

    With a threshold alone an active coordinator drove the honest cohort to 4 while every client believed in 34.
    """
    federation = Federation(6, decryptors=(0, 1, 2))
    attempt = Attempt(federation.roster, federation.manifest, federation.opening(federation.terms(8)))
    t, n_min = attempt.quorum.threshold, attempt.quorum.survivors_min
    assert t < n_min
    attempt.check_certificate(
        certificate(federation, attempt, voters=(0, 1, 2), survivors=survivors_of(n_min))
    )
    for count in range(t, n_min):
        with pytest.raises(PeerFault, match=rf"^survivors-too-few: {count} survivors, n_min is {n_min}"):
            attempt.check_certificate(
                certificate(federation, attempt, voters=(0, 1, 2), survivors=survivors_of(count))
            )


# What the admin's Lost must satisfy


@pytest.fixture(scope="module")
def given_up() -> Federation:
    """Five members (t = 4, a_D = 1) in an attempt that is to be closed by the admin."""
    federation = Federation(5)
    federation.begin(terms=federation.terms(8))
    return federation


def test_a_threshold_of_reports_tells_of_every_set(given_up: Federation) -> None:
    attempt, s = given_up.phase.attempt, survivors_of(4)
    for voters in ((), federation_ids(3), federation_ids(4), federation_ids(5)):
        message = lost(given_up, dict.fromkeys(voters, s))
        assert attempt.check_lost(message) == (len(voters) >= 4)


def federation_ids(count: int) -> tuple[str, ...]:
    return tuple(f"member-{index}" for index in range(count))


@pytest.mark.parametrize(
    ("reports", "opened"),
    [
        ({}, []),
        ({"member-0": 4}, [4]),
        ({"member-0": 4, "member-1": 5}, [4, 5]),
        # one of four who report: with one silent, a certified set would have two honest voters among them
        ({"member-0": 4, "member-1": 0, "member-2": 0, "member-3": 0}, []),
        ({"member-0": 4, "member-1": 4, "member-2": 0, "member-3": 0}, [4]),
        ({"member-0": 4, "member-1": 4, "member-2": 5, "member-3": 5}, [4, 5]),
        ({"member-0": 4, "member-1": 4, "member-2": 5, "member-3": 5, "member-4": 5}, [5]),
    ],
)
def test_sets_that_only_colluders_can_have_reported_are_not_opened(
    given_up: Federation, reports: dict[str, int], opened: list[int]
) -> None:
    attempt = given_up.phase.attempt
    past = attempt.past(lost(given_up, {member: survivors_of(count) for member, count in reports.items()}))
    assert (past.context, past.reason) == (attempt.context, "lost")
    assert {each.survivors for each in past.sets} == {survivors_of(count) for count in opened}
    assert list(past.outcomes) == sorted(past.outcomes)


def test_another_admin_closes_nothing(given_up: Federation) -> None:
    attempt = given_up.phase.attempt
    true = lost(given_up, {})
    with pytest.raises(PeerFault, match=r"^bad-signature: admin's .*\[admin\]$"):
        attempt.check_lost(again(true, given_up.coordinator))
    with pytest.raises(PeerFault, match=r"^bad-signature: admin's .*\[admin\]$"):
        attempt.check_lost(replace(lost(given_up, {"member-0": ()}), reports=()))
    with pytest.raises(PeerFault, match=r"^wrong-context: .*\[admin\]$"):
        attempt.check_lost(lost(given_up, {}, context=bytes(32)))


def test_a_report_is_a_decryptors_for_this_context(given_up: Federation) -> None:
    attempt, key = given_up.phase.attempt, given_up.keys["member-1"]

    def closing(report: Report) -> None:
        attempt.check_lost(lost(given_up, {}, reports=(report,)))

    true = Report.make(key, context=attempt.context, member="member-1", sets=(SurvivorSet(survivors_of(4)),))
    closing(true)
    with pytest.raises(PeerFault, match=r"^wrong-context: .*\[member-1\]$"):
        closing(again(true, key, context=bytes(32)))
    with pytest.raises(PeerFault, match=r"^not-a-decryptor: .*\[sybil\]$"):
        closing(again(true, key, member="sybil"))
    with pytest.raises(PeerFault, match=r"^bad-signature: .*\[member-1\]$"):
        closing(replace(true, sets=()))
    with pytest.raises(PeerFault, match=r"^bad-signature: .*\[member-2\]$"):
        closing(again(true, key, member="member-2"))


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
