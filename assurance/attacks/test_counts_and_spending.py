"""What a coordinator could learn of counts, make members spend, or have summed twice, through whole members, and does not."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from client_sdk.database import DATABASE, StateDatabase
from client_sdk.errors import Declined, PeerFault, StateError
from client_sdk.records import Records
from client_sdk.reservations import State
from client_sdk.result import Result
from tests.support.federation import DIM, NOISY, Federation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from client_sdk.reservations import Run


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)
    monkeypatch.setattr(StateDatabase, "synchronous", "OFF")


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[Federation]:
    built = Federation(tmp_path)
    yield built
    built.close()


def summed(federation: Federation, cohort: str) -> str:
    """The context of a sum of everybody's."""
    round_id = federation.coordinator.open_round(cohort)
    results = federation.together(federation.contributions(round_id))
    assert {type(each) for each in results.values()} == {Result}, results
    return federation.coordinator.rounds[round_id].phase.attempt.context.hex()


def asked(federation: Federation, member: str, period: str, records: Records) -> bool:
    """Whether a member enrols in a new cohort of a period; the others stay away."""
    cohort = federation.coordinator.open_cohort(period)
    try:
        for state, _ in federation.steps(federation.member(member).enrol(cohort, records)):
            if state == "waits":
                break
    except Declined:
        pass
    return member in federation.coordinator.cohorts[cohort].enrolling.cards


def rows(count: int, ids: str = "r") -> Records:
    rng = np.random.default_rng(count)
    return Records(
        rng.standard_normal((count, DIM)), np.arange(count) % 2, [f"{ids}{row}" for row in range(count)]
    )


def runs(federation: Federation, member: str = "member-0") -> dict[str, Run]:
    return {run.period: run for run in federation.open[member].ledger()}


def enrolled(federation: Federation, cohort: str, records: Mapping[str, Records]) -> dict[str, Any]:
    return federation.together({m: federation.member(m).enrol(cohort, records[m]) for m in federation.ids})


# What answers tell


@pytest.mark.parametrize("question", [{}, NOISY], ids=["exact", "noisy"])
def test_answers_for_made_up_periods_do_not_count_records(tmp_path: Path, question: dict[str, Any]) -> None:
    """A coordinator names periods as it likes: were each yes to hold records of its own, yeses would count them and leave none."""
    answers = set()
    for count in (20, 60, 100, 200):
        federation = Federation(tmp_path / str(count), question=question)
        answers.add(tuple(asked(federation, "member-0", f"x{number}", rows(count)) for number in range(6)))
        # And what was made up takes nothing from the period that is run.
        assert asked(federation, "member-0", "real", rows(count))
        assert (runs(federation)["real"].taken, runs(federation)["real"].rows) == (
            0,
            count if question else min(count, 40),
        )
        federation.close()
    assert answers == {(True,) * 6}


def test_records_of_an_open_attempt_are_free_for_no_other_period(federation: Federation) -> None:
    cohort = federation.enrol()
    round_id = federation.coordinator.open_round(cohort)
    federation.run_until(federation.contributions(round_id)["member-0"], "PUT")
    with pytest.raises(PeerFault, match=r"^outcome-missing:"):
        asked(federation, "member-0", "p2", rows(100))
    assert set(runs(federation)) == {"p1"}
    # Once it is certified its records are spent, whoever asks then.
    results = federation.together(federation.contributions(round_id))
    assert {type(each) for each in results.values()} == {Result}
    assert not asked(federation, "member-0", "p2", federation.records("member-0"))
    assert runs(federation)["p1"].state is State.SPENT


def test_a_run_that_was_summed_is_not_given_up_for_a_newer_period(federation: Federation) -> None:
    context = summed(federation, federation.enrol())
    federation.enrol("p2")
    assert not runs(federation)["p1"].given_up
    again = federation.coordinator.open_cohort("p1", context)
    federation.together({m: federation.member(m).enrol(again) for m in federation.ids})
    summed(federation, again)


