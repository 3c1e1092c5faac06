"""Two replicas end rounds, accept uploads and write the audit log at the same time, without deadlock and with one chain."""

import asyncio
from pathlib import Path

import pytest
from sqlalchemy import text

from service.storage.audit import Deed
from tests.support.party import Party
from tests.support.serving import Server, two
from veilsum.protocol.audit import follow_entries

DEEDS = 50


async def ended(party: Party, both: Server) -> str:
    """Cancel one round, and play another to its end."""
    given_up = await party.begun(both)
    for member in party.ids[:2]:
        await party.serve(both, given_up, member)
    await party.seal_all(both, given_up, party.ids[2:])
    await both.cancel(given_up)
    assert (await party.play(both, given_up))["state"] == "voided"
    round_id = await party.done(both)
    await party.check_result(both, round_id)
    return round_id


@pytest.mark.slow
async def test_ends_uploads_and_audits_of_two_replicas_never_lock_each_other_out(
    tmp_path: Path, on_servers: None
) -> None:
    parties = [
        Party(
            tuple(f"m-{place}-{index}" for index in range(4)),
            dim=3,
            classes=2,
            admin_seed=bytes([place]) * 32,
        )
        for place in range(3)
    ]
    async with two(tmp_path / "data") as (one, other, both):
        logs = [each.app.state.audit for each in (one, other)]
        deeds = [Deed(1.0, f"member m-{index}", "test") for index in range(DEEDS)]
        writing = [log.record_deed(deed) for log in logs for deed in deeds]
        playing = asyncio.gather(*(ended(party, both) for party in parties))
        await asyncio.gather(*writing)
        for round_id in await playing:
            await one.coordinator.catalogue.find_round(round_id)
            await one.tidy(round_id)
        query = text("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
        assert await one.coordinator.database.read_value(query) == 0
        page = await one.app.state.audit.read_page(0, 1000)
        assert follow_entries(page.entries) == page.head.end
        assert [entry.action for entry in page.entries].count("test") == 2 * DEEDS
