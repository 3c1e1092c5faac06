"""The dependencies of requests."""

import inspect
from collections.abc import Iterator

from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from service.app import ROUTERS


def depended_on(dependant: Dependant) -> Iterator[object]:
    for each in dependant.dependencies:
        yield each.call
        yield from depended_on(each)


def test_nothing_is_run_in_a_thread_of_its_own() -> None:
    """FastAPI runs dependencies that aren't coroutines in threads, of which there are few, and these wait for storage."""
    found = {
        call
        for router in ROUTERS
        for route in router.routes
        if isinstance(route, APIRoute)
        for call in (route.endpoint, *depended_on(route.dependant))
    }
    assert len(found) > 50
    assert [
        call
        for call in found
        if not any(map(inspect.iscoroutinefunction, (call, type(call).__call__)))
        and not inspect.isasyncgenfunction(call)
    ] == []
