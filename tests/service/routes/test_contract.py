"""The API document's content, and that no request of a stranger gets a 5xx."""

import asyncio
import json
import random
from typing import Any

import pytest

from service.http.problems import status_of
from tests.support.clients import OBSERVED, client_of
from tests.support.party import Party
from tests.support.refusals import refusal
from tests.support.serving import TOKEN, Server
from veilsum.protocol import rest
from veilsum.protocol.causes import Cause
from veilsum.protocol.messages import Manifest, Pairing
from veilsum.protocol.tags import PROTOCOL_VERSION

SIGNED = [
    *(("put", path) for path in (rest.ROSTER_PATH, rest.STUDY_PATH, rest.CARD_PATH, rest.PAIRING_PATH)),
    *(("put", path) for path in (rest.UPLOAD_PATH, rest.CHUNK_PATH)),
    *(("post", path) for path in (rest.ANSWERS_PATH, rest.LOST_PATH, rest.LOST_CONTEXTS)),
]
"""Routes that take a signed message, or an announced part of one."""
JSON = (
    *(rest.TOKENS_PATH, rest.COHORTS_PATH, rest.ROUNDS_PATH),
    *(rest.PREFLIGHT_PATH, rest.CANCEL_PATH, rest.EXTEND_PATH),
)


Operations = list[tuple[str, str, dict[str, Any]]]


@pytest.fixture(scope="session")
def operations(document: dict[str, Any]) -> Operations:
    paths = document["paths"].items()
    return [(path, method, operation) for path, item in paths for method, operation in item.items()]


def test_the_api_document_is_complete(document: dict[str, Any], operations: Operations) -> None:
    assert set(document["paths"]) == {
        value
        for name, value in vars(rest).items()
        if name.isupper() and str(value).startswith("/") and value != rest.PROBLEM_BASE
    }
    schemas = document["components"]["schemas"]
    for name, field in (
        ("FederationView", "roster"),
        ("RunView", "counter"),
        ("CohortView", "counter"),
        ("RoundView", "sequence"),
    ):
        assert schemas[name]["properties"][field]["type"] == "string", name
    assert "Problem" in document["components"]["schemas"]
    assert "HTTPValidationError" not in document["components"]["schemas"]
    for path, method, operation in operations:
        responses = operation["responses"]
        assert {"400", "413", "503", "default"} <= set(responses), (method, path)
        assert operation["description"], (method, path)
        for status, response in responses.items():
            if status == "default" or int(status) >= 400:
                schema = response["content"][rest.PROBLEM_TYPE]["schema"]
                assert schema == {"$ref": "#/components/schemas/Problem"}
            if status.isdigit() and int(status) >= 400:
                for cause in response["description"].split(", "):
                    assert status_of(Cause(cause)) == int(status)
        if "requestBody" in operation:
            assert operation["requestBody"]["required"] is True
        needs = operation.get("security", ())
        if needs and {} not in needs:
            assert {"401", "403"} <= set(responses), (method, path)
        if "{" in path and (method, path) != ("put", rest.ROSTER_PATH):
            assert "404" in responses, (method, path)


def test_every_declared_binary_body_is_one(operations: Operations) -> None:
    kinds = {
        (method, path): list(operation["requestBody"]["content"])
        for path, method, operation in operations
        if "requestBody" in operation
    }
    octets = {key for key, kind in kinds.items() if kind == [rest.OCTETS_TYPE]}
    others = {("put", rest.CANARIES_PATH), ("put", rest.HEADS_PATH), ("post", rest.PROBE_PATH)}
    assert octets == {*SIGNED, *others}
    assert {tuple(kind) for key, kind in kinds.items() if key not in octets} == {("application/json",)}


def test_what_is_answered_in_two_ways_says_so(document: dict[str, Any]) -> None:
    for method, path in (
        ("put", rest.CARD_PATH),
        ("put", rest.PAIRING_PATH),
        ("get", rest.PAIRING_PATH),
        ("post", rest.ANSWERS_PATH),
    ):
        answer = document["paths"][path][method]["responses"]["200"]
        assert set(answer["content"]) == {rest.OCTETS_TYPE, "application/json"}


