"""What must be deleted: after the end no box, share, seed or chunk is left, and the log never contains a secret."""

import asyncio
import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import obstore
import pytest
from sqlalchemy import func, select

from service.coordination.documents import Documents
from service.coordination.events import Event
from service.coordination.journal import Journal, Outcome
from service.coordination.standing import Standing
from service.storage.objects import ObjectBlobs
from service.storage.tables import events, metadata
from tests.support.party import Party
from tests.support.refusals import refusal
from tests.support.serving import TOKEN, Server, running
from tests.support.simulator import After
from veilsum.protocol.coordinator import Recovered
from veilsum.protocol.messages import Reveal, Upload


async def anywhere(server: Server, needle: bytes) -> list[str]:
    """Return the files that contain it, and the rows and objects if they are elsewhere."""
    found = [each.name for each in server.folder.rglob("*") if each.is_file() and needle in each.read_bytes()]
    blobs = server.coordinator.blobs
    if isinstance(blobs, ObjectBlobs):
        for table in metadata.sorted_tables:
            rows = await server.coordinator.database.read_rows(select(table))
            held = [value for row in rows for value in row if isinstance(value, bytes)]
            found += [table.name for value in held if needle in value]
        paths = [each["path"] for page in obstore.list(blobs._store) for each in page]
        found += [path for path in paths if needle in bytes(obstore.get(blobs._store, path).bytes())]
    return found


async def secrets_of(
    server: Server, party: Party, round_id: str, monkeypatch: pytest.MonkeyPatch
) -> dict[str, bytes]:
    """Play the round; return the bytes of each secret that passed through the coordinator."""
    found: dict[str, bytes] = {}
    append = Journal.append_events

    async def watching(journal: Journal, following: Sequence[Event], *, after: Standing) -> Outcome:
        for event in following:
            if event.kind == "message" and event.body[1] == Reveal.kind:
                found["share"] = bytes(Reveal.from_bytes(event.body).runs[0][:36])
        if isinstance(after.phase, Recovered):
            found["seed"] = bytes(next(iter(after.phase.self_seeds.values())))
            found["edge seed"] = bytes(next(iter(after.phase.edge_seeds.values()), b"-" * 32))
        return await append(journal, following, after=after)

    monkeypatch.setattr(Journal, "append_events", watching)
    await party.play_until(server, round_id, "checking")
    found["chunk"] = party.chunks["m-0"][0]
    found["box"] = next(box for box in Upload.from_bytes(party.upload_of("m-0")).boxes if box)
    for name in ("chunk", "box"):
        assert await anywhere(server, found[name]), name
    await party.play(server, round_id)
    return found


