"""Attempts that end otherwise than in a result, and members that come late to an end."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from client_sdk import upload
from client_sdk.effects import Unreached
from client_sdk.errors import NoResult, PeerFault
from client_sdk.reservations import State
from client_sdk.result import Result
from client_sdk.session import Session, ready_of
from tests.support.federation import NOISY, Federation
from veilsum.protocol.causes import Cause
from veilsum.protocol.member import Closed, Ready


def test_an_earlier_round_must_end_before_the_next(federation: Federation) -> None:
    cohort = federation.enrol()
    first = federation.coordinator.open_round(cohort)
    federation.run_until(federation.contributions(first, ["member-0"])["member-0"], "chunks/0")
    second = federation.coordinator.open_round(cohort, latest_end_s=int(federation.clock.now_s) + 9_999)
    with pytest.raises(PeerFault, match=f"finish it by contribute.'{first}'"):
        federation.alone(federation.contributions(second, ["member-0"])["member-0"])


@pytest.mark.parametrize("question", [{}, NOISY], ids=["exact", "noisy"])
def test_a_voided_attempt_can_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, question: dict[str, Any]
) -> None:
    """An exact vector is the same, and a noisy one has fresh noise."""
    federation, vectors, true = (
        Federation(tmp_path, question=question),
        defaultdict[str, list[Any]](list),
        upload.own_vector,
    )

    def noting(session: Session, *arguments: Any) -> Any:
        made = true(session, *arguments)
        vectors[session.member].append(made.tolist())
        return made

    monkeypatch.setattr(upload, "own_vector", noting)
    cohort = federation.enrol()
    first = federation.coordinator.open_round(cohort)
    for flow in federation.contributions(first).values():
        federation.run_until(flow, "PUT")
    federation.coordinator.cancel(first)
    results = federation.together(federation.contributions(first))
    for result in results.values():
        assert isinstance(result, NoResult)
        assert (result.state, result.cause) == ("voided", Cause.CANCELLED)
        assert "join the next attempt" in str(result)
    with pytest.raises(NoResult, match="without a sum"):
        federation.alone(federation.contributions(first, ["member-1"])["member-1"])
    second = federation.coordinator.open_round(cohort)
    results = federation.together(federation.contributions(second))
    assert all(isinstance(result, Result) for result in results.values()), results
    assert len(vectors) == len(federation.ids)
    assert {voided == counted for voided, counted in vectors.values()} == {not question}
    federation.close()


def overdue(federation: Federation, cohort: str) -> str:
    """A round whose members have uploaded, and whose latest end has passed."""
    round_id = federation.coordinator.open_round(cohort)
    for flow in federation.contributions(round_id).values():
        federation.run_until(flow, "PUT")
    federation.coordinator.cancel(round_id)
    federation.clock.now_s += 2 * 86_400
    federation.coordinator.expire(round_id)
    assert federation.coordinator.view(round_id).state == "erasing"
    return round_id


def test_a_run_is_given_up_without_the_coordinator_too(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    overdue(federation, federation.enrol())
    monkeypatch.setattr(federation.coordinator, "handle", lambda _: Unreached("refused", sent=False))
    federation.alone(federation.member("member-0").give_up("study", "p1"))
    [run] = federation.open["member-0"].ledger()
    assert (run.given_up, run.records) == (True, 20)  # held until it is known how the attempt ended


def test_an_overdue_round_ends_by_reports_and_frees_what_was_given_up(federation: Federation) -> None:
    cohort = federation.enrol()
    round_id = overdue(federation, cohort)
    with pytest.raises(NoResult) as caught:
        federation.alone(federation.contributions(round_id, ["member-0"])["member-0"])
    assert (caught.value.state, "waits for erasure reports" in str(caught.value)) == ("erasing", True)
    federation.alone(federation.member("member-0").give_up("study", "p1"))
    ledger = federation.open["member-0"].session.store.ledger
    assert ledger.runs()[0].records == 20
    for member in ("member-1", "member-2"):
        with pytest.raises(NoResult):
            federation.alone(federation.contributions(round_id, [member])[member])
    assert federation.coordinator.view(round_id).state == "erased"
    with pytest.raises(NoResult, match="nothing was opened") as caught:
        federation.alone(federation.contributions(round_id, ["member-0"])["member-0"])
    assert caught.value.state == "erased"
    # What was given up is free once the end is known, and the others go on with the same records.
    [run] = ledger.runs()
    assert (run.state, run.records, run.given_up) == (State.DECLINED, 0, True)
    following = federation.coordinator.open_round(cohort)
    results = federation.together(federation.contributions(following), stuck=federation.expiring(following))
    assert results["member-0"].cause is Cause.POLICY_REFUSED
    assert "gave up" in str(results["member-0"])


def test_a_lost_round_is_closed_by_the_admin_and_its_records_are_spent(federation: Federation) -> None:
    cohort = federation.enrol()
    lost = overdue(federation, cohort)
    with pytest.raises(NoResult):
        federation.alone(federation.contributions(lost, ["member-1"])["member-1"])
    federation.coordinator.lose(lost, federation.admin)
    results = federation.together(federation.contributions(lost))
    assert {result.state for result in results.values()} == {"lost"}
    assert {federation.open[m].ledger()[0].state for m in federation.ids} == {State.SPENT}
    following = federation.coordinator.open_round(cohort)
    results = federation.together(federation.contributions(following))
    assert {result.cause for result in results.values()} == {Cause.ALREADY_SUMMED}
    results = federation.run(federation.enrol("p2"))
    assert all(isinstance(result, Result) for result in results.values()), results


def test_a_member_that_comes_after_the_uploads_still_helps_to_decrypt(tmp_path: Path) -> None:
    federation = Federation(tmp_path, members=5)
    round_id = federation.coordinator.open_round(federation.enrol())
    flows = federation.contributions(round_id, federation.ids[:4])
    for flow in flows.values():
        federation.run_until(flow, "chunks/1")
    federation.coordinator.expire(round_id)
    results = federation.together(federation.contributions(round_id), stuck=federation.expiring(round_id))
    assert {member: result.counted for member, result in results.items()} == {
        member: member != "member-4" for member in federation.ids
    }
    assert "sent no upload" in results["member-4"].standing


def test_a_member_that_never_saw_the_opening_missed_the_round(tmp_path: Path) -> None:
    federation = Federation(tmp_path, members=5)
    cohort = federation.enrol()
    round_id = federation.coordinator.open_round(cohort)
    flows = federation.contributions(round_id, federation.ids[:4])
    for flow in flows.values():
        federation.run_until(flow, "chunks/1")
    federation.coordinator.expire(round_id)
    present = federation.contributions(round_id, federation.ids[:4])
    results = federation.together(present, stuck=federation.expiring(round_id))
    assert isinstance(results["member-0"], Result)
    with pytest.raises(NoResult, match="join the next round"):
        federation.alone(federation.contributions(round_id, ["member-4"])["member-4"])
    results = federation.run(federation.enrol("p2"))
    assert all(isinstance(result, Result) for result in results.values()), results


def test_keys_are_erased_when_the_latest_end_passes(federation: Federation) -> None:
    cohort = federation.enrol()
    round_id = federation.coordinator.open_round(cohort)
    federation.run_until(federation.contributions(round_id, ["member-0"])["member-0"], "chunks/1")

    def ready() -> Ready:
        held = federation.open["member-0"].session.store.held(bytes.fromhex(cohort))
        assert held is not None
        return ready_of(held.phase)

    keys = [bytes(pair.key) for pair in ready().masks]
    federation.clock.now_s += 2 * 86_400
    with pytest.raises(NoResult) as caught:
        federation.alone(federation.contributions(round_id, ["member-0"])["member-0"])
    assert (caught.value.cause, caught.value.state) == (Cause.TERMS_EXPIRED, "lapsed")
    assert ready().sequence == 1
    stored = b"".join(p.read_bytes() for p in (federation.folder / "member-0").rglob("*") if p.is_file())
    assert not any(key in stored for key in keys)
    assert federation.open["member-0"].session.store.unsent(bytes.fromhex(cohort)) is None


def test_a_certificate_of_an_ended_round_is_taken_after_its_latest_end(tmp_path: Path) -> None:
    federation = Federation(tmp_path, members=5)
    round_id = federation.coordinator.open_round(federation.enrol())
    federation.together(
        federation.contributions(round_id),
        stuck=federation.expiring(round_id),
        vanish={"member-4": "chunks/1"},
    )
    federation.clock.now_s += 2 * 86_400
    result = federation.alone(federation.contributions(round_id, ["member-4"])["member-4"])
    assert result.counted


def test_shares_of_a_saved_round_are_erased_though_the_machine_stopped_in_between(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    cohort = federation.enrol()
    round_id = federation.coordinator.open_round(cohort)
    flows = federation.contributions(round_id)

    def stop(_closed: Closed) -> Closed:
        raise RuntimeError("the machine stops")

    def held() -> Closed:
        stored = federation.member("member-0").session.store.held(bytes.fromhex(cohort))
        assert stored is not None
        assert isinstance(stored.phase, Closed)
        return stored.phase

    with monkeypatch.context() as patched:
        patched.setattr(Closed, "settled", stop)
        federation.together(flows)
    before = held()
    assert before.held
    assert before.reveals
    federation.alone(federation.contributions(round_id, ["member-0"])["member-0"])
    assert held() == before.settled()
