"""A round through outages, and what must result in spite of them."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, cast

import httpx
import numpy as np
from safetensors.numpy import load

from tests.support.party import Party
from tests.support.replicas import Patient
from tests.support.serving import Process

Strike = Callable[[int], Awaitable["asyncio.Task[None] | None"]]
"""Called with the number of acknowledged requests; may cause a fault, and returns the running task that repairs it."""


async def endure(process: Process, strike: Strike, within_s: float) -> dict[str, Any]:
    """Play four members' round on a process that fails again and again; check that nothing is lost and the sum exact; return figures."""
    party, server, begun = (
        Party(tuple(f"m-{index}" for index in range(4))),
        cast("Any", process),
        time.monotonic(),
    )
    transport, mending, acknowledged = Patient(lambda: [process.port]), list[asyncio.Task[None]](), 0
    process.client = httpx.AsyncClient(
        transport=transport, base_url=f"http://127.0.0.1:{process.port}", timeout=30
    )

    async def on_ack(label: str) -> None:
        nonlocal acknowledged
        acknowledged += 1
        if label.startswith("chunk"):
            gone = await transport.lost(process.client, round_id)
            # Only while the coordinator accepts chunks.
            assert not gone or (await server.view(round_id))["state"] != "collecting", gone
        if (task := await strike(acknowledged)) is not None:
            mending.append(task)

    try:
        await process.start()
        transport.refused.clear()  # no process answers before the start
        transport.longest_s = 0.0
        await party.found(server)
        await party.open_cohort(server)
        before, party.on_ack = party.on_ack, on_ack  # for what may be sent again
        await party.enrol(server)
        party.on_ack = before
        round_id = await party.open_round(server)
        party.on_ack = on_ack
        await party.play(server, round_id, within_s=within_s)
        await asyncio.gather(*mending)
        await check_sum(party, server, round_id)
    finally:
        await process.close()
    assert len(mending) > 5
    assert set(transport.refused) == {"unavailable"}
    return {
        "outages": len(mending),
        "acknowledged": acknowledged,
        "refused_as_unavailable": transport.refused.total(),
        "longest_wait_s": round(transport.longest_s, 2),
        "seconds": round(time.monotonic() - begun, 1),
    }


async def check_sum(party: Party, server: Any, round_id: str) -> None:
    """Check that the published sum is the certified members' plain sum."""
    view = await server.view(round_id)
    assert view["state"] == "done", view
    sums = await server.client.get(f"/v1/rounds/{round_id}/result/sums")
    vectors = party.vectors[view["context"]]
    plain = np.sum([vectors[member] for member in view["survivors"]], axis=0)
    np.testing.assert_array_equal(load(sums.content)["sum"], plain)
