import io
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from tests.support.cli import EXTRACTOR
from veilsum.demo.consortium import KilledMember, _Killing, casualties, demo_study
from veilsum.demo.plan import DemoPlan
from veilsum.demo.screen import Screen
from veilsum.protocol.rest import CohortView

MEMBERS = ("member-01", "member-02", "member-03", "member-04")


def test_the_members_in_the_middle_by_records_are_killed() -> None:
    learned: Any = SimpleNamespace(
        members=MEMBERS, partition=SimpleNamespace(sizes=np.array([40, 10, 30, 20]))
    )
    assert casualties(learned) == (KilledMember("member-04", "card"), KilledMember("member-03", "upload"))


@pytest.mark.parametrize("withhold", [True, False])
def test_the_study_is_one_that_its_rules_admit(*, withhold: bool) -> None:
    content = demo_study(DemoPlan(withhold=withhold), bytes.fromhex(EXTRACTOR), 64, 10, 12)
    assert content.question.least_rows(content.question.smallest.quorum) >= 2 * 65
    assert content.question.steps == (("indicator", "sum") if withhold else ("sum",))


def test_each_victim_is_killed_once_and_when_it_has_done_its_part() -> None:
    killed: list[str] = []
    children: Any = SimpleNamespace(kill=killed.append)
    killing = _Killing(
        children,
        Screen(Console(file=io.StringIO())),
        KilledMember("member-01", "card"),
        KilledMember("member-02", "upload"),
    )
    cohort: dict[str, Any] = {
        **dict.fromkeys(("cohort", "federation", "study"), "00" * 32),
        "name": "digits",
        "study_version": 1,
        "period": "2026-11",
        "counter": 0,
        "repeats": None,
        "version": 1,
        "members": MEMBERS,
        "cards": MEMBERS,
        "deadline_s": None,
        "quorum": None,
        "fault": None,
    }
    killing(CohortView(state="enrolling", **cohort))
    assert not killed
    killing(CohortView(state="formed", **cohort))
    assert killed == ["member-01"]

    def shown(step: str, *uploaded: str, state: str = "collecting") -> Any:
        return SimpleNamespace(spec=SimpleNamespace(step=step), state=state, uploaded=uploaded)

    killing(shown("indicator", "member-02"))
    killing(shown("sum", "member-03"))
    assert killed == ["member-01"]
    killing(shown("sum", "member-02", "member-03"))
    killing(shown("sum", "member-02", "member-03"))
    assert killed == ["member-01", "member-02"]
