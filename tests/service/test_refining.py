"""A noisy head on digits, refined by noisy rounds at one budget: over REST, by members of the SDK."""

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

from calibration.privacy import compose, gdp_epsilon, gdp_mu, solve_noisy
from client_sdk import Records
from client_sdk.store import Store
from client_sdk.sums import verify_sums
from protocol.keystream import Keystream
from tests.service.asking import Consortium
from tests.service.serving import running
from veilsum.asking import promised

EPSILON, DELTA, ROUNDS = 8.0, 1e-5, 3
DIGITS = load_digits()
ORDER = np.random.default_rng(0).permutation(len(DIGITS.target))
ROWS, LABELS = DIGITS.data[ORDER], DIGITS.target[ORDER].astype(np.int64)
FITTED = 1300


def own(member: int, *, held_out: bool = False) -> Records:
    assert not held_out
    part = slice(member, FITTED, 4)
    return Records(ROWS[part], LABELS[part], normalise=True)


def one_shot(draws: int) -> float:
    """Mean accuracy of a head that the whole budget is spent on at once, with the same shares of noise."""
    unit = ROWS / np.linalg.norm(ROWS, axis=1, keepdims=True)
    Z, Y, deviation = (
        unit[:FITTED],
        np.eye(10)[LABELS[:FITTED]],
        math.sqrt(2 * 4 / 3) / gdp_mu(EPSILON, DELTA),
    )
    right = []
    for seed in range(draws):
        rng = np.random.default_rng(seed)
        half = np.triu(rng.standard_normal((64, 64)), 1) * math.sqrt(0.5)
        noise = half + half.T + np.diag(rng.standard_normal(64))
        U = Z.T @ Y + deviation * rng.standard_normal((64, 10))
        head = solve_noisy(Z.T @ Z + deviation * noise, U, deviation)
        right.append((head.predict(unit[FITTED:]) == LABELS[FITTED:]).mean())
    return float(np.mean(right))


@pytest.mark.slow
async def test_refined_digits_beat_the_one_shot_head_at_the_same_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = itertools.count(1)  # whoever draws first: the noise on the sum is the same
    monkeypatch.setattr(
        "client_sdk.upload.Keystream", lambda _: Keystream(next(numbers).to_bytes(32, "little"))
    )
    mu = gdp_mu(EPSILON, DELTA)
    spent = {1: mu * math.sqrt(0.5), ROUNDS: mu * math.sqrt(0.5 / ROUNDS)}
    noise: dict[int, Any] = {
        many: {"epsilon": gdp_epsilon(each, DELTA), "delta": DELTA} for many, each in spent.items()
    }
    async with running(tmp_path / "data") as server:
        policy = {"mu_budget": mu}
        consortium = await Consortium(tmp_path, server, policy, records=own, records_cap=400).begin()
        common = {"dim": 64, "classes": 10, "chunk_elements": 4096}
        before, results = None, []
        for number in range(ROUNDS + 1):
            asked = {"statistic": "refine", "parameters": {"rounds": ROUNDS}} if number else {}
            request = {**common, **asked, "rests_on": before, "noise": noise[ROUNDS if number else 1]}
            before = await consortium.open_round(**request)
            results.append((await consortium.contribute(before))[0])
            sums = (await server.client.get(f"/v1/rounds/{before}/result/sums")).content
            verify_sums(results[-1], sums)
        right = [(each.predict(ROWS[FITTED:]) == LABELS[FITTED:]).mean() for each in results]
        assert right[-1] > one_shot(20) + 0.005, right

        # each round is charged, and together they are what was promised
        charges = Store(tmp_path / "m-0").lineages.all()[0].charges
        assert len(charges) == ROUNDS + 1
        assert 0.999 * mu < compose(charge for _, charge in charges) <= mu
        budget = await server.client.get(f"/v1/federations/{consortium.admin.public.hex()}/budget")
        assert budget.json()["mu"] == pytest.approx(compose(charge for _, charge in charges))

        # a head's file tells that its promise is this round's alone, and which one it rests on
        firsts = [each.evidence.attempt.context.hex() for each in results]
        assert [(each.calibrated.noise or {}).get("rests_on") for each in results] == [None, *firsts[:-1]]
        assert promised(results[0].record.noise)["noise"].endswith("presence")
        assert promised(results[-1].record.noise)["noise"].endswith(
            "alone: the one that it rests on took its own"
        )

        further = {"statistic": "refine", "parameters": {"rounds": ROUNDS}}
        answer = await consortium.try_round(**common, **further, rests_on=before)
        assert answer.status_code == 422
        assert "round 4 of 3" in answer.json()["detail"]
