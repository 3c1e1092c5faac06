"""Every question asked of SDK members over REST: the masked sum is the plain one, and so is what follows from it."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from calibration.head_file import arrays_of
from calibration.questions import QUESTIONS
from calibration.rows import unit_rows
from client_sdk import Result
from client_sdk.errors import Misuse, PeerFault
from client_sdk.sums import verify_sums
from tests.service.asking import CLASSES, DIM, Consortium, records_of
from tests.service.serving import running

pytestmark = pytest.mark.asyncio(loop_scope="module")

ASKED: dict[str, dict[str, Any]] = {
    "ffc": {"parameters": {"publish": "lda,ncm,pooled,posterior"}},
    "ffc-bias": {"lattice": "features", "ring_bits": 42},
    "folds": {"parameters": {"folds": 3}, "lattice": "features", "ring_bits": 42},
    "counts": {},
    "rff": {"parameters": {"size": 32, "axes": 4}, "rests_on": "ffc"},
    "loo": {"rests_on": "ffc"},
    "balanced": {"rests_on": "counts"},
    "ccvr": {"parameters": {"axes": 4, "per_class": 40}, "rests_on": "ffc"},
    "reliability": {"rests_on": "rff"},
    "mean": {"lattice": "features", "ring_bits": 42},
    "refine": {"rests_on": "ffc-bias", "parameters": {"clip": 0.5}},
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def asked(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[dict[str, Any]]:
    """One consortium that asks everything in turn; what came of it by question."""
    folder = tmp_path_factory.mktemp("asked")
    async with running(folder / "data") as server:
        consortium = await Consortium(folder, server, {"statistics": {*QUESTIONS}}).begin()
        rounds: dict[str, str] = {}
        found: dict[str, Any] = {"consortium": consortium}
        for name, request in ASKED.items():
            before = {"rests_on": rounds[request["rests_on"]]} if "rests_on" in request else {}
            rounds[name] = await consortium.open_round(**{**request, **before, "statistic": name})
            results = await consortium.contribute(rounds[name], held_out=name == "reliability")
            found[name] = results, await consortium.sums(rounds[name]), rounds[name]
        yield found


@pytest.mark.parametrize("name", ASKED)
async def test_a_masked_round_says_what_plain_sums_say(asked: dict[str, Any], name: str) -> None:
    assert ASKED.keys() == QUESTIONS.keys()
    results, total, round_id = asked[name]
    consortium: Consortium = asked["consortium"]
    plain, answer = consortium.plainly(results[0], held_out=name == "reliability")
    np.testing.assert_array_equal(total, plain)
    assert {result.record.signature for result in results} == {results[0].record.signature}
    assert results[0].record.records == answer.records == 240
    if answer.head is not None:
        ours, theirs = arrays_of(results[0].calibrated.head), arrays_of(answer.head)
        assert ours.keys() == theirs.keys()
        for key, array in theirs.items():
            np.testing.assert_allclose(ours[key], array, rtol=0, atol=1e-6 * np.abs(array).max())
    assert {view.name for view in results[0].record.documents} == set(answer.documents)
    for document, content in answer.documents.items():
        for key, array in content.arrays.items():
            np.testing.assert_allclose(results[0].arrays(document)[key], array, rtol=1e-6, atol=1e-6)
    sums = (await consortium.server.client.get(f"/v1/rounds/{round_id}/result/sums")).content
    verify_sums(results[0], sums, np.random.default_rng(0))


@pytest.mark.parametrize("name", [name for name in ASKED if QUESTIONS[name].has_head])
async def test_every_head_predicts_from_its_saved_result(
    asked: dict[str, Any], name: str, tmp_path: Path
) -> None:
    loaded = asked["consortium"].kept(asked[name][0][1], tmp_path / "kept")
    records = records_of(9)
    assert (loaded.predict(records.features * 3) == records.labels).mean() > 0.85


async def test_heads_beside_the_ridge_head_come_from_the_same_upload(asked: dict[str, Any]) -> None:
    result: Result = asked["ffc"][0][0]
    records = records_of(9)
    for name in ("lda", "ncm"):
        assert (result.head(name).predict(records.features) == records.labels).mean() > 0.85
    assert result.arrays("pooled")["counts"].sum() == 240


async def test_a_member_s_own_head_counts_its_own_records_more(asked: dict[str, Any]) -> None:
    result: Result = asked["ffc"][0][0]
    own, kept = records_of(0), records_of(0, held_out=True)
    personal = result.personalise(own, kept, [0.0, 4.0])
    wanted, rows = np.eye(CLASSES)[kept.labels], unit_rows(kept.features)[0]
    Z, Y = unit_rows(own.features)[0], np.eye(CLASSES)[own.labels]
    pooled, ridge = result.arrays("pooled"), result.record.solution.ridge
    assert ridge is not None
    for index, beta in enumerate((0.0, 4.0)):
        V = pooled["V"] + beta * Z.T @ Z + ridge * np.eye(DIM)
        W = np.linalg.solve(V, pooled["U"] + beta * Z.T @ Y)
        assert personal.errors[index] == pytest.approx(((wanted - rows @ W) ** 2).sum(axis=1).mean())
        if personal.weight == beta:
            np.testing.assert_allclose(personal.weights, W, rtol=1e-9)
    assert personal.weight == [0.0, 4.0][int(personal.errors.argmin())]
    everybody = result.personalise(own, kept, [0.0])
    np.testing.assert_allclose(everybody.weights, result.weights, atol=1e-9)
    with pytest.raises(Misuse, match="ask for an ffc round with publish=pooled"):
        asked["folds"][0][0].personalise(own, kept)


async def test_records_of_second_rounds_say_how_the_head_was_found(asked: dict[str, Any]) -> None:
    loo, folds, rff = (asked[name][0][0].record.solution for name in ("loo", "folds", "rff"))
    assert (loo.chosen_by, folds.chosen_by, rff.chosen_by) == ("leave-one-out", "folds", "gcv")
    for solution in (loo, folds):
        errors = dict(zip(solution.grid, solution.errors, strict=True))
        assert errors[solution.ridge] <= min(errors.values()) * 1.001
    judged: Result = asked["reliability"][0][0]
    assert judged.calibrated.temperature == judged.notes("reliability")["temperature"]
    probabilities = judged.probabilities(records_of(9).features)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)


async def test_leave_one_out_over_other_records_than_the_first_round_s_is_noticed(
    asked: dict[str, Any],
) -> None:
    consortium: Consortium = asked["consortium"]
    loo = await consortium.open_round(statistic="loo", rests_on=asked["ffc"][2])
    with pytest.raises(PeerFault, match="other records answered than the first round summed"):
        await consortium.contribute(loo, held_out=True)
    view = await consortium.server.view(loo)
    assert (view["state"], view["fault"]["cause"]) == ("failed", "sum-check-failed")


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"statistic": "fedcof"}, "no round asks 'fedcof'"),
    ({"statistic": "folds", "parameters": {"folds": 1}}, "take 2 to 100"),
    ({"statistic": "folds", "parameters": {"fold": 3}}, "no parameter fold"),
    ({"statistic": "loo"}, "rests on one of ffc, ffc-bias"),
    ({"statistic": "counts", "ridges": [1.0]}, "chooses no λ"),
    ({"statistic": "counts", "lattice": "features"}, "not features"),
    ({"statistic": "rff"}, "needs a bandwidth"),
    ({"parameters": {"publish": "everything"}}, "can't be published"),
]


@pytest.mark.parametrize(("request_", "words"), REFUSED)
async def test_what_no_round_can_ask_is_refused_in_words(
    asked: dict[str, Any], request_: dict[str, Any], words: str
) -> None:
    answer = await asked["consortium"].try_round(**request_)
    assert answer.status_code == 422
    assert answer.json()["cause"] == "terms-refused"
    assert words in answer.json()["detail"]


async def test_what_only_members_may_read_takes_a_members_signature(asked: dict[str, Any]) -> None:
    client = asked["consortium"].server.client
    for path in ("material", "result/documents/leave-one-out"):
        assert (await client.get(f"/v1/rounds/{asked['loo'][2]}/{path}")).status_code == 401


async def test_a_round_that_rests_on_nothing_has_no_material(asked: dict[str, Any]) -> None:
    async with asked["consortium"].member("m-0") as member:
        session = member._conversations.session
        with pytest.raises(PeerFault, match="rests on nothing"):
            await member._driver.run(session.coordinator.material(asked["ffc"][2]))
