"""What a member refuses in a round, what it is refused, and what ends its part."""

from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from client_sdk import conversation
from client_sdk.errors import NotEnrolled, PeerFault, StateError
from client_sdk.reservations import State
from client_sdk.result import Result
from client_sdk.session import ready_of
from tests.support import refusals
from tests.support.answers import changed, refused
from tests.support.consortium import DIM, NOISY, RECORDS, Consortium, hostile, unchanged
from tests.support.refusals import ended
from tests.support.serving import Sent, Stage
from veilsum.protocol.causes import Cause
from veilsum.protocol.codec import SecretBytes
from veilsum.protocol.coordinator import Collecting
from veilsum.protocol.member import MemberPhase, Opened, Ready
from veilsum.protocol.messages import ErasureRequest, Message, VoidRequest
from veilsum.protocol.record import DocumentView
from veilsum.protocol.study import DAY_S
from veilsum.study.result_files import material_file

POLICIES: list[tuple[dict[str, Any], Cause]] = [
    ({"members_min": 4}, Cause.POLICY_REFUSED),
    ({"epsilon_max": 1.0}, Cause.POLICY_REFUSED),
    ({"lifetime_max_s": 60.0}, Cause.POLICY_REFUSED),
    ({"approved": {bytes(32)}}, Cause.STUDY_REFUSED),
    ({"admin_key": b"x" * 32}, Cause.WRONG_FEDERATION),
    ({}, Cause.ROSTER_ROLLBACK),
]
"""A member's new policies, and its old one after a new roster."""


@pytest.mark.parametrize("form", [Ready, Opened])
@pytest.mark.parametrize("given_up", [False, True])
def test_nothing_is_opened_or_sent_where_policy_or_roster_are_stricter_by_now(
    consortium: Consortium, form: type[MemberPhase], *, given_up: bool
) -> None:
    """Or where the run was given up."""
    cohort = consortium.enrol()
    round_id = consortium.open_round(cohort)
    steps = consortium.steps(consortium.member("member-0").contribute(round_id))
    store = consortium.open["member-0"].session.store
    while (held := store.load_phase(bytes.fromhex(cohort))) and not isinstance(held.phase, form):
        next(steps)
    steps.close()
    policy, stricter = consortium.policy, POLICIES
    if given_up:
        consortium.alone(consortium.member("member-0").give_up("study", "p1"))
        stricter = [({}, Cause.POLICY_REFUSED)]
    for changes, cause in stricter:
        if cause is Cause.ROSTER_ROLLBACK:
            consortium.operator.publish_roster(consortium.make_roster(2))
        consortium.policy = replace(policy, **changes)
        with refusals.refused(cause, ...):
            consortium.finish(round_id)
        assert store.load_phase(bytes.fromhex(cohort)) == held, changes
    assert not consortium.requests("uploads")


def test_a_view_that_is_not_of_this_round_or_of_no_end_is_refused(consortium: Consortium) -> None:
    round_id = consortium.open_round(consortium.enrol())
    for changes, cause in (
        ({"federation": "ab" * 32}, "wrong-federation"),
        ({"round": "0123456789abcdef"}, "malformed"),
        ({"state": "collecting", "ended": True}, "malformed"),
        ({"state": "done", "ended": False}, "malformed"),
    ):
        consortium.on_answer = unchanged
        consortium.shows(f"GET /v1/rounds/{round_id}", changed(**changes))
        with refusals.refused(cause, ...):
            consortium.finish(round_id)


def test_an_opening_of_another_round_is_refused(consortium: Consortium) -> None:
    round_id = consortium.open_round(consortium.enrol())
    consortium.on_answer = lambda member, sent, _: consortium.instead(member, sent, "ab" * 8, round_id)
    with refusals.refused("wrong-context", "coordinator"):
        consortium.alone(consortium.contributions("ab" * 8, ["member-0"])["member-0"])
    assert not consortium.requests("uploads")


@pytest.mark.parametrize("path", ["PUT .*/uploads/member-0", "POST .*/answers"])
def test_a_refusal_by_the_coordinator_reaches_the_caller(consortium: Consortium, path: str) -> None:
    round_id = consortium.open_round(consortium.enrol())
    consortium.shows(path, refused(Cause.CONFLICT), ["member-0"])
    results = consortium.together(consortium.contributions(round_id))
    fault = results["member-0"]
    assert isinstance(fault, PeerFault)
    assert fault.cause is Cause.CONFLICT


