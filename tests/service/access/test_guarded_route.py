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
