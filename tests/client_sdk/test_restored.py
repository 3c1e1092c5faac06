"""A folder that was restored from an older copy enrols nowhere, and opens nothing (member: Restored folders)."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from client_sdk.errors import PeerFault
from client_sdk.identity import Identity
from client_sdk.reservations import State
from client_sdk.result import Result
from client_sdk.store import Store
from tests.support import refusals
from tests.support.answers import Answer, changed, message
from tests.support.answers import refused as refused_with
from tests.support.consortium import Consortium, stored_in
from tests.support.forging import again
from tests.support.serving import Stage
from veilsum.protocol.causes import Cause
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.messages import NO_REASON, Certificate, KeyCard, Lost, Vote, survivors_hash

M = "member-0"
Change = Callable[[bytes, Consortium], bytes]


def copied(consortium: Consortium, place: Path) -> Path:
    """Copy a member's folder."""
    return shutil.copytree(consortium.folder / M, place)


def put_back(consortium: Consortium, copy: Path) -> None:
    """Put a copy in the place of a member's folder."""
    if M in consortium.open:
        consortium.open.pop(M).close()
    shutil.rmtree(consortium.folder / M)
    shutil.copytree(copy, consortium.folder / M)


def enrol_alone(consortium: Consortium, cohort: str, period: str) -> KeyCard:
    """Send the member's card to a cohort, and return it."""
    consortium.run_until(consortium.member(M).enrol(cohort, consortium.records(M, period)), "PUT")
    found = Store(consortium.folder / M).newest_card()
    assert found is not None
    return found


def refused(consortium: Consortium, cohort: str, period: str) -> PeerFault:
    """Return why the member does not enrol. It stores nothing."""
    member = consortium.member(M)
    before = stored_in(consortium.folder / M)
    with pytest.raises(PeerFault) as caught:
        consortium.alone(member.enrol(cohort, consortium.records(M, period)))
    assert stored_in(consortium.folder / M) == before
    return caught.value


def test_a_copy_of_before_a_run_is_refused_after_it(consortium: Consortium, tmp_path: Path) -> None:
    copy = copied(consortium, tmp_path / "copy")
    consortium.run(consortium.enrol())
    put_back(consortium, copy)
    fault = refused(consortium, consortium.open_cohort("p2"), "p2")
    assert (fault.cause, fault.parties) == (Cause.STATE_RESTORED, (M,))
    assert "veilsum member new" in fault.detail
    assert "veilsum member mark-summed" in fault.detail
    # Also an agent that waits for runs ends with it.
    member = consortium.member(M)
    agent = member.make_agent(consortium.records(M, "p2"))
    with refusals.refused("state-restored", "member-0"):
        consortium.alone(member.next_result(agent))


def test_serials_count_cards_and_a_restarted_member_sends_the_same_card(
    consortium: Consortium, tmp_path: Path
) -> None:
    first, second = consortium.open_cohort(), consortium.open_cohort("p2")
    card = enrol_alone(consortium, first, "p1")
    copy = copied(consortium, tmp_path / "copy")
    assert enrol_alone(consortium, first, "p1") == card
    put_back(consortium, copy)  # no card was signed since
    later = enrol_alone(consortium, second, "p2")
    assert enrol_alone(consortium, first, "p1") == later
    assert (card.serial, later.serial) == (1, 2)


def test_of_two_copies_the_second_is_refused(consortium: Consortium, tmp_path: Path) -> None:
    enrol_alone(consortium, consortium.open_cohort(), "p1")
    copy = copied(consortium, tmp_path / "copy")
    enrol_alone(consortium, consortium.open_cohort("p2"), "p2")
    mine = copied(consortium, tmp_path / "mine")
    put_back(consortium, copy)
    third = consortium.open_cohort("p3")
    assert refused(consortium, third, "p3").cause is Cause.STATE_RESTORED
    put_back(consortium, mine)
    assert enrol_alone(consortium, third, "p3").serial == 3


def test_of_two_copies_that_enrol_at_once_one_is_refused(consortium: Consortium, tmp_path: Path) -> None:
    """Both have seen the invitation before either has sent its card."""
    copy = copied(consortium, tmp_path / "copy")
    first, second = consortium.open_cohort(), consortium.open_cohort("p2")
    consortium.shows("GET .*/invitation", changed(card=None))
    enrol_alone(consortium, first, "p1")
    put_back(consortium, copy)
    with refusals.refused(Cause.CARD_CONFLICT, M):
        consortium.alone(consortium.member(M).enrol(second, consortium.records(M, "p2")))
    consortium.on_answer = lambda _member, _sent, answer: answer
    own = Store(consortium.folder / M).newest_card()
    assert own is not None
    assert own.serial == 1
    assert (
        refused(consortium, second, "p2").cause is Cause.STATE_RESTORED
    )  # the same serial, with other bytes