def test_an_answer_that_comes_after_its_phase_is_no_failure(consortium: Consortium) -> None:
    round_id, refusals = consortium.open_round(consortium.enrol()), list[httpx.Response]()

    def once(answer: httpx.Response) -> httpx.Response:
        if refusals:
            return answer
        refusals.append(refused(Cause.WRONG_PHASE)(answer))
        return refusals[0]

    consortium.shows("POST .*/answers", once)
    results = consortium.together(consortium.contributions(round_id))
    assert refusals
    assert all(isinstance(result, Result) for result in results.values()), results


def test_a_coordinator_that_holds_no_long_poll_is_not_hammered(consortium: Consortium) -> None:
    cohort = consortium.open_cohort()
    consortium.holds, pauses = False, consortium.clock.pauses
    pauses.clear()
    steps = consortium.steps(consortium.member("member-0").enrol(cohort, consortium.records("member-0")))
    while len(pauses) < 3:
        next(steps)
    steps.close()
    assert pauses == [1.0, 1.0, 1.0]
    for member in consortium.ids[1:]:
        consortium.until(consortium.member(member).enrol(cohort, consortium.records(member)), "PUT").close()
    consortium.together({m: consortium.member(m).enrol(cohort) for m in consortium.ids})
    round_id = consortium.open_round(cohort)
    pauses.clear()
    taking_part = consortium.steps(consortium.member("member-0").contribute(round_id))
    while len(pauses) < 3:
        next(taking_part)
    assert pauses == [1.0, 1.0, 1.0]
    ask(consortium, consortium.round(round_id).attempt.opening)  # which it has answered
    pauses.clear()
    for _ in range(40):
        next(taking_part)
    assert pauses == [1.0] * len(pauses)
    assert len(pauses) > 3


def test_nothing_is_fetched_that_a_record_names_without_a_signature(consortium: Consortium) -> None:
    round_id = consortium.open_round(consortium.enrol())
    consortium.shows(RECORDS, changed(documents=[{"name": "other", "sha256": "ab" * 32}]))
    results = consortium.together(consortium.contributions(round_id))
    assert {fault.cause for fault in results.values()} == {Cause.BAD_SIGNATURE}
    assert consortium.requests("/result")
    assert not consortium.requests("/result/")
    assert not consortium.requests("/transcript")


OTHER = {"name": "other", "sha256": "ab" * 32}


@pytest.mark.parametrize(
    "documents", [[OTHER], [{"name": "pooled", "sha256": "ab" * 32}] * 2], ids=["not the study's", "twice"]
)
def test_no_document_is_fetched_that_the_study_does_not_publish(
    stage: Stage, tmp_path: Path, documents: list[Any]
) -> None:
    consortium = Consortium(stage, tmp_path, after={"publish": ["pooled"]})
    round_id = consortium.open_round(consortium.enrol())
    consortium.misstate(documents=tuple(map(DocumentView.model_validate, documents)))
    results = consortium.together(consortium.contributions(round_id))
    assert {fault.cause for fault in results.values()} == {Cause.RESULT_MISMATCH}
    assert consortium.requests("/result/weights")
    assert not consortium.requests("/result/documents/")


@pytest.mark.parametrize("path", ["weights", "documents/pooled", "documents/ncm"])
def test_a_file_of_a_result_is_not_read_beyond_what_the_study_publishes(
    stage: Stage, tmp_path: Path, path: str
) -> None:
    consortium = Consortium(stage, tmp_path, after={"publish": ["ncm", "pooled"]})
    round_id = consortium.open_round(consortium.enrol())
    consortium.shows(f"GET .*/result/{path}", lambda _: httpx.Response(200, content=bytes(1 << 18)))
    results = consortium.together(consortium.contributions(round_id))
    assert {fault.cause for fault in results.values()} == {Cause.OVERSIZED}


def test_a_document_that_is_not_the_records_is_the_last_that_is_fetched(stage: Stage, tmp_path: Path) -> None:
    consortium = Consortium(stage, tmp_path, after={"publish": ["pooled", "posterior"]})
    round_id = consortium.open_round(consortium.enrol())
    consortium.shows("GET .*/documents/.*", lambda _: httpx.Response(200, content=b"false"))
    results = consortium.together(consortium.contributions(round_id))
    assert {fault.cause for fault in results.values()} == {Cause.RESULT_MISMATCH}
    assert len(consortium.requests("/documents/")) == len(results)


