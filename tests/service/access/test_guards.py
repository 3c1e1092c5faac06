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
    ("PUT", rest.CARD_PATH),
    ("GET", rest.CARDS_PATH),
    ("PUT", rest.PAIRING_PATH),
    ("GET", rest.PAIRING_PATH),
    ("GET", rest.REQUEST_PATH),
    ("PUT", rest.UPLOAD_PATH),
    ("GET", rest.UPLOAD_PATH),
    ("PUT", rest.CHUNK_PATH),
    ("POST", rest.ANSWERS_PATH),
    ("GET", rest.DISCLOSURE_PATH),
    ("POST", rest.PROBE_PATH),
    ("PUT", rest.SITE_PATH),
}
CLOSING = {("POST", rest.LOST_PATH), ("POST", rest.LOST_CONTEXTS)}
ADMINS = {("PUT", rest.ROSTER_PATH), ("PUT", rest.STUDY_PATH), ("PUT", rest.CANARIES_PATH), *CLOSING}
ADMINISTERING = {("POST", rest.TOKENS_PATH), ("GET", rest.TOKENS_PATH), ("POST", rest.REVOKE_PATH)}
RUNNING = {
    ("POST", rest.COHORTS_PATH),
    ("POST", rest.CLOSE_PATH),
    ("POST", rest.ROUNDS_PATH),
    ("POST", rest.PREFLIGHT_PATH),
    ("POST", rest.CANCEL_PATH),
    ("POST", rest.EXTEND_PATH),
    ("POST", rest.COMBINATIONS_PATH),
    ("GET", rest.SITES_PATH),
    ("PUT", rest.HEADS_PATH),
}
OPERATORS = {("GET", rest.AUDIT_PATH), *ADMINISTERING, *RUNNING}
READING = {("GET", rest.SUMS_PATH)}
DOCUMENTS = {("GET", rest.MATERIAL_PATH), ("GET", rest.DOCUMENT_PATH)}
PUBLIC = {
    ("GET", path)
    for path in (
        "/openapi.json",
        rest.COORDINATOR_PATH,
        rest.ROSTER_PATH,
        rest.FEDERATION_PATH,
        rest.CHAIN_PATH,
        rest.STUDY_PATH,
        rest.STUDIES_PATH,
        rest.CANARIES_PATH,
        rest.MANIFEST_PATH,
        rest.ROUND_PATH,
        rest.ROUND_EVENTS_PATH,
        rest.OPENING_PATH,
        rest.CLOSING_PATH,
        rest.TRANSCRIPT_PATH,
        rest.RESULT_PATH,
        rest.EVICTIONS_PATH,
        rest.COMBINATIONS_PATH,
        rest.COMBINATION_PATH,
    )
}
WAITING = {("GET", rest.COHORT_PATH), ("GET", rest.INVITATION_PATH), ("GET", rest.RUNS_PATH)}
HEADS = {("GET", rest.WEIGHTS_PATH), ("GET", rest.COMBINED_WEIGHTS_PATH)}
MACHINES = {("GET", path) for path in (rest.HEALTH_PATH, rest.READY_PATH, rest.METRICS_PATH)}
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
    assert called(guards.MEMBER_GUARD, guards.SITES_GUARD) == MEMBERS
    assert called(guards.PUBLISHING_GUARD) == ADMINS - CLOSING
    assert called(guards.CLOSING_GUARD) == CLOSING
    assert called(guards.AUDIT_GUARD) == {("GET", rest.AUDIT_PATH)}
    assert called(guards.ROUNDS_GUARD) == RUNNING
    assert called(guards.ADMIN_GUARD) == ADMINISTERING
    assert called(guards.READERS_GUARD) == READING
    assert called(guards.HEADS_GUARD) == HEADS
    assert called(guards.DOCUMENTS_GUARD) == DOCUMENTS
    assert called(guards.EVERYONE_GUARD) == PUBLIC
    assert called(guards.WAITING_GUARD) == WAITING
    assert called(guards.MACHINES_GUARD) == MACHINES
    everything = {(method, route.path) for route in ROUTES for method in route.methods or ()}
    assert (
        everything == MEMBERS | ADMINS | OPERATORS | READING | DOCUMENTS | PUBLIC | WAITING | HEADS | MACHINES
    )


async def test_every_route_refuses_whoever_it_is_not_for(server: Server) -> None:
    """As it is served: for anonymous callers, and for the operator with its token on members' paths."""
    ids = {
        name: (
            "0" * 64 if name in {"federation", "study", "cohort", "context", "pack", "heads"} else "0" * 16
        )
        for name in ("federation", "study", "cohort", "context", "pack", "heads", "round_id", "combination")
    } | {"member": "m-0", "token": "0" * 8, "index": 0, "position": 0, "name": "lda"}
    async with server.anonymous() as nobody:
        for method, path in MEMBERS | ADMINS | OPERATORS | READING | DOCUMENTS:
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
    assert {key for key, need in needs.items() if len(need) == 2} == ADMINS | READING | DOCUMENTS | HEADS
    assert {key for key, need in needs.items() if not need} == PUBLIC - {("GET", "/openapi.json")} | MACHINES


def test_a_route_that_does_not_say_is_none() -> None:
    router = APIRouter(route_class=GuardedRoute)

    def nothing() -> None:
        pass

    with pytest.raises(AttributeError, match="guard"):
        router.get("/x")(nothing)
