"""Streams of a round's events: one view for all watchers, a limit for each address, and keep-alives."""

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from service.coordination import standing
from service.http.callers import ADDRESS_ALLOWANCE, CALLER_ALLOWANCE, Limits
from service.routes import rounds
from tests.support.calls import record_calls
from tests.support.party import Party
from tests.support.serving import Server, running, wait_until


def open_streams(server: Server) -> int:
    limits: Limits = server.app.state.limits
    return max(limits._streams.values(), default=0)


async def opened(server: Server, path: str, many: int) -> list[asyncio.Task[Any]]:
    client = server.anonymous()
    streams = [asyncio.create_task(client.get(path)) for _ in range(many)]
    await wait_until(lambda: open_streams(server) >= many)
    return streams


async def test_what_all_watch_is_made_once(
    server: Server, formed: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    round_id = await formed.open_round(server)
    made = record_calls(monkeypatch, standing, "spec_view", id)
    streams = await opened(server, f"/v1/rounds/{round_id}/events", 10)
    await formed.play(server, round_id)
    texts = {(await asyncio.wait_for(stream, 120)).text.splitlines()[-2] for stream in streams}
    assert len(texts) == 1  # all streams reported the end
    now = server.coordinator.catalogue.rounds[round_id].position
    assert now.json is server.coordinator.catalogue.rounds[round_id].position.json
    assert len(made) <= now.version  # once each, and the final one is made of the last


async def test_an_address_has_so_many_streams(tmp_path: Path, party: Party) -> None:
    async with (
        running(tmp_path, limits=Limits(CALLER_ALLOWANCE, replace(ADDRESS_ALLOWANCE, streams=2))) as server,
        server.anonymous() as nobody,
    ):
        path = f"/v1/rounds/{await party.begun(server)}"
        streams = await opened(server, f"{path}/events", 2)
        refused = await nobody.get(f"{path}/events")
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "5")
        assert refused.headers["content-type"] == "application/problem+json"
        assert refused.json()["cause"] == "too-many-requests"
        assert (await nobody.get(path)).status_code == 200
        streams[0].cancel()
        await asyncio.wait(streams[:1])
        assert open_streams(server) == 1
        server.coordinator.stop_waiting()
        assert (await streams[1]).status_code == 200
        assert (await nobody.get(f"{path}/events")).status_code == 200
        assert open_streams(server) == 0


async def test_a_stream_says_that_it_lives_and_takes_no_processor_for_it(
    tmp_path: Path, party: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if polls are not held."""
    monkeypatch.setattr(rounds, "KEEPALIVE_S", 0.1)
    async with running(tmp_path, max_wait_s=0) as server:
        round_id = await party.begun(server)
        [stream] = await opened(server, f"/v1/rounds/{round_id}/events", 1)
        await asyncio.sleep(0.1)
        began_s, begun_s = time.monotonic(), time.process_time()
        await asyncio.sleep(0.6)
        assert time.process_time() - begun_s < 0.3
        server.coordinator.stop_waiting()
        text = (await stream).text
        pings_max = 3 + (time.monotonic() - began_s) / rounds.KEEPALIVE_S
        assert text.count("event: round") == 1
        assert 2 <= text.count(": ping") <= pings_max
