import asyncio
import threading
import time
from pathlib import Path

import pytest
from sqlalchemy import literal, text

from service.coordination.readiness import NotReady, Readiness, checks_of
from service.storage import migrating
from service.storage.clock import Clock
from service.telemetry.metrics import READY_GAUGE, REGISTRY, Exposition
from tests.support.party import Party
from tests.support.serving import Server, carry_out, running
from veilsum.protocol.errors import PeerFault


async def test_a_running_coordinator_is_ready_and_leaves_nothing_behind(server: Server) -> None:
    answer = await server.anonymous().get("/readyz")
    assert answer.status_code == 200
    said = answer.json()
    assert said["damaged"] == []
    assert (said["status"], abs(said.pop("clock_difference_s")) < 1) == ("ready", True)
    assert said["checks"] == ["process", "database", "migrations", "blobs", "clock"]
    assert server.coordinator.blobs.list_names("readiness") == ()


async def test_every_reason_is_told_and_health_is_another_matter(server: Server) -> None:
    server.coordinator.blobs.put = _full  # type: ignore[method-assign]
    server.coordinator.stop_waiting()
    answer = await server.anonymous().get("/readyz")
    assert answer.status_code == 503
    problem = answer.json()
    assert problem["cause"] == "unavailable"
    assert problem["detail"] == "process: the process is stopping; blobs: OSError: the log says where"
    assert (await server.anonymous().get("/healthz")).json() == {"status": "ok"}
    assert READY_GAUGE._value.get() == 0


async def test_a_folder_of_blobs_that_was_removed_does_not_come_back(server: Server) -> None:
    folder = server.folder / "blobs"
    for remove in (lambda: folder.rename(server.folder / "away"), folder.mkdir):
        remove()
        with pytest.raises(FileNotFoundError):
            server.coordinator.blobs.put("round/other", b"content")
        server.app.state.readiness = Readiness(checks_of(server.coordinator, server.clock))
        answer = await server.anonymous().get("/readyz")
        assert (answer.status_code, answer.json()["detail"]) == (
            503,
            "blobs: their folder was removed: stop the coordinator, and restore a backup",
        )


async def test_a_database_that_was_removed_is_not_written_on(server: Server) -> None:
    file = server.folder / "coordinator.sqlite3"
    file.rename(server.folder / "away")
    answer = await server.anonymous().get("/readyz")
    assert answer.status_code == 503
    assert (
        "database: its file was removed or replaced: stop the coordinator, and restore a backup"
        in answer.json()["detail"]
    )
    assert not file.exists()
    refused = await server.client.post("/v1/tokens", json={"name": "x", "scopes": ["rounds"]})
    assert refused.status_code == 503
    (server.folder / "away").rename(file)
    server.app.state.readiness = Readiness(checks_of(server.coordinator, server.clock))
    assert (await server.anonymous().get("/readyz")).status_code == 200


async def test_whoever_reads_the_metrics_alone_sees_it(server: Server) -> None:
    READY_GAUGE.set(0)
    assert "veilsum_ready 1.0" in (await server.anonymous().get("/metrics")).text
    server.app.state.readiness = Readiness({"gone": _missing})
    server.app.state.exposition = Exposition()  # a second later
    assert "veilsum_ready 0.0" in (await server.anonymous().get("/metrics")).text


async def _missing() -> None:
    raise NotReady("gone")


async def test_a_process_without_background_work_is_not_ready(server: Server) -> None:
    scheduler, *_ = server.coordinator.background
    scheduler.cancel()
    await asyncio.wait([scheduler])
    answer = await server.anonymous().get("/readyz")
    assert (answer.status_code, answer.json()["detail"]) == (
        503,
        "process: the scheduler has ended: restart the process",
    )


def _full(name: str, data: bytes) -> None:
    raise OSError("no space left on /somewhere/secret")