@pytest.mark.parametrize(
    ("shown", "cause"),
    [
        (lambda card, _: card[:-1], Cause.TRUNCATED),
        (lambda card, _: card + b"\0", Cause.LEFT_OVER_BYTES),
        (lambda card, _: bytes([*card[:2], card[2] ^ 1, *card[3:]]), Cause.BAD_SIGNATURE),
        (lambda card, _: card[:-65] + b"\x01" + card[-64:], Cause.BAD_SIGNATURE),
        (
            lambda card, _: again(KeyCard.from_bytes(card), SigningKey(b"x" * 32), serial=9).to_bytes(),
            Cause.BAD_SIGNATURE,
        ),
        (lambda _, consortium: other_card(consortium), Cause.BAD_SIGNATURE),
    ],
    ids=["cut", "longer", "another cohort", "another serial", "another key", "another member"],
)
def test_what_is_no_card_of_this_member_is_the_coordinator_s_fault(
    consortium: Consortium, shown: Change, cause: Cause
) -> None:
    card = enrol_alone(consortium, consortium.open_cohort(), "p1")
    second = consortium.open_cohort("p2")
    false = shown(card.to_bytes(), consortium)
    consortium.shows("GET .*/invitation", changed(card=false.hex()), [M])
    fault = refused(consortium, second, "p2")
    assert (fault.cause, fault.parties) == (cause, ("coordinator",))
    consortium.on_answer = lambda _member, _sent, answer: answer
    assert enrol_alone(consortium, second, "p2").serial == 2


def other_card(consortium: Consortium) -> bytes:
    """Another member's newest card."""
    cohort = consortium.open_cohort("p3")
    consortium.run_until(
        consortium.member("member-1").enrol(cohort, consortium.records("member-1", "p3")), "PUT"
    )
    found = Store(consortium.folder / "member-1").newest_card()
    assert found is not None
    return found.to_bytes()


def test_an_older_card_or_none_is_no_reason_to_refuse(consortium: Consortium) -> None:
    card = enrol_alone(consortium, consortium.open_cohort(), "p1")
    enrol_alone(consortium, consortium.open_cohort("p2"), "p2")
    for number, shown in enumerate((card.to_bytes().hex(), None), 3):
        consortium.shows("GET .*/invitation", changed(card=shown))
        assert enrol_alone(consortium, consortium.open_cohort(f"p{number}"), f"p{number}").serial == number


def test_a_new_identity_counts_from_one_and_takes_no_marked_record(consortium: Consortium) -> None:
    """The remedy: a new key in the next roster, and all of today's data marked."""
    consortium.run(consortium.enrol())
    consortium.open.pop(M).close()
    shutil.rmtree(consortium.folder / M)
    Identity.create(consortium.folder / M, M, held_out=0.0)
    member = consortium.member(M)
    records = consortium.records(M)
    assert member.mark_summed(records) == len(records)
    assert member.mark_summed(records) == 0
    consortium.operator.publish_roster(consortium.make_roster(2))
    cohort = consortium.open_cohort("p2")
    refused_ = consortium.together({M: member.enrol(cohort, records)})[M]
    assert type(refused_).__name__ == "Declined"
    [run] = member.ledger()
    assert (run.rows, run.taken) == (0, len(records))
    assert enrol_alone(consortium, consortium.open_cohort("p3"), "p3").serial == 1


# A copy of within a cohort, which knows its newest card


def summed_again(consortium: Consortium) -> str:
    """Enrol in the next period, in which the member has the records of the first, and open its sum."""
    cohort = consortium.open_cohort("p2")
    given = {m: consortium.records(m, "p1" if m == M else "p2") for m in consortium.ids}
    consortium.together({m: consortium.member(m).enrol(cohort, given[m]) for m in consortium.ids})
    assert [run.state for run in consortium.open[M].ledger()] == [State.FREE, State.RESERVED]
    return consortium.open_round(cohort)


def refused_opening(consortium: Consortium, round_id: str) -> PeerFault:
    """Return why the member does not open a round. It stores nothing."""
    member = consortium.member(M)
    before = stored_in(consortium.folder / M)
    with pytest.raises(PeerFault) as caught:
        consortium.alone(member.contribute(round_id))
    assert stored_in(consortium.folder / M) == before
    return caught.value