def test_one_call_takes_part_in_one_attempt(stage: Stage, tmp_path: Path) -> None:
    # Two sums over the same records, one of them without a member, would show that member's vector.
    consortium = Consortium(stage, tmp_path, members=5, question=NOISY)
    cohort = consortium.enrol()
    first = consortium.open_round(cohort)
    following = list[str]()

    def on_answer(member: str, sent: Sent, answer: httpx.Response) -> httpx.Response:
        if not following and consortium.operator.round(first).ended:
            following.append(consortium.open_round(cohort))
        return consortium.instead(member, sent, first, following[0]) if following else answer

    consortium.on_answer = on_answer
    results = consortium.together(consortium.contributions(first))
    assert {fault.cause for fault in results.values()} == {Cause.WRONG_CONTEXT}
    again = consortium.together(consortium.contributions(first))
    assert {fault.cause for fault in again.values()} == {Cause.WRONG_CONTEXT}
    standing = consortium.live(following[0]).standing
    assert standing is not None
    assert isinstance(standing.phase, Collecting)
    assert standing.announced == {}


def ask(consortium: Consortium, message: Message) -> None:
    """Have the coordinator send this request whenever a member polls."""
    shown = message.to_bytes()
    consortium.shows(
        "GET .*/requests/.*", lambda answer: httpx.Response(200, headers=answer.headers, content=shown)
    )


def test_a_member_whose_keys_are_erased_answers_nothing_more(consortium: Consortium) -> None:
    """Its clock may be ahead of the coordinator's, which then asks again."""
    round_id = consortium.open_round(consortium.enrol())
    consortium.run_until(consortium.member("member-0").contribute(round_id), "chunks/1")
    ask(consortium, VoidRequest(consortium.round(round_id).attempt.context, "cancelled"))
    consortium.clock.ahead_s += 2 * DAY_S
    for _ in range(2):
        with ended("lapsed"):
            consortium.finish(round_id)
    assert not consortium.requests("answers")


def test_an_end_that_is_not_shown_is_none(consortium: Consortium) -> None:
    round_id = consortium.open_round(consortium.enrol())
    consortium.run_until(consortium.member("member-0").contribute(round_id), "chunks/1")
    consortium.operator.cancel(round_id, "a test")
    consortium.together(consortium.contributions(round_id, consortium.ids[1:]))
    ask(consortium, VoidRequest(consortium.round(round_id).attempt.context, "cancelled"))
    with refusals.refused("wrong-phase", "coordinator") as caught:
        consortium.finish(round_id)
    assert type(caught.value) is PeerFault  # it may continue elsewhere, so its shares are not erased


@pytest.mark.parametrize("standing", ["open", "lapsed", "closed"])
def test_a_round_opens_no_other_attempt_of_the_same_name(
    consortium: Consortium, monkeypatch: pytest.MonkeyPatch, standing: str
) -> None:
    """A round's name is a part of its context. It is too short to tell apart attempts that a coordinator chooses."""
    cohort, rounds = consortium.enrol(), list[str]()
    for _ in range(2 if standing == "closed" else 1):
        rounds.append(consortium.open_round(cohort))
        consortium.run_until(consortium.member("member-0").contribute(rounds[-1]), "chunks/1")
        if standing == "lapsed":
            consortium.clock.ahead_s += 2 * DAY_S
            with ended("lapsed"):
                consortium.finish(rounds[0])
            consortium.expire(rounds[0])
        else:
            consortium.operator.cancel(rounds[-1], "a test")
        others = consortium.ids if standing == "closed" else consortium.ids[1:]
        consortium.together(consortium.contributions(rounds[-1], others))
    other, before = consortium.open_round(cohort), len(consortium.requests("uploads"))
    consortium.on_answer = lambda member, sent, _: consortium.instead(member, sent, rounds[0], other)
    if standing == "closed":
        monkeypatch.setattr(conversation, "round_name", lambda _context: rounds[0])
    with refusals.refused("wrong-context", "coordinator"):
        consortium.finish(rounds[0])
    assert len(consortium.requests("uploads")) == before


def test_a_request_to_erase_before_the_latest_end_opens_nothing(consortium: Consortium) -> None:
    cohort = consortium.enrol()
    round_id = consortium.open_round(cohort)
    ask(consortium, ErasureRequest(consortium.round(round_id).attempt.context))
    consortium.policy = replace(consortium.policy, lifetime_max_s=60.0)  # what it would have refused
    with refusals.refused("wrong-phase", "coordinator"):
        consortium.finish(round_id)
    consortium.phase(cohort, Ready)


