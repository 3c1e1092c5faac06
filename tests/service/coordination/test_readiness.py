import asyncio
import errno
import threading
import time
from collections import Counter

import pytest
from sqlalchemy import literal, text

from service.coordination.readiness import NotReady, Readiness, checks_of
from service.storage.blobs import RemovedFolderError
from service.storage.clock import Clock
from service.telemetry.metrics import READY_GAUGE, REGISTRY, Exposition
from tests.support.refusals import refusal, refused
from tests.support.serving import Server, carry_out


async def test_a_running_coordinator_is_ready_and_leaves_nothing_behind(server: Server) -> None:
    answer = await server.anonymous().get("/readyz")
    assert answer.status_code == 200
    said = answer.json()
    assert said["damaged"] == []
    assert (said["status"], abs(said.pop("clock_difference_s")) < 1) == ("ready", True)
    assert said["checks"] == ["process", "database", "migrations", "blobs", "clock"]
    assert server.coordinator.blobs.list_names("readiness") == ()


async def failing(server: Server) -> set[str]:
    """Look at every check now; return those that fail, as /readyz tells."""
    readiness = server.app.state.readiness = Readiness(checks_of(server.coordinator, server.clock))
    answer = await server.anonymous().get("/readyz")
    if answer.status_code == 200:
        return set()
    assert refusal(answer) == (503, "unavailable")
    return {name for name in readiness.names if f"{name}: " in answer.json()["detail"]}


async def test_every_reason_is_told_and_health_is_another_matter(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server.coordinator.blobs, "put", _full)
    server.coordinator.stop_waiting()
    assert await failing(server) == {"process", "blobs"}
    said = (await server.anonymous().get("/readyz")).text
    assert ("blobs: ENOSPC" in said, "secret" in said) == (True, False)
    assert (await server.anonymous().get("/healthz")).json() == {"status": "ok"}
    assert REGISTRY.get_sample_value("veilsum_ready") == 0


@pytest.mark.on_files
async def test_a_folder_of_blobs_that_was_removed_does_not_come_back(server: Server) -> None:
    folder = server.folder / "blobs"
    for remove in (lambda: folder.rename(server.folder / "away"), folder.mkdir):
        remove()
        with pytest.raises(RemovedFolderError):
            server.coordinator.blobs.put("round/other", b"content")
        assert await failing(server) == {"blobs"}


@pytest.mark.on_files
async def test_a_database_that_was_removed_is_not_written_on(server: Server) -> None:
    file = server.folder / "coordinator.sqlite3"
    file.rename(server.folder / "away")
    assert "database" in await failing(server)
    assert not file.exists()
    refused = await server.client.post("/v1/tokens", json={"name": "x", "scopes": ["rounds"]})
    assert refused.status_code == 503


async def test_an_audit_log_that_takes_nothing_is_a_reason(server: Server) -> None:
    await carry_out(server.coordinator.database, text("DROP TABLE audit"))
    assert await failing(server) == {"database"}


async def test_whoever_reads_the_metrics_alone_sees_it(server: Server) -> None:
    READY_GAUGE.set(0)
    assert "veilsum_ready 1.0" in (await server.anonymous().get("/metrics")).text
    server.app.state.readiness = Readiness({"gone": _missing})
    server.app.state.exposition = Exposition()  # a second later
    assert "veilsum_ready 0.0" in (await server.anonymous().get("/metrics")).text


async def test_metrics_wait_for_checks_and_counts_at_the_same_time(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A silent database holds each for 5 s; together they would outlast a scrape."""
    summaries, counting = server.coordinator.summaries, asyncio.Event()
    count_states = summaries.count_states

    async def count() -> Counter[str]:
        counting.set()
        return await count_states()

    async def check() -> None:
        await counting.wait()

    monkeypatch.setattr(summaries, "count_states", count)
    server.app.state.readiness = Readiness({"counting": check}, patience_s=1.0)
    assert "veilsum_ready 1.0" in (await server.anonymous().get("/metrics")).text


async def _missing() -> None:
    raise NotReady("gone")


def _full(name: str, data: bytes) -> None:
    raise OSError(errno.ENOSPC, "No space left on device", "/somewhere/secret")


async def test_asking_often_looks_once_and_a_slow_look_is_cut_off() -> None:
    looks = 0

    async def slow() -> None:
        nonlocal looks
        looks += 1
        await asyncio.sleep(60)

    readiness = Readiness({"slow": slow, "other": _missing}, kept_s=60, patience_s=0.01)
    answers = await asyncio.gather(*(readiness.failed_checks() for _ in range(5)))
    assert [set(answer) for answer in answers] == [{"slow", "other"}] * 5
    assert looks == 1
    with refused("unavailable", ...) as caught:
        await readiness.check_all()
    assert all(name in str(caught.value) for name in ("slow: ", "other: gone"))
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
    assert await readiness.failed_checks() != {}
    assert await asyncio.to_thread(ended.wait, 120)
    monkeypatch.undo()
    assert len(blobs.list_names("readiness")) == 1
    readiness = Readiness({"blobs": readiness._checks["blobs"]})
    assert await readiness.failed_checks() == {}
    assert blobs.list_names("readiness") == ()


async def _fine() -> None:
    return None


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

    assert "+7200 s" in await read_after(6, 7200)
    assert "+7200 s" in await read_after(6, 7200)
    assert clock() == 1e9 + 112.0
    assert "stepped" not in await read_after(6, 0)
    assert "-60 s" in await read_after(6, -60)
    assert "+60 s" in await read_after(299, 60)
    assert clock() == 1e9 + elapsed[0]
    assert "+60 s" in await read_after(299, 60)
    assert "stepped" not in await read_after(2, 60)
    assert clock() == 1e9 + elapsed[0] + 60
    assert "stepped" not in await read_after(10, 65)  # NTP
    assert clock() == 1e9 + elapsed[0] + 65
