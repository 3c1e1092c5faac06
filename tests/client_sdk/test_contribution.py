"""Whole rounds, with members that come late, vanish or deal falsely."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from client_sdk.errors import PeerFault, StateError
from client_sdk.progress import Step
from client_sdk.reservations import State
from client_sdk.result import Result
from tests.support.federation import CLASSES, DIM, Federation
from veilsum.calibration import FFCStatistics, solve_ffc
from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator import Collecting
from veilsum.protocol.record import sign_record
from veilsum.protocol.sealing import Sealing
from veilsum.protocol.shamir import share_secrets


def test_a_round_gives_every_member_the_verified_weights_of_the_exact_sum(federation: Federation) -> None:
    round_id = federation.coordinator.open_round(federation.enrol())
    results = federation.together(federation.contributions(round_id))
    pooled = FFCStatistics(DIM, len(CLASSES), normalise=True)
    for member in federation.ids:
        pooled.update(*federation.data(member))
    for member, result in results.items():
        assert isinstance(result, Result)
        assert result.counted
        assert result.survivors == federation.ids
        ridge = result.record.solution.ridge
        assert ridge is not None
        assert np.allclose(result.weights, solve_ffc(pooled, ridge=ridge).weights, atol=1e-6)
        assert result.bias is None
        result.verify(federation.admin.public)
        assert result.evaluate(*federation.data(member)) > 0.4
        [run] = federation.open[member].ledger()
        assert (run.state, run.summed) == (State.SPENT, result.evidence.attempt.context)
    assert federation.total(round_id) == federation.expected(round_id)


def test_an_upload_that_nothing_interrupts_is_masked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    question = {"statistics": [{"kind": "ffc", "bias": True}]}
    federation, masked = Federation(tmp_path, question=question), list[int]()
    packed = Sealing.packed

    def noting(sealing: Sealing, index: int, values: Any) -> bytes:
        masked.append(index)
        return packed(sealing, index, values)

    monkeypatch.setattr(Sealing, "packed", noting)
    round_id = federation.coordinator.open_round(federation.enrol())
    results = federation.together(federation.contributions(round_id))
    assert all(isinstance(result, Result) and result.counted for result in results.values())
    chunks = federation.coordinator.rounds[round_id].phase.attempt.chunks
    assert chunks > 2  # lanes of a member here
    assert sorted(masked) == sorted([*range(chunks)] * len(results))


def test_a_false_dealer_is_evicted_and_everybody_keeps_the_proof(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    federation = Federation(tmp_path, members=5)
    round_id = federation.coordinator.open_round(federation.enrol())
    flows = federation.contributions(round_id)
    with monkeypatch.context() as patched:
        patched.setattr(
            "veilsum.protocol.sealing.share_secrets",
            lambda secrets, *rest: share_secrets([b"\x01" * 32] * len(secrets), *rest),
        )
        federation.run_until(flows.pop("member-3"), "chunks/1")
    flows["member-3"] = federation.contributions(round_id, ["member-3"])["member-3"]
    results = federation.together(flows)
    assert {type(result) for result in results.values()} == {Result}, results
    honest = [member for member in federation.ids if member != "member-3"]
    assert federation.total(round_id) == federation.expected(round_id, honest)
    assert [results[member].counted for member in federation.ids] == [True, True, True, False, True]
    assert "proved false" in results["member-3"].standing
    result = results["member-0"]
    assert (result.record.evicted, result.summed) == (("member-3",), tuple(honest))
    again = Result.load(federation.folder / "member-0/state/results" / round_id)
    again.verify(federation.admin.public)
    for forged in (
        replace(again, evictions=None),
        replace(
            again,
            record=sign_record(again.record.model_copy(update={"evicted": ()}), federation.coordinator_key),
        ),
    ):
        with pytest.raises(PeerFault, match="the proofs do not match") as caught:
            forged.verify()
        assert caught.value.cause is Cause.RESULT_MISMATCH
    assert again.evictions is not None
    [proof] = again.evictions.proofs
    other = replace(again.evictions, proofs=(replace(proof, index=proof.index + 1),))
    with pytest.raises(PeerFault, match=r"^eviction-invalid:"):
        replace(again, evictions=other).verify()


def test_a_chunk_that_the_coordinator_lost_is_sent_again(federation: Federation) -> None:
    """By a member whose upload was whole, and that waits."""
    coordinator = federation.coordinator
    round_id = coordinator.open_round(federation.enrol())
    flows = federation.contributions(round_id)
    last = flows.pop("member-2")
    started = {member: federation.until(flow, "requests", "waits") for member, flow in flows.items()}
    entry, index = coordinator.rounds[round_id], 1
    assert isinstance(entry.phase, Collecting)
    del entry.spool["member-0", index]
    coordinator._move(entry, entry.phase.chunk_damaged("member-0", index))
    results = federation.together({"member-2": last}, started=started)
    assert {type(result) for result in results.values()} == {Result}, results
    sent = coordinator.wire[f"PUT /v1/rounds/{round_id}/uploads/member-0/chunks/{index}", ""]
    assert len(sent) == 2
    assert len(set(sent)) == 1
    assert federation.total(round_id) == federation.expected(round_id)


def test_an_upload_that_comes_too_late_ends_in_helping(tmp_path: Path) -> None:
    federation = Federation(tmp_path, members=5)
    coordinator = federation.coordinator
    round_id = coordinator.open_round(federation.enrol())
    flows = federation.contributions(round_id)
    slow = federation.until(flows.pop("member-4"), "chunks/0", "before")
    for flow in flows.values():
        federation.run_until(flow, "chunks/1")
    coordinator.expire(round_id)
    flows = federation.contributions(round_id, federation.ids[:4])
    results = federation.together(flows, stuck=federation.expiring(round_id), started={"member-4": slow})
    assert not results["member-4"].counted
    assert "not complete" in results["member-4"].standing
    assert any("moved on" in event.detail for _, event in federation.events)


def test_the_same_call_after_the_end_verifies_what_is_stored_without_the_coordinator(
    federation: Federation,
) -> None:
    round_id = federation.coordinator.open_round(federation.enrol())
    first = federation.together(federation.contributions(round_id))["member-0"]
    federation.coordinator.requests.clear()
    again = federation.alone(federation.contributions(round_id, ["member-0"])["member-0"])
    assert federation.coordinator.requests == []
    assert np.array_equal(again.weights, first.weights)
    weights = federation.folder / "member-0/state/results" / round_id / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"!")
    with pytest.raises(StateError, match="the head's file is not the one that the record names"):
        federation.alone(federation.contributions(round_id, ["member-0"])["member-0"])


@pytest.mark.parametrize("part", ["uploads/member-4", "chunks/0", "answers"])
def test_a_member_that_missed_an_end_catches_up_when_the_next_round_opens(tmp_path: Path, part: str) -> None:
    federation = Federation(tmp_path, members=5)
    cohort = federation.enrol()
    first = federation.coordinator.open_round(cohort)
    federation.together(
        federation.contributions(first), stuck=federation.expiring(first), vanish={"member-4": part}
    )
    assert federation.coordinator.view(first).state == "done"
    results = federation.run(federation.enrol("p2"))
    assert all(isinstance(result, Result) for result in results.values()), results
    # The result of the round it missed the end of is still to be had, from the evidence kept.
    assert isinstance(federation.alone(federation.contributions(first, ["member-4"])["member-4"]), Result)


def test_every_wait_says_for_whom_how_many_and_until_when(federation: Federation) -> None:
    round_id = federation.coordinator.open_round(federation.enrol())
    flows = federation.contributions(round_id)
    first = federation.until(flows.pop("member-0"), "chunks/1")
    while next(first)[0] != "waits":
        pass
    federation.together(flows, started={"member-0": first})
    events = [event for member, event in federation.events if member == "member-0"]
    waits = [event for event in events if event.step is Step.WAITING and event.phase == "collecting"]
    assert waits
    assert all(event.waiting_for and event.until_s and event.total == 3 for event in waits)
    assert [e.done for e in events if e.step is Step.MASKING] == [1, 2]
    assert [e.done for e in events if e.step is Step.UPLOADING] == [1, 2]
    assert events[-1].step is Step.DONE
    assert any(e.step is Step.ENROLLING and e.waiting_for for e in events)
