"""Every attack of the catalogue meets exactly the refusal that it must; its plays do in `assurance/vectors/test_plays.py`, which records them."""

import json
from collections import Counter
from pathlib import Path

import pytest

from assurance.attacks.base import SURVIVED, Attack, Played
from assurance.attacks.catalogue import ATTACKS, exported
from veilsum.protocol.causes import Cause

FILE = Path(__file__).parents[1] / "vectors" / "attacks.json"


@pytest.mark.parametrize(
    "attack", [each for each in ATTACKS if not isinstance(each, Played)], ids=lambda attack: attack.name
)
def test_it_is_refused_for_exactly_this(attack: Attack) -> None:
    fault = attack.run()
    assert (fault.cause, fault.parties) == (attack.cause, attack.parties), str(fault)


def test_all_that_an_implementation_must_survive_is_tried() -> None:
    tried = Counter(attack.survives for attack in ATTACKS)
    assert [each for each in SURVIVED if not tried[each]] == []
    assert set(tried) == set(SURVIVED)


def test_most_causes_of_the_protocol_are_met() -> None:
    local = {
        Cause.EVICTION_INVALID, Cause.POLICY_REFUSED, Cause.STUDY_REFUSED, Cause.CANCELLED, Cause.SUM_CHECK_FAILED,
        Cause.MALFORMED_REQUEST, Cause.UNAUTHORISED, Cause.NOT_FOUND, Cause.UNAVAILABLE,
        Cause.REQUEST_UNSIGNED, Cause.REQUEST_FORGED, Cause.REQUEST_REPLAYED, Cause.CLOCK_SKEW, Cause.DIGEST_MISMATCH,
        Cause.FORBIDDEN, Cause.AUDIT_BROKEN, Cause.BODY_INCOMPLETE, Cause.TOO_MANY_REQUESTS, Cause.STORAGE_DAMAGED, Cause.STATE_RESTORED,
        Cause.CANARIES_DIFFER,
    }  # fmt: skip
    assert set(Cause) - {attack.cause for attack in ATTACKS} <= local


def test_the_exported_catalogue_is_this_one() -> None:
    assert json.loads(FILE.read_text("utf-8"))["attacks"] == exported()
