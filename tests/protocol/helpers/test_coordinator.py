"""The coordinator's phases: what each takes, what it refuses and why, and how attempts end."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from protocol.causes import Cause
from protocol.errors import Misuse, PeerFault
from protocol.helpers.coordinator import (
    Checking,
    Collecting,
    Enrolling,
    Freezing,
    Lost,
    Recovered,
    Summing,
    Voided,
    Voiding,
)
from protocol.helpers.helper import Standing
from protocol.helpers.messages import (
    ClientSet,
    HelperCard,
    HelperCertificate,
    HelperLost,
    HelperOpening,
    HelperReceipt,
    HelperRefusal,
    HelperSums,
    HelperVoidRequest,
    HelperVote,
)
from protocol.helpers.simulator import HelperFederation
from protocol.helpers.unmasking import HelperUnmasking
from protocol.messages.base import Message
from protocol.messages.outcome import void_hash

Until = Callable[..., Any]


def cause(call: Callable[..., object], *arguments: Any) -> Cause:
    with pytest.raises(PeerFault) as refused:
        call(*arguments)
    return refused.value.cause


# Enrolling


def cards(federation: HelperFederation) -> dict[str, HelperCard]:
    made = {}
    for helper, standing in federation.phases.items():
        assert isinstance(standing, Standing)
        _, [card] = standing.enrol(federation.keys[helper], expires_s=2_000_000)
        assert isinstance(card, HelperCard)
        made[helper] = card
    return made


def test_cards_are_admitted_once_until_they_expire(federation: HelperFederation) -> None:
    enrolling, now = Enrolling.after(federation.roster, (), 1000), federation.now_s
    first, second = cards(federation)["helper-0"], cards(federation)["helper-0"]
    enrolling = enrolling.receive(first, now)
    assert enrolling.receive(first, now) == enrolling
    assert cause(enrolling.receive, second, now) == Cause.CARD_CONFLICT
    later = HelperCard.make(
        federation.keys["helper-0"],
        cohort=second.cohort,
        member="helper-0",
        box_key=second.box_key,
        expires_s=3_000_000,
    )
    assert enrolling.receive(later, 2_000_000).cards == {"helper-0": later}
    assert cause(Enrolling.after(federation.roster, (), 1000).receive, first, 2e6) == Cause.CARD_EXPIRED
    assert cause(replace(enrolling, counter=1).receive, second, now) == Cause.WRONG_COHORT


def test_an_opening_needs_three_cards(federation: HelperFederation) -> None:
    enrolling = Enrolling.after(federation.roster, (), 1000)
    terms, now = federation.terms(100), federation.now_s
    for place, card in enumerate(reversed(cards(federation).values())):
        if place < 3:
            assert cause(enrolling.attempt, terms, federation.coordinator, now) == Cause.COHORT_TOO_SMALL
        enrolling = enrolling.receive(card, now)
    manifest = enrolling.attempt(terms, federation.coordinator, now).manifest
    assert [card.member for card in manifest.cards] == list(federation.helpers)
    assert (manifest.clients, manifest.colluders, manifest.survivors_min, manifest.floor) == (8, 2, 5, 5)


def test_the_operator_may_ask_for_more(federation: HelperFederation) -> None:
    enrolling = Enrolling.after(federation.roster, (), 1000, 3)
    for card in cards(federation).values():
        enrolling = enrolling.receive(card, federation.now_s)
    terms = federation.terms(100)
    attempt = replace(enrolling, survivors_min=7).attempt(terms, federation.coordinator, federation.now_s)
    assert (attempt.manifest.colluders, attempt.manifest.survivors_min) == (3, 7)


# Collecting


@pytest.fixture
def collecting(federation: HelperFederation) -> Collecting:
    federation.begin(federation.terms(100))
    assert isinstance(federation.phase, Collecting)
    return federation.phase


def test_an_upload_is_signed_whole_and_its_client_s_only_one(
    federation: HelperFederation, collecting: Collecting, resign: Callable[..., Any]
) -> None:
    upload = federation._speak(0)
    collecting.check_upload(upload)
    collecting.check_upload(upload, upload)
    for changed, expected in (
        (resign(federation, upload, context=bytes(32)), Cause.WRONG_CONTEXT),
        (replace(upload, header=replace(upload.header, records=b"\x01" * 8)), Cause.BAD_SIGNATURE),
        (resign(federation, upload, chunk_digests=upload.chunk_digests[:1]), Cause.UPLOAD_MISSHAPEN),
        (resign(federation, upload, commitments=upload.commitments[:3]), Cause.UPLOAD_MISSHAPEN),
        (resign(federation, upload, boxes=upload.boxes[:3]), Cause.UPLOAD_MISSHAPEN),
        (resign(federation, upload, chunk_root=bytes(32)), Cause.UPLOAD_MISSHAPEN),
        (resign(federation, upload, seed_root=bytes(32)), Cause.UPLOAD_MISSHAPEN),
        (resign(federation, upload, box_root=bytes(32)), Cause.UPLOAD_MISSHAPEN),
    ):
        assert cause(collecting.check_upload, changed) == expected
    other = resign(federation, upload, records=b"\x01" * 8)
    collecting.check_upload(other)
    assert cause(collecting.check_upload, other, upload) == Cause.UPLOAD_CONFLICT


def test_a_chunk_is_one_that_was_announced(federation: HelperFederation, collecting: Collecting) -> None:
    upload = federation._speak(0)
    packed = federation.spool["client-0", 1]
    digest = hashlib.sha256(packed).digest()
    collecting.check_chunk(upload, 1, digest, len(packed))
    assert cause(collecting.check_chunk, upload, 0, digest, len(packed)) == Cause.CHUNK_MISMATCH
    assert cause(collecting.check_chunk, upload, 1, digest, len(packed) + 1) == Cause.CHUNK_MISMATCH
    assert cause(collecting.check_chunk, upload, 1, bytes(32), len(packed)) == Cause.CHUNK_MISMATCH
    assert cause(collecting.check_chunk, upload, 2, digest, len(packed)) == Cause.CHUNK_UNKNOWN
    assert cause(collecting.check_chunk, upload, -1, digest, len(packed)) == Cause.CHUNK_UNKNOWN


def test_collecting_ends_with_enough_uploads(federation: HelperFederation, collecting: Collecting) -> None:
    uploads = [federation._speak(index) for index in range(5)]
    phase = collecting.close(reversed(uploads), federation.now_s)
    assert isinstance(phase, Checking)
    assert [upload.member for upload in phase.uploads] == list(federation.ids[:5])
    few = collecting.close(uploads[:4], federation.now_s)
    assert isinstance(few, Voiding)
    assert few.fault.cause == Cause.SURVIVORS_TOO_FEW


def test_collecting_shows_the_opening_and_takes_no_messages(
    federation: HelperFederation, collecting: Collecting
) -> None:
    assert isinstance(collecting.request_for("helper-0"), HelperOpening)
    assert collecting.request_for("client-0") is None
    assert collecting.waiting_for() == ()
    assert cause(collecting.receive, federation.attempt.opening, 0.0) == Cause.WRONG_PHASE
    with pytest.raises(Misuse, match="no deadline"):
        collecting.expire(0.0)
    phase = collecting.cancel(0.0, "no longer wanted")
    assert isinstance(phase, Voiding)
    assert str(phase.fault) == "cancelled: no longer wanted [operator]"
    assert phase.cancel(0.0) is phase
    assert repr(phase) == f"<Voiding of {federation.attempt.context.hex()[:16]}>"


# Checking


@pytest.fixture
def checking(federation: HelperFederation, until: Until) -> Checking:
    phase = until(federation, Checking)
    assert isinstance(phase, Checking)
    return phase


def receipt(federation: HelperFederation, helper: str, *complaints: int, **changes: Any) -> HelperReceipt:
    names = tuple(federation.ids[index] for index in complaints)
    values: dict[str, Any] = {
        "context": federation.attempt.context,
        "member": helper,
        "dealers": tuple(client for client in federation.ids if client not in names),
        "complaints": names,
    }
    return HelperReceipt.make(federation.keys[helper], **{**values, **changes})


def checked(federation: HelperFederation, checking: Checking, *complaints: tuple[int, ...]) -> Any:
    phase: Any = checking
    for helper, clients in zip(federation.helpers, complaints, strict=False):
        phase = phase.receive(receipt(federation, helper, *clients), federation.now_s)
    return phase


def test_a_receipt_covers_what_was_sent_and_is_its_helper_s_only_one(
    federation: HelperFederation, checking: Checking
) -> None:
    good, now = receipt(federation, "helper-0"), federation.now_s
    for changed, expected in (
        (receipt(federation, "helper-0", context=bytes(32)), Cause.WRONG_CONTEXT),
        (receipt(federation, "client-0"), Cause.NOT_A_DECRYPTOR),
        (replace(good, signature=bytes(64)), Cause.BAD_SIGNATURE),
        (receipt(federation, "helper-0", dealers=federation.ids[1:]), Cause.MALFORMED),
        (receipt(federation, "helper-0", complaints=federation.ids[:1]), Cause.MALFORMED),
    ):
        assert cause(checking.receive, changed, now) == expected
    once = checking.receive(good, now)
    assert once.receive(good, now) is once
    assert cause(once.receive, receipt(federation, "helper-0", 1), now) == Cause.CONFLICT
    assert once.waiting_for() == federation.helpers[1:]
    assert once.request_for("helper-0") is None
    assert checking.request_for("stranger") is None


def members(phase: Freezing) -> list[int]:
    return [int(survivor.member.removeprefix("client-")) for survivor in phase.survivors]


def test_whoever_is_complained_about_is_dropped(federation: HelperFederation, checking: Checking) -> None:
    phase = checked(federation, checking, (), (3,), (), (5,))
    assert isinstance(phase, Freezing)
    assert members(phase) == [0, 1, 2, 4, 6, 7]
    assert phase.panel == federation.helpers


def test_a_helper_that_complains_about_more_than_a_is_left_out(
    federation: HelperFederation, checking: Checking
) -> None:
    phase = checked(federation, checking, (), (0, 1, 2), (), ())
    assert isinstance(phase, Freezing)
    assert members(phase) == list(range(8))
    assert phase.panel == ("helper-0", "helper-2", "helper-3")
    assert phase.request_for("helper-1") is None


def test_a_helper_is_left_out_where_its_complaints_would_leave_too_few(
    federation: HelperFederation, checking: Checking
) -> None:
    # four disputes leave 4 < n_min; without helper-3 they are two
    phase = checked(federation, checking, (), (0,), (1,), (2, 3))
    assert isinstance(phase, Freezing)
    assert members(phase) == [2, 3, 4, 5, 6, 7]
    assert phase.panel == ("helper-0", "helper-1", "helper-2")


def test_the_attempt_ends_where_no_panel_leaves_enough(
    federation: HelperFederation, checking: Checking
) -> None:
    phase = checked(federation, checking, (0, 1), (2, 3), (4, 5), (6, 7))
    assert isinstance(phase, Voiding)
    assert phase.fault.cause == Cause.SURVIVORS_TOO_FEW
    assert phase.fault.parties == federation.ids


def test_the_attempt_ends_where_two_helpers_complain_about_more_than_a(
    federation: HelperFederation, checking: Checking
) -> None:
    phase = checked(federation, checking, (0, 1, 2), (5, 6, 7), (), ())
    assert isinstance(phase, Voiding)
    assert (phase.fault.cause, phase.fault.parties) == (Cause.BOX_REFUSED, ("helper-0", "helper-1"))


def test_three_receipts_are_enough_when_time_is_up(federation: HelperFederation, checking: Checking) -> None:
    three = checked(federation, checking, (), (), ())
    assert isinstance(three, Checking)
    phase = three.expire(federation.now_s)
    assert isinstance(phase, Freezing)
    assert phase.panel == federation.helpers[:3]
    two = checked(federation, checking, (), ()).expire(federation.now_s)
    assert isinstance(two, Voiding)
    assert (two.fault.cause, two.fault.parties) == (Cause.QUORUM_LOST, federation.helpers[2:])


# Freezing and Voiding


@pytest.fixture
def freezing(federation: HelperFederation, checking: Checking) -> Freezing:
    phase = checked(federation, checking, (), (), (), ())
    assert isinstance(phase, Freezing)
    return phase


def vote(federation: HelperFederation, helper: str, outcome: bytes, **changes: Any) -> HelperVote:
    values = {"context": federation.attempt.context, "member": helper, "outcome": outcome, **changes}
    return HelperVote.make(federation.keys[helper], **values)


def refusal(federation: HelperFederation, helper: str, **changes: Any) -> HelperRefusal:
    values = {
        "context": federation.attempt.context,
        "member": helper,
        "cause": "ledger-refused",
        **changes,
    }
    return HelperRefusal.make(federation.keys[helper], **values)


def after(phase: Any, *messages: Message) -> Any:
    for message in messages:
        phase = phase.receive(message, 0.0)
    return phase


def test_votes_are_helpers_on_the_proposal(federation: HelperFederation, freezing: Freezing) -> None:
    good = vote(federation, "helper-0", freezing.outcome)
    for changed, expected in (
        (vote(federation, "helper-0", freezing.outcome, context=bytes(32)), Cause.WRONG_CONTEXT),
        (vote(federation, "client-0", freezing.outcome), Cause.NOT_A_DECRYPTOR),
        (replace(good, signature=bytes(64)), Cause.BAD_SIGNATURE),
        (vote(federation, "helper-0", bytes(32)), Cause.ALREADY_VOTED),
    ):
        assert cause(freezing.receive, changed, 0.0) == expected
    once = after(freezing, good, good)
    assert once.waiting_for() == federation.helpers[1:]
    assert once.request_for("helper-0") is None
    assert after(once, receipt(federation, "helper-3")) is once
    phase = after(once, *(vote(federation, helper, freezing.outcome) for helper in federation.helpers[2:]))
    assert isinstance(phase, Summing)
    assert [signed.member for signed in phase.certificate.votes] == ["helper-0", "helper-2", "helper-3"]
    federation.attempt.check_certificate(phase.certificate)


def test_two_refusals_end_the_attempt_and_say_why(federation: HelperFederation, freezing: Freezing) -> None:
    bad = replace(refusal(federation, "helper-0"), signature=bytes(64))
    assert cause(freezing.receive, bad, 0.0) == Cause.BAD_SIGNATURE
    one = after(freezing, refusal(federation, "helper-0"), refusal(federation, "helper-0"))
    assert isinstance(one, Freezing)
    assert cause(one.receive, refusal(federation, "helper-0", cause="x"), 0.0) == Cause.CONFLICT
    phase = after(one, refusal(federation, "helper-1"))
    assert isinstance(phase, Voiding)
    assert phase.fault.detail == "helper-0: ledger-refused, helper-1: ledger-refused"


def test_with_one_vote_signed_void_can_still_be_had(federation: HelperFederation, freezing: Freezing) -> None:
    phase = after(freezing, vote(federation, "helper-2", freezing.outcome)).expire(0.0)
    assert isinstance(phase, Voiding)
    assert phase.fault.cause == Cause.QUORUM_LOST
    assert phase.waiting_for() == ("helper-0", "helper-1", "helper-3")
    assert phase.request_for("helper-2") is None
    request = phase.request_for("helper-0")
    assert request == HelperVoidRequest(federation.attempt.context, "quorum-lost")
    outcome = void_hash(federation.attempt.context, "quorum-lost")
    good = vote(federation, "helper-0", outcome)
    for changed, expected in (
        (vote(federation, "helper-0", outcome, context=bytes(32)), Cause.WRONG_CONTEXT),
        (replace(good, signature=bytes(64)), Cause.BAD_SIGNATURE),
        (vote(federation, "helper-2", freezing.outcome), Cause.ALREADY_VOTED),
    ):
        assert cause(phase.receive, changed, 0.0) == expected
    waiting = after(phase, good, good, refusal(federation, "helper-1")).expire(0.0)
    assert (waiting.deadline_s, waiting.waiting_for()) == (None, ("helper-1", "helper-3"))
    ended = after(waiting, *(vote(federation, helper, outcome) for helper in ("helper-1", "helper-3")))
    assert isinstance(ended, Voided)
    assert ended.closing.ended.reason == "quorum-lost"
    assert isinstance(ended.closing, HelperCertificate)
    federation.attempt.check_certificate(ended.closing)
    assert ended.cancel(0.0) is ended
    assert ended.request_for("helper-2") == ended.closing
    assert after(ended, good) is ended


def test_with_two_votes_signed_it_waits_for_the_others_or_the_admin(
    federation: HelperFederation, freezing: Freezing
) -> None:
    two = after(freezing, *(vote(federation, helper, freezing.outcome) for helper in federation.helpers[:2]))
    for waiting in (two.expire(0.0), two.cancel(0.0, "enough"), *refused_twice(federation, two)):
        assert isinstance(waiting, Freezing)
        assert waiting.deadline_s is None
        assert isinstance(after(waiting, vote(federation, "helper-3", freezing.outcome)), Summing)


def refused_twice(federation: HelperFederation, phase: Freezing) -> list[Any]:
    return [after(phase, *(refusal(federation, helper) for helper in federation.helpers[2:]))]


def test_the_admin_closes_what_can_have_no_certificate(
    federation: HelperFederation, freezing: Freezing
) -> None:
    told = (ClientSet(freezing.survivors),)
    context = federation.attempt.context
    good = HelperLost.make(federation.admin, context=context, family="exact", sets=told)
    false = HelperLost.make(federation.coordinator, context=context, family="exact", sets=told)
    other = HelperLost.make(federation.admin, context=bytes(32), family="exact", sets=told)
    for phase in (freezing, freezing.cancel(0.0)):
        assert cause(phase.receive, false, 0.0) == Cause.BAD_SIGNATURE
        assert cause(phase.receive, other, 0.0) == Cause.WRONG_CONTEXT
        ended = after(phase, good)
        assert isinstance(ended, Lost)
        assert ended.fault.cause == Cause.QUORUM_LOST
        assert ended.closing.ended.sets == told


# Summing


@pytest.fixture
def summing(federation: HelperFederation, until: Until) -> tuple[Summing, dict[str, HelperSums]]:
    made: dict[str, HelperSums] = {}

    def keep(sender: str, message: Message) -> Message | None:
        if isinstance(message, HelperSums):
            made[sender] = message
            return None
        return message

    federation.tamper = keep
    phase = until(federation, Summing)
    assert isinstance(phase, Summing)
    for helper in federation.helpers:
        federation._serve(helper)
    assert federation.phase is phase
    return phase, made


def lying(federation: HelperFederation, sums: HelperSums, *seeds: int) -> HelperSums:
    """The helper's sums with another digest of each of these seeds' first chunk."""
    digests = [list(of_seed) for of_seed in sums.digests]
    for seed in seeds:
        digests[federation.attempt.seeds_of(sums.member).index(seed)][0] = sums.member.encode().ljust(32)
    values = {"context": sums.context, "member": sums.member, "outcome": sums.outcome}
    return HelperSums.make(federation.keys[sums.member], **values, digests=tuple(map(tuple, digests)))


def test_sums_fit_the_certificate(
    federation: HelperFederation, summing: tuple[Summing, dict[str, HelperSums]]
) -> None:
    phase, made = summing
    good = made["helper-0"]

    def signed(**changes: Any) -> HelperSums:
        values = {
            "context": good.context,
            "member": "helper-0",
            "outcome": good.outcome,
            "digests": good.digests,
        }
        values |= changes
        return HelperSums.make(federation.keys[changes.get("member", "helper-0")], **values)

    for changed, expected in (
        (signed(context=bytes(32)), Cause.WRONG_CONTEXT),
        (signed(member="client-0"), Cause.NOT_A_DECRYPTOR),
        (replace(good, signature=bytes(64)), Cause.BAD_SIGNATURE),
        (signed(outcome=bytes(32)), Cause.REVEAL_MISSHAPEN),
        (signed(digests=good.digests[:2]), Cause.REVEAL_MISSHAPEN),
        (signed(digests=(*good.digests[:2], good.digests[2][:1])), Cause.REVEAL_MISSHAPEN),
    ):
        assert cause(phase.receive, changed, 0.0) == expected
    once = after(phase, good, good)
    assert cause(once.receive, lying(federation, good, 1), 0.0) == Cause.CONFLICT
    assert once.request_for("helper-0") is None
    assert once.request_for("helper-1") == phase.certificate
    assert after(once, refusal(federation, "helper-3")) is once


def test_three_who_agree_are_enough_at_once(
    summing: tuple[Summing, dict[str, HelperSums]],
) -> None:
    phase, made = summing
    two = after(phase, made["helper-0"], made["helper-3"])
    assert isinstance(two, Summing)
    ended = after(two, made["helper-1"])
    assert isinstance(ended, Recovered)
    assert [source.holders for source in ended.sources] == [
        ("helper-3", "helper-1"),
        ("helper-0", "helper-3"),
        ("helper-0", "helper-3", "helper-1"),
        ("helper-0", "helper-1"),
    ]
    assert ended.outvoted == ()
    assert after(ended, made["helper-2"]) is ended


def test_two_holders_outvote_a_third(
    federation: HelperFederation, summing: tuple[Summing, dict[str, HelperSums]]
) -> None:
    phase, made = summing
    false = lying(federation, made["helper-1"], 0, 3)
    three = after(phase, false, made["helper-0"], made["helper-2"])
    assert isinstance(three, Summing)
    assert three.waiting_for() == ("helper-3",)
    ended = after(three, made["helper-3"])
    assert isinstance(ended, Recovered)
    assert ended.outvoted == ("helper-1",)
    assert all("helper-1" not in ended.sources[seed].holders for seed in (0, 3))


def test_two_holders_who_disagree_end_the_attempt(
    federation: HelperFederation, summing: tuple[Summing, dict[str, HelperSums]]
) -> None:
    phase, made = summing
    false = lying(federation, made["helper-1"], 3)
    ended = after(phase, false, made["helper-0"], made["helper-3"]).expire(0.0)
    assert isinstance(ended, Lost)
    assert ended.fault.cause == Cause.HELPER_DISAGREEMENT
    assert ended.fault.parties == ("helper-0", "helper-1")
    assert ended.closing == phase.certificate


def test_two_helpers_outvoted_end_the_attempt(
    federation: HelperFederation, summing: tuple[Summing, dict[str, HelperSums]]
) -> None:
    phase, made = summing
    ended = after(
        phase,
        lying(federation, made["helper-1"], 0),
        lying(federation, made["helper-2"], 3),
        made["helper-0"],
        made["helper-3"],
    )
    assert isinstance(ended, Lost)
    assert ended.fault.cause == Cause.HELPER_DISAGREEMENT
    assert ended.fault.parties == ("helper-1", "helper-2")


def test_too_few_sums_or_a_cancel_lose_the_sum(summing: tuple[Summing, dict[str, HelperSums]]) -> None:
    phase, made = summing
    ended = after(phase, made["helper-0"], made["helper-1"]).expire(0.0)
    assert isinstance(ended, Lost)
    assert (ended.fault.cause, ended.fault.parties) == (Cause.QUORUM_LOST, ("helper-2", "helper-3"))
    cancelled = phase.cancel(0.0, "enough")
    assert isinstance(cancelled, Lost)
    assert cancelled.fault.cause == Cause.CANCELLED


# Unmasking


def test_a_sum_takes_the_survivors_chunks_and_the_agreed_sums(federation: HelperFederation) -> None:
    ended = federation.run(federation.terms(100)).phase
    assert isinstance(ended, Recovered)
    unmasking = HelperUnmasking(ended)
    packed = [(client, federation.spool[client, 1]) for client in federation.ids]
    sums = [federation.spool[f"{source.holders[-1]}/{seed}", 1] for seed, source in enumerate(ended.sources)]
    expected = sum(federation.vector(index, 100)[64:] for index in range(8))
    assert (unmasking.chunk(1, reversed(packed), sums) == expected).all()
    with pytest.raises(Misuse, match="one chunk of each survivor"):
        unmasking.chunk(1, packed[1:], sums)
    with pytest.raises(Misuse, match="one chunk of each survivor"):
        unmasking.chunk(1, [*packed[1:], packed[1]], sums)
    with pytest.raises(Misuse, match="by 4 sums, not 3"):
        unmasking.chunk(1, packed, sums[:3])
    with pytest.raises(PeerFault) as refused:
        unmasking.chunk(1, packed, [*sums[:3], bytes(len(sums[3]))])
    assert (refused.value.cause, refused.value.parties) == (Cause.CHUNK_MISMATCH, ended.sources[3].holders)
    with pytest.raises(PeerFault) as refused:
        unmasking.chunk(1, [("client-0", b""), *packed[1:]], sums)
    assert (refused.value.cause, refused.value.parties) == (Cause.CHUNK_MISMATCH, ("client-0",))
    with pytest.raises(Misuse, match="stranger is no survivor"):
        ended.counted("stranger")