@pytest.fixture
async def paths(server: Server, formed: Party) -> dict[str, str]:
    round_id = await formed.open_round(server)
    assert (await formed.announce(server, round_id, "m-0")).status_code == 200
    ids = {"federation": formed.federation, "cohort": formed.cohort, "round_id": round_id}
    return {**ids, "study": "0" * 64, "member": "m-0", "index": "0"}


async def test_random_bytes_are_refused_with_a_cause(
    server: Server, paths: dict[str, str], formed: Party
) -> None:
    rng = random.Random(7)
    upload = formed.upload_of("m-0")
    shown = await server.client.get(rest.MANIFEST_PATH.format(**paths))
    manifest = Manifest.from_bytes(shown.content).hash  # a pairing of another one is ignored
    ciphertexts = (bytes(1088),) * 3
    pairing = Pairing.make_signed(
        formed.keys["m-0"], manifest=manifest, member="m-0", ciphertexts=ciphertexts
    )
    genuine = {
        rest.ROSTER_PATH: formed.roster.to_bytes(),
        rest.STUDY_PATH: formed.study.to_bytes(),
        rest.PAIRING_PATH: pairing.to_bytes(),
        rest.CARD_PATH: formed.card_of("m-0").to_bytes(),
    }
    for method, path in SIGNED:
        real = genuine.get(path, upload)
        own = bytes([PROTOCOL_VERSION])
        bodies = [b"", b"\x00", own, real[:-1], real + b"\x00", b"\x01" + real[1:], own + b"\xff" + real]
        bodies += [rng.randbytes(rng.randrange(300)) for _ in range(5)]
        bodies += [own + bytes([rng.randrange(30)]) + rng.randbytes(rng.randrange(300)) for _ in range(10)]
        for _ in range(5):
            flipped = bytearray(real)
            flipped[rng.randrange(len(real))] ^= 1 << rng.randrange(8)
            bodies.append(bytes(flipped))
        for body in bodies:
            answer = await server.client.request(method, path.format(**paths), content=body)
            assert 400 <= answer.status_code < 500, (path, body, answer.text)


async def test_json_that_is_none_is_refused(server: Server, paths: dict[str, str]) -> None:
    bodies = [
        b"",
        b"{",
        b"\xff\xfe",
        b'"\xc3\x28"',
        b"null",
        b"[]",
        b"[" * 5000,
        b'{"reason":"\\ud800","dim":1}',
        b'{"\\ud800":1}',
        b'{"' + b"k" * 100_000 + b'":1}',
        b'{"dim":1e999,"lifetime_s":1e999,"reason":1}',
        b'{"dim":' + b"9" * 5000 + b"}",
        b'{"dim":NaN,"classes":Infinity,"lifetime_s":NaN}',
        json.dumps({"lifetime_s": 10**30, "dim": 10**30, "reason": "x" * 501}).encode(),
        json.dumps({"period": "p", "dim": 1, "reason": "x", "more": 1}).encode(),
        json.dumps({"period": "", "study": -1, "reason": ""}).encode(),
    ]
    for path in (each.format(**paths) for each in JSON):
        for body in bodies:
            answer = await server.client.post(
                path, content=body, headers={"content-type": "application/json"}
            )
            assert answer.status_code == 400, (path, body[:50], answer.text)
            assert len(answer.json()["detail"]) <= 1000
        answer = await server.client.post(path, content=b" " * ((1 << 20) + 1))
        assert refusal(answer) == (413, "oversized")


MEMBERS_ASTRAY = ("..%2f..%2fcoordinator.key", "M-0", "m%000", "m%0a", "%ff", "m" * 65)
QUERIES_ASTRAY = (
    *(f"after={number}" for number in ("-2", "9" * 5000, "1.5")),
    *(f"wait_s={number}" for number in ("nan", "inf", "-1", "61")),
)


