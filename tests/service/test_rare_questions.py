"""Rare classes stay out of second rounds too: each comes after counts of its own, and leaves out what they leave out."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np

from calibration.questions import Wish
from calibration.questions.alone import alone
from client_sdk import Records, Result
from tests.service.asking import CLASSES, DIM, Consortium, records_of
from tests.service.serving import running

RARE = 2


def own_records(member: int) -> Records:
    """Of three members in four with the rare class."""
    records = records_of(member)
    kept = records.labels != RARE if member == 0 else np.ones(60, bool)
    return Records(records.features[kept], records.labels[kept], normalise=True)


def common() -> list[tuple[Any, Any]]:
    """Everybody's records of the classes that all hold."""
    parts = [own_records(member) for member in range(4)]
    return [(each.features[each.labels != RARE], each.labels[each.labels != RARE]) for each in parts]


async def answered(consortium: Consortium, **request: Any) -> Result:
    """Counts first, then the round; the first member's result."""

    async def both(index: int, member: str) -> Result:
        async with consortium.member(member) as each:
            return await each.contribute(counting, own_records(index), lineage="main")

    counting = await consortium.open_round(statistic="indicator", dim=None)
    parts = [asyncio.create_task(both(index, member)) for index, member in enumerate(consortium.ids)]
    while not (view := await consortium.server.view(counting))["ended"]:
        await consortium.server.client.get(
            f"/v1/rounds/{counting}", params={"after": view["version"], "wait_s": 5}
        )
    await consortium.open_round(**request, margin=0)
    return (await asyncio.gather(*parts))[0]


async def test_random_features_leave_out_what_ffc_left_out(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as server:
        consortium = await Consortium(tmp_path, server, withhold=1).begin()
        first = await answered(consortium)
        kernel = await answered(
            consortium, statistic="rff", parameters={"size": 16}, rests_on=first.record.round
        )
    results = (first, kernel)
    assert [result.record.withheld for result in results] == [(RARE,)] * 2
    assert [result.record.rare.holders for result in results if result.record.rare] == [(4, 4, 3)] * 2
    plain = alone("ffc", Wish(DIM, CLASSES), common(), normalise=True).answer
    assert first.record.records == kernel.record.records == plain.records
    assert plain.head is not None
    np.testing.assert_allclose(first.weights, plain.head.weights, atol=1e-6)
    everything = np.vstack([records_of(member).features for member in range(4)])
    assert RARE not in kernel.predict(everything)
    assert not kernel.probabilities(everything)[:, RARE].any()