@pytest.mark.usefixtures("six")
@pytest.mark.parametrize("end", ["done", "failed"])
async def test_nothing_of_a_round_is_left_after_its_end(
    server: Server, formed: Party, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    formed.drop = {"m-5": After.OPENING}
    if end == "failed":
        formed.drop = {**dict.fromkeys(formed.ids[1:4], After.VOTE), "m-5": After.OPENING}
    round_id = await formed.open_round(server)
    found = await secrets_of(server, formed, round_id, monkeypatch)
    if end == "failed":
        assert (await server.view(round_id))["state"] == "erasing"
        await server.cancel(round_id)
    assert (await server.view(round_id))["state"] == end
    assert {"share", "chunk", "box"} <= set(found)
    await server.tidy(round_id)
    assert server.coordinator.catalogue.rounds[round_id].end is not None
    assert server.coordinator.blobs.list_names("uploads") == ()
    assert await server.coordinator.database.read_value(select(func.count()).select_from(events)) == 0
    for name, secret in found.items():
        assert await anywhere(server, secret) == [], name


@pytest.mark.usefixtures("six")
async def test_a_round_that_is_cleared_up_while_its_end_is_stored_is_cleared_up_again(
    server: Server, formed: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    formed.drop = {**dict.fromkeys(formed.ids[1:4], After.VOTE), "m-5": After.OPENING}
    round_id = await formed.open_round(server)
    await secrets_of(server, formed, round_id, monkeypatch)
    store_documents, left = Documents.store_documents, server.coordinator.jobs.garbage.rounds

    def store_late(documents: Documents, *arguments: Any) -> None:
        while round_id in left:
            time.sleep(0.01)
        store_documents(documents, *arguments)

    monkeypatch.setattr(Documents, "store_documents", store_late)
    await server.cancel(round_id)
    await server.tidy(round_id)
    assert server.coordinator.blobs.list_names("events") == ()


async def test_a_chunk_that_comes_as_the_round_ends_is_cleared_too(
    server: Server, formed: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file is written while, and after, the others are deleted."""
    round_id = await formed.open_round(server)
    where = f"/v1/rounds/{round_id}/uploads/m-0"
    await formed.announce(server, round_id, "m-0")
    blobs, release = server.coordinator.blobs, asyncio.Event()
    put, loop = blobs.put, asyncio.get_running_loop()

    def slow(name: str, data: bytes) -> None:
        if name.startswith("uploads/"):
            asyncio.run_coroutine_threadsafe(release.wait(), loop).result()
        put(name, data)

    monkeypatch.setattr(blobs, "put", slow)
    data = formed.chunks["m-0"][0]
    sending = asyncio.create_task(server.client.put(f"{where}/chunks/0", content=data))
    await asyncio.sleep(0.05)
    await server.cancel(round_id)
    opening = server.coordinator.catalogue.rounds[round_id].attempt.opening
    for member in formed.ids[1:]:
        formed.seal(member, opening)
    assert (await formed.play(server, round_id))["state"] == "voided"
    release.set()
    assert refusal(await sending) == (409, "wrong-phase")
    await server.tidy(round_id)
    assert blobs.list_names("uploads") == ()


@pytest.mark.usefixtures("logged", "six")
async def test_the_log_holds_no_secret(
    tmp_path: Path,
    party: Party,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    async with running(tmp_path) as server:
        await party.begin(server)
        party.drop = {"m-5": After.OPENING}
        round_id = await party.open_round(server)
        found = await secrets_of(server, party, round_id, monkeypatch)
        sums = (await server.client.get(f"/v1/rounds/{round_id}/result/sums")).content
        # What goes wrong is logged as well: storage, and a refusal of each kind.
        following = await party.open_round(server)
        party.drop = {}
        party.seal("m-0", await server.opening(following, "m-0"))

        def broken(*_: object, **__: object) -> Any:
            raise OSError(f"could not write {party.upload_of('m-0')!r} for {TOKEN}")

        where = f"/v1/rounds/{following}/uploads/m-0"
        with monkeypatch.context() as patched:
            patched.setattr(Journal, "append_events", broken)
            failed = await server.client.put(where, content=party.upload_of("m-0"))
            assert failed.status_code == 503
            assert TOKEN not in failed.text
        await server.client.post(where, headers={"authorization": "Bearer another-token"})
        await server.client.put(where, content=b"chunk" + party.chunks["m-0"][0])
    printed = capfd.readouterr()
    text = printed.out + printed.err + caplog.text
    assert "round ended" in text
    assert '"storage failed"' in text
    secrets = {**found, "token": TOKEN.encode(), "operator key": server.coordinator.key.seed}
    secrets |= {f"key of {member}": key.seed for member, key in party.keys.items()}
    secrets |= {"other token": b"another-token", "sum": sums[len(sums) // 2 :][:16]}
    secrets["announcement"] = party.upload_of("m-0")[1000:1016]
    for name, secret in secrets.items():
        for form in (secret.hex(), repr(secret)[2:-1], repr(secret[:16])[2:-1], secret.hex()[:24]):
            assert form not in text, name
    assert repr(Event(0.0, "message", found["share"])) == "<Event message 36 B>"
