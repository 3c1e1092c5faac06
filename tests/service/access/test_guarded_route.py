from collections.abc import Callable
from contextlib import ExitStack

import pytest
from fastapi import APIRouter

from service.access.guarded_route import GuardedRoute
from service.access.guards import EVERYONE_GUARD
from tests.support.serving import Server


def answer() -> str:
    return "answered"


def test_a_route_that_does_not_say_is_none() -> None:
    router = APIRouter(route_class=GuardedRoute)
    with pytest.raises(AttributeError, match="guard"):
        router.get("/x")(answer)


async def test_a_route_answers_whom_its_guard_admits(server: Server) -> None:
    router = APIRouter(route_class=GuardedRoute.behind_guard(EVERYONE_GUARD))
    router.get("/x")(answer)
    server.app.include_router(router)
    found = await server.anonymous().get("/x")
    assert (found.status_code, found.json()) == (200, "answered")


async def test_whatever_may_have_changed_something_counts_as_a_change(server: Server) -> None:
    """Even if it was refused: pages that were made before are made again."""
    before = server.coordinator.changes
    assert (await server.client.get("/v1/tokens")).status_code == 200
    assert server.coordinator.changes == before
    assert (await server.cancel("0" * 16)).status_code == 404
    assert server.coordinator.changes != before


async def test_a_body_s_room_is_taken_once_it_is_whole_and_given_back_once_it_is_answered(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = list[object]()

    class Recorded:
        async def enter_room(self, size: int, ending: ExitStack) -> Callable[[], None]:
            steps.append(size)
            ending.callback(steps.append, "given back")
            return lambda: steps.append("whole")

    monkeypatch.setattr(server.app.state, "room", Recorded())
    assert (await server.client.post("/v1/tokens", content=b"{}")).status_code == 400
    assert steps == [2, "whole", "given back"]
