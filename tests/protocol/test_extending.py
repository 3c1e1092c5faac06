import pytest

from tests.support.refusals import refused
from tests.support.simulator import Federation
from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator import Checking, Collecting, Freezing
from veilsum.protocol.coordinator.base import check_extension


def test_a_deadline_moves_later_and_the_same_again_changes_nothing() -> None:
    assert check_extension("collecting", 100.0, 160.5, 1000) == 160.5
    assert check_extension("collecting", 100.0, 100.0, 1000) == 100.0


@pytest.mark.parametrize(
    ("deadline_s", "wanted_s", "cause"),
    [
        (None, 200.0, Cause.WRONG_PHASE),
        (100.0, 99.9, Cause.CONFLICT),
        (100.0, 1000.0, Cause.TERMS_REFUSED),
        (100.0, float("inf"), Cause.TERMS_REFUSED),
    ],
)
def test_what_members_were_told_and_signed_stands(
    deadline_s: float | None, wanted_s: float, cause: Cause
) -> None:
    with refused(cause.value):
        check_extension("collecting", deadline_s, wanted_s, 1000)


@pytest.mark.parametrize("stage", [Collecting, Checking, Freezing])
def test_a_phase_with_more_time_is_the_same_but_for_its_deadline(stage: type) -> None:
    federation = Federation(4)
    federation.begin()
    phase = federation.run_until(stage)
    assert phase.deadline_s is not None
    later = phase.extend_deadline(phase.deadline_s + 60)
    assert (type(later), later.deadline_s) == (stage, phase.deadline_s + 60)
    assert later.extend_deadline(phase.deadline_s + 60) == later
    with refused("terms-refused"):
        phase.extend_deadline(float(phase.attempt.opening.terms.latest_end_s))
