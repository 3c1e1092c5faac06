"""Noisy studies over REST: each recipe step by step, the promised noise, and what each step passes to the next."""

import hashlib
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load
from scipy.stats import chi2  # type: ignore[import-untyped]

from tests.support.party import FOUR, Party
from tests.support.refusals import refusal
from tests.support.serving import Server
from veilsum.calibration.privacy.mechanism import Mechanism
from veilsum.protocol.messages import NO_CONTEXT
from veilsum.protocol.study import RECIPES
from veilsum.study.promise import mechanism_of, promise_noise

NOISE: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-5, "unit": "record", "recipe": "sum"}


def noisy(recipe: str, **question: Any) -> Party:
    noise = {**NOISE, "recipe": recipe}
    return Party(FOUR, question={"noise": noise, **question})


async def run(server: Server, party: Party) -> dict[str, Any]:
    """Play the next step to its end; return the record. Only members are shown the material that the terms name."""
    round_id = await party.open_round(server)
    terms = server.coordinator.catalogue.rounds[round_id].attempt.terms
    if terms.material != NO_CONTEXT:
        where = f"/v1/rounds/{round_id}/material"
        material = await server.signing("m-0", party.keys["m-0"]).get(where)
        assert hashlib.sha256(material.content).digest() == terms.material
        assert (await server.anonymous().get(where)).status_code == 401
    view = await party.play(server, round_id)
    assert view["state"] == "done", view
    got = await server.client.get(f"/v1/rounds/{round_id}/result")
    record: dict[str, Any] = got.json()
    return record


async def test_a_chain_runs_step_by_step(server: Server) -> None:
    party = noisy("mean+sum")
    await party.begin(server)
    spent = 0.0
    for step, _ in RECIPES["mean+sum"]:
        record = await run(server, party)
        assert (record["step"], record["period"]) == (step, "period-0")
        assert (record["head"] is None) == (step == "mean")
        assert spent < record["noise"]["spent_epsilon"] <= record["noise"]["study_epsilon"] * (1 + 1e-9)
        spent = record["noise"]["spent_epsilon"]
        if step != "mean":
            await party.check_result(server, record["round"])
    assert spent == pytest.approx(2.0)
    assert refusal(await party.try_round(server)) == (409, "already-summed")


async def test_gradients_and_noisy_ccvr_begin(server: Server) -> None:
    party = noisy("mean+sum+16-gradients")
    await party.begin(server)
    for step, _ in RECIPES["mean+sum+16-gradients"][:3]:
        assert (await run(server, party))["step"] == step
    other = Party(
        FOUR,
        admin_seed=b"o" * 32,
        question={"noise": NOISE, "statistics": [{"kind": "ccvr"}]},
        after={"ccvr": {"samples_per_class": 20, "power": 0.5}},
    )
    await other.begin(server)
    assert (await run(server, other))["step"] == "sum"


async def test_the_sum_carries_the_noise_that_is_promised(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The difference to the members' rows is the noise of four shares, each a third of the promised noise."""
    party = noisy("sum")
    await party.begin(server)
    record = await run(server, party)
    sums = await server.client.get(f"/v1/rounds/{record['round']}/result/sums")
    spec = server.coordinator.catalogue.rounds[record["round"]].attempt.spec
    mechanism = mechanism_of(spec)
    monkeypatch.setattr(Mechanism, "add_noise", lambda *_: None)
    exact = np.sum([party.vector(member, spec, {}) for member in party.ids], axis=0)
    noise = load(sums.content)["sum"] - exact
    sigma, scaled = mechanism.sensitivity / mechanism.mu, []
    for part, place in zip(mechanism.release.parts, mechanism.release.layout.slices.values(), strict=True):
        s = sigma * 2 ** (12 * part.degree) / part.weight
        share = np.full(part.block.elements, np.ceil((s**2 + 4) / 3))
        if part.block.name == "V":
            share[:] = np.ceil((s**2 / 2 + 4) / 3)
            share[part.diagonal] = np.ceil((s**2 + 4) / 3)
        scaled.append(noise[place] ** 2 / (len(party.ids) * share))
    squares = np.concatenate(scaled)
    assert squares.size == spec.elements
    # out of these bounds once in 10⁹ runs
    assert chi2.ppf(5e-10, squares.size) < squares.sum() < chi2.isf(5e-10, squares.size)
    assert record["noise"] == pytest.approx(dict(promise_noise(spec) or ()))


async def test_a_step_whose_result_failed_ends_the_chain(server: Server) -> None:
    party = noisy("mean+sum")
    round_id = await party.begun(server)
    await party.play_until(server, round_id, "revealing")
    await server.cancel(round_id)
    assert (await party.play(server, round_id))["state"] == "failed"
    assert refusal(await party.try_round(server)) == (422, "terms-refused")
    answer = await party.try_cohort(server, repeats=(await server.view(round_id))["context"])
    assert refusal(answer) == (422, "terms-refused")
