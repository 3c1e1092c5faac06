"""Every answer has headers for browsers and caches."""

import httpx
import pytest

from service.app import MAX_JSON_BYTES
from tests.service.pages.gallery import browser
from tests.support.serving import Server, served
from veilsum.protocol.rest import PROBLEM_TYPE, REQUEST_ID_HEADER


async def test_nothing_is_served_that_loads_from_elsewhere(server: Server) -> None:
    for path in ("/docs", "/redoc"):
        assert (await server.anonymous().get(path)).status_code == 404


async def test_every_answer_says_how_it_may_be_used(server: Server) -> None:
    for path in ("/v1/coordinator", "/healthz", "/metrics", "/openapi.json", "/v1/nothing"):
        said = (await server.anonymous().get(path, headers={"origin": "https://elsewhere.example"})).headers
        assert (said["x-content-type-options"], said["cache-control"]) == ("nosniff", "no-store"), path
        policy = set(said["content-security-policy"].split("; "))
        assert {"default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'"} <= policy, path
        assert "referrer-policy" in said, path
        assert not [name for name in said if name.startswith("access-control-")], path
        assert "strict-transport-security" not in said, path  # not over TLS here


async def test_so_does_what_is_too_long_and_what_fails(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(server.coordinator.federations, "read_version", broken)
    transport = httpx.ASGITransport(server.app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://coordinator") as client:
        long = await client.post("/v1/tokens", content=bytes(MAX_JSON_BYTES + 1))
        failed = await client.get(f"/v1/federations/{'0' * 64}")
        told = [answer for answer in (long, failed) if answer.headers[REQUEST_ID_HEADER]]
    assert [answer.status_code for answer in told] == [413, 500]
    for answer in told:
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert (answer.headers["content-type"], answer.json()["status"]) == (PROBLEM_TYPE, answer.status_code)
        assert int(answer.headers["content-length"]) == len(answer.content)


async def test_what_says_otherwise_itself_stays(server: Server, finished: str) -> None:
    transcript = await server.anonymous().get(f"/v1/rounds/{finished}/transcript")
    assert transcript.headers["cache-control"] == "public, max-age=31536000, immutable"
    async with browser(server) as visitor:
        assert "script-src 'self'" in (await visitor.get("/")).headers["content-security-policy"]


async def test_head_answers_as_get_without_a_body(server: Server, finished: str) -> None:
    async with served(server) as url, httpx.AsyncClient(base_url=url) as client:
        for path in ("/healthz", "/readyz", "/health", f"/rounds/{finished}", f"/v1/rounds/{finished}"):
            got, head = await client.get(path), await client.head(path)
            assert (head.status_code, head.content) == (200, b""), path
            for name in ("content-type", "content-length", "etag", "cache-control"):
                assert head.headers.get(name) == got.headers.get(name), (path, name)
        assert (await client.head(f"/v1/rounds/{'0' * 16}")).status_code == 404


async def test_over_tls_it_stays_tls(server: Server) -> None:
    transport = httpx.ASGITransport(server.app)
    async with httpx.AsyncClient(transport=transport, base_url="https://coordinator") as client:
        answer = await client.get("/healthz")
    assert answer.headers["strict-transport-security"] == "max-age=31536000; includeSubDomains"
