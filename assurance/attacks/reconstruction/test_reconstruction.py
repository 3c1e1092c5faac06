"""What exact sums of the least sizes that the rules allow give back, and what they would give without each rule."""

import pytest

from assurance.attacks.reconstruction.scenarios import Expected, Scenario, list_scenarios

QUICK = [each for each in list_scenarios() if each.quick and each.expected is not Expected.WEAKNESS]


@pytest.mark.parametrize("scenario", QUICK, ids=lambda scenario: scenario.name)
def test_an_attack_gives_what_is_promised_and_no_more(scenario: Scenario) -> None:
    found = scenario.measure()
    assert scenario.holds(found), (scenario.expected.value, found)
