"""What an opening must say, and what certificates and proofs of counting must hold."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from protocol.causes import Cause
from protocol.errors import PeerFault
from protocol.helpers.attempt import HelperAttempt, check_votes
from protocol.helpers.coordinator import Recovered
from protocol.helpers.messages import HelperVote, set_outcome
from protocol.helpers.simulator import HelperFederation
from protocol.identity import verify_signature
from protocol.messages.outcome import Survivor

Reopen = Callable[..., HelperAttempt]
Recard = Callable[..., Any]


def refusal(call: Callable[..., object], *arguments: Any) -> PeerFault:
    with pytest.raises(PeerFault) as refused:
        call(*arguments)
    return refused.value


@pytest.fixture
def opened(federation: HelperFederation) -> HelperFederation:
    federation.begin(federation.terms(100))
    return federation


def test_the_context_depends_on_everything_that_both_sides_must_share(
    opened: HelperFederation, reopen: Reopen
) -> None:
    attempt = opened.attempt
    terms = attempt.opening.terms
    others = [
        reopen(opened, chain=b"\x01" * 32),
        reopen(opened, terms=replace(terms, elements=101)),
        reopen(opened, terms=replace(terms, layout=b"x")),
        reopen(opened, cap=999),
        reopen(opened, cards=attempt.manifest.cards[:3]),
        reopen(opened, cohort=b"\x01" * 32),
        reopen(opened, roster=opened.sign_roster(2)),
    ]
    assert len({other.context for other in [attempt, *others]}) == 8
    assert reopen(opened).context == attempt.context


def test_the_context_from_the_specification_alone(opened: HelperFederation) -> None:
    def h(name: str, *fields: bytes) -> bytes:
        text = b"veilsum/2/" + name.encode() + b"\0"
        return hashlib.sha256(text + b"".join(len(f).to_bytes(8, "little") + f for f in fields)).digest()

    attempt, roster = opened.attempt, opened.roster
    cohort = h("cohort", h("roster", roster.to_bytes()), bytes(8))
    assert attempt.context == h(
        "helper-ctx",
        b"x25519-hkdf_sha256-aes256_ctr-aes256_gcm-ed25519-replicated_4",
        b"helpers",
        opened.admin.public,
        h("roster", roster.to_bytes()),
        cohort,
        h("helper-manifest", attempt.manifest.encode_fields()),
        bytes(32),
        h("terms", attempt.opening.terms.encode_fields()),
        h("layout", b""),
    )
    opening = attempt.opening
    signed = h("helper-opening", opening.to_bytes()[:-64])
    verify_signature(roster.coordinator, opening.signature, signed, "coordinator")
    header = opened._speak(0).header
    roots = header.sender_key, header.chunk_root, header.seed_root, header.box_root
    names = attempt.context, b"client-0", header.lineage, header.records
    assert header.digest == h("helper-digest", *names, *roots)
    verify_signature(
        opened.keys["client-0"].public,
        header.signature,
        h("helper-upload", *names, header.digest),
        "client-0",
    )


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"roster_hash": bytes(32)}, Cause.WRONG_COHORT),
        ({"counter": 1}, Cause.WRONG_COHORT),
        ({"cohort": bytes(32)}, Cause.WRONG_COHORT),
        ({"clients": 7}, Cause.WEAK_PARAMETERS),
        ({"clients": 9}, Cause.WEAK_PARAMETERS),
        ({"colluders": 1, "survivors_min": 4}, Cause.WEAK_PARAMETERS),
        ({"honest_min": 2, "survivors_min": 4}, Cause.WEAK_PARAMETERS),
        ({"survivors_min": 4}, Cause.WEAK_PARAMETERS),
        ({"survivors_min": 9}, Cause.COHORT_TOO_SMALL),
        ({"cap": 1001}, Cause.TERMS_REFUSED),
    ],
)
def test_a_manifest_that_misstates_is_refused(
    opened: HelperFederation, reopen: Reopen, changes: dict[str, Any], cause: Cause
) -> None:
    assert refusal(reopen(opened, **changes).check, opened.now_s).cause == cause


def test_more_survivors_and_more_colluders_may_be_asked_for(opened: HelperFederation, reopen: Reopen) -> None:
    reopen(opened, survivors_min=8, colluders=3).check(opened.now_s)


def test_the_coordinator_of_the_roster_signs(opened: HelperFederation, reopen: Reopen) -> None:
    fault = refusal(reopen(opened, key=opened.admin).check, opened.now_s)
    assert (fault.cause, fault.parties) == (Cause.BAD_SIGNATURE, ("coordinator",))


def test_a_roster_without_four_helpers_is_none_for_this_mode(
    opened: HelperFederation, reopen: Reopen
) -> None:
    roster = opened.sign_roster(2, helpers=opened.helpers[:3])
    assert refusal(reopen(opened, roster=roster).check, opened.now_s).cause == Cause.WEAK_PARAMETERS


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"cohort": bytes(32)}, Cause.WRONG_COHORT),
        ({"member": "client-0"}, Cause.NOT_A_DECRYPTOR),
        ({"expires_s": 1_000_000}, Cause.CARD_EXPIRED),
        ({"box_key": bytes(32)}, Cause.LOW_ORDER_POINT),
    ],
)
def test_a_false_card_is_refused_and_named(
    opened: HelperFederation, reopen: Reopen, recard: Recard, changes: dict[str, Any], cause: Cause
) -> None:
    fault = refusal(reopen(opened, cards=recard(opened, 0, **changes)).check, opened.now_s)
    assert (fault.cause, fault.parties) == (cause, (changes.get("member", "helper-0"),))


def test_a_card_is_signed_by_its_helper(opened: HelperFederation, reopen: Reopen, recard: Recard) -> None:
    cards = recard(opened, 1, key=opened.keys["helper-2"])
    assert refusal(reopen(opened, cards=cards).check, opened.now_s).cause == Cause.BAD_SIGNATURE


def test_one_key_serves_one_helper_however_encoded(
    opened: HelperFederation, reopen: Reopen, recard: Recard
) -> None:
    key = opened.attempt.manifest.cards[0].box_key
    for same in (key, key[:-1] + bytes([key[-1] | 0x80])):
        cards = recard(opened, 1, box_key=same)
        assert refusal(reopen(opened, cards=cards).check, opened.now_s).cause == Cause.DUPLICATE


def test_three_helpers_are_enough_and_two_are_not(opened: HelperFederation, reopen: Reopen) -> None:
    cards = opened.attempt.manifest.cards
    reopen(opened, cards=cards[1:]).check(opened.now_s)
    assert refusal(reopen(opened, cards=cards[2:]).check, opened.now_s).cause == Cause.COHORT_TOO_SMALL


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"latest_end_s": 1_000_000}, Cause.TERMS_EXPIRED),
        ({"extractor": bytes(32)}, Cause.TERMS_REFUSED),
        ({"indicator": b"\x01" * 32}, Cause.TERMS_REFUSED),
        ({"statistic": "indicator"}, Cause.TERMS_REFUSED),
        ({"noise": b"x"}, Cause.TERMS_REFUSED),
    ],
)
def test_terms_are_the_roster_s_and_of_this_mode(
    opened: HelperFederation, reopen: Reopen, changes: dict[str, Any], cause: Cause
) -> None:
    attempt = reopen(opened, terms=replace(opened.attempt.opening.terms, **changes))
    assert refusal(attempt.check, opened.now_s).cause == cause


def test_where_rare_classes_must_be_withheld_no_sum_is_taken() -> None:
    federation = HelperFederation(8)
    federation.roster = federation.sign_roster(1, withhold=1)
    for helper in federation.helpers:
        federation.phases[helper] = replace(federation.phases[helper], roster=federation.roster)  # type: ignore[call-arg]  # Standing
    assert refusal(federation.begin, federation.terms(100)).cause == Cause.TERMS_REFUSED


def test_cards_that_were_sent_for_terms_that_none_may_take_serve_the_next() -> None:
    federation = HelperFederation(8)
    terms = federation.terms(100)
    assert refusal(federation.begin, replace(terms, noise=b"x")).cause == Cause.TERMS_REFUSED
    assert isinstance(federation.run(terms).phase, Recovered)


def test_each_helper_is_dealt_all_seeds_but_one(opened: HelperFederation) -> None:
    dealt = [opened.attempt.seeds_of(helper) for helper in opened.helpers]
    assert dealt == [(1, 2, 3), (0, 2, 3), (0, 1, 3), (0, 1, 2)]


def test_headers_are_clients_of_this_context(opened: HelperFederation, resign: Callable[..., Any]) -> None:
    upload, attempt = opened._speak(0), opened.attempt
    attempt.check_header(upload.header)
    moved = resign(opened, upload, context=bytes(32))
    assert refusal(attempt.check_header, moved.header).cause == Cause.WRONG_CONTEXT
    helper = resign(opened, upload, member="helper-0")
    assert refusal(attempt.check_header, helper.header).cause == Cause.UNKNOWN_MEMBER
    forged = replace(upload.header, member="client-1")
    assert refusal(attempt.check_header, forged).cause == Cause.BAD_SIGNATURE


def test_votes_are_three_helpers_on_one_outcome(opened: HelperFederation) -> None:
    context = opened.attempt.context

    def vote(member: str, outcome: bytes = bytes(32), at: bytes = context) -> HelperVote:
        return HelperVote.make(opened.keys[member], context=at, member=member, outcome=outcome)

    def judged(*votes: HelperVote) -> Cause:
        return refusal(check_votes, opened.roster, context, bytes(32), votes).cause

    three = tuple(vote(helper) for helper in opened.helpers[:3])
    check_votes(opened.roster, context, bytes(32), three)
    assert judged(*three[:2]) == Cause.CERTIFICATE_INVALID
    assert judged(*three[:2], vote("helper-2", b"\x01" * 32)) == Cause.CERTIFICATE_INVALID
    assert judged(*three[:2], vote("helper-2", at=bytes(32))) == Cause.CERTIFICATE_INVALID
    assert judged(vote("client-0"), *three) == Cause.NOT_A_DECRYPTOR
    assert judged(*three[:2], replace(three[2], signature=bytes(64))) == Cause.BAD_SIGNATURE


def certified(federation: HelperFederation) -> Recovered:
    outcome = federation.run(federation.terms(100))
    assert isinstance(outcome.phase, Recovered)
    return outcome.phase


def test_a_certificate_is_of_this_attempt_and_of_enough_clients(federation: HelperFederation) -> None:
    certificate = certified(federation).certificate
    attempt = federation.attempt
    attempt.check_certificate(certificate)

    def signed(survivors: tuple[Survivor, ...]) -> Any:
        outcome = set_outcome(attempt.context, "exact", 5, survivors)
        votes = tuple(
            HelperVote.make(federation.keys[helper], context=attempt.context, member=helper, outcome=outcome)
            for helper in federation.helpers
        )
        return replace(certificate, survivors=survivors, votes=votes)

    def judged(changed: Any) -> Cause:
        return refusal(attempt.check_certificate, changed).cause

    attempt.check_certificate(signed(certificate.survivors[:5]))
    assert judged(signed(certificate.survivors[:4])) == Cause.SURVIVORS_TOO_FEW
    stranger = Survivor("stranger", bytes(8), bytes(8), bytes(32))
    assert judged(signed((*certificate.survivors, stranger))) == Cause.SURVIVORS_INVALID
    assert judged(replace(certificate, survivors=certificate.survivors[:7])) == Cause.CERTIFICATE_INVALID
    assert judged(replace(certificate, family="noisy")) == Cause.CERTIFICATE_INVALID
    assert judged(replace(certificate, floor=4)) == Cause.CERTIFICATE_INVALID
    assert judged(replace(certificate, context=bytes(32))) == Cause.WRONG_CONTEXT


def test_a_client_checks_that_it_was_counted(federation: HelperFederation) -> None:
    phase = certified(federation)
    spoken = federation.states["client-3"]
    counted = phase.counted("client-3")
    check = spoken.check_counted  # type: ignore[union-attr]  # it has spoken
    check(federation.attempt, counted)
    assert len(counted.to_bytes()) < 1_000

    def judged(**changes: Any) -> Cause:
        return refusal(check, federation.attempt, replace(counted, **changes)).cause

    assert judged(context=bytes(32)) == Cause.WRONG_CONTEXT
    assert judged(survivor=phase.certificate.survivors[2]) == Cause.RESULT_MISMATCH
    assert judged(place=2) == Cause.RESULT_MISMATCH
    assert judged(count=4, path=counted.path[:2]) == Cause.RESULT_MISMATCH
    assert judged(path=()) == Cause.RESULT_MISMATCH
    assert judged(root=bytes(32)) == Cause.RESULT_MISMATCH
    assert judged(votes=counted.votes[:2]) == Cause.CERTIFICATE_INVALID


def test_a_shorter_last_chunk(opened: HelperFederation) -> None:
    attempt = opened.attempt
    assert [attempt.chunk_elements(index) for index in range(attempt.chunks)] == [64, 36]