async def test_a_database_of_another_revision_is_told(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as server:
        await carry_out(server.coordinator.database, text("UPDATE alembic_version SET version_num = 'older'"))
        detail = (await server.client.get("/readyz")).json()["detail"]
        newest = migrating.newest_format()
        assert detail == f"migrations: the database has format older, this release works with {newest}"


async def test_asking_often_looks_once_and_a_slow_look_is_cut_off() -> None:
    looks = 0

    async def slow() -> None:
        nonlocal looks
        looks += 1
        await asyncio.sleep(60)

    readiness = Readiness({"slow": slow, "other": _missing}, kept_s=60, patience_s=0.01)
    answers = await asyncio.gather(*(readiness.failed_checks() for _ in range(5)))
    assert answers == [{"slow": "no answer within 0.01 s", "other": "gone"}] * 5
    assert looks == 1
    with pytest.raises(PeerFault, match=r"slow: no answer within 0.01 s; other: gone$"):
        await readiness.check_all()
    readiness = Readiness({"fine": _fine}, kept_s=0)
    assert await readiness.check_all() == ("fine",)
    assert REGISTRY.get_sample_value("veilsum_ready") == 1


async def test_what_a_look_that_was_cut_off_has_left_goes_with_the_next(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs, ended = server.coordinator.blobs, threading.Event()
    put = blobs.put

    def slow(name: str, data: bytes) -> None:
        time.sleep(0.3)
        put(name, data)
        ended.set()

    readiness = Readiness(
        {"blobs": checks_of(server.coordinator, server.clock)["blobs"]}, kept_s=0.0, patience_s=0.1
    )
    monkeypatch.setattr(blobs, "put", slow)
    assert await readiness.failed_checks() == {"blobs": "no answer within 0.1 s"}
    assert await asyncio.to_thread(ended.wait, 120)
    monkeypatch.undo()
    assert len(blobs.list_names("readiness")) == 1
    readiness = Readiness({"blobs": readiness._checks["blobs"]})
    assert await readiness.failed_checks() == {}
    assert blobs.list_names("readiness") == ()


async def _fine() -> None:
    return None


async def test_a_clock_that_jumps_for_seconds_ends_no_round(
    server: Server, formed: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    round_id, database = await formed.open_round(server), server.coordinator.database
    clock_sql = database.clock
    monkeypatch.setattr(type(database), "clock", property(lambda _: clock_sql + 7200.0))
    answer = await server.anonymous().get("/readyz")
    assert (answer.status_code, "clock: the database's clock stepped" in answer.text) == (503, True)
    server.coordinator.scheduler.wake_up()
    await formed.serve(server, round_id, "m-0")
    monkeypatch.undo()
    server.app.state.readiness = Readiness(checks_of(server.coordinator, server.clock))
    assert (await server.anonymous().get("/readyz")).status_code == 200
    assert (await server.view(round_id))["state"] == "collecting"


async def test_a_step_of_the_clock_is_followed_once_it_has_stood_for_minutes(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    database, elapsed, ahead = server.coordinator.database, [100.0], [0.0]
    clock = Clock(time.time, lambda: elapsed[0])
    monkeypatch.setattr(type(database), "clock", property(lambda _: literal(1e9 + elapsed[0] + ahead[0])))
    await clock.read_clock(database)
    assert clock() == 1e9 + 100.0

    async def read_after(seconds: float, step_s: float) -> str:
        elapsed[0] += seconds
        ahead[0] = step_s
        await clock.read_clock(database)
        server.app.state.readiness = Readiness({"clock": checks_of(server.coordinator, clock)["clock"]})
        answer = await server.anonymous().get("/readyz")
        return str(answer.json().get("detail", ""))

    assert "stepped by +7200 s" in await read_after(6, 7200)
    assert "stepped by +7200 s" in await read_after(6, 7200)
    assert clock() == 1e9 + 112.0
    assert "stepped" not in await read_after(6, 0)
    assert "stepped by -60 s" in await read_after(6, -60)
    assert "stepped by +60 s" in await read_after(299, 60)
    assert clock() == 1e9 + elapsed[0]
    assert "stepped by +60 s" in await read_after(299, 60)
    assert "stepped" not in await read_after(2, 60)
    assert clock() == 1e9 + elapsed[0] + 60
    assert "stepped" not in await read_after(10, 65)  # NTP
    assert clock() == 1e9 + elapsed[0] + 65
