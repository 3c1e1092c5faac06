"""Every route and its permitted callers; a new route must be added here. Whom a guard admits, by key, roster, study and token."""

from typing import Any

import pytest
from fastapi.routing import APIRoute

from service.access import guards
from service.access.guarded_route import GuardedRoute
from service.access.guards import Guard
from service.app import ROUTERS
from tests.support.clients import client_of
from tests.support.party import FOUR, Party
from tests.support.refusals import refusal
from tests.support.serving import TOKEN, Server
from tests.support.simulator import simulated_roster
from veilsum.protocol import rest
from veilsum.protocol.identity import SigningKey

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
    signature, token = {"RequestSignature": list[str]()}, {"OperatorToken": list[str]()}
    assert guards.EVERYONE_GUARD.openapi_security == {}
    assert guards.WAITING_GUARD.openapi_security == {"security": [{}, signature]}
    assert guards.READERS_GUARD.openapi_security == {"security": [token, signature]}
    assert [guard for guard in CALLERS if guard.single_use] == [guards.READERS_GUARD]
    assert [guard for guard in CALLERS if not guard.limited] == [guards.MACHINES_GUARD]


async def finish(server: Server, party: Party, **roster: object) -> str:
    await party.begin(server)
    if roster:
        party.roster = party.make_roster(party.roster.coordinator, 2, **roster)
        await party.publish_roster(server, party.roster)
        await party.open_cohort(server)
        await party.enrol(server)
    return await party.done(server)


async def status(server: Server, party: Party, member: str, path: str) -> int:
    async with server.signing(member, party.keys[member]) as client:
        return (await client.get(path)).status_code


async def test_readers_read_the_sums_and_nobody_else_does(server: Server, party: Party) -> None:
    path = f"/v1/rounds/{await finish(server, party, readers=('m-1', 'm-2'))}/result/sums"
    assert [await status(server, party, member, path) for member in party.ids[1:4]] == [200, 200, 403]
    async with server.anonymous() as nobody:
        assert (await nobody.get(path)).status_code == 401
    assert (await server.client.get(path)).status_code == 200
    # Whom a newer roster does not list any more reads nothing, not even of rounds before it.
    newer = party.make_roster(party.roster.coordinator, 3, readers=("m-2", "m-3"))
    await party.publish_roster(server, newer)
    assert [await status(server, party, member, path) for member in party.ids[1:4]] == [403, 200, 403]


@pytest.mark.parametrize("readers", ["members", "anyone"])
async def test_a_head_is_for_whom_the_study_names(server: Server, readers: str) -> None:
    party = Party(FOUR, after={"readers": readers})
    rounds = [await finish(server, party), await party.done(server)]
    made = await server.client.post(f"{party.where}/combinations", json={"rounds": rounds})
    tokens = [
        (
            await server.client.post("/v1/tokens", json={"name": "x", "scopes": ["sums"], "federation": each})
        ).json()
        for each in (party.federation, "0" * 64)
    ]
    stranger = SigningKey(b"x" * 32)
    for where in (f"rounds/{rounds[0]}/result", f"combinations/{made.json()['combination']}"):
        path = f"/v1/{where}/weights"
        assert await status(server, party, "m-3", path) == 200
        assert (await server.client.get(path)).status_code == 200
        async with server.anonymous() as nobody, server.signing("m-3", stranger) as forger:
            assert (await nobody.get(path)).status_code == (200 if readers == "anyone" else 401)
            assert (await forger.get(path)).status_code == 401
            for token, expected in zip(tokens, (200, 403), strict=True):
                bearer = {"authorization": f"Bearer {token['secret']}"}
                assert (await nobody.get(path, headers=bearer)).status_code == expected


@pytest.mark.usefixtures("six")
async def test_only_a_member_s_newest_key_reads(server: Server, formed: Party, finished: str) -> None:
    """A key that was replaced or removed can still send what ends a live round, and is shown nothing."""
    replaced, new = formed.keys["m-1"], SigningKey(b"n" * 32)
    await formed.next_period(server)
    round_id = await formed.open_round(server)
    formed.seal("m-1", await server.opening(round_id, "m-1"), now_s=server.clock())
    keys = {each: formed.keys[each].public for each in formed.ids if each != "m-5"} | {"m-1": new.public}
    later = simulated_roster(formed.admin, formed.roster.coordinator, keys, number=2, name=formed.name)
    await formed.publish_roster(server, later)
    paths = [
        f"/v1/rounds/{finished}/result/weights",
        f"/v1/rounds/{round_id}/material",
        *(f"/v1/rounds/{round_id}/{what}/{{}}" for what in ("requests", "uploads")),
        f"/v1/cohorts/{formed.cohort}/manifest/{{}}",
    ]

    async def read(who: str, key: SigningKey) -> list[int]:
        client = server.signing(who, key)
        return [(await client.get(path.format(who))).status_code for path in paths]

    assert await read("m-1", replaced) == await read("m-5", formed.keys["m-5"]) == [403] * 5
    assert await read("m-1", new) == [200, 404, 200, 422, 200]
    assert await read("m-1", SigningKey(b"x" * 32)) == [401] * 5
    assert await read("m-0", formed.keys["m-0"]) == [200, 404, 200, 422, 200]
    where = f"/v1/rounds/{round_id}/uploads/m-1"
    async with server.signing("m-1", replaced) as client:
        sent = await client.put(where, content=formed.upload_of("m-1"))
        assert sent.json()["missing"] == list(range(len(formed.chunks["m-1"])))
        for index, data in enumerate(formed.chunks["m-1"]):
            sent = await client.put(f"{where}/chunks/{index}", content=data)
            assert (sent.status_code, sent.content) == (204, b"")
        card = await client.put(f"/v1/cohorts/{formed.cohort}/cards/m-1", content=b"x")
        assert refusal(card) == (403, "forbidden"), "it is no round's"


async def test_only_the_admin_closes_what_is_lost(server: Server, formed: Party) -> None:
    round_id, key = await formed.open_round(server), SigningKey(b"x" * 32)
    paths = (f"/v1/rounds/{round_id}/lost", f"{formed.where}/lost")
    callers = {
        ("admin", formed.admin): (400, "truncated"),
        ("admin", key): (401, "request-forged"),
        ("m-0", formed.keys["m-0"]): (403, "forbidden"),
    }
    for (who, own), expected in callers.items():
        async with server.signing(who, own) as client:
            assert [refusal(await client.post(path, content=b"x")) for path in paths] == [expected] * 2, who
