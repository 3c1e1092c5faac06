"""Uploads, answers and waiting: messages sent twice, too early, too late or different from their announcement."""

import asyncio
import json
import re
import time
from typing import Any

import httpx
import pytest
from sqlalchemy import func, select

from service.access.bodies import Room
from service.coordination.summing import chunk_name
from service.storage.tables import events
from tests.support.party import Party
from tests.support.refusals import refusal
from tests.support.serving import Server
from veilsum.protocol import rest
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.messages import Freeze, Roster, Vote, parse_message
from veilsum.protocol.request_signature import RequestSignature, Target, content_digest
from veilsum.protocol.rest import STATE_HEADER, VERSION_HEADER
from veilsum.protocol.tags import PROTOCOL_VERSION


async def count(server: Server) -> int:
    return int(await server.coordinator.database.read_value(select(func.count()).select_from(events)))


@pytest.fixture
async def round_id(server: Server, formed: Party) -> str:
    round_id = await formed.open_round(server)
    await formed.seal_all(server, round_id)
    return round_id


async def put_chunk(server: Server, round_id: str, member: str, index: int, data: bytes) -> Any:
    return await server.client.put(f"/v1/rounds/{round_id}/uploads/{member}/chunks/{index}", content=data)


async def test_the_same_upload_twice_changes_nothing(server: Server, formed: Party, round_id: str) -> None:
    where, chunks = f"/v1/rounds/{round_id}/uploads/m-0", formed.chunks["m-0"]
    assert refusal(await put_chunk(server, round_id, "m-0", 0, chunks[0])) == (422, "chunk-unknown")
    assert refusal(await server.client.get(where)) == (422, "chunk-unknown")
    first = await formed.announce(server, round_id, "m-0")
    assert first.json() == {"member": "m-0", "chunks": len(chunks), "missing": list(range(len(chunks)))}
    again = await formed.announce(server, round_id, "m-0")
    assert (again.status_code, again.json(), await count(server)) == (200, first.json(), 1)
    foreign = f"/v1/rounds/{round_id}/uploads/m-1"
    answer = await server.client.put(foreign, content=formed.upload_of("m-0"))
    assert refusal(answer) == (400, "malformed-request")
    await put_chunk(server, round_id, "m-0", 1, chunks[1])
    again = await put_chunk(server, round_id, "m-0", 1, chunks[1])
    assert (again.status_code, await count(server)) == (200, 2)
    assert (await server.client.get(where)).json()["missing"] == [0, *range(2, len(chunks))]
    assert refusal(await put_chunk(server, round_id, "m-0", 0, chunks[1])) == (422, "chunk-mismatch")
    assert refusal(await put_chunk(server, round_id, "m-0", 0, chunks[0][:-1])) == (422, "chunk-mismatch")
    assert await count(server) == 2


async def test_other_bytes_for_a_stored_chunk_leave_what_their_sender_signed(
    server: Server, formed: Party, round_id: str
) -> None:
    """The roster and the log show that m-0's key sent them, however long its signature's lifetime."""
    path, chunks = f"/v1/rounds/{round_id}/uploads/m-0", formed.chunks["m-0"]
    await formed.announce(server, round_id, "m-0")
    await put_chunk(server, round_id, "m-0", 1, chunks[1])
    where = f"{path}/chunks/{'0' * 300}1?{'q' * 600}"
    other = await server.client.put(where, content=chunks[0])
    assert (other.status_code, other.json()["cause"], other.json()["parties"]) == (409, "conflict", ["m-0"])
    assert (await put_chunk(server, round_id, "m-0", 1, chunks[1])).status_code == 200
    stored = chunk_name(round_id, "m-0", 1)
    assert server.coordinator.blobs.get(stored) == chunks[1]
    entries = (await server.client.get("/v1/audit")).json()["entries"]
    [entry] = [each for each in entries if each["outcome"] == "conflict"]
    assert entry["who"] == "member m-0"
    found = re.search(
        r" authority=(\S+) path=(\S+) content-digest=(\S+) signature-input=(.+) signature=(\S+)$", entry["on"]
    )
    assert found
    authority, whole, digest, given, signature = found.groups()
    assert digest == content_digest(chunks[0])
    assert whole == where
    target = Target("PUT", authority, *whole.split("?"))
    RequestSignature.parse(given, signature).verify(formed.keys["m-0"].public, target, digest)


