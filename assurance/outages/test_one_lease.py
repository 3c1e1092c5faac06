"""Two replicas compete for one lease. The work is done once, and a process that was stopped past its lease changes nothing afterwards."""

import asyncio
import itertools
import json
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import numpy as np
import numpy.typing as npt
import pytest

from assurance.outages import stopping
from assurance.outages.patience import check_sum
from service.settings import Settings
from service.storage.blobs import Blobs
from service.storage.stores import blobs_of
from tests.support.party import Party
from tests.support.replicas import CONTEXT, Patient, Replica, points_of
from tests.support.servers import CREDENTIALS, Servers
from tests.support.serving import TOKEN, Clock
from tests.support.simulator import After
from veilsum.protocol import round_spec

CONTEXT.set_forkserver_preload(["assurance.outages.stopping"])
TABLES = ("events", "sums", "rounds", "links")
NOTES = (
    'CREATE TABLE deeds (number bigserial, "of" text, op text, old jsonb, new jsonb)',
    """CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
       INSERT INTO deeds ("of", op, old, new) VALUES (TG_TABLE_NAME, TG_OP, to_jsonb(OLD), to_jsonb(NEW));
       RETURN NULL; END $$""",
    *(
        f"CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON {table} FOR EACH ROW EXECUTE FUNCTION note()"
        for table in TABLES
    ),
)
"""Database triggers that record every write, of any process."""


class OneHot(Party):
    """Member `i` holds forty times the `i`-th unit vector, so that the sum shows who is missing or counted twice."""

    def records(self, member: str) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
        place = self.ids.index(member)
        features = np.tile(np.eye(self.dim)[place], (40, 1))
        return features, np.full(40, place % self.classes)


@asynccontextmanager
async def started(folder: Path, values: dict[str, Any], stop: str) -> AsyncIterator[list[Replica]]:
    """Start two processes on the same stores; one of them may be stopped."""
    found = [
        Replica(stopping.serve, {**values, "data_dir": folder / str(number)}, CREDENTIALS, folder / "points")
        for number in range(2)
    ]
    try:
        for replica in found:
            replica.begin(stop)
            await replica.up()
        yield found
    finally:
        for replica in found:
            replica.kill()


@dataclass
class Door:
    """What the driver needs of a server, with one clock for all replicas."""

    folder: Path
    clock: Clock
    client: httpx.AsyncClient

    async def view(self, round_id: str) -> dict[str, Any]:
        answer = await self.client.get(f"/v1/rounds/{round_id}")
        assert answer.status_code == 200, answer.text
        view: dict[str, Any] = answer.json()
        return view

    async def pass_time(self, view: dict[str, Any]) -> None:
        clock = self.clock
        if view["deadline_s"] is not None:
            clock.ahead_s += max(0.0, view["deadline_s"] - clock())
            written = self.folder / "ahead_s.new"
            written.write_text(repr(clock.ahead_s))
            written.rename(self.folder / "ahead_s")
        await self.client.get(f"/v1/rounds/{view['round']}", params={"after": view["version"], "wait_s": 2.0})


async def query(url: str, statement: str, *more: str) -> list[Any]:
    connection = await asyncpg.connect(url)
    try:
        found = await connection.fetch(statement)
        for each in more:
            await connection.execute(each)
    finally:
        await connection.close()
    return list(found)


async def written(url: str) -> list[tuple[str, str, Any, Any]]:
    """Return every write to the tables of rounds, in order."""
    rows = await query(url, 'SELECT "of", op, old, new FROM deeds ORDER BY number')
    return [
        (row["of"], row["op"], *(json.loads(row[side]) if row[side] else None for side in ("old", "new")))
        for row in rows
    ]