def test_keys_of_an_abandoned_cohort_are_erased_from_another(consortium: Consortium) -> None:
    cohort = consortium.enrol()
    abandoned = consortium.open_round(cohort)
    consortium.run_until(consortium.member("member-0").contribute(abandoned), "chunks/1")
    state = consortium.folder / "member-0/state"
    store = consortium.open["member-0"].session.store
    unsent, ready = store.load_unsent(bytes.fromhex(cohort)), ready_of(consortium.phase(cohort))
    assert unsent is not None
    keys = [bytes(unsent[0]), *(bytes(pair.key) for pair in (*ready.masks, *ready.boxes))]
    consortium.clock.ahead_s += 2 * DAY_S
    consortium.publish(consortium.make_study({"name": "other"}, loss=90))
    other = consortium.enrol("p2")
    # Too few report; the admin closes it, and its records are spent. Those of the other run are not.
    consortium.expire(abandoned)
    consortium.lose(abandoned)
    round_id = consortium.open_round(other)
    consortium.shows("GET .*/closing", refused(Cause.NOT_FOUND))
    with refusals.refused("outcome-missing", "coordinator"):
        consortium.finish(round_id)
    stored = b"".join(path.read_bytes() for path in state.rglob("*") if path.is_file())
    assert not any(key in stored for key in keys)
    consortium.on_answer = unchanged
    flows = consortium.contributions(round_id)
    assert all(isinstance(result, Result) for result in consortium.together(flows).values())
    states = {run.period: run.state for run in consortium.open["member-0"].ledger()}
    assert states == {"p1": State.SPENT, "p2": State.SPENT}


@pytest.mark.parametrize("how", ["other bytes", "other arrays"])
def test_material_that_the_terms_do_not_name_or_the_step_does_not_take_is_refused(
    noisy: Consortium, how: str
) -> None:
    cohort = noisy.enrol()
    noisy.run(cohort)
    other = material_file({"centre": np.zeros(DIM + (how == "other arrays"))})
    changes: dict[str, Any] = {"material": sha256(other).digest()} if how == "other arrays" else {}
    noisy.shows("GET .*/material", lambda _: httpx.Response(200, content=other))
    with hostile(noisy, over=(), **changes):
        results = noisy.run(cohort)
    assert {fault.cause for fault in results.values()} == {Cause.TERMS_REFUSED}
    assert not noisy.requests(f"{noisy.rounds[-1]}/uploads")


def test_an_upload_is_completed_from_what_is_stored_or_not_at_all(consortium: Consortium) -> None:
    member = "member-0"
    round_id = consortium.open_round(consortium.enrol())
    arrays = consortium.folder / member / "state/arrays"
    rows = set(arrays.iterdir())
    consortium.run_until(consortium.member(member).contribute(round_id), "chunks/0")
    [path] = set(arrays.iterdir()) - rows
    kept = path.read_bytes()
    path.write_bytes(kept[:-1] + bytes([kept[-1] ^ 1]))
    with pytest.raises(StateError, match="damaged"):
        consortium.finish(round_id, member)
    path.unlink()
    with pytest.raises(StateError, match="missing"):
        consortium.finish(round_id, member)
    assert len(consortium.requests(f"{member}/chunks/0")) == 1
    path.write_bytes(kept)
    path.chmod(0o600)
    results = consortium.together(consortium.contributions(round_id))
    assert all(isinstance(result, Result) for result in results.values()), results
    assert len({each.body for each in consortium.requests(f"{member}/chunks/0")}) == 1


def test_a_seed_that_masks_other_bytes_sends_none(consortium: Consortium) -> None:
    member = "member-0"
    cohort = consortium.enrol()
    round_id = consortium.open_round(cohort)
    consortium.until(consortium.member(member).contribute(round_id), "chunks/0", "before").close()
    store, name = consortium.open[member].session.store, bytes.fromhex(cohort)
    unsent = store.load_unsent(name)
    assert unsent is not None
    store.keep_unsent(name, SecretBytes(32), sha256(unsent[1].tobytes()).digest())
    with pytest.raises(StateError, match="can't be completed"):
        consortium.finish(round_id, member)
    assert not consortium.requests("/chunks/")


def test_a_round_of_a_cohort_that_was_not_joined_is_no_business_of_a_member(five: Consortium) -> None:
    cohort = five.open_cohort()
    flows = five.enrolments(cohort, five.ids[:4])
    five.together(flows, stuck=lambda: bool(five.operator.close_cohort(cohort)))
    round_id = five.open_round(cohort)
    with pytest.raises(NotEnrolled, match="no keys"):
        five.finish(round_id, "member-4")


def test_a_result_that_is_refused_is_refused_again(consortium: Consortium) -> None:
    """The second call reads the evidence of the first from disk."""
    round_id = consortium.open_round(consortium.enrol())
    consortium.misstate(rows=1 << 30)
    for _ in range(2):
        results = consortium.together(consortium.contributions(round_id))
        assert {fault.cause for fault in results.values()} == {Cause.RESULT_MISMATCH}
