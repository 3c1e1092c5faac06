"""Rare classes stay out of second rounds too: each comes after counts of its own, and leaves out what they leave out."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibration.questions import Wish
from calibration.questions.alone import alone
from client_sdk import Records, Result
from tests.service.asking import CLASSES, DIM, Consortium, records_of
from tests.service.serving import running

RARE = 2


def own_records(member: int, *, held_out: bool = False) -> Records:
    """Of three members in four with the rare class."""
    records = records_of(member, held_out=held_out)
    kept = records.labels != RARE if member == 0 else np.ones(60, bool)
    return Records(records.features[kept], records.labels[kept], normalise=True)


def common(*, held_out: bool = False) -> list[tuple[Any, Any]]:
    """Everybody's records of the classes that all hold."""
    parts = [own_records(member, held_out=held_out) for member in range(4)]
    return [(each.features[each.labels != RARE], each.labels[each.labels != RARE]) for each in parts]


async def answered(consortium: Consortium, **request: Any) -> Result:
    """Counts first, then the round; the first member's result."""
    held_out = request.get("statistic") == "reliability"

    async def both(index: int, member: str) -> Result:
        async with consortium.member(member) as each:
            lineage = "kept back" if held_out else "main"
            return await each.contribute(counting, own_records(index, held_out=held_out), lineage=lineage)

    counting = await consortium.open_round(statistic="indicator", dim=None)
    parts = [asyncio.create_task(both(index, member)) for index, member in enumerate(consortium.ids)]
    while not (view := await consortium.server.view(counting))["ended"]:
        await consortium.server.client.get(
            f"/v1/rounds/{counting}", params={"after": view["version"], "wait_s": 5}
        )
    await consortium.open_round(**request, margin=0)
    return (await asyncio.gather(*parts))[0]


async def test_second_rounds_leave_out_what_the_first_left_out(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as server:
        consortium = await Consortium(tmp_path, server, withhold=1).begin()
        first = await answered(consortium)
        loo = await answered(consortium, statistic="loo", rests_on=first.record.round)
        judged = await answered(consortium, statistic="reliability", rests_on=loo.record.round)
    results = (first, loo, judged)
    assert [result.record.withheld for result in results] == [(RARE,)] * 3
    assert [result.record.rare.holders for result in results if result.record.rare] == [(4, 4, 3)] * 3
    wish, batches = Wish(DIM, CLASSES), common()
    ffc = alone("ffc", wish, batches, normalise=True)
    plain = alone("loo", wish, batches, earlier=ffc.earlier, normalise=True).answer
    assert loo.record.solution.ridge == pytest.approx(plain.ridge)
    assert loo.record.records == plain.records
    assert loo.record.solution.errors == pytest.approx(plain.errors, rel=1e-6)
    assert plain.head is not None
    np.testing.assert_allclose(loo.weights, plain.head.weights, atol=1e-6)
    confusion = judged.arrays("reliability")["confusion"]
    assert not confusion[RARE].any()
    assert not confusion[:, RARE].any()
    assert confusion.sum() == judged.record.records == sum(len(y) for _, y in common(held_out=True))
    everything = np.vstack([records_of(member).features for member in range(4)])
    assert RARE not in judged.predict(everything)
    assert not judged.probabilities(everything)[:, RARE].any()
