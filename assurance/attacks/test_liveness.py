"""Attempts of a coordinator or of absent members to make a run lose something, and how they fail (wire: Uploads, wire: Ends)."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from client_sdk.result import Result
from tests.support.answers import refused
from tests.support.consortium import Consortium, unchanged
from tests.support.simulator import After, Federation, of
from tests.support.stage import standing
from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator import Failed, Freezing, Recovered
from veilsum.protocol.messages import Freeze, Refusal, Vote


def test_counts_of_too_few_members_are_not_signed() -> None:
    """n_min = 4 members would suffice for a sum. With m = 5 their counts publish no class, and the counts would be final."""
    federation = Federation(5, margin=1)
    federation.reach(Freezing)
    request = of(Freeze, federation.phase.request_for("member-4"))
    _, (reply,) = federation.ask("member-4", replace(request, headers=request.headers[1:]))
    assert isinstance(reply, Refusal)
    assert reply.cause == "survivors-too-few"
    _, (reply,) = federation.ask("member-4", request)
    assert isinstance(reply, Vote)


def test_what_was_certified_and_not_revealed_is_summed_again_to_the_last_bit() -> None:
    """Three of seven decryptors vanish between vote and reveal. Without the admin, the same members give the same sum again."""
    federation = Federation(7, drop=dict.fromkeys(range(3), After.VOTE))
    vectors = federation.vectors("sum")
    failed = federation.run_round(vectors)
    assert isinstance(failed.phase, Failed)
    federation.drop = {}
    federation.tell_ending()
    federation.enrol("period-0", failed.phase.attempt.context)
    repeated = federation.run_round(vectors)
    assert isinstance(repeated.phase, Recovered)
    assert repeated.survivors == federation.ids
    assert repeated.total is not None
    assert (repeated.total == np.sum([*vectors.values()], axis=0)).all()


def test_a_coordinator_that_withholds_an_end_stalls_members_and_makes_them_spend_nothing(
    tmp_path: Path,
) -> None:
    with standing(tmp_path / "service") as stage:
        consortium = Consortium(stage, tmp_path)
        cohort = consortium.enrol()
        first = consortium.open_round(cohort)
        vanishing = dict.fromkeys(consortium.ids, "chunks/0")
        consortium.together(consortium.contributions(first), vanish=vanishing)
        stage.pass_time(consortium.operator.round(first).spec.latest_end_s)
        # They report, and lose the connection before the answer.
        vanishing = dict.fromkeys(consortium.ids, "/answers")
        consortium.together(consortium.contributions(first), vanish=vanishing)
        assert consortium.operator.round(first).state == "erased"
        consortium.shows("GET .*/closing", refused(Cause.NOT_FOUND))
        second = consortium.open_round(cohort)
        stalled = consortium.together(consortium.contributions(second))
        assert {*stalled} == {*consortium.ids}
        assert {each.cause for each in stalled.values()} == {Cause.OUTCOME_MISSING}
        assert all(f"does not show how round {first} ended" in str(each) for each in stalled.values())
        assert {each.method for each in consortium.requests(second)} == {
            "GET"
        }  # they upload and sign nothing
        ledgers = [consortium.open[member].ledger() for member in stalled]
        assert {run.state for runs in ledgers for run in runs} == {"reserved"}
        consortium.on_answer = unchanged
        results = consortium.together(consortium.contributions(second))
        assert {type(each) for each in results.values()} == {Result}, results
        consortium.close()
