"""A coordinator does not know an attempt that members took part in. The admin closes it, and they take part again."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from client_sdk.errors import NoResult, PeerFault
from client_sdk.reservations import State
from client_sdk.result import Result
from tests.support.consortium import Consortium
from tests.support.serving import snapshot, standing
from veilsum.protocol.causes import Cause
from veilsum.protocol.messages import Lost
from veilsum.protocol.study import DAY_S
from veilsum.study.progress import format_utc


class Restored:
    """A federation whose coordinator is restored from a backup: by default of the time when its first cohort had formed."""

    def __init__(self, folder: Path, cohorts: int = 1) -> None:
        self.folder, self.count = folder, cohorts

    @contextmanager
    def before(self) -> Iterator[tuple[Consortium, str]]:
        """Run the coordinator with a round that its backup does not know."""
        with standing(self.folder / "now") as stage:
            self.made = Consortium(stage, self.folder / "members")
            self.cohorts = [self.made.enrol() for _ in range(self.count)]
            snapshot(self.folder / "now", self.folder / "backup")
            round_id = self.made.open_round(self.cohorts[0] if self.cohorts else self.made.enrol())
            attempt = self.made.round(round_id).attempt
            self.context, self.latest_end_s = attempt.context, attempt.terms.latest_end_s
            yield self.made, round_id
            self.made.close()

    @contextmanager
    def after(self, passed_s: float = 2 * DAY_S) -> Iterator[Consortium]:
        """Run the coordinator on the backup; by default the round's latest end has passed."""
        with standing(self.folder / "backup") as stage:
            self.made.attach(stage)
            stage.pass_time(stage.server.clock() + passed_s)
            yield self.made
            self.made.close()

    def close(self) -> None:
        """Have the admin close the round."""
        self.made.operator.close_unknown(
            self.made.name, Lost.make_signed(self.made.admin, context=self.context)
        )


@pytest.fixture
def restored(tmp_path: Path) -> Restored:
    return Restored(tmp_path)


def causes(results: dict[str, Any]) -> set[Any]:
    return {result.cause if isinstance(result, PeerFault) else type(result) for result in results.values()}


def states(consortium: Consortium) -> set[tuple[tuple[str, State], ...]]:
    """Return each member's runs."""
    return {
        tuple((run.period, run.state) for run in consortium.member(member).ledger())
        for member in consortium.ids
    }


def refuses_next(consortium: Consortium, context: bytes) -> None:
    """Check that no member goes on to the next period, and that each names the context and the remedy."""
    cohort = consortium.open_cohort("p2")
    flows = consortium.enrolments(cohort, period="p2")
    results = consortium.together(flows)
    if causes(results) != {Cause.OUTCOME_MISSING}:
        results = consortium.together(consortium.contributions(consortium.open_round(cohort)))
    assert causes(results) == {Cause.OUTCOME_MISSING}
    assert all(f"veilsum admin close {context.hex()}" in str(each) for each in results.values())


def test_uploaded_records_are_spent_and_others_are_summed(restored: Restored) -> None:
    with restored.before() as (made, round_id):
        made.together(made.contributions(round_id), vanish=dict.fromkeys(made.ids, "/chunks/"))
    with restored.after() as made:
        refuses_next(made, restored.context)
        restored.close()
        restored.close()
        assert causes(made.run(made.enrol("p3"))) == {Result}
        assert states(made) == {(("p1", State.SPENT), ("p3", State.SPENT))}
        assert causes(made.run(made.enrol("p1"))) == {Cause.ALREADY_SUMMED}
        assert [link.period for link in made.links()] == ["p3"]


def test_a_result_that_the_coordinator_forgot_is_kept_and_not_summed_again(restored: Restored) -> None:
    with restored.before() as (made, round_id):
        assert causes(made.together(made.contributions(round_id))) == {Result}
    with restored.after() as made:
        refuses_next(made, restored.context)
        restored.close()
        made.cohort = made.cohorts[-1]
        assert causes(made.together(made.contributions(made.rounds[-1]))) == {Result}
        assert causes(made.run(made.enrol("p1"))) == {Cause.ALREADY_SUMMED}
        assert all(isinstance(made.alone(made.member(m).contribute(round_id)), Result) for m in made.ids)


def test_a_lost_round_is_not_closed_before_its_latest_end(tmp_path: Path) -> None:
    restored = Restored(tmp_path, cohorts=2)
    with restored.before() as (made, round_id):
        made.together(made.contributions(round_id), vanish=dict.fromkeys(made.ids, "/chunks/"))
    with restored.after(60.0) as made:
        other, latest_end = made.open_round(restored.cohorts[1]), format_utc(restored.latest_end_s)
        for close in ("the admin closes", "the admin has closed"):
            results = made.together(made.contributions(other))
            assert causes(results) == {Cause.OUTCOME_MISSING}
            assert all(close in str(each) and latest_end in str(each) for each in results.values())
            restored.close()
        made.stage.pass_time(restored.latest_end_s)  # the close spends the records that were uploaded
        assert causes(made.together(made.contributions(other))) == {Cause.ALREADY_SUMMED}


@pytest.mark.parametrize("reporting", [1, 3])
def test_the_erasure_of_an_attempt_that_never_was_blocks_nobody_for_good(
    restored: Restored, reporting: int
) -> None:
    with restored.before() as (made, round_id):
        # As a lying coordinator signs it: nobody has seen the opening before its latest end.
        while made.operator.round(round_id).state != "erasing":
            made.expire(round_id)
        results = made.together(made.contributions(round_id, made.ids[:reporting]))
        assert all(isinstance(each, NoResult) for each in results.values())
        assert (made.operator.round(round_id).state == "erased") is (reporting == 3)
    with restored.after() as made:
        if reporting == 1:
            cohort = made.open_cohort("p2")
            [refused] = made.together(
                {m: made.member(m).enrol(cohort, made.records(m, "p2")) for m in made.ids[:1]}
            ).values()
            assert refused.cause is Cause.OUTCOME_MISSING
            restored.close()
            assert causes(made.run(made.enrol("p3"))) == {Result}
        else:  # their reports are the end, and the records are summed in another cohort
            assert causes(made.run(made.enrol("p1"))) == {Result}


def test_an_agent_goes_on_past_a_cohort_that_the_coordinator_forgot(tmp_path: Path) -> None:
    restored = Restored(tmp_path, cohorts=0)
    with restored.before() as (made, round_id):
        made.together(made.contributions(round_id), vanish=dict.fromkeys(made.ids, "result/weights"))
    with restored.after() as made:
        cohort = made.open_cohort("p2")
        for expected in (Cause.OUTCOME_MISSING, Result):
            flows = made.agent_flows("p2")
            assert causes(made.together(flows, stuck=made.leading_on(cohort))) == {expected}
            restored.close()
