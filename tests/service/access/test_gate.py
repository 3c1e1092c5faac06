"""Who is admitted by a signature, and that no body is read before."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy.exc import OperationalError
from starlette.requests import Request

from service.access.gate import INLINE_HASH_BYTES
from service.storage.nonces import DELETE_EVERY_S
from tests.support.calls import record_calls
from tests.support.party import Party
from tests.support.refusals import refusal
from tests.support.serving import TOKEN, Server, Stage, running
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.messages import parse_message
from veilsum.protocol.request_signature import Target, content_digest, sign_request


def read_by_one() -> Party:
    """Three members, of whom one reads sums."""
    return Party(("m-0", "m-1", "m-2"), readers=("m-0",))


@pytest.fixture
def make_party() -> Callable[[], Party]:
    return read_by_one


def headers(
    party: Party, path: str, body: bytes = b"", method: str = "GET", who: str = "m-0", **changes: Any
) -> dict[str, str]:
    bare, _, query = path.partition("?")
    target = Target(method, changes.pop("authority", "coordinator"), bare, query)
    values = {"created_s": time.time(), "nonce": os.urandom(16), **changes}
    return sign_request(party.keys.get(who, party.admin), who, target, body, **values)


@pytest.fixture
async def asked(server: Server, formed: Party) -> str:
    """A path that only m-0 may request."""
    return f"/v1/rounds/{await formed.open_round(server)}/requests/m-0"


async def test_a_member_s_path_takes_the_member_s_signature(
    server: Server, formed: Party, asked: str
) -> None:
    async with server.anonymous() as client:
        bare = await client.get(asked)
        assert refusal(bare) == (401, "request-unsigned")
        assert bare.headers["www-authenticate"] == "Signature"
        for path in (asked, f"{asked}?after=-1"):
            assert (await client.get(path, headers=headers(formed, path))).status_code == 200
        for who in ("m-1", "m-9", "admin"):
            other = await client.get(asked, headers=headers(formed, asked, who=who))
            assert refusal(other) == (403, "forbidden"), who
        moved = await client.get(asked, headers=headers(formed, f"{asked}?after=0"))
        assert refusal(moved) == (401, "request-forged")
        formed.keys["m-0"] = SigningKey(bytes(32))
        assert refusal(await client.get(asked, headers=headers(formed, asked))) == (401, "request-forged")
    # The operator is no member.
    operator = await server.client.get(asked, headers={"signature": "", "signature-input": ""})
    assert refusal(operator) == (401, "request-unsigned")


async def test_an_operator_s_token_stands_behind_its_scheme(server: Server) -> None:
    headers = {f"{scheme}{TOKEN}": 200 for scheme in ("Bearer ", "bearer ", "Bearer   ")}
    headers |= dict.fromkeys(
        (f"Basic {TOKEN}", f"Bearer{TOKEN}", TOKEN, "Bearer", "Bearer ", "Bearer é", ""), 401
    )
    async with server.anonymous() as client:
        for header, status in headers.items():
            given = {b"authorization": header.encode("latin-1")}
            answer = await client.get("/v1/tokens", headers=given)
            assert answer.status_code == status, header


async def test_a_request_is_taken_in_time(server: Server, formed: Party, asked: str) -> None:
    once, now = headers(formed, asked), server.clock()
    async with server.anonymous() as client:
        for _ in range(2):
            assert (await client.get(asked, headers=once)).status_code == 200
        for changes, why in (
            ({"created_s": now + 70}, "clock-skew"),
            ({"created_s": now - 130}, "clock-skew"),
            ({"lifetime_s": 301}, "request-unsigned"),
        ):
            assert refusal(await client.get(asked, headers=headers(formed, asked, **changes))) == (401, why)
        server.clock.ahead_s = 300.0
        assert refusal(await client.get(asked, headers=once)) == (401, "clock-skew")
        later = headers(formed, asked, created_s=server.clock())
        assert (await client.get(asked, headers=later)).status_code == 200


async def stored(server: Server) -> dict[str, bytes]:
    """Return what the coordinator holds once it has nothing to do, without its records of who asked."""
    stage = Stage(server, None, "")  # type: ignore[arg-type]  # nothing is called from another thread
    await stage.rest()
    return stage.stored()


@pytest.mark.on_files
async def test_every_signed_request_may_arrive_twice_but_a_download_of_a_sum(
    server: Server, party: Party
) -> None:
    """At once, and again when the round is over: nothing that is stored changes."""
    sent = list[tuple[httpx.Request, httpx.Response]]()
    first = server.client._transport

    class Twice(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            await request.aread()
            answer = await first.handle_async_request(request)
            await answer.aread()
            if "signature" in request.headers:
                before = await stored(server)
                again = await first.handle_async_request(request)
                assert again.status_code in {answer.status_code, 200}, await again.aread()
                assert await stored(server) == before
                sent.append((request, answer))
            return answer

    server.client._transport = Twice()
    await party.play(server, round_id := await party.begun(server))
    await server.tidy(round_id)
    await party.check_result(server, round_id)
    kinds = {(request.method, request.url.path.split("/")[4]) for request, _ in sent}
    assert kinds == {
        ("PUT", "cards"),
        ("GET", "manifest"),
        ("PUT", "pairings"),
        ("GET", "pairings"),
        ("GET", "requests"),
        ("PUT", "uploads"),
        ("POST", "answers"),
    }
    before = await stored(server)
    for request, _ in sent:
        again = await first.handle_async_request(request)
        await again.aread()
        assert again.status_code in {200, 204, 409}, (request.url, again.content)
    assert await stored(server) == before


@pytest.fixture
async def sums(formed: Party, finished: str) -> tuple[Party, str]:
    """The path of a sum that m-0 may read."""
    return formed, f"/v1/rounds/{finished}/result/sums"


async def test_a_sum_is_downloaded_once_with_each_request(server: Server, sums: tuple[Party, str]) -> None:
    """Whoever saw a reader's request gets no sum by it, and leaves no entry in the reader's name."""
    party, path = sums
    once = headers(party, path)
    async with server.anonymous() as client:
        assert (await client.get(path, headers=once)).status_code == 200
        assert refusal(await client.get(path, headers=once)) == (409, "request-replayed")
        entries = (await server.audited(limit=1000)).entries
        assert sum(each.action.startswith("GET ") for each in entries) == 1
        assert (await client.get(path, headers=headers(party, path))).status_code == 200


async def test_a_request_is_known_for_as_long_as_it_would_be_taken(
    tmp_path: Path, party: Party, stores: str
) -> None:
    """A nonce is remembered longer than the signature's lifetime, because the signer's clock may be behind."""
    del stores
    async with running(tmp_path, clock_skew_s=600.0) as server:
        await party.begin(server)
        path = f"/v1/rounds/{await party.done(server)}/result/sums"
        first, second = (headers(party, path, created_s=server.clock() - 400) for _ in range(2))
        async with server.anonymous() as client:
            assert (await client.get(path, headers=first)).status_code == 200
            server.app.state.gate._nonces._looked_s = -DELETE_EVERY_S  # so that the next request looks again
            assert (await client.get(path, headers=headers(party, path))).status_code == 200
            assert refusal(await client.get(path, headers=first)) == (409, "request-replayed")
            assert (await client.get(path, headers=second)).status_code == 200
    async with running(tmp_path, clock_skew_s=600.0) as server:
        assert refusal(await server.anonymous().get(path, headers=second)) == (409, "request-replayed")


class Body:
    """A body that records how much of it was read."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces, self.asked = pieces, 0

    async def __aiter__(self) -> Any:
        for piece in self.pieces:
            self.asked += len(piece)
            yield piece