async def test_the_last_chunk_again_after_the_round_moved_on(
    server: Server, formed: Party, round_id: str
) -> None:
    """Its answer may have been lost. The member gets the same answer again, until the phase forgets the upload."""
    for member in formed.ids:
        await formed.serve(server, round_id, member)
    view = await server.view(round_id)
    assert view["state"] == "checking"
    last = len(formed.chunks["m-3"]) - 1
    for state in ("checking", "freezing", "revealing"):
        await formed.play_until(server, round_id, state)
        before = await count(server)
        again = await put_chunk(server, round_id, "m-3", last, formed.chunks["m-3"][last])
        asked = await server.client.get(f"/v1/rounds/{round_id}/requests/m-3")
        assert (again.status_code, again.content) == (asked.status_code, asked.content)
        assert refusal(await put_chunk(server, round_id, "m-3", last, b"other")) == (409, "conflict")
        upload = await formed.announce(server, round_id, "m-3")
        assert upload.status_code == 200
        assert await count(server) == before
    assert refusal(await put_chunk(server, round_id, "m-3", last + 1, b"x")) == (409, "wrong-phase")
    upload_bytes = formed.upload_of("m-3")
    await formed.play(server, round_id)
    answer = await put_chunk(server, round_id, "m-3", last, formed.chunks["m-3"][last])
    assert refusal(answer) == (409, "wrong-phase")
    late = await server.client.put(f"/v1/rounds/{round_id}/uploads/m-3", content=upload_bytes)
    assert refusal(late) == (409, "wrong-phase")


async def test_concurrent_copies_of_a_chunk_are_counted_once(
    server: Server, formed: Party, round_id: str
) -> None:
    await formed.announce(server, round_id, "m-0")
    answers = await asyncio.gather(
        *(put_chunk(server, round_id, "m-0", 0, formed.chunks["m-0"][0]) for _ in range(12))
    )
    assert {answer.status_code for answer in answers} == {200}
    assert await count(server) == 2
    assert (await server.view(round_id))["version"] == 3


