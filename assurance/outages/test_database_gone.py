"""PostgreSQL drops its connections, or its network is cut. Requests are refused meanwhile, and the round continues."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from assurance.outages.cable import Cable
from assurance.outages.patience import endure
from tests.support.servers import Servers, execute
from tests.support.serving import Process

GONE_S = 0.6


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_a_database_that_is_gone_and_back_loses_nothing(
    servers: Servers, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    url = (await servers.settings(tmp_path))["database_url"]
    name = urlsplit(url).path.removeprefix("/")
    async with Cable(url).laid() as cable:

        async def plug() -> None:
            await asyncio.sleep(GONE_S)
            cable.pulled = False

        async def strike(acknowledged: int) -> asyncio.Task[None] | None:
            if acknowledged % 4 == 1:
                await execute(
                    f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
                )
            elif acknowledged % 4 == 3 and not cable.pulled:
                cable.pulled = True
                cable.cut()
                return asyncio.create_task(plug())
            return None

        environment = {"VEILSUM_DATABASE_URL": cable.url, "VEILSUM_RESUME_GRACE_S": "0"}
        figures = await endure(Process(tmp_path / "data", environment), strike, within_s=600)
    record_property("figures", figures)
    assert '"status": 500' not in (tmp_path / "log").read_text()
