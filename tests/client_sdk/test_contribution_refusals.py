"""What a member refuses in a round, or is refused, and what ends its part in it."""

import re
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from client_sdk.effects import Request, Response
from client_sdk.errors import NoResult, PeerFault, StateError
from client_sdk.reservations import State
from client_sdk.result import Result
from client_sdk.session import ready_of
from tests.support.federation import DIM, NOISY, Federation
from tests.support.local_coordinator import Round, refusal
from veilsum.protocol.causes import Cause
from veilsum.protocol.codec import SecretBytes
from veilsum.protocol.coordinator import Collecting, Recovered
from veilsum.protocol.member import Opened, Ready
from veilsum.protocol.messages import ErasureRequest, parse
from veilsum.protocol.record import DocumentView, ResultRecord
from veilsum.protocol.rest import RoundView
from veilsum.study.result_files import material_file


@pytest.mark.parametrize(
    ("policy", "number", "cause"),
    [
        ({"members_min": 4}, 1, Cause.POLICY_REFUSED),
        ({"epsilon_max": 1.0}, 1, Cause.POLICY_REFUSED),
        ({"lifetime_max_s": 60.0}, 1, Cause.POLICY_REFUSED),
        ({"approved": {bytes(32)}}, 1, Cause.STUDY_REFUSED),
        ({}, 2, Cause.ROSTER_ROLLBACK),
    ],
)
def test_what_was_opened_is_refused_where_policy_or_roster_are_stricter_by_now(
    federation: Federation, policy: dict[str, Any], number: int, cause: Cause
) -> None:
    cohort = federation.enrol()
    round_id = federation.coordinator.open_round(cohort)
    steps = federation.steps(federation.contributions(round_id, ["member-0"])["member-0"])
    store = federation.open["member-0"].session.store
    while (held := store.held(bytes.fromhex(cohort))) and not isinstance(held.phase, Opened):
        next(steps)
    steps.close()
    federation.policy = replace(federation.policy, **policy)
    federation.coordinator.roster = federation.make_roster(number)
    with pytest.raises(PeerFault, match=f"^{cause.value}:"):
        federation.alone(federation.contributions(round_id, ["member-0"])["member-0"])
    assert not any("uploads" in request.path for request in federation.coordinator.requests)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"federation": "ab" * 32}, "^wrong-federation:"),
        ({"round": "0123456789abcdef"}, "^malformed:"),
        ({"state": "collecting", "ended": True}, "^malformed: .* is collecting, and ended: True"),
        ({"state": "done", "ended": False}, "^malformed: .* is done, and ended: False"),
    ],
    ids=["of another federation", "of another round", "ended before its end", "not ended at its end"],
)
def test_a_view_that_is_not_of_this_round_or_of_no_end_is_refused(
    federation: Federation, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], why: str
) -> None:
    round_id = federation.coordinator.open_round(federation.enrol())
    true = federation.coordinator.view

    def shown(round_id: str) -> RoundView:
        return true(round_id).model_copy(update=changes)

    monkeypatch.setattr(federation.coordinator, "view", shown)
    with pytest.raises(PeerFault, match=why):
        federation.alone(federation.contributions(round_id, ["member-0"])["member-0"])


def test_an_opening_of_another_round_is_refused(federation: Federation) -> None:
    round_id = federation.coordinator.open_round(federation.enrol())
    federation.coordinator.rounds["ab" * 8] = federation.coordinator.rounds[round_id]
    with pytest.raises(PeerFault, match=r"^wrong-context:"):
        federation.alone(federation.contributions("ab" * 8, ["member-0"])["member-0"])
    assert not any("uploads" in request.path for request in federation.coordinator.requests)


