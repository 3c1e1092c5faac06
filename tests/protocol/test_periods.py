"""Which kinds of periods a study has (CARDS-2)."""

import pytest

from tests.support.refusals import refused
from tests.support.simulator import simulated_content, simulated_question
from veilsum.protocol.periods import PeriodKind
from veilsum.protocol.study import Content

JUDGE = {"epsilon": 1.0, "delta": 1e-6, "heads": 1, "positive": None, "bins": {"confidence": 2, "score": 2}}
PACK = {"pack": "c5" * 32, "tolerance": 0.01}
PLAIN = simulated_content(simulated_question(5), 10**9)
BOTH = simulated_content({**simulated_question(5), "judge": JUDGE}, 10**9, rehearsal=PACK)


@pytest.mark.parametrize(
    ("period", "kind", "steps"),
    [
        ("2026-11", PeriodKind.DATA, ("sum",)),
        ("rehearsal-1", PeriodKind.REHEARSAL, ("sum",)),
        ("judge-1", PeriodKind.JUDGE, ("judge",)),
    ],
)
def test_the_prefix_of_a_period_says_what_it_adds_up(
    period: str, kind: PeriodKind, steps: tuple[str, ...]
) -> None:
    assert BOTH.check_period(period, repeats=False) is kind
    assert BOTH.question.steps_in(period) == steps


@pytest.mark.parametrize(
    ("content", "period", "repeats"),
    [
        (PLAIN, "rehearsal-1", False),
        (PLAIN, "judge-1", False),
        (BOTH, "rehearsals", False),
        (BOTH, "judge", False),
        (BOTH, "rehearsal-1", True),
        (BOTH, "judge-1", True),
    ],
)
def test_a_kind_that_the_study_lacks_or_that_repeats_is_refused(
    content: Content, period: str, *, repeats: bool
) -> None:
    with refused("terms-refused", "coordinator"):
        content.check_period(period, repeats=repeats)


def test_only_data_are_repeated() -> None:
    assert BOTH.check_period("2026-11", repeats=True) is PeriodKind.DATA
