"""Every route and its permitted callers; a new route must be added here."""

from typing import Any

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

Routes = set[tuple[str, str]]


def gets(*paths: str) -> Routes:
    return {("GET", path) for path in paths}


PUBLIC = gets(
    *("/openapi.json", rest.COORDINATOR_PATH, rest.ROSTER_PATH, rest.FEDERATION_PATH, rest.CHAIN_PATH),
    *(rest.STUDY_PATH, rest.STUDIES_PATH, rest.CANARIES_PATH, rest.MANIFEST_PATH, rest.ROUND_PATH),
    *(rest.ROUND_EVENTS_PATH, rest.OPENING_PATH, rest.CLOSING_PATH, rest.TRANSCRIPT_PATH, rest.RESULT_PATH),
    *(rest.EVICTIONS_PATH, rest.COMBINATIONS_PATH, rest.COMBINATION_PATH),
)
WAITING = gets(rest.COHORT_PATH, rest.INVITATION_PATH, rest.RUNS_PATH)
MACHINES = gets(rest.HEALTH_PATH, rest.READY_PATH, rest.METRICS_PATH)
HEADS = gets(rest.WEIGHTS_PATH, rest.COMBINED_WEIGHTS_PATH)
CALLERS: dict[Guard, Routes] = {
    guards.MEMBER_GUARD: {
        *gets(rest.CARDS_PATH, rest.PAIRING_PATH, rest.REQUEST_PATH, rest.UPLOAD_PATH, rest.DISCLOSURE_PATH),
        *(("PUT", path) for path in (rest.CARD_PATH, rest.PAIRING_PATH, rest.UPLOAD_PATH, rest.CHUNK_PATH)),
        *(("POST", path) for path in (rest.ANSWERS_PATH, rest.PROBE_PATH)),
    },
    guards.SITES_GUARD: {("PUT", rest.SITE_PATH)},
    guards.PUBLISHING_GUARD: {
        ("PUT", path) for path in (rest.ROSTER_PATH, rest.STUDY_PATH, rest.CANARIES_PATH)
    },
    guards.CLOSING_GUARD: {("POST", rest.LOST_PATH), ("POST", rest.LOST_CONTEXTS)},
    guards.AUDIT_GUARD: gets(rest.AUDIT_PATH),
    guards.ROUNDS_GUARD: {
        *(("POST", path) for path in (rest.COHORTS_PATH, rest.CLOSE_PATH, rest.ROUNDS_PATH)),
        *(("POST", path) for path in (rest.PREFLIGHT_PATH, rest.CANCEL_PATH, rest.EXTEND_PATH)),
        ("POST", rest.COMBINATIONS_PATH),
        ("GET", rest.SITES_PATH),
        ("PUT", rest.HEADS_PATH),
    },
    guards.ADMIN_GUARD: {
        *(("POST", path) for path in (rest.TOKENS_PATH, rest.REVOKE_PATH)),
        ("GET", rest.TOKENS_PATH),
    },
    guards.READERS_GUARD: gets(rest.SUMS_PATH),
    guards.HEADS_GUARD: HEADS,
    guards.DOCUMENTS_GUARD: gets(rest.MATERIAL_PATH, rest.DOCUMENT_PATH),
    guards.EVERYONE_GUARD: PUBLIC,
    guards.WAITING_GUARD: WAITING,
    guards.MACHINES_GUARD: MACHINES,
}
MEMBERS = CALLERS[guards.MEMBER_GUARD] | CALLERS[guards.SITES_GUARD]
OPERATORS = CALLERS[guards.AUDIT_GUARD] | CALLERS[guards.ROUNDS_GUARD] | CALLERS[guards.ADMIN_GUARD]
OPEN = PUBLIC | WAITING | HEADS | MACHINES
EVERYTHING = Routes().union(*CALLERS.values())


def test_every_route_has_its_callers() -> None:
    found = {guard: Routes() for guard in CALLERS}
    for route in (route for router in ROUTERS for route in router.routes):
        if isinstance(route, APIRoute) and (route.include_in_schema or route.path == "/openapi.json"):
            assert isinstance(route, GuardedRoute)
            found[route.guard] |= {(method, route.path) for method in route.methods or ()}
    assert found == CALLERS


async def test_every_route_refuses_whoever_it_is_not_for(server: Server) -> None:
    """As it is served: for anonymous callers, and for the operator with its token on members' paths."""
    ids = dict.fromkeys(("federation", "study", "cohort", "context", "pack", "heads"), "0" * 64)
    ids |= dict.fromkeys(("round_id", "combination"), "0" * 16)
    ids |= {"member": "m-0", "token": "0" * 8, "index": "0", "position": "0", "name": "lda"}
    async with server.anonymous() as nobody:
        for method, path in EVERYTHING:
            answer = await nobody.request(method, path.format(**ids))
            if (method, path) in OPEN:
                assert answer.status_code in {200, 404, 503}, (method, path)
            else:
                assert answer.status_code == 401, (method, path)
                scheme = "Signature" if (method, path) in MEMBERS else "Bearer"
                assert answer.headers["www-authenticate"] == scheme
    async with client_of(server.app, {"authorization": f"Bearer {TOKEN}"}) as operator:
        for method, path in MEMBERS:
            assert (await operator.request(method, path.format(**ids))).status_code == 401


def test_the_document_says_who_may_call(document: dict[str, Any]) -> None:
    needs, optional = dict[tuple[str, str], set[str]](), Routes()
    for path, item in document["paths"].items():
        for method, operation in item.items():
            named = operation.get("security", [])
            needs[method.upper(), path] = {scheme for need in named for scheme in need}
            optional |= {(method.upper(), path)} if {} in named else set()
    assert optional == WAITING
    assert {key for key, need in needs.items() if need == {"RequestSignature"}} == MEMBERS | WAITING
    assert {key for key, need in needs.items() if need == {"OperatorToken"}} == OPERATORS
    assert {key for key, need in needs.items() if not need} == PUBLIC - gets("/openapi.json") | MACHINES
    assert {key for key, need in needs.items() if len(need) == 2} == (
        EVERYTHING - MEMBERS - WAITING - OPERATORS - PUBLIC - MACHINES
    )


def test_a_route_that_does_not_say_is_none() -> None:
    router = APIRouter(route_class=GuardedRoute)

    def nothing() -> None:
        pass

    with pytest.raises(AttributeError, match="guard"):
        router.get("/x")(nothing)
