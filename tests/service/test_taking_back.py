"""Records are taken back by another round over what is left, where the ledger, or noise, hides whose they were."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from calibration import lattice_from
from client_sdk import Records
from client_sdk.errors import PeerFault
from client_sdk.result import Result
from tests.service.asking import Consortium, records_of
from tests.service.serving import running


async def contribute(
    consortium: Consortium, round_id: str, left: Mapping[int, int], lineage: str
) -> list[Any]:
    """Everybody takes part with the first so many of its records, all of them by default; a result or a fault each."""

    async def part(index: int, member: str) -> Result:
        own, kept = records_of(index), left.get(index, 60)
        records = Records(own.features[:kept], own.labels[:kept], normalise=True)
        async with consortium.member(member) as each:
            return await each.contribute(round_id, records, lineage=lineage)

    members = enumerate(consortium.ids)
    return await asyncio.gather(*(part(i, m) for i, m in members), return_exceptions=True)


def plainly(consortium: Consortium, result: Result, part: slice) -> Any:
    """What a part of everybody's records adds up to."""
    terms, vectors = result.evidence.opening.terms, []
    for index in range(4):
        own = records_of(index)
        records = Records(own.features[part], own.labels[part], normalise=True)
        vectors.append(
            consortium.collected(result, records).vector(lattice_from(terms.lattice, terms.lattice_bits))
        )
    return np.sum(vectors, axis=0)


async def test_what_a_whole_group_takes_back_is_gone_and_shown_as_one_sum(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as server:
        consortium = await Consortium(tmp_path, server).begin()
        before = await consortium.open_round()
        await contribute(consortium, before, {}, "main")
        after = await consortium.open_round()
        left = dict.fromkeys(range(4), 45)
        results = await contribute(consortium, after, left, "main")
        assert [result.record.records for result in results] == [180] * 4
        gone = await consortium.sums(before) - await consortium.sums(after)
        shown, kept = (plainly(consortium, results[0], part) for part in (slice(45, 60), slice(45)))
        np.testing.assert_array_equal(await consortium.sums(after), kept)
        assert np.abs(gone - shown).max() <= 4  # each vector is rounded once

        # One member's records alone would show in the difference.
        alone = await consortium.open_round()
        refused = await contribute(consortium, alone, {**left, 0: 30}, "main")
        assert all(isinstance(each, PeerFault) for each in refused), refused
        assert {each.cause.value for each in refused} == {"ledger-refused"}
        view = await server.view(alone)
        assert (view["state"], view["fault"]["cause"]) == ("voided", "ledger-refused")

        # And a few records would show nearly as they are.
        few = await consortium.open_round()
        refused = await contribute(consortium, few, dict.fromkeys(range(4), 42), "main")
        assert all("at least 10 records to change" in each.detail for each in refused), refused


async def test_under_noise_anybody_takes_back_at_the_price_of_another_round(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as server:
        consortium = await Consortium(tmp_path, server).begin()
        noise = {"epsilon": 2.0, "delta": 1e-5}
        for left in ({}, {0: 45}):
            round_id = await consortium.open_round(noise=noise)
            results = await contribute(consortium, round_id, left, "noisy")
            assert [type(result) for result in results] == [Result] * 4, results
