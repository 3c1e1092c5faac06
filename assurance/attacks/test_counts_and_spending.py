"""A coordinator tries to learn counts, to make members spend records, or to have records summed twice. Whole members prevent it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from client_sdk.database import STATE_FILE, StateDatabase
from client_sdk.errors import Declined, StateError
from client_sdk.records import Records
from client_sdk.reservations import State
from client_sdk.result import Result
from tests.support.consortium import DIM, NOISY, Consortium
from tests.support.serving import Stage, standing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from client_sdk.reservations import Run


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)
    monkeypatch.setattr(StateDatabase, "synchronous", "OFF")


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with standing(tmp_path_factory.mktemp("stage") / "service") as made:
        yield made


@pytest.fixture
def consortium(stage: Stage, tmp_path: Path) -> Iterator[Consortium]:
    built = Consortium(stage, tmp_path)
    yield built
    built.close()


def summed(consortium: Consortium, cohort: str) -> str:
    """Play a round that sums all members' records, and return its context."""
    round_id = consortium.open_round(cohort)
    results = consortium.together(consortium.contributions(round_id))
    assert {type(each) for each in results.values()} == {Result}, results
    return consortium.operator.round(round_id).context


def asked(consortium: Consortium, member: str, period: str, records: Records) -> bool:
    """Return whether a member enrols in a new cohort of a period that the others stay away from."""
    cohort = consortium.open_cohort(period)
    try:
        for state, _ in consortium.steps(consortium.member(member).enrol(cohort, records)):
            if state == "waits":
                break
    except Declined:
        pass
    return member in consortium.operator.cohort(cohort).cards


def rows(count: int, ids: str = "r") -> Records:
    rng = np.random.default_rng(count)
    return Records(
        rng.standard_normal((count, DIM)), np.arange(count) % 2, [f"{ids}{row}" for row in range(count)]
    )


def runs(consortium: Consortium, member: str = "member-0") -> dict[str, Run]:
    return {run.period: run for run in consortium.open[member].ledger()}


def enrolled(consortium: Consortium, cohort: str, records: Mapping[str, Records]) -> dict[str, Any]:
    return consortium.together({m: consortium.member(m).enrol(cohort, records[m]) for m in consortium.ids})


# What answers tell


@pytest.mark.parametrize("question", [{}, NOISY], ids=["exact", "noisy"])
def test_answers_for_made_up_periods_do_not_count_records(
    stage: Stage, tmp_path: Path, question: dict[str, Any]
) -> None:
    """The coordinator may name any period. If each yes reserved records of its own, the answers would count and use up the records."""
    answers = set()
    for count in (20, 200):
        consortium = Consortium(stage, tmp_path / str(count), question=question)
        answers.add(tuple(asked(consortium, "member-0", f"x{number}", rows(count)) for number in range(6)))
        # Made-up periods take nothing from a real one.
        assert asked(consortium, "member-0", "real", rows(count))
        assert (runs(consortium)["real"].taken, runs(consortium)["real"].rows) == (
            0,
            count if question else min(count, 40),
        )
        consortium.close()
    assert answers == {(True,) * 6}


def test_a_run_that_was_summed_is_not_given_up_for_a_newer_period(consortium: Consortium) -> None:
    context = summed(consortium, consortium.enrol())
    consortium.enrol("p2")
    assert not runs(consortium)["p1"].given_up
    again = consortium.open_cohort("p1", context)
    consortium.together({m: consortium.member(m).enrol(again) for m in consortium.ids})
    summed(consortium, again)


# Records spent without a sum


def test_a_member_whose_upload_is_left_out_spends_nothing(stage: Stage, tmp_path: Path) -> None:
    """Its upload came too late or was left out. It is never opened, and the member uses its records in the next period."""
    consortium = Consortium(stage, tmp_path, members=5)
    round_id = consortium.open_round(consortium.enrol())
    flows = consortium.contributions(round_id)
    slow = consortium.until(flows.pop("member-4"), "chunks/0", "before")
    for flow in flows.values():
        consortium.run_until(flow, "chunks/0")
    consortium.expire(round_id)
    flows = consortium.contributions(round_id, consortium.ids[:4])
    results = consortium.together(flows, stuck=consortium.expiring(round_id), started={"member-4": slow})
    assert [results[m].counted for m in consortium.ids] == [True] * 4 + [False]
    assert [runs(consortium, m)["p1"].state for m in consortium.ids] == [State.SPENT] * 4 + [State.FREE]
    assert asked(consortium, "member-4", "p2", consortium.records("member-4"))
    assert not asked(consortium, "member-3", "p2", consortium.records("member-3"))
    consortium.close()


# Records summed twice, and sums of too few members


@pytest.mark.parametrize("harm", [lambda path: path.unlink(), lambda path: path.write_bytes(b"")])
def test_a_ledger_that_is_gone_is_not_begun_anew(
    consortium: Consortium, harm: Callable[[Path], object]
) -> None:
    """A file emptied by a full disk or by accident would make every record free again."""
    summed(consortium, consortium.enrol())
    consortium.close()
    harm(consortium.folder / "member-0/state" / STATE_FILE)
    with pytest.raises(StateError, match=r"state\.sqlite is missing"):
        consortium.member("member-0")
