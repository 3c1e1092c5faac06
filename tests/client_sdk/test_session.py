"""What a member stores when it learns how an attempt ended, and what it erases without."""

from functools import partial

import pytest

from client_sdk.environment import Environment
from client_sdk.evidence import Evidence
from tests.support.consortium import Consortium
from veilsum.protocol.member import Closed, Ready
from veilsum.protocol.member.attempting import Attempting


@pytest.mark.parametrize("erased", [False, True])
def test_an_end_that_is_learned_closes_the_attempt_that_is_open(five: Consortium, *, erased: bool) -> None:
    """Also after its keys were erased: what was uploaded is kept as evidence."""
    cohort = five.enrol()
    round_id = five.open_round(cohort)
    flows = five.contributions(round_id)
    five.together(flows, stuck=five.expiring(round_id), vanish={"member-4": "chunks/1"})
    session, name = five.member("member-4").session, bytes.fromhex(cohort)
    before = session.store.load_phase(name)
    assert before is not None
    assert isinstance(before.phase, Attempting)
    if erased:
        five.stage.pass_time(five.operator.round(round_id).spec.latest_end_s)
        session.erase_expired()
    held = session.store.load_phase(name)
    assert held is not None
    assert isinstance(held.phase, Ready) == erased
    five.alone(session.learn_endings())
    after = session.store.load_phase(name)
    assert after is not None
    assert after.round_id == round_id
    assert isinstance(after.phase, Closed)
    assert not after.phase.certificate.is_void
    assert not session.is_unsettled(round_id)
    [upload] = before.phase.uploads
    assert Evidence.load(session.store.result_folder(round_id)).header == upload.header


def test_a_formed_cohort_gives_up_its_own_run_whatever_period_the_coordinator_shows(
    consortium: Consortium,
) -> None:
    first, second = consortium.enrol("p1"), consortium.enrol("p2")
    session = consortium.member("member-0").session
    for cohort, shown, given_up in ((first, "p2", {"p1"}), (second, "p1", {"p1", "p2"})):
        held = session.store.load_phase(bytes.fromhex(cohort))
        assert held is not None
        session.give_up_over(held.phase, shown)
        assert {run.period for run in session.store.ledger.list_runs() if run.given_up} == given_up


def test_a_roster_is_fetched_where_a_newer_one_is_announced(consortium: Consortium) -> None:
    consortium.enrol()
    session, before = consortium.member("member-0").session, len(consortium.requests("roster"))
    for number, fetched in ((1, 0), (2, 1)):
        consortium.alone(session.learn_newest_roster(number))
        assert len(consortium.requests("roster")) == before + fetched


def test_an_attempts_keys_are_erased_at_its_latest_end_and_not_before(consortium: Consortium) -> None:
    round_id = consortium.open_round(consortium.enrol())
    end_s = consortium.operator.round(round_id).spec.latest_end_s
    consortium.run_until(consortium.member("member-0").contribute(round_id), "chunks/1")
    for now_s, kind in ((end_s - 1, Attempting), (end_s, Ready)):
        clock = Environment(now_s=partial(float, now_s), monotonic_s=consortium.clock)
        session = consortium.member("member-0", environment=clock).session
        session.erase_expired()
        [(_, held)] = session.store.stored_phases()
        assert isinstance(held.phase, kind)
