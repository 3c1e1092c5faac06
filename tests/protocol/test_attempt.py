import hashlib
from dataclasses import replace
from typing import Any

import pytest

from protocol.attempt import Attempt, check_manifest
from protocol.errors import PeerFault
from protocol.identity import SigningKey
from protocol.keys import AgreementKey
from protocol.messages import (
    EMPTY_CHAIN,
    Certificate,
    Entry,
    KeyCard,
    Link,
    Manifest,
    Survivor,
    Vote,
    cohort_id,
)
from protocol.messages.opening import extend_chain
from protocol.messages.outcome import survivors_hash, void_hash
from protocol.simulator import Federation

LINK = Link(cohort=bytes(32), sequence=0, attempt=0, context=bytes(32), outcome=bytes(32))


@pytest.fixture(scope="module")
def federation() -> Federation:
    return Federation(5)


@pytest.fixture(scope="module")
def attempt(federation: Federation) -> Attempt:
    return Attempt(federation.roster, federation.manifest, federation.opening(federation.terms(100)))


def h(tag: bytes, *fields: bytes) -> bytes:
    """H(tag, fields) by hand."""
    return hashlib.sha256(
        b"veilsum/1/" + tag + b"\0" + b"".join(len(f).to_bytes(8, "little") + f for f in fields)
    ).digest()


def test_the_context_is_the_hash_of_everything_that_fixes_the_attempt(attempt: Attempt) -> None:
    opening, roster, manifest = attempt.opening, attempt.roster, attempt.manifest
    assert attempt.context == h(
        b"ctx",
        b"x25519-hkdf_sha256-aes256_ctr-aes256_gcm-ed25519-shamir_31",
        b"complete",
        roster.federation,
        h(b"roster", roster.to_bytes()),
        h(b"cohort", h(b"roster", roster.to_bytes()), (0).to_bytes(8, "little")),
        h(b"manifest", manifest.to_bytes()),
        (0).to_bytes(8, "little"),
        (0).to_bytes(1, "little"),
        bytes(32),
        h(b"terms", opening.terms.encode_fields()),
        h(b"layout", opening.terms.layout),
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
    {"latest_end_s": 1},
]


@pytest.mark.parametrize("change", TERMS_CHANGES, ids=lambda change: next(iter(change)))
def test_every_term_stands_in_the_context(attempt: Attempt, change: dict[str, Any]) -> None:
    terms = replace(attempt.opening.terms, **change)
    assert replace(attempt, opening=replace(attempt.opening, terms=terms)).context != attempt.context
    assert set(vars(attempt.opening.terms)) == {next(iter(c)) for c in TERMS_CHANGES}


@pytest.mark.parametrize(
    "change", [{"sequence": 1}, {"attempt": 1}, {"links": (LINK,)}], ids=lambda change: next(iter(change))
)
def test_place_and_history_stand_in_the_context(attempt: Attempt, change: dict[str, Any]) -> None:
    assert replace(attempt, opening=replace(attempt.opening, **change)).context != attempt.context


