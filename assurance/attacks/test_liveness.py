"""What a coordinator or absent members could make a run lose, and do not (protocol §4.4, §4.9)."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from client_sdk.result import Result
from tests.support.federation import Federation as Members
from tests.support.local_coordinator import refusal
from tests.support.simulator import After, Federation, of
from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator import Failed, Freezing, Recovered
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.messages import Freeze, Refusal, Vote


def test_counts_of_too_few_members_are_not_signed() -> None:
    """n_min = 4 members would do for a sum; with m = 5 their counts publish no class, and they would be final."""
    federation = Federation(5, margin=1)
    federation.reach(Freezing)
    request = of(Freeze, federation.phase.request_for("member-4"))
    _, (reply,) = federation.ask("member-4", replace(request, headers=request.headers[1:]))
    assert isinstance(reply, Refusal)
    assert reply.cause == "survivors-too-few"
    _, (reply,) = federation.ask("member-4", request)
    assert isinstance(reply, Vote)


def test_what_was_certified_and_not_revealed_is_summed_again_to_the_last_bit() -> None:
    """Three of seven decryptors vanish between vote and reveal: no admin is needed, and the same members give the same sum."""
    federation = Federation(7, drop=dict.fromkeys(range(3), After.VOTE))
    vectors = federation.vectors("sum")
    failed = federation.run_round(vectors)
    assert isinstance(failed.phase, Failed)
    federation.drop = {}
    federation._tell_ending()
    federation.enrol("period-0", failed.phase.attempt.context)
    repeated = federation.run_round(vectors)
    assert isinstance(repeated.phase, Recovered)
    assert repeated.survivors == federation.ids
    assert repeated.total is not None
    assert (repeated.total == np.sum([*vectors.values()], axis=0)).all()


def test_a_coordinator_that_withholds_an_end_stalls_members_and_makes_them_spend_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    federation = Members(tmp_path)
    coordinator = federation.coordinator
    cohort = federation.enrol()
    first = coordinator.open_round(cohort)
    federation.together(federation.contributions(first), vanish=dict.fromkeys(federation.ids, "chunks/0"))
    federation.clock.now_s += 2 * 86_400
    coordinator.cancel(first)
    coordinator.expire(first)
    # They report, and are cut off before the answer comes.
    federation.together(federation.contributions(first), vanish=dict.fromkeys(federation.ids, "/answers"))
    assert coordinator.view(first).state == "erased"
    handle = coordinator.handle

    def withholding(request: Any) -> Any:
        if "/closing" in request.path:
            return refusal(PeerFault(Cause.NOT_FOUND, "there is no such context"))
        return handle(request)

    monkeypatch.setattr(coordinator, "handle", withholding)
    second = coordinator.open_round(cohort)
    before = set(coordinator.wire)
    stalled = federation.together(federation.contributions(second))
    assert {*stalled} == {*federation.ids}
    assert {each.cause for each in stalled.values()} == {Cause.OUTCOME_MISSING}
    assert all(f"round {first} and is not shown how it ended" in str(each) for each in stalled.values())
    said = "".join(map(str, set(coordinator.wire) - before))
    assert not [member for member in stalled if member in said]  # they upload and sign nothing
    ledgers = [federation.open[member].ledger() for member in stalled]
    assert {run.state for runs in ledgers for run in runs} == {"reserved"}
    monkeypatch.setattr(coordinator, "handle", handle)
    results = federation.together(federation.contributions(second))
    assert {type(each) for each in results.values()} == {Result}, results
    federation.close()
