"""A member is killed between its reservation and its card, and around everything else it sends: one run, one vector, the same result."""

import asyncio
from pathlib import Path

import pytest

from assurance.kill.members import Death, killed, records_of
from benchmarks.founding import found
from client_sdk import AsyncMember, Identity
from client_sdk.operator import Operator
from tests.support.serving import TOKEN, Process
from tests.support.simulator import simulated_question

IDS = tuple(f"m-{index}" for index in range(4))
ENROLLING = (Death("card"), Death("card", before=False))
CONTRIBUTING = tuple(
    Death(sent, before) for sent in ("announcement", "chunk", "answer") for before in (True, False)
)


QUESTION = {
    **simulated_question(len(IDS)),
    "dim": 4,
    "classes": ["a", "b", "c"],
    "records": {"least": 50, "most": 50, "least_per_class": 1, "rows_per_id": 1},
}


@pytest.mark.parametrize(
    "deaths", [ENROLLING[:1], pytest.param((*ENROLLING, *CONTRIBUTING), marks=pytest.mark.slow)]
)
async def test_a_killed_member_goes_on_with_what_it_reserved(
    tmp_path: Path, deaths: tuple[Death, ...]
) -> None:
    process = Process(tmp_path / "data")
    await process.start()
    url = f"http://127.0.0.1:{process.port}"
    try:
        with Operator(url, TOKEN) as operator:
            made = await asyncio.to_thread(found, operator, tmp_path, IDS, QUESTION)
            cohort, policy = made.open_cohort(operator), made.policy
            for death in deaths:
                if death in ENROLLING:
                    assert await killed(url, tmp_path / "m-0", policy, cohort, "", death), death
            members = [AsyncMember(url, Identity.load(tmp_path / each), policy) for each in IDS]
            [run] = members[0].ledger()
            assert (run.state, run.rows) == ("reserved", 50)
            # Its records are others by now, and the answer is the one that it stored.
            asked = [None, *(records_of(seed) for seed in range(1, len(IDS)))]
            await asyncio.gather(
                *(member.enrol(cohort, own) for member, own in zip(members, asked, strict=True))
            )
            await members[0].close()
            round_id = (await asyncio.to_thread(operator.open_round, cohort)).round
            others = asyncio.gather(*(member.contribute(round_id) for member in members[1:]))
            for death in deaths:
                if death in CONTRIBUTING:
                    assert await killed(url, tmp_path / "m-0", policy, cohort, round_id, death), death
            members[0] = AsyncMember(url, Identity.load(tmp_path / "m-0"), policy)
            result = await members[0].contribute(round_id)
            await others
            assert result.counted
            assert result.summed == IDS
            assert result.record.rows == 50 * len(IDS)
            [run] = members[0].ledger()
            assert (run.state, run.rows) == ("spent", 50)
            for member in members:
                await member.close()
    finally:
        await process.close()