async def test_no_path_leads_astray(server: Server, paths: dict[str, str]) -> None:
    round_id, cohort = paths["round_id"], paths["cohort"]
    # Upper case with a letter, so that it makes a difference: an id may be all digits.
    rounds = ("..%2f..%2fetc", f"{round_id}%0a", f"A{round_id.upper()[1:]}")
    for path in (
        *(f"/v1/rounds/{each}/requests/m-0" for each in rounds),
        *(f"/v1/rounds/{round_id}/requests/{each}" for each in MEMBERS_ASTRAY),
        *(f"/v1/rounds/{round_id}?{each}" for each in QUERIES_ASTRAY),
        *(f"/v1/rounds/{each}" for each in ("", f"{round_id}00/result", "f" * 5000)),
        *(f"/v1/cohorts/{each}" for each in (f"A{cohort.upper()[1:]}", f"{cohort}%00")),
        *(f"/v1/federations/{each}" for each in ("..%2f", "%F0%9F%92%A9/roster")),
        *("/nothing", "/%2f", f"/v1/rounds/{round_id}/uploads/m-0/chunks/x"),
    ):
        answer = await server.client.get(path)
        assert answer.status_code in {400, 401, 404, 405}, (path, answer.text)


async def test_other_methods_are_problems_too(server: Server, paths: dict[str, str]) -> None:
    others = ("OPTIONS", "DELETE", "PATCH", "TRACE")
    for path, methods in (
        *((path, others) for path in (rest.HEALTH_PATH, rest.COORDINATOR_PATH, rest.ROUND_PATH)),
        (rest.ANSWERS_PATH, ("HEAD", *others)),
    ):
        for method in methods:
            answer = await server.client.request(method, path.format(**paths))
            assert answer.status_code == 405
            assert answer.headers["content-type"] == rest.PROBLEM_TYPE
            assert "allow" in answer.headers


async def test_a_raw_body_has_its_type_and_its_limit(server: Server, paths: dict[str, str]) -> None:
    for method, path in SIGNED:
        where = path.format(**paths)
        kind = await server.client.request(method, where, content=b"x", headers={"content-type": "text/html"})
        assert refusal(kind) == (400, "malformed-request")
        assert "text/html" in kind.json()["detail"]
    for path, size in ((rest.CARD_PATH, 4097), (rest.PAIRING_PATH, (16 << 20) + 1)):
        answer = await server.client.put(path.format(**paths), content=bytes(size))
        assert refusal(answer) == (413, "oversized")
    operator = client_of(server.app, {"authorization": f"Bearer {TOKEN}"})
    answer = await operator.put(rest.ROSTER_PATH.format(**paths), content=_pieces(17 << 20))
    assert refusal(answer) == (413, "oversized")
    declared = {"content-length": str((32 << 20) + 1)}
    answer = await server.client.put(rest.CHUNK_PATH.format(**paths), content=b"x", headers=declared)
    assert refusal(answer) == (413, "oversized")


async def _pieces(size: int) -> Any:
    for _ in range(size >> 20):
        yield bytes(1 << 20)


async def test_strangers_find_nothing(server: Server, party: Party, operations: Operations) -> None:
    long = dict.fromkeys(("federation", "study", "cohort", "context", "pack", "heads"), "0" * 64)
    ids = long | {"round_id": "0" * 16, "combination": "0" * 16, "member": "m-0", "name": "lda"}
    for path, method, _ in operations:
        if "{" in path and method == "get":
            client = server.signing("m-0", party.keys["m-0"]) if "{member}" in path else server.client
            answer = await client.get(path.format(**ids), params={"manifest": "0" * 64})
            assert refusal(answer) == (404, "not-found"), path
    for path, body in (
        (rest.COHORTS_PATH, {"study": "0" * 64, "period": "p"}),
        (rest.ROUNDS_PATH, {}),
        (rest.CLOSE_PATH, None),
        (rest.CANCEL_PATH, {"reason": "x"}),
        (rest.COMBINATIONS_PATH, {"rounds": ["0" * 16] * 2}),
    ):
        assert refusal(await server.client.post(path.format(**ids), json=body)) == (404, "not-found"), path


async def test_it_is_alive_and_documented(server: Server) -> None:
    assert (await server.client.get("/healthz")).json() == {"status": "ok"}
    assert (await server.client.get("/openapi.json")).json()["info"]["title"] == "veilsum coordinator"
    await asyncio.sleep(0)
    failed = {(status, cause) for _, _, status, cause in OBSERVED if status >= 500}
    # Tests damage storage on purpose.
    assert {cause for status, cause in failed if status != 503} <= {"storage-damaged"}