async def test_a_chunk_is_answered_once_its_member_is_asked_something_new(
    server: Server, formed: Party, round_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By then the chunk counts, the audit log has it, and its memory is free."""
    monkeypatch.setattr(Room, "SMALL", 0)
    where, chunks = f"/v1/rounds/{round_id}/uploads/m-0", formed.chunks["m-0"]
    await formed.announce(server, round_id, "m-0")
    for index in range(last := len(chunks) - 1):
        assert (await put_chunk(server, round_id, "m-0", index, chunks[index])).status_code == 200
    waits = {"after": 1, "wait_s": 20}
    waiting = asyncio.create_task(
        server.client.put(f"{where}/chunks/{last}", content=chunks[last], params=waits)
    )
    noted: list[Any] = []
    while not noted:
        entries = (await server.client.get("/v1/audit")).json()["entries"]
        noted = [each for each in entries if f"index={last}" in each["on"]]
    assert (await server.view(round_id))["uploaded"] == ["m-0"]
    assert (waiting.done(), server.app.state.room._taken) == (False, 0)
    for member in formed.ids[1:]:
        await formed.serve(server, round_id, member)
    answer, asked = await waiting, await server.client.get(f"/v1/rounds/{round_id}/requests/m-0")
    assert (answer.status_code, answer.content) == (200, asked.content)
    assert {each.headers[STATE_HEADER] for each in (answer, asked)} == {"checking"}
    assert answer.headers[rest.VERSION_HEADER] == asked.headers[rest.VERSION_HEADER]


async def test_answers_twice_and_otherwise(server: Server, formed: Party, round_id: str) -> None:
    await formed.play_until(server, round_id, "freezing")
    asked = await server.client.get(f"/v1/rounds/{round_id}/requests/m-0")
    formed.phases["m-0"], (vote,) = formed.phases["m-0"].receive(
        parse_message(asked.content), formed.keys["m-0"], time.time()
    )
    where = f"/v1/rounds/{round_id}/answers"
    first = await server.client.post(where, content=vote.to_bytes())
    events_before = await count(server)
    again = await server.client.post(where, content=vote.to_bytes())
    assert (again.status_code, again.content) == (first.status_code, first.content) == (204, b"")
    assert {first.headers[STATE_HEADER], again.headers[STATE_HEADER]} == {"freezing"}
    assert await count(server) == events_before
    context = bytes.fromhex((await server.view(round_id))["context"])
    other = Vote.make_signed(formed.keys["m-0"], context=context, member="m-0", outcome=bytes(32))
    for _ in range(2):
        answer = await server.client.post(where, content=other.to_bytes())
        assert refusal(answer) == (409, "already-voted")
    assert await count(server) == events_before + 1  # it proves m-0 false: kept, and once
    other = Vote.make_signed(formed.keys["m-1"], context=bytes(32), member="m-1", outcome=bytes(32))
    answer = await server.client.post(where, content=other.to_bytes())
    assert refusal(answer) == (409, "wrong-context")
    forged = Vote.make_signed(formed.keys["m-2"], context=context, member="m-1", outcome=bytes(32))
    answer = await server.client.post(where, content=forged.to_bytes())
    assert refusal(answer) == (422, "bad-signature")
    answer = await server.client.post(where, content=formed.upload_of("m-1"))
    assert refusal(answer) == (400, "unknown-message")
    for kind, expected in ((Roster.kind, "unknown-message"), (Vote.kind, "truncated")):
        cut = await server.signing("m-1", formed.keys["m-1"]).post(
            where, content=bytes((PROTOCOL_VERSION, kind))
        )
        assert cut.json()["cause"] == expected, "what is not sent to coordinators is not read"
    assert await count(server) == events_before + 1


async def test_a_member_of_another_cohort_is_asked_nothing(server: Server, round_id: str) -> None:
    answer = await server.signing("stranger", SigningKey(bytes(32))).get(
        f"/v1/rounds/{round_id}/requests/stranger"
    )
    assert (answer.status_code, answer.json()["parties"]) == (403, ["stranger"])


async def test_a_long_poll_ends_at_a_change_and_at_its_time(
    server: Server, formed: Party, round_id: str
) -> None:
    where = f"/v1/rounds/{round_id}"
    assert (await server.client.get(where, params={"wait_s": 5})).json()["version"] == 1
    started = time.monotonic()
    assert (await server.client.get(where, params={"after": 1, "wait_s": 0.2})).json()["version"] == 1
    assert 0.15 < time.monotonic() - started < 2
    waiting = [
        asyncio.create_task(server.client.get(path, params={"after": 1, "wait_s": wait_s}))
        for path, wait_s in ((where, 20), (f"{where}/requests/m-0", 0.5))
    ]
    await asyncio.sleep(0.05)
    await formed.serve(server, round_id, "m-1")
    view, asked = await asyncio.gather(*waiting)
    assert view.json()["version"] == 2
    assert asked.status_code == 200
    assert int(asked.headers[rest.VERSION_HEADER]) >= 2  # at its time: nothing new is asked
    for member in formed.ids:
        await formed.serve(server, round_id, member)
    await formed.serve(server, round_id, "m-0")
    nothing = await server.client.get(f"{where}/requests/m-0")
    assert (nothing.status_code, nothing.content) == (204, b"")
    assert int(nothing.headers[rest.VERSION_HEADER]) == (await server.view(round_id))["version"]


async def test_the_stream_of_a_round_tells_every_change_until_the_end(
    server: Server, formed: Party, round_id: str
) -> None:
    stream = asyncio.create_task(server.client.get(f"/v1/rounds/{round_id}/events"))
    await asyncio.sleep(0.05)
    end = await formed.play(server, round_id)
    answer = await asyncio.wait_for(stream, 10)
    assert answer.headers["content-type"].startswith("text/event-stream")
    views = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]
    versions = [view["version"] for view in views]
    assert versions == sorted(set(versions))
    assert views[-1] == end
    states = list(dict.fromkeys(view["state"] for view in views))
    assert states[0] == "collecting"
    assert states[-1] == "done"
    assert len(states) >= 4
    assert [line[4:] for line in answer.text.splitlines() if line.startswith("id: ")] == list(
        map(str, versions)
    )
    again = await server.client.get(f"/v1/rounds/{round_id}/events")
    assert again.text.count("data: ") == 1


async def test_nothing_about_what_is_summed_can_be_asked_for(server: Server, formed: Party) -> None:
    for field in ("statistic", "dim", "parameters", "noise", "windows", "withheld"):
        assert refusal(await formed.try_round(server, **{field: 1})) == (400, "malformed-request"), field


async def posts(server: Server) -> list[dict[str, Any]]:
    entries = (await server.client.get("/v1/audit")).json()["entries"]
    return [entry for entry in entries if entry["action"] == f"POST {rest.ANSWERS_PATH}"]


async def test_an_answer_waits_for_what_is_asked_next(server: Server, formed: Party, round_id: str) -> None:
    """A receipt's own request returns the proposal, and is in the audit log before."""
    await formed.play_until(server, round_id, "checking")
    where = f"/v1/rounds/{round_id}/answers"

    async def send(member: str) -> httpx.Response:
        asked = await server.client.get(f"/v1/rounds/{round_id}/requests/{member}")
        formed.phases[member], (receipt,) = formed.phases[member].receive(
            parse_message(asked.content), formed.keys[member], time.time()
        )
        params = {"after": asked.headers[VERSION_HEADER], "wait_s": "30"}
        return await server.signing(member, formed.keys[member]).post(
            where, content=receipt.to_bytes(), params=params
        )

    first, *others = formed.ids
    waiting = asyncio.create_task(send(first))
    while f"member {first}" not in {entry["who"] for entry in await posts(server)}:  # noqa: ASYNC110 - storage rings no bell
        await asyncio.sleep(0.01)
    assert not waiting.done()
    answers = [*await asyncio.gather(*map(send, others)), await waiting]
    assert {type(parse_message(answer.content)) for answer in answers} == {Freeze}
