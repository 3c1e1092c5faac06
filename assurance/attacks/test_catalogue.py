"""Every attack of the catalogue meets exactly what it must."""

import json
from collections import Counter
from pathlib import Path

import pytest

from assurance.attacks.base import SURVIVED, Attack, Decoded, Played, Shown
from assurance.attacks.catalogue import ATTACKS, exported
from assurance.vectors.stage import message_of
from veilsum.protocol.causes import Cause

PAGE = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text("utf-8")
FILE = Path(__file__).parents[1] / "vectors" / "attacks.json"


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_it_is_refused_for_exactly_this(attack: Attack) -> None:
    fault = attack.run()
    assert (fault.cause, fault.parties) == (attack.cause, attack.parties), str(fault)


def test_all_that_an_implementation_must_survive_is_tried() -> None:
    tried = Counter(attack.survives for attack in ATTACKS)
    assert [each for each in SURVIVED if not tried[each]] == []
    assert set(tried) == set(SURVIVED)


def test_every_clause_is_the_pages() -> None:
    for attack in ATTACKS:
        for clause in attack.clause.replace("§", "").split(", "):
            section, _, point = clause.partition(".")
            heading = (
                f"### {section}.{point.split('.')[0]} " if section == "4" and point else f"## {section}. "
            )
            assert heading in PAGE, (attack.name, clause)


def test_bytes_of_attacks_are_no_others() -> None:
    """No two of them are one and the same."""
    made = Counter(
        (attack.message, attack.round, attack.attempt, attack.to, attack.place, attack.now_s)
        for attack in ATTACKS
        if isinstance(attack, Shown)
    )
    assert max(made.values()) == 1
    assert sum(isinstance(attack, Shown) for attack in ATTACKS) >= 200
    assert sum(isinstance(attack, Decoded) for attack in ATTACKS) >= 40
    assert sum(isinstance(attack, Played) for attack in ATTACKS) >= 50


def test_most_causes_of_the_protocol_are_met() -> None:
    local = {
        Cause.EVICTION_INVALID, Cause.POLICY_REFUSED, Cause.STUDY_REFUSED, Cause.CANCELLED, Cause.SUM_CHECK_FAILED,
        Cause.MALFORMED_REQUEST, Cause.UNAUTHORISED, Cause.NOT_FOUND, Cause.UNAVAILABLE,
        Cause.REQUEST_UNSIGNED, Cause.REQUEST_FORGED, Cause.REQUEST_REPLAYED, Cause.CLOCK_SKEW, Cause.DIGEST_MISMATCH,
        Cause.FORBIDDEN, Cause.AUDIT_BROKEN, Cause.BODY_INCOMPLETE, Cause.TOO_MANY_REQUESTS, Cause.STORAGE_DAMAGED,
    }  # fmt: skip
    assert set(Cause) - {attack.cause for attack in ATTACKS} <= local


def test_the_exported_catalogue_is_this_one() -> None:
    kept = json.loads(FILE.read_text("utf-8"))["attacks"]
    assert kept == exported()
    assert [each["name"] for each in kept] == [attack.name for attack in ATTACKS]


def test_an_exported_message_is_the_one_that_was_tried() -> None:
    for said, attack in zip(exported(), ATTACKS, strict=True):
        if not isinstance(attack, Shown):
            continue
        data = bytes.fromhex(said.get("message", ""))
        if "cuts" in said:
            data = message_of(attack.round, said["honest"]).to_bytes()
            for at, gone, instead in reversed(said["cuts"]):
                data = data[:at] + bytes.fromhex(instead) + data[at + gone :]
        assert data == attack.message, attack.name
