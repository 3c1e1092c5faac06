"""A short run of `make chaos`: six rounds, without members that vanish for good, and with faster timing."""

import asyncio
from pathlib import Path

import pytest

from assurance.chaos.proxy import Fault
from assurance.chaos.run import play
from tests.support.serving import Process

SEEDS, MEMBERS = range(5, 11), 4  # enough requests for every fault


@pytest.mark.slow
async def test_rounds_through_a_network_that_fails(tmp_path: Path) -> None:
    process = Process(tmp_path / "data")
    try:
        await process.start()
        played = await asyncio.gather(
            *(play(process, tmp_path, seed, rate=0.5, members=MEMBERS, second_s=0.05) for seed in SEEDS)
        )
    finally:
        await process.close()
    assert [len(outcome.summed) for outcome, _ in played] == [MEMBERS] * len(SEEDS)
    done = {fault for _, proxy in played for fault in proxy.done}
    assert done == set(Fault)
    log = (tmp_path / "log").read_text()
    assert '"status": 500' not in log
    assert "Traceback" not in log
