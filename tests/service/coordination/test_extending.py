"""Extending a phase: an event like any other, so it survives the process, and bounded by what members signed."""

from collections.abc import Callable
from typing import Any

import httpx

from tests.service.conftest import Past
from tests.support.party import Party
from tests.support.refusals import refusal
from tests.support.serving import Clock, Server, running


async def test_an_extended_deadline_holds_through_restarts_until_it_passes(
    stopped: Callable[[str], Past],
) -> None:
    past, clock = stopped("formed"), Clock()
    party = past.party
    async with running(past.folder, clock) as server:
        round_id = await party.open_round(server, lifetime_s=86_400)
        for member in party.ids[:-1]:
            await party.serve(server, round_id, member)
        before = await server.view(round_id)
        answer = await extend(server, round_id, before["deadline_s"] + 3600)
        assert answer["deadline_s"] == before["deadline_s"] + 3600
        assert answer["version"] == before["version"] + 1
        assert await extend(server, round_id, answer["deadline_s"]) == answer
        clock.ahead_s += before["deadline_s"] + 1 - clock()
    async with running(past.folder, clock) as server:
        assert await server.view(round_id) == answer
        assert answer["state"] == "collecting"
        view = await party.play(server, round_id)  # the last member comes in the time that it was given
        assert (view["state"], len(view["survivors"])) == ("done", 4)
        assert refusal(await post(server, round_id, 4e9)) == (409, "wrong-phase")


async def test_a_deadline_never_comes_nearer_nor_passes_the_terms_end(server: Server, formed: Party) -> None:
    round_id = await formed.open_round(server, lifetime_s=7200.0)
    view = await server.view(round_id)
    assert refusal(await post(server, round_id, view["deadline_s"] - 1)) == (409, "conflict")
    assert refusal(await post(server, round_id, view["spec"]["latest_end_s"])) == (422, "terms-refused")
    assert (await post(server, round_id, 1e300)).status_code == 400
    assert await server.view(round_id) == view


async def post(server: Server, round_id: str, deadline_s: float) -> httpx.Response:
    return await server.client.post(f"/v1/rounds/{round_id}/extend", json={"deadline_s": deadline_s})


async def extend(server: Server, round_id: str, deadline_s: float) -> dict[str, Any]:
    answer = await post(server, round_id, deadline_s)
    assert answer.status_code == 200, answer.text
    view: dict[str, Any] = answer.json()
    return view
