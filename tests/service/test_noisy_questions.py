"""Every question asked under noise over REST: the sum is the members' own and their noise, and the head follows from it."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
from safetensors.numpy import load

from calibration import lattice_from
from calibration.collected import Collected
from calibration.layout import Layout
from calibration.privacy import NoiseTerms
from calibration.questions import QUESTIONS, question
from client_sdk import Records, Result
from client_sdk.asked import terms_mechanism
from client_sdk.sums import verify_sums
from tests.service.asking import CLASSES, DIM, Consortium
from tests.service.serving import running

pytestmark = pytest.mark.asyncio(loop_scope="module")

NOISE: dict[str, Any] = {"epsilon": 8.0, "delta": 1e-5}
ASKED: dict[str, dict[str, Any]] = {
    "mean": {},
    "ffc": {"parameters": {"publish": "lda,ncm,posterior"}},
    "ffc-bias": {"parameters": {"publish": "lda"}},
    "rff": {"rests_on": "mean", "parameters": {"size": 16}},
    "ccvr": {"parameters": {"per_class": 40}},
    "refine": {"rests_on": "ffc", "parameters": {"rounds": 1}},
}


def records_of(member: int, *, held_out: bool = False) -> Records:
    """3,000 records, of two classes in three the same few."""
    rng = np.random.default_rng([member, held_out, 7])
    labels = rng.choice(CLASSES, 3000, p=[0.6, 0.25, 0.15])
    features = np.abs(rng.normal(size=(3000, DIM)))
    features[np.arange(3000), labels] += 2
    return Records(features, labels, normalise=True)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def asked(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[dict[str, Any]]:
    """One consortium that asks everything in turn, under noise."""
    folder = tmp_path_factory.mktemp("asked")
    async with running(folder / "data") as server:
        consortium = Consortium(
            folder,
            server,
            {"statistics": {*QUESTIONS}, "mu_budget": 20.0},
            records=records_of,
            records_cap=4000,
        )
        await consortium.begin()
        found: dict[str, Any] = {"consortium": consortium}
        for name, request in ASKED.items():
            before = {"rests_on": found[request["rests_on"]][2]} if "rests_on" in request else {}
            opened = await consortium.open_round(**{**request, **before, "statistic": name, "noise": NOISE})
            results = await consortium.contribute(opened)
            found[name] = results, await consortium.sums(opened), opened
        yield found


@pytest.mark.parametrize("name", ASKED)
async def test_a_noisy_sum_is_the_members_own_and_as_much_noise_as_promised(
    asked: dict[str, Any], name: str
) -> None:
    assert ASKED.keys() == QUESTIONS.keys()
    results, total, round_id = asked[name]
    result: Result = results[0]
    attempt = result.evidence.attempt
    terms, mechanism = attempt.opening.terms, terms_mechanism(attempt)
    assert mechanism is not None
    assert (terms.family, terms.lattice) == ("noisy", "features")
    lattice = lattice_from(terms.lattice, terms.lattice_bits)
    material = load(result.material) if result.material is not None else {}
    layout = Layout.from_bytes(terms.layout)
    posed = question(name, layout, attempt.context, material)
    exact = np.zeros(terms.elements, np.int64)
    for index in range(4):
        records = records_of(index)
        own = Collected(posed, lattice, noise=NoiseTerms.from_bytes(terms.noise))
        own.update(records.features, records.labels)
        exact += own.vector(lattice)
    # in units of one share's least deviation on a weighted coordinate; out of these bounds once in 10⁶ runs
    scaled = (total - exact) * mechanism.weights() / mechanism.sigma
    spread = float(scaled.std()) if scaled.size > 4 else 1.0
    assert np.abs(scaled).max() < 6 * np.sqrt(4 / 3) * 1.01
    assert abs(spread / np.sqrt(4 / 3) - 1) < 5 / np.sqrt(2 * max(8, scaled.size))

    noise = result.record.noise
    assert not isinstance(noise, str)
    assert noise.epsilon <= 8.0 < noise.published_epsilon
    assert noise.mu == mechanism.mu_round
    sums = (await asked["consortium"].server.client.get(f"/v1/rounds/{round_id}/result/sums")).content
    verify_sums(result, sums, np.random.default_rng(0))
    assert result.record.records == pytest.approx(12_000, rel=0.1)


@pytest.mark.parametrize("name", [name for name in ASKED if QUESTIONS[name].has_head])
async def test_every_noisy_head_predicts_from_its_saved_result(
    asked: dict[str, Any], name: str, tmp_path: Path
) -> None:
    loaded = asked["consortium"].kept(asked[name][0][1], tmp_path / "kept")
    records = records_of(9)
    assert (loaded.predict(records.features * 3) == records.labels).mean() > 0.8
    assert loaded.calibrated.noise is not None


async def test_heads_beside_a_noisy_ridge_head_come_from_the_same_upload(asked: dict[str, Any]) -> None:
    records = records_of(9)
    for name, beside in (("ffc", "lda"), ("ffc", "ncm"), ("ffc-bias", "lda")):
        result: Result = asked[name][0][0]
        assert (result.head(beside).predict(records.features) == records.labels).mean() > 0.85
    assert asked["ffc"][0][0].arrays("posterior")["whitening"].shape == (DIM, DIM)
