"""A short run of `make restored`."""

import pytest

from assurance.kill.restored import run_campaign


@pytest.mark.parametrize("kills", [50, pytest.param(2_000, marks=pytest.mark.slow)])
def test_kills_while_enrolling_and_pairing_make_no_member_refuse_and_copies_are_refused(kills: int) -> None:
    seen = run_campaign(kills, seed=100)
    assert min(seen["at a write"], seen["enrolled"]) > kills / 4
    assert min(seen["pairings"], seen["keys"]) > kills / 25
    assert min(seen["refused"], seen["not older"], seen["second pairing refused"]) >= 1
