"""A process stalls while it ends a round, and continues after another process has ended it differently."""

import asyncio
import hashlib
import threading
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load, save

from service.coordination.documents import Publication
from tests.support.party import Party
from tests.support.serving import two
from veilsum.protocol.record import sign_record

pytestmark = pytest.mark.usefixtures("on_servers")


async def test_what_it_puts_replaces_nothing_of_what_the_other_has_signed(
    tmp_path: Path, party: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two(tmp_path / "data") as (one, other, both):
        round_id = await party.begun(both)
        here, there = one.coordinator, other.coordinator
        begun, go_on, come = (threading.Event() for _ in range(3))
        outcome_of, put = here.jobs._compute_publication, here.blobs.put

        async def otherwise(*args: Any) -> Publication:
            """Solve as on another kind of processor: the last bits differ, and the record names what it signed."""
            made = await outcome_of(*args)
            head = save({name: array * 1.0000001 for name, array in load(made.documents["head"]).items()})
            assert made.record is not None
            record = made.record.model_copy(
                update={"head": hashlib.sha256(head).hexdigest(), "signature": ""}
            )
            return Publication(sign_record(record, here.key), {**made.documents, "head": head})

        def late(name: str, data: bytes) -> None:
            if name.startswith(("results/", "transcripts/")):
                begun.set()
                assert go_on.wait(30)
            put(name, data)
            if name.endswith("head"):
                come.set()

        async def nothing(*_args: object) -> None:
            pass

        solve = there.jobs._solve_round
        monkeypatch.setattr(here.jobs, "_compute_publication", otherwise)
        monkeypatch.setattr(here.blobs, "put", late)
        monkeypatch.setattr(there.jobs, "_solve_round", nothing)
        await party.play_until(both, round_id, "recovered")
        assert await asyncio.to_thread(begun.wait, 20)
        await solve(other.live(round_id))
        signed = {each: there.blobs.list_names(f"{each}/{round_id}") for each in ("results", "transcripts")}
        go_on.set()
        assert await asyncio.to_thread(come.wait, 20)
        for replica in (one, other):
            await party.check_result(replica, round_id)
            await replica.coordinator.catalogue.find_round(round_id)
            await replica.tidy(round_id)
            await party.check_result(replica, round_id)
        # And what it put is gone with what else it had of the round.
        assert {each: there.blobs.list_names(f"{each}/{round_id}") for each in signed} == signed
