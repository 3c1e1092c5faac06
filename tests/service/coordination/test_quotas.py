"""The disk space of a member, and of a round, is limited by the signed terms, whatever is sent."""

import obstore
from sqlalchemy import func, select

from service.storage.objects import ObjectBlobs
from service.storage.tables import events, rounds
from tests.support.party import Party
from tests.support.refusals import refusal
from tests.support.serving import Server

EVENT_BYTES = 64
"""Bytes of a stored chunk's event: its owner and its index."""


def stored(server: Server, folder: str) -> int:
    """Return the bytes of files or objects below a folder of blobs."""
    blobs = server.coordinator.blobs
    if isinstance(blobs, ObjectBlobs):
        return sum(each["size"] for page in obstore.list(blobs._store, folder) for each in page)
    lying = (server.folder / "blobs" / folder).rglob("*")
    return sum(path.stat().st_size for path in lying if path.is_file())


async def events_bytes(server: Server) -> int:
    return int(
        await server.coordinator.database.read_value(select(func.sum(func.length(events.c.body)))) or 0
    )


async def test_a_member_stores_what_it_announced_and_not_a_byte_more(server: Server, formed: Party) -> None:
    round_id = await formed.open_round(server)
    opening = await server.opening(round_id, "m-0")
    other = formed.copy()
    formed.seal("m-0", opening)
    other.seal("m-0", opening)  # another upload of the same member, whose masks differ
    where, chunks = f"/v1/rounds/{round_id}/uploads/m-0", formed.chunks["m-0"]
    announcement = formed.upload_of("m-0")
    attempt = server.coordinator.catalogue.rounds[round_id].attempt
    most = sum(
        attempt.ring.packed_bytes(attempt.chunk_elements(index)) for index in range(attempt.chunk_count)
    )
    statuses = set()
    for _ in range(2):
        for body in (announcement, other.upload_of("m-0"), announcement + b"more"):
            sent = await server.client.put(where, content=body)
            statuses.add((sent.status_code, sent.json()["cause"]) if sent.is_error else None)
        for index in range(attempt.chunk_count + 1):
            data = chunks[index % len(chunks)]
            for body in (data + b"more", data[:-1], other.chunks["m-0"][index % len(chunks)], data):
                sent = await server.client.put(f"{where}/chunks/{index}", content=body)
                statuses.add((sent.status_code, sent.json()["cause"]) if sent.is_error else None)
    assert statuses == {
        None,
        (409, "upload-conflict"),
        (400, "left-over-bytes"),
        (422, "chunk-mismatch"),
        (422, "chunk-unknown"),
        (409, "conflict"),
    }
    assert stored(server, "uploads") == most
    # Its announcement, once; what proves that it has sent another, once; and a word for each chunk.
    assert await events_bytes(server) <= 2 * len(announcement) + attempt.chunk_count * EVENT_BYTES


async def test_rounds_that_nobody_uses_leave_no_more_than_their_transcripts(
    server: Server, formed: Party
) -> None:
    for count in range(1, 4):
        round_id = await formed.open_round(server)
        assert (stored(server, "uploads"), await events_bytes(server)) == (0, 0)
        assert refusal(await formed.try_round(server)) == (409, "conflict")
        opening = await server.opening(round_id, "m-0")
        for member in formed.ids:
            formed.seal(member, opening)
        await server.cancel(round_id)
        assert (await formed.play(server, round_id))["state"] == "voided"
        await server.tidy(round_id)
        assert await server.coordinator.database.read_value(select(func.count()).select_from(rounds)) == count
        transcripts = [
            len(each.documents.fetch_transcript())
            for each in server.coordinator.catalogue.rounds.snapshot().values()
        ]
        assert stored(server, "") == stored(server, "transcripts") == sum(transcripts)
        assert await events_bytes(server) == 0