@pytest.mark.parametrize("joined", [True, False], ids=["joined", "carded"])
def test_a_copy_that_has_forgotten_its_upload_opens_nothing(
    consortium: Consortium, tmp_path: Path, *, joined: bool
) -> None:
    cohort = consortium.open_cohort()
    if not joined:
        enrol_alone(consortium, cohort, "p1")
        copy = copied(consortium, tmp_path / "copy")
    consortium.together(
        {m: consortium.member(m).enrol(cohort, consortium.records(m)) for m in consortium.ids}
    )
    if joined:
        copy = copied(consortium, tmp_path / "copy")
    assert isinstance(consortium.run(cohort)[M], Result)
    put_back(consortium, copy)
    second = summed_again(consortium)
    fault = refused_opening(consortium, second)
    assert (fault.cause, fault.parties) == (Cause.STATE_RESTORED, (M,))
    assert "veilsum member mark-summed" in fault.detail
    member = consortium.member(M)
    agent = member.make_agent(consortium.records(M))
    with refusals.refused("state-restored", "member-0"):
        consortium.alone(member.next_result(agent))


Hidden = tuple[str, Callable[[Consortium, Result], Answer], Cause]
HIDDEN: dict[str, Hidden] = {
    "no opening": ("GET .*/opening", lambda *_: refused_with(Cause.NOT_FOUND), Cause.OUTCOME_MISSING),
    "not a member": ("GET .*/opening", lambda *_: refused_with(Cause.UNKNOWN_MEMBER), Cause.OUTCOME_MISSING),
    "another opening": (
        "GET .*/opening",
        lambda consortium, _: message(consortium.round(consortium.rounds[-1]).attempt.opening),
        Cause.OUTCOME_MISSING,
    ),
    "no end": ("GET .*/closing", lambda *_: refused_with(Cause.NOT_FOUND), Cause.OUTCOME_MISSING),
    "another end": (
        "GET .*/closing",
        lambda consortium, result: message(
            Lost.make_signed(consortium.admin, context=result.certificate.context)
        ),
        Cause.OUTCOME_MISSING,
    ),
    "a certificate of too few votes": (
        "GET .*/closing",
        lambda consortium, result: message(forged_certificate(consortium, result.certificate)),
        Cause.OUTCOME_MISSING,
    ),
}


def forged_certificate(consortium: Consortium, true: Certificate) -> Certificate:
    """A certificate of the others alone, with one vote."""
    survivors = tuple(each for each in true.survivors if each.member != M)
    outcome = survivors_hash(true.context, survivors)
    colluder = Identity.load(consortium.folder / "member-1").key
    vote = Vote.make_signed(colluder, context=true.context, member="member-1", outcome=outcome)
    return Certificate(true.context, survivors, NO_REASON, (vote,))


@pytest.mark.parametrize("hidden", HIDDEN)
def test_a_coordinator_that_hides_the_forgotten_sum_gets_no_second_one(
    consortium: Consortium, tmp_path: Path, hidden: str
) -> None:
    asked, shown, cause = HIDDEN[hidden]
    cohort = consortium.enrol()
    copy = copied(consortium, tmp_path / "copy")
    result = consortium.run(cohort)[M]
    put_back(consortium, copy)
    second = summed_again(consortium)
    consortium.shows(asked, shown(consortium, result), [M])
    fault = refused_opening(consortium, second)
    assert fault.cause is cause
    assert M not in fault.parties


def test_a_member_whose_card_came_too_late_opens_the_next_sum(stage: Stage, tmp_path: Path) -> None:
    """Its phase of the first cohort has no manifest, and the cohort formed without it."""
    consortium = Consortium(stage, tmp_path, 5)
    cohort = consortium.open_cohort()
    consortium.until(consortium.member(M).enrol(cohort, consortium.records(M)), "PUT", "before").close()
    others = [member for member in consortium.ids if member != M]
    consortium.together(
        {m: consortium.member(m).enrol(cohort, consortium.records(m)) for m in others},
        stuck=lambda: consortium.operator.close_cohort(cohort).state == "pairing",
    )
    first = consortium.open_round(cohort)
    consortium.together(consortium.contributions(first, others), stuck=consortium.expiring(first))
    second = summed_again(consortium)
    results = consortium.together(consortium.contributions(second))
    assert {type(result) for result in results.values()} == {Result}, results
    assert len(results) == len(consortium.ids)
