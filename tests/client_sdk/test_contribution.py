"""Whole rounds, and members that die at every effect of theirs."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibration import solve_ffc
from client_sdk.errors import Misuse, NoResult, NotEnrolled, PeerFault, StateError
from client_sdk.effects import Flow
from client_sdk.progress import Step
from client_sdk.result import Result
from protocol.causes import Cause
from protocol.member import Closed
from protocol.messages import parse
from tests.client_sdk.federation import FEATURES, Federation, Kill


def test_a_round_gives_every_member_the_verified_weights_of_the_exact_sum(federation: Federation) -> None:
    round_id = federation.coordinator.open_round(federation.enrol())
    results = federation.together(federation.contributions(round_id))
    pooled = federation.statistics("member-0")
    for member in federation.ids[1:]:
        pooled.merge(federation.statistics(member))
    for result in results.values():
        assert isinstance(result, Result)
        assert result.counted
        assert result.survivors == federation.ids
        assert np.allclose(result.weights, solve_ffc(pooled, ridge=0.1).weights, atol=1e-6)
        assert result.bias is None
        result.verify(federation.admin.public)
    assert federation.total(round_id) == federation.expected(federation.ids)


@pytest.mark.parametrize(
    ("terms", "settings"),
    [
        ({"bias": True}, {"bias": True}),
        ({"lattice": "features", "lattice_bits": 12, "ring_bits": 42}, {"lattice": FEATURES}),
    ],
)
def test_other_terms(federation: Federation, terms: dict[str, Any], settings: dict[str, Any]) -> None:
    round_id = federation.coordinator.open_round(federation.enrol(), **terms)
    flows = {
        m: federation.member(m).contribute(round_id, federation.statistics(m, **settings), "main")
        for m in federation.ids
    }
    results = federation.together(flows)
    assert {type(result) for result in results.values()} == {Result}
    assert (results["member-0"].bias is not None) == settings.get("bias", False)
    assert federation.total(round_id) == federation.expected(federation.ids, **settings)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_member_killed_at_any_effect_goes_on_with_the_same_bytes(tmp_path: Path, moment: str) -> None:
    number, struck = 0, set()
    while True:
        federation = Federation(tmp_path / str(number))
        round_id = federation.coordinator.open_round(federation.enrol())

        def again(federation: Federation = federation, round_id: str = round_id) -> Flow[Result]:
            return federation.contributions(round_id, ["member-1"])["member-1"]

        kill = Kill("member-1", moment, number, again)
        results = federation.together(federation.contributions(round_id), kill)
        federation.close()
        assert {type(result) for result in results.values()} == {Result}, (number, kill.struck, results)
        assert all(result.counted for result in results.values())
        assert federation.total(round_id) == federation.expected(federation.ids)
        for place, bodies in federation.coordinator.wire.items():
            assert len(set(bodies)) == 1, (number, kill.struck, place)
        if kill.struck is None:
            break
        struck.add(str(kill.struck).split()[1] if "Request" in str(kill.struck) else "Compute")
        number += 1
    assert struck == {"GET", "PUT", "POST", "Compute"} if number else False


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_member_killed_while_it_enrols_joins_with_the_same_card(tmp_path: Path, moment: str) -> None:
    number = 0
    while True:
        federation = Federation(tmp_path / str(number))
        cohort = federation.coordinator.open_cohort()
        kill = Kill("member-2", moment, number, lambda f=federation, c=cohort: f.member("member-2").enrol(c))
        results = federation.together({m: federation.member(m).enrol(cohort) for m in federation.ids}, kill)
        assert {quorum.threshold for quorum in results.values()} == {2}
        assert all(len(set(bodies)) == 1 for bodies in federation.coordinator.wire.values())
        federation.close()
        if kill.struck is None:
            break
        number += 1
    assert number >= 4


def test_a_member_that_vanishes_after_its_upload_is_in_the_sum(tmp_path: Path) -> None:
    federation = Federation(tmp_path, members=5)
    round_id = federation.coordinator.open_round(federation.enrol())
    flows = federation.contributions(round_id)

    def stuck() -> bool:
        if federation.coordinator.view(round_id).ended:
            return False
        federation.coordinator.expire(round_id)
        return True

    class Dead:
        strikes = 0

    steps = federation.steps(flows.pop("member-4"))
    for _, effect in steps:
        if "chunks/1" in getattr(effect, "path", ""):
            break
    next(steps)
    steps.close()
    results = federation.together(flows, stuck=stuck)
    assert {type(result) for result in results.values()} == {Result}, results
    assert federation.total(round_id) == federation.expected(federation.ids)
    late = federation.alone(federation.contributions(round_id, ["member-4"])["member-4"])
    assert late.counted
    federation.close()