# What is spent for nothing


def test_a_member_whose_upload_is_left_out_spends_nothing(tmp_path: Path) -> None:
    """Too slow, or not wanted: nothing of its upload is ever opened, and it takes its records to the next period."""
    federation = Federation(tmp_path, members=5)
    round_id = federation.coordinator.open_round(federation.enrol())
    flows = federation.contributions(round_id)
    slow = federation.until(flows.pop("member-4"), "chunks/0", "before")
    for flow in flows.values():
        federation.run_until(flow, "chunks/0")
    federation.coordinator.expire(round_id)
    flows = federation.contributions(round_id, federation.ids[:4])
    results = federation.together(flows, stuck=federation.expiring(round_id), started={"member-4": slow})
    assert [results[m].counted for m in federation.ids] == [True] * 4 + [False]
    assert [runs(federation, m)["p1"].state for m in federation.ids] == [State.SPENT] * 4 + [State.RESERVED]
    assert asked(federation, "member-4", "p2", federation.records("member-4"))
    assert not asked(federation, "member-3", "p2", federation.records("member-3"))
    federation.close()


def test_a_member_that_hears_late_that_it_was_left_out_spends_nothing(tmp_path: Path) -> None:
    federation = Federation(tmp_path, members=5)
    cohort = federation.enrol()
    round_id = federation.coordinator.open_round(cohort)
    flows = federation.contributions(round_id)
    federation.run_until(flows.pop("member-4"), "uploads/member-4")  # and no chunk of it
    federation.together(flows, stuck=federation.expiring(round_id))
    assert asked(federation, "member-4", "p2", federation.records("member-4"))
    assert not runs(federation, "member-4")["p1"].records
    federation.close()


# What is summed twice, or of too few


def test_data_without_ids_shares_no_ledger_with_data_that_has_some(federation: Federation) -> None:
    """The same rows, first without ids: nobody could tell that the ids are of records that were summed."""
    given = {m: federation.records(m) for m in federation.ids}
    bare = {m: Records(each.features, each.labels) for m, each in given.items()}
    cohort = federation.coordinator.open_cohort("p1")
    enrolled(federation, cohort, bare)
    summed(federation, cohort)
    refused = enrolled(federation, federation.coordinator.open_cohort("p2"), given)
    assert {type(each) for each in refused.values()} == {Declined}


def test_data_that_had_ids_is_not_summed_without(federation: Federation) -> None:
    summed(federation, federation.enrol())
    bare = {m: Records(*federation.data(m, "p2")) for m in federation.ids}
    refused = enrolled(federation, federation.coordinator.open_cohort("p2"), bare)
    assert {type(each) for each in refused.values()} == {Declined}


def test_another_extractor_without_the_reserved_rows_is_declined(federation: Federation) -> None:
    """Members that have only newer data would send zeros, and the sum would be the one vector of who has all."""
    context = summed(federation, federation.enrol())
    federation.coordinator.publish(federation.make_study({"name": "other"}, extractor="ab" * 32))
    newer = {m: federation.records(m, "p2") for m in federation.ids} | {
        "member-0": federation.records("member-0")
    }
    again = federation.coordinator.open_cohort("p1", context)
    answers = enrolled(federation, again, newer)
    assert {type(answers[m]) for m in federation.ids[1:]} == {Declined}, answers


@pytest.mark.parametrize("harm", [lambda path: path.unlink(), lambda path: path.write_bytes(b"")])
def test_a_ledger_that_is_gone_is_not_begun_anew(
    federation: Federation, harm: Callable[[Path], object]
) -> None:
    """A file that a full disk or a careless hand emptied would make every record free again."""
    summed(federation, federation.enrol())
    federation.close()
    harm(federation.folder / "member-0/state" / DATABASE)
    with pytest.raises(StateError, match=r"state\.sqlite is missing"):
        federation.member("member-0")
