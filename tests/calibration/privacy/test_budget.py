from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from calibration import BudgetMismatch, BudgetSpent
from calibration.privacy import Budget, Charge, compose, gdp_epsilon

FRESH = Budget("ct-2026", 1.0, 1e-5)


def context(number: int) -> bytes:
    return number.to_bytes(32, "big")


def test_rounds_are_charged_until_the_budget_is_spent() -> None:
    budget = FRESH
    for number in range(3):
        budget = budget.charge(context(number), 0.5)
    assert budget.mu == pytest.approx(math.sqrt(3) / 2)
    assert budget.mu_left == pytest.approx(0.5)
    assert budget.epsilon == gdp_epsilon(compose([0.5] * 3), 1e-5)
    with pytest.raises(
        BudgetSpent, match=r"ct-2026 has spent μ = 0\.866 of 1 .* a round of μ ≤ 0\.5 would fit"
    ) as caught:
        budget.charge(context(3), 0.6)
    assert caught.value.mu_left == pytest.approx(0.5)
    spent = budget.charge(context(3), 0.5)
    assert spent.mu_left == 0
    with pytest.raises(BudgetSpent):
        spent.charge(context(4), 1e-3)
    assert FRESH.charges == ()
    assert FRESH.mu == FRESH.epsilon == 0


def test_three_thirds_are_a_whole() -> None:
    budget = FRESH
    for number in range(3):
        budget = budget.charge(context(number), 1 / math.sqrt(3))
    assert len(budget.charges) == 3


def test_the_same_attempt_is_charged_once() -> None:
    budget = FRESH.charge(context(1), 0.9)
    assert budget.charge(context(1), 0.9) is budget
    with pytest.raises(BudgetMismatch, match=r"was charged μ = 0\.9: one upload"):
        budget.charge(context(1), 0.1)


def test_only_a_void_gives_back_and_closes_the_attempt() -> None:
    budget = FRESH.charge(context(1), 0.9).charge(context(2), 0.1)
    refunded = budget.refund(context(1))
    assert refunded.mu == pytest.approx(0.1)
    assert refunded.refund(context(1)) == refunded
    with pytest.raises(BudgetMismatch, match="and refunded"):
        refunded.charge(context(1), 0.9)
    assert refunded.charge(context(3), 0.9).mu == pytest.approx(math.hypot(0.1, 0.9))
    with pytest.raises(BudgetMismatch, match="never charged can't be refunded"):
        budget.refund(context(9))


def test_it_comes_back_from_its_bytes_to_the_last_bit() -> None:
    budget = FRESH.charge(context(1), 1 / 3).charge(context(2), 0.1).refund(context(2))
    encoded = budget.to_bytes()
    assert Budget.from_bytes(encoded) == budget
    assert Budget.from_bytes(encoded).to_bytes() == encoded
    assert json.loads(encoded)["charges"][0] == {"context": context(1).hex(), "mu": 1 / 3, "refunded": False}
    assert Budget.from_bytes(FRESH.to_bytes()) == FRESH
    whole = Budget("ct-2026", 2, 1e-5).charge(context(1), 1)
    assert Budget.from_bytes(whole.to_bytes()) == whole


CONTENT = json.loads(FRESH.charge(context(1), 0.5).to_bytes())
CHARGE = CONTENT["charges"][0]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": 2}, "other keys or types"),
        ({"extra": 1}, "other keys or types"),
        ({"mu_max": "1"}, "other keys or types"),
        ({"charges": [CHARGE, CHARGE]}, "charged once"),
        ({"charges": [CHARGE | {"context": "AB" * 32}]}, "not a charge"),
        ({"charges": [CHARGE | {"refunded": 1}]}, "not a charge"),
        ({"charges": [CHARGE | {"more": 1}]}, "not a charge"),
        ({"charges": [CHARGE | {"mu": -1.0}]}, "positive, finite μ"),
        ({"charges": [7]}, "not a charge"),
        ({"lineage": ""}, "1 to 64 characters"),
        ({"delta": 1.0}, "δ between 0 and 1"),
        ({"mu_max": 0.0}, "positive, finite μ and a δ"),
    ],
)
def test_other_content_is_refused(change: dict[str, Any], words: str) -> None:
    encoded = json.dumps(CONTENT | change, sort_keys=True, separators=(",", ":")).encode()
    with pytest.raises(BudgetMismatch, match=words):
        Budget.from_bytes(encoded)


@pytest.mark.parametrize("encoded", [b"", b"\xff", b"{", b"[" * 100_000, json.dumps(CONTENT).encode()])
def test_other_bytes_are_refused(encoded: bytes) -> None:
    with pytest.raises(BudgetMismatch, match=r"not ASCII JSON|not the canonical encoding"):
        Budget.from_bytes(encoded)


def test_values_outside_their_domain_are_refused() -> None:
    for mu in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(BudgetMismatch, match="exact rounds have no budget"):
            FRESH.charge(context(1), mu)
    with pytest.raises(BudgetMismatch, match="by the 32 bytes of its context"):
        Charge(b"short", 0.1)
    for change in ({"mu_max": math.inf}, {"delta": 0.0}, {"lineage": "x" * 65}):
        with pytest.raises(BudgetMismatch):
            replace(FRESH, **change)
