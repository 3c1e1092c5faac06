"""Rounds opened at a time: once, by whoever comes first, also over a restart, and what could not be opened says why."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from service import catalogue
from tests.service.driver import Party
from tests.service.serving import Clock, Server, running

ON_BOTH = True


def request_of(party: Party, **changes: Any) -> dict[str, Any]:
    return {"dim": 4, "classes": 3, "extractor": party.extractor.hex(), "chunk_elements": 8, **changes}


async def schedule(server: Server, party: Party, at_s: float, **changes: Any) -> str:
    answer = await server.client.post(
        f"/v1/cohorts/{party.cohort}/schedules", json={"at_s": at_s, "round": request_of(party, **changes)}
    )
    assert answer.status_code == 201, answer.text
    return str(answer.json()["schedule"])


async def entries(server: Server, party: Party) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = (
        await server.anonymous().get(f"/v1/cohorts/{party.cohort}/schedules")
    ).json()
    return listed


async def settled(server: Server, party: Party, place: int = 0) -> dict[str, Any]:
    server.coordinator.keeper.wake()
    for _ in range(500):
        entry = (await entries(server, party))[place]
        if entry["round"] or entry["fault"]:
            return entry
        await asyncio.sleep(0.01)
    raise AssertionError(entry)


async def test_a_round_is_opened_when_its_time_comes(server: Server, formed: Party) -> None:
    at_s = server.clock() + 3600
    await schedule(server, formed, at_s)
    await asyncio.sleep(0.05)
    [entry] = await entries(server, formed)
    assert (entry["at_s"], entry["begun_s"], entry["round"]) == (at_s, None, None)
    server.clock.ahead_s += 3600
    entry = await settled(server, formed)
    assert entry["begun_s"] >= at_s
    view = await formed.play(server, entry["round"])
    assert (view["state"], view["terms"]["dim"]) == ("done", 4)


async def test_what_falls_due_while_no_process_runs_is_opened_once_by_the_next(
    tmp_path: Path, party: Party
) -> None:
    clock = Clock()
    async with running(tmp_path / "data", clock) as server:
        await party.begin(server)
        await schedule(server, party, clock() + 60)
    clock.ahead_s += 120
    async with running(tmp_path / "data", clock) as server:
        entry = await settled(server, party)
        assert entry["fault"] is None
    async with running(tmp_path / "data", clock) as server:
        assert await entries(server, party) == [entry]
        cohort = (await server.client.get(f"/v1/cohorts/{party.cohort}")).json()
        assert cohort["rounds"] == [entry["round"]]


async def test_two_processes_open_it_once(server: Server, formed: Party) -> None:
    name = await schedule(server, formed, time.time() + 3600)
    schedules = server.coordinator.schedules
    await asyncio.gather(schedules._open(name), schedules._open(name))
    assert len((await server.client.get(f"/v1/cohorts/{formed.cohort}")).json()["rounds"]) == 1


async def test_who_dies_or_fails_before_the_round_is_stored_has_begun_nothing(
    server: Server, formed: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def failing(*_: object, **__: object) -> None:
        raise OSError("the disk is gone")

    name = await schedule(server, formed, server.clock() + 3600)
    with monkeypatch.context() as broken:
        broken.setattr(catalogue, "begin", failing)  # the transaction's last step but the commit
        with pytest.raises(OSError, match="gone"):
            await server.coordinator.schedules._open(name)
    [entry] = await entries(server, formed)
    assert (entry["begun_s"], entry["round"], entry["fault"]) == (None, None, None)
    assert [chore.key for chore in server.coordinator.schedules.chores()] == [f"schedule/{name}"]
    cohort = (await server.client.get(f"/v1/cohorts/{formed.cohort}")).json()
    assert cohort["rounds"] == []
    server.clock.ahead_s += 3600
    entry = await settled(server, formed)
    assert (await server.client.get(f"/v1/rounds/{entry['round']}")).status_code == 200
    await server.coordinator.schedules._open(name)
    assert len((await server.client.get(f"/v1/cohorts/{formed.cohort}")).json()["rounds"]) == 1


async def test_what_a_schedule_does_is_in_the_audit_log(server: Server, formed: Party) -> None:
    name = await schedule(server, formed, 1.0)
    entry = await settled(server, formed)
    second = await schedule(server, formed, 2.0)
    await settled(server, formed, 1)
    listed = (await server.client.get("/v1/audit", params={"limit": 1000})).json()["entries"]
    logged = [
        (each["who"], each["on"], each["outcome"]) for each in listed if each["action"] == "scheduled round"
    ]
    assert logged == [
        ("coordinator", f"schedule={name} round_id={entry['round']}", "done"),
        ("coordinator", f"schedule={second}", "conflict"),
    ]


async def test_what_cannot_be_opened_says_why_and_is_not_tried_again(server: Server, formed: Party) -> None:
    await formed.open_round(server)
    await schedule(server, formed, 1.0)
    entry = await settled(server, formed)
    assert (entry["fault"]["cause"], entry["round"]) == ("conflict", None)


async def test_an_entry_is_taken_back_before_it_begins_and_not_after(server: Server, formed: Party) -> None:
    name = await schedule(server, formed, server.clock() + 3600)
    gone = await server.client.post(f"/v1/schedules/{name}/remove")
    assert (gone.status_code, gone.json()) == (200, {"removed": name})
    assert await entries(server, formed) == []
    assert (await server.client.post(f"/v1/schedules/{name}/remove")).status_code == 404
    await server.coordinator.schedules._open(name)  # a timer that rang meanwhile
    name = await schedule(server, formed, 1.0)
    await settled(server, formed)
    late = await server.client.post(f"/v1/schedules/{name}/remove")
    assert (late.status_code, late.json()["cause"]) == (409, "wrong-phase")


async def test_who_may_and_for_which_cohort(server: Server, party: Party) -> None:
    await party.found(server)
    await party.open_cohort(server)
    path, body = f"/v1/cohorts/{party.cohort}/schedules", {"at_s": 1.0, "round": request_of(party)}
    assert (await server.client.post(path, json=body)).json()["cause"] == "wrong-phase"  # not formed
    assert (await server.anonymous().post(path, json=body)).status_code == 401
    assert (await server.client.get(f"/v1/cohorts/{'0' * 64}/schedules")).status_code == 404
