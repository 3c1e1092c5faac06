"""Unreferenced files are swept, and no referenced one."""

import asyncio
from pathlib import Path

import pytest

from service.storage.blobs import FileBlobs
from tests.support.calls import record_calls
from tests.support.party import Party
from tests.support.serving import Server, running, wait_until


async def test_what_a_process_deleted_before_it_died_is_vacuumed_and_noted_by_the_next(
    tmp_path: Path, stores: str, party: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken() -> None:
        raise OSError

    async with running(tmp_path / "data") as server:
        await party.begin(server)
        monkeypatch.setattr(server.coordinator.database, "erase_deleted", broken)
        round_id = await party.done(server)
        await wait_until(lambda: not server.coordinator.blobs.list_names("uploads"))
        server.coordinator.blobs.put(f"uploads/{round_id}/m-0/0", b"late")
    forgotten = record_calls(monkeypatch, type(server.coordinator.database), "erase_deleted", id)
    async with running(tmp_path / "data") as server:
        await server.coordinator.catalogue.find_round(round_id)
        await server.tidy(round_id)
        assert len(forgotten) == 1
        assert server.coordinator.blobs.list_names("uploads") == ()
        entries = (await server.client.get("/v1/audit")).json()["entries"]
        assert [each["on"] for each in entries if each["action"] == "uploads deleted"] == [
            f"round_id={round_id}"
        ]


def test_what_a_write_that_never_ended_has_left_goes_at_the_second_look(tmp_path: Path) -> None:
    blobs = FileBlobs(tmp_path)
    for name in ("results/r/weights", "combined/m"):
        blobs.put(name, b"whole")
    left = [tmp_path / "results" / "r" / ".weights.0123456789ab", tmp_path / "combined" / ".m.0123456789ab"]
    for path in left:
        path.write_bytes(b"hal")
    assert blobs.list_names("combined") == ("m",)
    blobs.clear_up()
    assert all(path.exists() for path in left), "one may be being written"
    late = tmp_path / "combined" / ".late.0123456789ab"
    late.write_bytes(b"")
    blobs.clear_up()
    assert not any(path.exists() for path in left)
    assert late.exists()
    assert (blobs.get("results/r/weights"), blobs.get("combined/m")) == (b"whole", b"whole")


async def test_whoever_comes_late_does_not_wait_for_what_is_deleted(
    server: Server, formed: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, begun = asyncio.Event(), asyncio.Event()
    real = server.coordinator.database.erase_deleted

    async def slow() -> None:
        begun.set()
        await go.wait()
        await real()

    monkeypatch.setattr(server.coordinator.database, "erase_deleted", slow)
    round_id = await formed.open_round(server)
    formed.seal("m-0", await server.opening(round_id, "m-0"))
    upload = formed.upload_of("m-0")
    assert (await formed.play(server, round_id))["state"] == "done"
    await begun.wait()
    async with asyncio.timeout(5):
        path = f"/v1/rounds/{round_id}/uploads/m-0"
        late = await server.client.put(path, content=upload)
        assert late.json()["cause"] == "wrong-phase"
        cancelled = await server.cancel(round_id)
        assert cancelled.json()["cause"] == "wrong-phase"
    go.set()
    await server.tidy(round_id)