@pytest.mark.parametrize(
    "change",
    [
        {"cohort": bytes(32)},
        {"counter": 9},
        {"cards": ()},
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
        {"extractors": ()},
        {"signature": bytes(64)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_the_whole_roster_stands_in_the_context(attempt: Attempt, change: dict[str, Any]) -> None:
    assert replace(attempt, roster=replace(attempt.roster, **change)).context != attempt.context


def test_a_card_stands_in_the_context(attempt: Attempt) -> None:
    cards = attempt.manifest.cards
    other = replace(cards[0], nonce=bytes(32))
    manifest = replace(attempt.manifest, cards=(other, *cards[1:]))
    assert replace(attempt, manifest=manifest).context != attempt.context


def test_the_coordinators_signature_does_not_stand_in_the_context(attempt: Attempt) -> None:
    # a malleable or renewed signature must not split members
    assert replace(attempt, opening=replace(attempt.opening, signature=bytes(64))).context == attempt.context


def test_a_link_names_the_attempt_and_its_end(attempt: Attempt) -> None:
    link = attempt.link(b"\x0c" * 32)
    assert link == Link(attempt.manifest.cohort, 0, 0, attempt.context, b"\x0c" * 32)
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


def recarded(federation: Federation, index: int, **changes: Any) -> Manifest:
    """The manifest with one card changed and signed again by its member."""
    cards = list(federation.manifest.cards)
    card = cards[index]
    values = {name: getattr(card, name) for name in vars(card) if name != "signature"}
    cards[index] = KeyCard.make(federation.keys[card.member], **{**values, **changes})
    return changed(federation, cards=tuple(cards))


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
    with pytest.raises(PeerFault, match=r"^wrong-cohort: .*\[member-2\]$"):
        check_manifest(federation.roster, recarded(federation, 2, cohort=other))


def test_a_strangers_card_is_refused(federation: Federation) -> None:
    cards = federation.manifest.cards
    sybil = KeyCard.make(
        SigningKey(bytes(32)),
        **{n: getattr(cards[4], n) for n in vars(cards[4]) if n not in {"signature", "member"}},
        member="sybil",
    )
    manifest = changed(federation, cards=(*cards[:4], sybil), decryptors=(*federation.ids[:4], "sybil"))
    with pytest.raises(PeerFault, match=r"^unknown-member: .*\[sybil\]$"):
        check_manifest(federation.roster, manifest)


def test_a_card_that_its_member_did_not_sign_is_refused(federation: Federation) -> None:
    cards = federation.manifest.cards
    forged = replace(cards[1], mask_key=AgreementKey(bytes(32)).public)
    with pytest.raises(PeerFault, match=r"^bad-signature: .*\[member-1\]$"):
        check_manifest(federation.roster, changed(federation, cards=(cards[0], forged, *cards[2:])))


@pytest.mark.parametrize("field", ["mask_key", "box_key"])
@pytest.mark.parametrize("top_bit", [0, 0x80])
def test_a_key_that_stands_twice_is_refused_in_any_encoding(
    federation: Federation, field: str, top_bit: int
) -> None:
    copied = federation.manifest.cards[0].mask_key
    copied = copied[:31] + bytes([copied[31] | top_bit])
    with pytest.raises(PeerFault, match=r"^duplicate: an X25519 key stands twice"):
        check_manifest(federation.roster, recarded(federation, 3, **{field: copied}))


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


def test_a_manifest_without_cards_is_refused(federation: Federation) -> None:
    with pytest.raises(PeerFault, match=r"^cohort-too-small: 0 members"):
        check_manifest(federation.roster, changed(federation, cards=(), caps=(), decryptors=()))


def test_a_nominated_committee_is_not_replaced_by_everyone() -> None:
    federation = Federation(6, decryptors=(1, 2, 4))
    check_manifest(federation.roster, federation.manifest)
    with pytest.raises(PeerFault, match=r"^weak-parameters:"):
        check_manifest(federation.roster, changed(federation, decryptors=federation.ids, threshold=4))
    kept = [0, 3, 5]
    without = changed(
        federation,
        cards=tuple(federation.manifest.cards[i] for i in kept),
        caps=(1, 1, 1),
        colluders=0,
        decryptor_colluders=0,
        survivors_min=3,
        threshold=2,
        degree=2,
        decryptors=tuple(federation.ids[i] for i in kept),
    )
    with pytest.raises(PeerFault, match=r"^cohort-too-small: .* L=0"):
        check_manifest(federation.roster, without)


def test_a_roster_key_decides_who_is_a_member(federation: Federation) -> None:
    members = (Entry("member-0", bytes(32)), *federation.roster.members[1:])
    roster = replace(federation.roster, members=members)
    manifest = changed(federation, roster_hash=roster.hash, cohort=cohort_id(roster.hash, 0))
    with pytest.raises(PeerFault, match=r"^wrong-cohort: the card of member-0"):
        check_manifest(roster, manifest)


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
