"""Every route and its permitted callers; a new route must be added here."""

import pytest
from fastapi import APIRouter
from fastapi.routing import APIRoute

from service.access import guards
from service.access.guarded_route import GuardedRoute
from service.access.guards import Guard
from service.app import ROUTERS
from tests.support.clients import client_of
from tests.support.serving import TOKEN, Server
from veilsum.protocol import rest

MEMBERS = {
    ("PUT", rest.CARD),
    ("GET", rest.CARDS),
    ("GET", rest.REQUEST),
    ("PUT", rest.UPLOAD),
    ("GET", rest.UPLOAD),
    ("PUT", rest.CHUNK),
    ("POST", rest.ANSWERS),
    ("GET", rest.DISCLOSURE),
    ("GET", rest.MATERIAL),
    ("GET", rest.DOCUMENT),
}
CLOSING = {("POST", rest.LOST), ("POST", rest.LOST_CONTEXTS)}
ADMINS = {("PUT", rest.ROSTER), ("PUT", rest.STUDY), *CLOSING}
ADMINISTERING = {("POST", rest.TOKENS), ("GET", rest.TOKENS), ("POST", rest.REVOKE)}
RUNNING = {
    ("POST", rest.COHORTS),
    ("POST", rest.CLOSE),
    ("POST", rest.ROUNDS),
    ("POST", rest.PREFLIGHT),
    ("POST", rest.CANCEL),
    ("POST", rest.EXTEND),
    ("POST", rest.COMBINATIONS),
}
OPERATORS = {("GET", rest.AUDIT), *ADMINISTERING, *RUNNING}
READING = {("GET", rest.SUMS)}
PUBLIC = {
    ("GET", path)
    for path in (
        "/openapi.json",
        rest.COORDINATOR,
        rest.ROSTER,
        rest.FEDERATION,
        rest.CHAIN,
        rest.STUDY,
        rest.STUDIES,
        rest.MANIFEST,
        rest.ROUND,
        rest.ROUND_EVENTS,
        rest.OPENING,
        rest.CLOSING,
        rest.TRANSCRIPT,
        rest.RESULT,
        rest.EVICTIONS,
        rest.COMBINATIONS,
        rest.COMBINATION,
    )
}
WAITING = {("GET", rest.COHORT), ("GET", rest.INVITATION), ("GET", rest.RUNS)}
HEADS = {("GET", rest.WEIGHTS), ("GET", rest.COMBINED_WEIGHTS)}
MACHINES = {("GET", path) for path in (rest.HEALTH, rest.READY, rest.METRICS)}
ROUTES = [
    route
    for router in ROUTERS
    for route in router.routes
    if isinstance(route, APIRoute) and (route.include_in_schema or route.path == "/openapi.json")
]


def called(*by: Guard) -> set[tuple[str, str]]:
    return {
        (method, route.path)
        for route in ROUTES
        if isinstance(route, GuardedRoute) and route.guard in by
        for method in route.methods or ()
    }


def test_every_route_has_its_callers() -> None:
    assert called(guards.MEMBER) == MEMBERS
    assert called(guards.PUBLISHING) == ADMINS - CLOSING
    assert called(guards.CLOSING) == CLOSING
    assert called(guards.AUDIT) == {("GET", rest.AUDIT)}
    assert called(guards.ROUNDS) == RUNNING
    assert called(guards.ADMIN) == ADMINISTERING
    assert called(guards.READERS) == READING
    assert called(guards.HEADS) == HEADS
    assert called(guards.EVERYONE) == PUBLIC
    assert called(guards.WAITING) == WAITING
    assert called(guards.MACHINES) == MACHINES
    everything = {(method, route.path) for route in ROUTES for method in route.methods or ()}
    assert everything == MEMBERS | ADMINS | OPERATORS | READING | PUBLIC | WAITING | HEADS | MACHINES


async def test_every_route_refuses_whoever_it_is_not_for(server: Server) -> None:
    """As it is served: for anonymous callers, and for the operator with its token on members' paths."""
    ids = {
        name: ("0" * 64 if name in {"federation", "study", "cohort", "context"} else "0" * 16)
        for name in ("federation", "study", "cohort", "context", "round_id", "combination")
    } | {"member": "m-0", "token": "0" * 8, "index": 0, "position": 0, "name": "lda"}
    async with server.anonymous() as nobody:
        for method, path in MEMBERS | ADMINS | OPERATORS | READING:
            answer = await nobody.request(method, path.format(**ids))
            assert answer.status_code == 401, (method, path)
            assert answer.headers["www-authenticate"] == (
                "Signature" if (method, path) in MEMBERS else "Bearer"
            )
        for method, path in PUBLIC | WAITING | HEADS | MACHINES:
            answer = await nobody.request(method, path.format(**ids))
            assert answer.status_code in {200, 404, 503}, (method, path)
    async with client_of(server.app, {"authorization": f"Bearer {TOKEN}"}) as operator:
        for method, path in MEMBERS:
            assert (await operator.request(method, path.format(**ids))).status_code == 401


async def test_the_document_says_who_may_call(server: Server) -> None:
    needs = {
        (method.upper(), path): {scheme for need in operation.get("security", ()) for scheme in need}
        for path, item in server.app.openapi()["paths"].items()
        for method, operation in item.items()
    }
    spared = {
        (method.upper(), path)
        for path, item in server.app.openapi()["paths"].items()
        for method, operation in item.items()
        if {} in operation.get("security", ())
    }
    assert spared == WAITING
    assert {key for key, need in needs.items() if need == {"RequestSignature"}} == MEMBERS | WAITING
    assert {key for key, need in needs.items() if need == {"OperatorToken"}} == OPERATORS
    assert {key for key, need in needs.items() if len(need) == 2} == ADMINS | READING | HEADS
    assert {key for key, need in needs.items() if not need} == PUBLIC - {("GET", "/openapi.json")} | MACHINES


def test_a_route_that_does_not_say_is_none() -> None:
    router = APIRouter(route_class=GuardedRoute)

    def nothing() -> None:
        pass

    with pytest.raises(AttributeError, match="guard"):
        router.get("/x")(nothing)
