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
    "ffc-bias": {},
    "rff": {"parameters": {"size": 32}, "rests_on": "ffc"},
    "ccvr": {"parameters": {"per_class": 40}},
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
            results = await consortium.contribute(rounds[name])
            found[name] = results, await consortium.sums(rounds[name]), rounds[name]
        yield found


@pytest.mark.parametrize("name", ASKED)
async def test_a_masked_round_says_what_plain_sums_say(asked: dict[str, Any], name: str) -> None:
    assert ASKED.keys() == {name for name, each in QUESTIONS.items() if each.exact}
    results, total, round_id = asked[name]
    consortium: Consortium = asked["consortium"]
    plain, answer = consortium.plainly(results[0])
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


@pytest.mark.parametrize("name", ASKED)
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
        asked["ccvr"][0][0].personalise(own, kept)


async def test_no_exact_round_refines_or_is_centred(asked: dict[str, Any]) -> None:
    consortium, ffc = asked["consortium"], asked["ffc"][2]
    refused = await consortium.try_round(statistic="refine", rests_on=ffc)
    assert "a refine round exists under noise alone" in refused.json()["detail"]
    mean = await consortium.open_round(statistic="mean", noise={"epsilon": 1.0, "delta": 1e-5})
    await consortium.contribute(mean, held_out=True)
    centred = await consortium.try_round(rests_on=mean)
    assert (centred.status_code, centred.json()["cause"]) == (422, "terms-refused")
    assert "features are centred under noise alone" in centred.json()["detail"]


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"statistic": "fedcof"}, "no round asks 'fedcof'"),
    *(
        ({"statistic": name}, f"no round asks '{name}'")
        for name in ("folds", "loo", "balanced", "counts", "reliability")
    ),
    ({"statistic": "ccvr", "parameters": {"axes": 3}}, "no parameter axes"),
    ({"statistic": "ccvr", "ridges": [1.0]}, "chooses no λ"),
    ({"statistic": "mean"}, "a mean round exists under noise alone"),
    ({"statistic": "refine"}, "rests on one of ffc, ffc-bias, refine"),
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
    for path in ("material", "result/documents/pooled"):
        assert (await client.get(f"/v1/rounds/{asked['ffc'][2]}/{path}")).status_code == 401


async def test_a_round_that_rests_on_nothing_has_no_material(asked: dict[str, Any]) -> None:
    async with asked["consortium"].member("m-0") as member:
        session = member._conversations.session
        with pytest.raises(PeerFault, match="rests on nothing"):
            await member._driver.run(session.coordinator.material(asked["ffc"][2]))
