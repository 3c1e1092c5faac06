"""Failing storage, many members at once, and deadlines during requests."""

import asyncio
import time
from typing import Any

import httpx
import pytest
from sqlalchemy.exc import OperationalError

from service.coordination import solving
from service.coordination.rounds import LiveRound
from tests.support.party import Party
from tests.support.refusals import refusal
from tests.support.serving import Server
from veilsum.protocol.errors import Misuse


async def test_a_full_disk_acknowledges_nothing_and_the_round_goes_on(
    server: Server, formed: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    round_id = await formed.open_round(server)
    where = f"/v1/rounds/{round_id}/uploads/m-0"
    await formed.announce(server, round_id, "m-0")
    data = formed.chunks["m-0"][0]

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    def locked(*_: object) -> Any:
        raise OperationalError("INSERT", {"body": data}, Exception("database or disk is full"))

    for target, name, failure in (
        (server.coordinator.blobs, "put", full),
        (server.coordinator.database, "write", locked),
    ):
        with monkeypatch.context() as patched:
            patched.setattr(target, name, failure)
            refused = await server.client.put(f"{where}/chunks/0", content=data)
            assert refusal(refused) == (503, "unavailable")
            assert refused.headers["retry-after"] == "5"
        assert 0 in (await server.client.get(where)).json()["missing"]
    with monkeypatch.context() as patched:
        patched.setattr(server.coordinator.database, "write", locked)
        cohort = await server.client.post(
            f"{formed.where}/cohorts", json={"study": formed.study.hash.hex(), "period": "another"}
        )
        assert cohort.status_code == 503
    assert (await formed.play(server, round_id))["state"] == "done"
    await formed.check_result(server, round_id)


async def test_a_bug_in_one_round_stops_no_other(
    server: Server, formed: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await formed.open_round(server)
    advance = LiveRound.pass_deadline
    other = Party(formed.ids, seed=3, admin_seed=b"o" * 32)
    await other.begin(server)

    async def bug(self: LiveRound, now_s: float) -> None:
        if self.id == first:
            raise ZeroDivisionError
        await advance(self, now_s)

    monkeypatch.setattr(LiveRound, "pass_deadline", bug)
    second = await other.open_round(server)
    for state in ("voiding", "erasing"):
        await server.pass_time(await server.view(second))
        assert (await server.until(second, state))["state"] == state
    assert (await server.view(first))["state"] == "collecting"
    monkeypatch.setattr(LiveRound, "pass_deadline", advance)
    assert (await server.until(first, "erasing"))["state"] == "erasing"


async def test_rounds_of_a_federation_follow_each_other_also_from_cohort_to_cohort(
    server: Server, formed: Party
) -> None:
    """What may be signed for a set depends on all rounds before it; two simultaneous rounds would not know of each other."""
    other = Party(formed.ids, seed=3)
    other.roster, other.study, other.content = formed.roster, formed.study, formed.content
    await other.open_cohort(server, period="another")
    await other.enrol(server)
    one = await formed.open_round(server)
    refused = await other.try_round(server)
    assert refusal(refused) == (409, "conflict")
    assert f"round {one}" in refused.json()["detail"]
    assert (await formed.play(server, one))["state"] == "done"
    await other.done(server)
    links = await server.coordinator.federations.read_links(formed.federation)
    assert [link.cohort.hex() for link in links] == [formed.cohort, other.cohort]


async def test_a_sum_that_cannot_be_computed_is_tried_again_and_may_be_given_up(
    server: Server, formed: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(solving, "solve_sum", broken)
    round_id = await formed.open_round(server)
    await formed.play_until(server, round_id, "recovered")
    await asyncio.sleep(0.1)
    assert (await server.view(round_id))["state"] == "recovered"
    cancelled = await server.cancel(round_id)
    assert (cancelled.json()["state"], cancelled.json()["fault"]["cause"]) == ("failed", "cancelled")
    monkeypatch.undo()
    await formed.play(server, round_id)
    await formed.open_round(server)


async def test_a_result_that_comes_after_the_round_was_given_up_is_dropped(
    server: Server, formed: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    solve = solving.solve_sum

    def slow(*arguments: Any, **more: Any) -> Any:
        outcome = solve(*arguments, **more)
        time.sleep(0.5)
        return outcome

    monkeypatch.setattr(solving, "solve_sum", slow)
    round_id = await formed.open_round(server)
    await formed.play_until(server, round_id, "recovered")
    cancelled = await server.cancel(round_id)
    assert cancelled.json()["state"] == "failed"
    await asyncio.sleep(0.8)
    assert (await server.client.get(f"/v1/rounds/{round_id}/result/weights")).status_code == 409
    assert server.coordinator.blobs.list_names("results") == ()


async def test_a_round_for_which_the_disk_has_no_room_does_not_open(
    server: Server, formed: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    await formed.done(server)
    await formed.next_period(server)
    monkeypatch.setattr(server.coordinator.blobs, "free_bytes", lambda: 5_000)
    refused = await formed.try_round(server)
    assert refusal(refused) == (422, "terms-refused")
    assert "5,000" in refused.json()["detail"]
    monkeypatch.setattr(server.coordinator.blobs, "free_bytes", lambda: None)  # as a bucket says
    assert (await formed.try_round(server)).status_code == 201


async def test_what_nobody_foresaw_is_a_problem_too(
    server: Server, formed: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bug(_: str) -> None:
        raise Misuse("with words that stay here")

    monkeypatch.setattr(server.coordinator.catalogue, "find_cohort", bug)
    transport = httpx.ASGITransport(server.app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://coordinator") as client:
        answer = await client.get(f"/v1/cohorts/{formed.cohort}")
    assert (answer.status_code, answer.headers["content-type"]) == (500, "application/problem+json")
    assert "words" not in answer.text
