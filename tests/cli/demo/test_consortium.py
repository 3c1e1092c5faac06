from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.support.cli import EXTRACTOR
from veilsum.cli.demo.consortium import KilledMember, choose_casualties, choose_mistaken, demo_study
from veilsum.cli.demo.plan import DemoPlan

MEMBERS = ("member-01", "member-02", "member-03", "member-04")


def test_the_members_in_the_middle_by_records_are_killed() -> None:
    learned: Any = SimpleNamespace(
        members=MEMBERS, partition=SimpleNamespace(sizes=np.array([40, 10, 30, 20]))
    )
    assert choose_casualties(learned) == (
        KilledMember("member-04", "pairing"),
        KilledMember("member-03", "upload"),
    )
    assert choose_mistaken(learned) == "member-01"


@pytest.mark.parametrize("withhold", [True, False])
def test_the_study_is_one_that_its_rules_admit(*, withhold: bool) -> None:
    content = demo_study(DemoPlan(withhold=withhold), bytes.fromhex(EXTRACTOR), 64, 10, 12)
    assert content.question.least_rows(content.question.smallest.quorum) >= 2 * 65
    assert content.question.steps == (("count", "rows", "sum") if withhold else ("sum",))