async def test_a_stranger_s_body_is_not_read(
    server: Server, formed: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    round_id = await formed.open_round(server)
    reads = record_calls(monkeypatch, Request, "stream", lambda request: request.url.path)
    where = f"/v1/rounds/{round_id}/uploads/m-0"
    body = bytes(1000)
    others = headers(formed, where, body, "PUT", who="m-1")
    no_length = headers(formed, where, body, "PUT")
    paths = [
        ("PUT", where, {}),
        ("PUT", where, others),
        ("PUT", f"{where}/chunks/0", {}),
        ("POST", f"/v1/rounds/{round_id}/answers", {}),
        ("POST", f"/v1/rounds/{round_id}/lost", {}),
        ("PUT", f"/v1/federations/{formed.federation}/roster", {}),
        ("PUT", f"/v1/cohorts/{formed.cohort}/cards/m-0", {}),
        ("POST", f"/v1/cohorts/{formed.cohort}/rounds", {"content-type": "application/json"}),
        ("POST", f"/v1/federations/{formed.federation}/cohorts", {"authorization": "Bearer x"}),
    ]
    async with server.anonymous() as client:
        for method, path, extra in paths:
            answer = await client.request(method, path, content=body, headers=extra)
            assert answer.status_code in {401, 403}, (path, answer.text)
        large = {**headers(formed, where, body, "PUT"), "content-length": str(1 << 40)}
        assert refusal(await client.put(where, content=body, headers=large)) == (413, "oversized")
        endless = await client.put(where, content=Body(body), headers=no_length)
        assert refusal(endless) == (400, "malformed-request")
        assert reads == [where], "only the one that is known, and it is cut off by its length"


@pytest.mark.parametrize("size", [4, INLINE_HASH_BYTES + 1], ids=["short", "hashed in a thread"])
async def test_a_body_is_the_one_that_was_signed(server: Server, formed: Party, size: int) -> None:
    round_id = await formed.open_round(server)
    where, body, forged = f"/v1/rounds/{round_id}/uploads/m-0", b"x" * size, b"x" * (size - 1) + b"y"
    async with server.anonymous() as client:
        changed = await client.put(where, content=forged, headers=headers(formed, where, body, "PUT"))
        assert refusal(changed) == (400, "digest-mismatch")
        other = {**headers(formed, where, body, "PUT"), "content-digest": content_digest(forged)}
        assert refusal(await client.put(where, content=forged, headers=other)) == (401, "request-forged")
        none = headers(formed, where, body, "PUT")
        del none["content-digest"]
        assert refusal(await client.put(where, content=body, headers=none)) == (401, "request-unsigned")
        signed = {**headers(formed, where, body, "PUT"), "content-length": str(size)}
        taken = await client.put(where, content=Body(body[:2], body[2:]), headers=signed)
        assert refusal(taken) == (400, "unknown-version"), "it is as it was signed, and no message"


async def test_a_request_has_one_signature(server: Server, formed: Party) -> None:
    """A proxy that checks one of two would let the other pass."""
    where = f"/v1/rounds/{await formed.open_round(server)}/uploads/m-0"
    right, other = (headers(formed, where, body, "PUT") for body in (b"body", b"bodY"))
    async with server.anonymous() as client:
        for name in ("signature", "signature-input", "content-digest"):
            for first, second in ((right, other), (other, right), (right, right)):
                both = [*(right | first).items(), (name, second[name])]
                assert (await client.put(where, content=b"body", headers=both)).status_code == 401, name


async def test_an_answer_is_its_sender_s(server: Server, formed: Party) -> None:
    round_id = await formed.open_round(server)
    # The first phase with answers: it waits for all, while a later one may end by the clock.
    await formed.play_until(server, round_id, "checking")
    asked = await server.client.get(f"/v1/rounds/{round_id}/requests/m-0")
    _, (receipt,) = formed.phases["m-0"].receive(
        parse_message(asked.content), formed.keys["m-0"], server.clock()
    )
    client, where = server.signing("m-1", formed.keys["m-1"]), f"/v1/rounds/{round_id}/answers"
    assert refusal(await client.post(where, content=receipt.to_bytes())) == (403, "forbidden")


async def test_a_coordinator_behind_a_proxy_knows_its_public_address(tmp_path: Path, party: Party) -> None:
    async with running(tmp_path) as server:
        asked = f"/v1/rounds/{await party.begun(server)}/requests/m-0"
        rewritten = {**headers(party, asked, authority="sum.example.org"), "host": "10.0.0.7:8000"}
        answer = await server.anonymous().get(asked, headers=rewritten)
        assert refusal(answer) == (401, "request-forged")
        assert "10.0.0.7:8000" in answer.json()["detail"]
        assert "VEILSUM_PUBLIC_URL" in answer.json()["detail"]
        plain = {**headers(party, asked, authority="sum.example.org"), "host": "SUM.example.org:80"}
        assert (await server.anonymous().get(asked, headers=plain)).status_code == 200
    async with running(tmp_path, public_url="https://Sum.example.org:443/base/") as server:
        public = headers(party, f"/base{asked}", authority="sum.example.org")
        answer = await server.anonymous().get(asked, headers={**public, "host": "10.0.0.7:8000"})
        assert answer.status_code == 200, answer.text
        assert refusal(await server.anonymous().get(asked, headers=headers(party, asked))) == (
            401,
            "request-forged",
        )


async def test_paths_are_looked_at_before_anything_is_looked_up(server: Server, formed: Party) -> None:
    for path in ("/v1/rounds/%00/requests/m-0", f"/v1/cohorts/{'A' * 64}/manifest/m-0"):
        answer = await server.anonymous().get(path, headers=headers(formed, path))
        assert refusal(answer) == (400, "malformed-request")
    path = f"/v1/federations/{'x' * 64}/roster"
    answer = await server.anonymous().put(path, headers=headers(formed, path, method="PUT", who="admin"))
    assert refusal(answer) == (400, "malformed-request")
    path = f"/v1/rounds/{'0' * 16}/requests/m-0"
    assert refusal(await server.anonymous().get(path, headers=headers(formed, path))) == (404, "not-found")


async def test_where_nonces_cannot_be_kept_no_sum_is_sent(
    server: Server, sums: tuple[Party, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> Any:
        raise OperationalError("", {}, Exception("disk full"))

    party, path = sums
    monkeypatch.setattr(server.app.state.gate._nonces, "use_nonce", broken)
    assert refusal(await server.anonymous().get(path, headers=headers(party, path))) == (503, "unavailable")
