"""Hostile callers: with invented keys, without reading answers, with two lengths."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi import Request
from sqlalchemy import func, select

from service.access.bodies import Room
from service.access.gate import check_digest
from service.routes import common
from service.storage.tables import audit, nonces
from tests.support.refusals import refused
from tests.support.serving import TOKEN, Server, few, running, wait_until
from veilsum.protocol.identity import SigningKey

Message = dict[str, Any]


async def rows(server: Server) -> tuple[int, int]:
    counts = [
        await server.coordinator.database.read_value(select(func.count()).select_from(table))
        for table in (nonces, audit)
    ]
    return counts[0], counts[1]


async def test_whoever_makes_a_key_up_is_a_stranger(tmp_path: Path) -> None:
    async with running(tmp_path, limits=few(3)) as server:
        before, answers = await rows(server), []
        for number in range(1, 6):
            key = SigningKey(bytes([number]) * 32)
            async with server.signing("admin", key) as stranger:
                answers.append(
                    await stranger.put(f"/v1/federations/{key.public.hex()}/roster", content=b"x" * 100)
                )
        assert [answer.status_code for answer in answers] == [401, 401, 401, 429, 429]
        assert answers[0].json()["cause"] == "unauthorised"
        assert await rows(server) == before
        assert "operator's token" in answers[0].json()["detail"]


class Deaf:
    """A client that sends a whole request and reads nothing of the answer."""

    def __init__(self, server: Server, method: str, path: str, body: bytes = b"") -> None:
        self._app, self._body, self.said = server.app, body, list[Message]()
        self._asked = False
        headers = [
            (b"host", b"x"),
            (b"authorization", f"Bearer {TOKEN}".encode()),
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
        ]
        self._scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": headers,
            "scheme": "http",
            "http_version": "1.1",
            "client": ("127.0.0.1", 1),
            "server": ("x", 80),
            "root_path": "",
        }

    async def _receive(self) -> Message:
        if self._asked:
            await asyncio.Event().wait()
        self._asked = True
        return {"type": "http.request", "body": self._body, "more_body": False}

    async def _send(self, message: Message) -> None:
        self.said.append(message)
        if message["type"] == "http.response.body":
            await asyncio.Event().wait()

    async def until_answered(self, look: Callable[[], Awaitable[None]]) -> None:
        """Wait while the answer isn't read."""
        task = asyncio.create_task(self._app(self._scope, self._receive, self._send))
        await wait_until(lambda: len(self.said) >= 2)
        try:
            await look()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_who_takes_no_answer_keeps_no_room(tmp_path: Path) -> None:
    async with running(tmp_path) as server:
        room: Room = server.app.state.room
        client = Deaf(server, "POST", f"/v1/federations/{'00' * 32}/cohorts", b"x" * 2 * Room.SMALL)

        async def look() -> None:
            assert client.said[0]["status"] == 400
            assert room._taken == 0

        await client.until_answered(look)


async def test_a_document_that_nobody_takes_is_one_piece_in_memory_and_counts(
    server: Server, finished: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(common, "READ_PIECE_BYTES", 64)  # so that it is a large one
    for path in (f"/v1/rounds/{finished}/{what}" for what in ("result/weights", "transcript", "result/sums")):
        answer = await server.client.get(path)
        assert (answer.status_code, int(answer.headers["content-length"])) == (200, len(answer.content))
        client = Deaf(server, "GET", path)

        async def look(client: Deaf = client) -> None:
            assert client.said[0]["status"] == 200
            assert client.said[1]["more_body"]
            assert set(server.app.state.limits._under_way.values()) == {1}

        await client.until_answered(look)
        assert server.app.state.limits._under_way.total() == 0


async def test_two_lengths_of_a_signed_body_are_refused() -> None:
    headers = [(b"content-length", b"1"), (b"transfer-encoding", b"chunked")]
    with refused("malformed-request", ...):
        await check_digest(Request({"type": "http", "method": "PUT", "headers": headers}))