def check_once(
    deeds: list[tuple[str, str, Any, Any]], round_id: str, survivors: list[str], *, both: bool
) -> None:
    """Check that every piece of work was done exactly once; `both` says that two processes ran while uploads came."""
    events = [new for of, op, _, new in deeds if (of, op) == ("events", "INSERT")]
    assert [event["number"] for event in events] == list(range(len(events)))
    assert max(Counter((event["kind"], event["body"]) for event in events).values()) == 1
    assert [event["kind"] for event in events].count("expire") == 1  # one member stays away
    parts: dict[int, list[Any]] = {}
    for of, op, _, new in deeds:
        if of == "sums" and op != "DELETE":
            parts.setdefault(new["part"], []).append((new["done"], json.loads(new["members"])))
    assert sorted(parts) == list(range(max(parts) + 1))
    assert len(parts) > 2
    # Except ranges leased to the stopped process, which stands still until all uploads are in.
    assert not both or any(len(kept) > 1 for kept in parts.values()), "uploads were added before the freeze"
    for kept in parts.values():
        *masked, (done, members) = kept
        assert done
        assert sorted(members) == sorted(survivors)
        assert not any(unmasked for unmasked, _ in masked)
        for (_, before), (_, after) in itertools.pairwise(masked):
            assert set(before) < set(after)
            assert len(set(after)) == len(after)
    ended, cleared = [(old, new) for of, op, old, new in deeds if (of, op) == ("rounds", "UPDATE")]
    assert (ended[0]["final"], ended[1]["id"]) == (None, round_id)
    assert cleared == (ended[1], {**ended[1], "cleared": True})
    assert [op for of, op, _, _ in deeds if of == "links"] == ["INSERT"]


async def cleared(blobs: Blobs, url: str) -> None:
    """Wait until all temporary blobs are deleted, and the database says so."""
    async with asyncio.timeout(40):
        while any(blobs.list_names(folder) for folder in ("uploads", "sums")):  # noqa: ASYNC110 - no event to await
            await asyncio.sleep(0.1)
        while await query(url, "SELECT 1 FROM rounds WHERE NOT cleared"):  # noqa: ASYNC110 - no event to await
            await asyncio.sleep(0.1)


def results(blobs: Blobs, round_id: str) -> dict[str, bytes]:
    return {name: blobs.get(f"results/{round_id}/{name}") for name in blobs.list_names(f"results/{round_id}")}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "stop",
    [
        "",
        "store of a manifest",
        "store of the last pairing",
        "keep masked",
        "put sums",
        "append expire",
        "keep sum",
        "put transcripts",
        "put results",
    ],
)
async def test_two_after_one_lease(
    stop: str,
    tmp_path: Path,
    servers: Servers,
    record_property: Callable[[str, object], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No process is stopped, or one at the first such point, which continues after the other has ended the round."""
    monkeypatch.setattr(round_spec, "CHUNK_ELEMENTS", stopping.CHUNK_ELEMENTS)
    stores = await servers.settings(tmp_path)
    url, clock = stores["database_url"], Clock()
    values = {"operator_token": TOKEN, "resume_grace_s": 0.0, "coordinator_key": "5e" * 32, **stores}
    members = tuple(f"m-{index}" for index in range(5))
    party = OneHot(members, dim=5, classes=2, decryptors=members[:4])
    party.drop = {"m-4": After.OPENING}
    async with started(tmp_path, values, stop) as replicas:
        await query(url, "SELECT 1", *NOTES)
        patient = Patient(lambda: [each.port for each in replicas if each.runs], clock)
        async with httpx.AsyncClient(transport=patient, base_url="http://coordinator", timeout=10) as client:
            server: Any = Door(tmp_path, clock, client)
            round_id = await party.begun(server)
            view = await party.play(server, round_id, within_s=600)
            assert view["state"] == "done", view
            assert view["survivors"] == list(party.ids[:4])
            stopped = next((each for each in replicas if not each.runs), None)
            blobs = blobs_of(Settings(**values, data_dir=tmp_path))
            assert bool(stopped) == bool(stop)
            await cleared(blobs, url)
            deeds, kept = await written(url), results(blobs, round_id)
            check_once(deeds, round_id, view["survivors"], both=not stop.startswith("store of"))
            record_property("figures", {"writes": dict(Counter(f"{op} {of}" for of, op, *_ in deeds))})
            if stopped:
                pid, passed = stopped.process.pid, len(points_of(stopped.log, stopped.process.pid))
                os.kill(pid, signal.SIGCONT)
                end = time.monotonic() + 60
                while f"after {stop}" not in {label for _, label in points_of(stopped.log, pid)[passed:]}:
                    assert time.monotonic() < end, "it does not go on"
                    await asyncio.sleep(0.05)
                request = client.build_request("GET", f"/v1/rounds/{round_id}")
                late = await patient.ask(request, stopped.port)
                assert late is not None
                assert late.json() == view
            await cleared(blobs, url)
            assert (await written(url), results(blobs, round_id)) == (deeds, kept)
            await check_sum(party, server, round_id)
            log_of_deeds = await query(url, "SELECT action FROM audit WHERE action = 'round ended'")
            assert len(log_of_deeds) == 1
