"""Pages and documents are cached for all users that are not signed in, until something changes."""

import asyncio
import gc
import weakref
from typing import Any

import pytest
from fastapi import FastAPI

from service.coordination.cache import Recent
from service.coordination.documents import TRANSCRIPTS_FOLDER
from service.pages import rendering, routes
from tests.support.party import Party
from tests.support.serving import TOKEN, Server


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the rendered templates."""
    names, environment = list[str](), rendering.template_environment()
    get = environment.get_template

    def noting(name: str, *parent: Any) -> Any:
        names.extend([] if parent else [name])
        return get(name, *parent)

    monkeypatch.setattr(environment, "get_template", noting)
    monkeypatch.setattr(rendering, "PAGE_CACHED_S", 3600.0)
    return names


async def test_a_page_is_made_once_until_something_changes(
    server: Server, formed: Party, made: list[str]
) -> None:
    async with server.anonymous() as nobody:
        first, again = [await nobody.get("/") for _ in range(2)]
        assert (made, first.content) == (["rounds.html"], again.content)
        assert dict(first.headers) | {"veilsum-request": ""} == dict(again.headers) | {"veilsum-request": ""}
        await nobody.get("/", params={"page": 2})
        assert made == ["rounds.html"] * 2
        round_id = await formed.open_round(server)
        assert round_id in (await nobody.get("/")).text
        page = f"/rounds/{round_id}"
        before = [(await nobody.get(page)).content for _ in range(2)]
        assert (made.count("round.html"), before[0]) == (1, before[1])
        await formed.play(server, round_id)
        assert (await nobody.get(page)).content != before[0]
        federation = f"/federations/{formed.federation}"
        before = [(await nobody.get(federation)).content]
        await formed.publish_roster(server, formed.make_roster(formed.roster.coordinator, 2))
        assert (await nobody.get(federation)).content != before[0]


async def test_refusals_and_pages_of_people_who_are_signed_in_are_not_kept(
    server: Server, formed: Party, made: list[str]
) -> None:
    async with server.anonymous() as nobody, server.anonymous() as operator:
        for _ in range(2):
            assert (await nobody.get("/rounds/" + "0" * 16)).status_code == 404
        await operator.post("/sign-in", data={"token": TOKEN})
        plain = (await nobody.get("/federations")).text
        own = (await operator.get("/federations")).text
        assert (await nobody.get("/federations")).text == plain != own
    assert made.count("federations.html") == 2


async def test_kept_pages_weigh_with_their_addresses(server: Server) -> None:
    kept = server.app.state.pages = rendering.KeptPages(16_000)
    async with server.anonymous() as nobody:
        for name in "ab":
            assert (await nobody.get("/federations?" + name * 8000)).status_code == 200
    assert len(kept._kept) == 1


async def test_a_page_keeps_no_round(server: Server, finished: str) -> None:
    rounds = server.coordinator.catalogue.rounds
    async with server.anonymous() as nobody:
        assert (await nobody.get(f"/rounds/{finished}")).status_code == 200
    found = weakref.ref(rounds[finished])
    rounds._recent = Recent(0)
    for _ in range(100):  # the thread that read it releases it a moment after the answer
        gc.collect()
        if found() is None:
            break
        await asyncio.sleep(0.02)
    assert found() is None


async def test_the_api_document_is_made_once(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    async with server.anonymous() as nobody:
        first = await nobody.get("/openapi.json")
        monkeypatch.setattr(FastAPI, "openapi", lambda _: pytest.fail("again"))
        assert (await nobody.get("/openapi.json")).json() == first.json()


async def test_answers_are_shown_once_a_damaged_transcript_is_restored(
    server: Server, formed: Party, finished: str
) -> None:
    blobs, found = server.coordinator.blobs, await server.coordinator.catalogue.find_round(finished)
    folder = f"{TRANSCRIPTS_FOLDER}/{finished}"
    [name] = [f"{folder}/{each}" for each in blobs.list_names(folder)]
    whole = blobs.get(name)
    blobs.put(name, whole[:-1])
    assert await routes.answers_by_phase(found) is None
    blobs.put(name, whole)
    shown = await routes.answers_by_phase(found)
    assert shown is not None
    assert shown["checking"] == {*formed.ids}
    assert await routes.answers_by_phase(found) is shown, "read once"