@pytest.mark.parametrize("path", ["PUT .*/uploads/member-0$", "POST .*/answers"])
def test_a_refusal_by_the_coordinator_reaches_the_caller(
    federation: Federation, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    round_id = federation.coordinator.open_round(federation.enrol())
    true = federation.coordinator.handle

    def handle(request: Request) -> Response:
        member = parse(request.body).member if "answers" in request.path else "member-0"  # type: ignore[attr-defined]  # answers have one
        if re.match(path, f"{request.method} {request.path}") and member == "member-0":
            return refusal(PeerFault(Cause.CONFLICT, "no", ["member-0"]))
        return true(request)

    monkeypatch.setattr(federation.coordinator, "handle", handle)
    results = federation.together(federation.contributions(round_id))
    fault = results["member-0"]
    assert isinstance(fault, PeerFault)
    assert fault.cause is Cause.CONFLICT


def test_an_answer_that_comes_after_its_phase_is_no_failure(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    round_id = federation.coordinator.open_round(federation.enrol())
    true, refused = federation.coordinator.handle, list[Request]()

    def handle(request: Request) -> Response:
        if "answers" in request.path and not refused:
            refused.append(request)
            true(request)
            return refusal(PeerFault(Cause.WRONG_PHASE))
        return true(request)

    monkeypatch.setattr(federation.coordinator, "handle", handle)
    results = federation.together(federation.contributions(round_id))
    assert refused
    assert all(isinstance(result, Result) for result in results.values()), results


def test_a_coordinator_that_holds_no_long_poll_is_not_hammered(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    cohort = federation.coordinator.open_cohort()
    monkeypatch.setattr(federation.coordinator, "has_news", lambda _request: True)
    steps = federation.steps(federation.member("member-0").enrol(cohort, federation.records("member-0")))
    while len(federation.clock.pauses) < 3:
        next(steps)
    steps.close()
    assert federation.clock.pauses == [1.0, 1.0, 1.0]
    for member in federation.ids[1:]:
        federation.until(federation.member(member).enrol(cohort, federation.records(member)), "PUT").close()
    federation.together({m: federation.member(m).enrol(cohort) for m in federation.ids})
    round_id = federation.coordinator.open_round(cohort)
    federation.clock.pauses.clear()
    steps = federation.steps(federation.contributions(round_id, ["member-0"])["member-0"])
    while len(federation.clock.pauses) < 3:
        next(steps)
    assert federation.clock.pauses == [1.0, 1.0, 1.0]


def test_nothing_is_fetched_that_a_record_names_without_a_signature(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    round_id = federation.coordinator.open_round(federation.enrol())
    sign = federation.coordinator.sign
    document = DocumentView(name="other", sha256="ab" * 32)

    def forged(*words: Any, **changes: Any) -> ResultRecord:
        return sign(*words, **changes).model_copy(update={"documents": (document,)})

    monkeypatch.setattr(federation.coordinator, "sign", forged)
    results = federation.together(federation.contributions(round_id))
    assert {fault.cause for fault in results.values()} == {Cause.BAD_SIGNATURE}
    fetched = {request.path.rsplit("/", 1)[-1] for request in federation.coordinator.requests}
    assert "result" in fetched
    assert not fetched & {"weights", "other", "transcript"}


def test_one_call_takes_part_in_one_attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Two sums over the same records, one of them without a member, would show that member's vector.
    federation = Federation(tmp_path, members=5)
    coordinator, cohort = federation.coordinator, federation.enrol()
    first = coordinator.open_round(cohort)
    solve = coordinator._solve

    def go_on(entry: Round, phase: Recovered) -> None:
        solve(entry, phase)
        following = coordinator.rounds[coordinator.open_round(cohort)]
        following.version = entry.version + 1
        coordinator.rounds[first] = following

    monkeypatch.setattr(coordinator, "_solve", go_on)
    results = federation.together(federation.contributions(first))
    assert {fault.cause for fault in results.values()} == {Cause.WRONG_CONTEXT}
    following = coordinator.rounds[first].phase
    assert isinstance(following, Collecting)
    assert following.attempt.opening.place == (1, 0)
    assert following.announced == {}
    again = federation.together(federation.contributions(first))
    assert {fault.cause for fault in again.values()} == {Cause.WRONG_CONTEXT}


def test_a_round_that_lapsed_is_not_opened_again(federation: Federation) -> None:
    cohort = federation.enrol()
    first = federation.coordinator.open_round(cohort)
    federation.run_until(federation.contributions(first, ["member-0"])["member-0"], "chunks/1")
    federation.clock.now_s += 2 * 86_400
    with pytest.raises(NoResult, match="past its latest end"):
        federation.alone(federation.contributions(first, ["member-0"])["member-0"])
    federation.coordinator.cohorts[cohort].place = (1, 0)
    other = federation.coordinator.open_round(cohort)
    federation.coordinator.rounds[first] = federation.coordinator.rounds[other]
    with pytest.raises(PeerFault, match="this round is over for this member"):
        federation.alone(federation.contributions(first, ["member-0"])["member-0"])


def test_a_request_to_erase_before_the_latest_end_opens_nothing(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    cohort = federation.enrol()
    round_id = federation.coordinator.open_round(cohort)
    attempt = federation.coordinator.rounds[round_id].phase.attempt
    monkeypatch.setattr(Collecting, "request_for", lambda *_: ErasureRequest(attempt.context))
    federation.policy = replace(federation.policy, lifetime_max_s=60.0)  # what it would have refused
    with pytest.raises(PeerFault, match=r"^wrong-phase: nothing is erased"):
        federation.alone(federation.contributions(round_id, ["member-0"])["member-0"])
    held = federation.open["member-0"].session.store.held(bytes.fromhex(cohort))
    assert held is not None
    assert isinstance(held.phase, Ready)


def test_keys_of_an_abandoned_cohort_are_erased_from_another(federation: Federation) -> None:
    cohort = federation.enrol()
    abandoned = federation.coordinator.open_round(cohort)
    federation.run_until(federation.contributions(abandoned, ["member-0"])["member-0"], "chunks/1")
    state = federation.folder / "member-0/state"
    store = federation.open["member-0"].session.store
    held, unsent = store.held(bytes.fromhex(cohort)), store.unsent(bytes.fromhex(cohort))
    assert held is not None
    assert unsent is not None
    ready = ready_of(held.phase)
    keys = [bytes(unsent[0]), *(bytes(pair.key) for pair in (*ready.masks, *ready.boxes))]
    federation.clock.now_s += 2 * 86_400
    federation.coordinator.publish(federation.make_study({"name": "other"}, loss=90))
    coordinator, other = federation.coordinator, federation.enrol("p2")
    flows = federation.contributions(coordinator.open_round(other), ["member-0"])
    with pytest.raises(PeerFault, match=f"round {abandoned} and is not shown how it ended"):
        federation.alone(flows["member-0"])
    stored = b"".join(path.read_bytes() for path in state.rglob("*") if path.is_file())
    assert not any(key in stored for key in keys)
    # Too few report; the admin closes it, and its records are spent. Those of the other run are not.
    coordinator.expire(abandoned)
    coordinator.lose(abandoned, federation.admin)
    round_id = coordinator.open_round(other)
    flows = federation.contributions(round_id)
    assert all(isinstance(result, Result) for result in federation.together(flows).values())
    states = {run.period: run.state for run in federation.open["member-0"].ledger()}
    assert states == {"p1": State.SPENT, "p2": State.SPENT}


@pytest.mark.parametrize("how", ["other bytes", "other arrays"])
def test_material_that_the_terms_do_not_name_or_the_step_does_not_take_is_refused(
    tmp_path: Path, how: str
) -> None:
    federation = Federation(tmp_path, question=NOISY)
    cohort = federation.enrol()
    federation.run(cohort)
    other = material_file({"centre": np.zeros(DIM + (how == "other arrays"))})
    changes = {"material": sha256(other).digest()} if how == "other arrays" else {}
    results = federation.run(cohort, shown_material=other, **changes)
    assert {fault.cause for fault in results.values()} == {Cause.TERMS_REFUSED}
    said = {fault.detail for fault in results.values()}
    expected = "float64 arrays" if how == "other arrays" else "does not match the SHA-256 in the signed terms"
    assert all(expected in each for each in said), said
    assert not any(
        "uploads" in request.path
        for request in federation.coordinator.requests
        if round_of(federation) in request.path
    )


def round_of(federation: Federation) -> str:
    return list(federation.coordinator.rounds)[-1]


def test_an_upload_is_completed_from_what_is_stored_or_not_at_all(federation: Federation) -> None:
    coordinator, member = federation.coordinator, "member-0"
    round_id = coordinator.open_round(federation.enrol())
    arrays = federation.folder / member / "state/arrays"
    rows = set(arrays.iterdir())
    federation.run_until(federation.contributions(round_id, [member])[member], "chunks/0")
    [path] = set(arrays.iterdir()) - rows
    kept = path.read_bytes()
    path.write_bytes(kept[:-1] + bytes([kept[-1] ^ 1]))
    with pytest.raises(StateError, match="damaged"):
        federation.alone(federation.contributions(round_id, [member])[member])
    path.unlink()
    with pytest.raises(StateError, match="missing"):
        federation.alone(federation.contributions(round_id, [member])[member])
    assert len(coordinator.wire[f"PUT /v1/rounds/{round_id}/uploads/{member}/chunks/0", ""]) <= 1
    path.write_bytes(kept)
    path.chmod(0o600)
    results = federation.together(federation.contributions(round_id))
    assert all(isinstance(result, Result) for result in results.values()), results
    sent = coordinator.wire[f"PUT /v1/rounds/{round_id}/uploads/{member}/chunks/0", ""]
    assert len(set(sent)) == 1


def test_a_seed_that_masks_other_bytes_sends_none(federation: Federation) -> None:
    coordinator, member = federation.coordinator, "member-0"
    cohort = federation.enrol()
    round_id = coordinator.open_round(cohort)
    federation.until(federation.contributions(round_id, [member])[member], "chunks/0", "before").close()
    store, name = federation.open[member].session.store, bytes.fromhex(cohort)
    unsent = store.unsent(name)
    assert unsent is not None
    store.keep_unsent(name, SecretBytes(32), sha256(unsent[1].tobytes()).digest())
    with pytest.raises(StateError, match="can't be completed"):
        federation.alone(federation.contributions(round_id, [member])[member])
    assert not coordinator.wire.get((f"PUT /v1/rounds/{round_id}/uploads/{member}/chunks/0", ""))
