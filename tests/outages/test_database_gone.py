"""PostgreSQL that drops its connections, and a network to it that is cut: refused while it is gone, and the round goes on."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.outages.patience import check_kept, check_sum, patient
from tests.service.driver import Party
from tests.service.process import Process
from tests.service.servers import Servers, execute

GONE_S = 0.6


class Cable:
    """A port that leads to the database, and can be pulled."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._writers: set[asyncio.StreamWriter] = set()
        self.pulled = False
        self.port = 0

    @asynccontextmanager
    async def laid(self) -> AsyncIterator["Cable"]:
        server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        yield self
        server.close()
        self.cut()

    def cut(self) -> None:
        for writer in tuple(self._writers):
            writer.transport.abort()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.pulled:
            writer.transport.abort()
            return
        far_reader, far_writer = await asyncio.open_connection(self._host, self._port)
        self._writers |= {writer, far_writer}
        with suppress(OSError, asyncio.CancelledError):
            await asyncio.gather(_flow(reader, far_writer), _flow(far_reader, writer))
        self._writers -= {writer, far_writer}


async def _flow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    writer.close()


@pytest.mark.slow
async def test_a_database_that_is_gone_and_back_loses_nothing(servers: Servers, tmp_path: Path) -> None:
    url = (await servers.settings(tmp_path))["database_url"]
    where = urlsplit(url)
    party = Party(tuple(f"m-{index}" for index in range(4)))
    async with Cable(where.hostname or "", where.port or 5432).laid() as cable:
        there = url.replace(f"{where.hostname}:{where.port or 5432}", f"127.0.0.1:{cable.port}")
        process = Process(tmp_path / "data", {"VEILSUM_DATABASE_URL": there, "VEILSUM_RESUME_GRACE_S": "0"})
        server: Any = process
        transport, plugging, acknowledged = patient(process), list[asyncio.Task[None]](), 0

        async def plug() -> None:
            await asyncio.sleep(GONE_S)
            cable.pulled = False

        async def on_ack(label: str) -> None:
            nonlocal acknowledged
            acknowledged += 1
            if label.startswith("chunk"):
                await check_kept(transport, server, round_id)
            if acknowledged % 4 == 1:
                name = where.path.removeprefix("/")
                await execute(
                    f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
                )
            elif acknowledged % 4 == 3 and not cable.pulled:
                cable.pulled = True
                cable.cut()
                plugging.append(asyncio.create_task(plug()))

        try:
            await process.start()
            transport.refused.clear()  # nobody answers before the start
            await party.begin(server)
            round_id = await party.open_round(server)
            party.on_ack = on_ack
            await party.play(server, round_id, within_s=180)
            await asyncio.gather(*plugging)
            await check_sum(party, server, round_id)
        finally:
            await process.close()
    assert len(plugging) > 5
    assert set(transport.refused) == {"unavailable"}
    assert '"status": 500' not in (tmp_path / "log").read_text()
