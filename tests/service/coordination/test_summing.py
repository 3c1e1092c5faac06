"""Uploads are added as they arrive, in memory or from storage, by any process, and nothing is added twice."""

import asyncio
import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from sqlalchemy import insert, select

from service.coordination import summing
from service.coordination.summing import DamagedRangeError, Memory, Summing, chunk_name
from service.storage.tables import sums
from tests.support.calls import record_calls
from tests.support.forging import complaining
from tests.support.party import Party
from tests.support.refusals import refused
from tests.support.serving import Server, carry_out, wait_until
from tests.support.simulator import Federation
from veilsum.protocol import round_spec
from veilsum.protocol.coordinator import Recovered
from veilsum.protocol.packing import Buffer, PackingError, add_packed, unpack_words
from veilsum.protocol.ring import Words

RECORDS = {"least": 300, "most": 500, "least_per_class": 5, "rows_per_id": 1}


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write ranges at every second upload that is only in storage."""
    monkeypatch.setattr(summing, "STORED_UPLOADS_MIN", 2)


async def kept(server: Server) -> dict[int, tuple[str, bool]]:
    rows = await server.coordinator.database.read_rows(select(sums))
    return {row.part: (row.members, row.done) for row in rows}


def no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Memory, "take_bytes", lambda *_: False)


def room_for(server: Server, size: int, monkeypatch: pytest.MonkeyPatch) -> Memory:
    """Limit the memory of running sums to this many free bytes."""
    memory = server.coordinator.catalogue.memory
    monkeypatch.setattr(memory, "_free", size)
    return memory


def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record whose chunks are read from storage."""
    return record_calls(monkeypatch, summing, "read_chunk", lambda _blobs, _name, member, *_: member)


async def test_uploads_are_added_up_while_others_are_still_to_come(
    server: Server, formed: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From storage, if memory has no room."""
    no_memory(monkeypatch)
    round_id = await formed.open_round(server)
    for member in formed.ids[:2]:
        await formed.serve(server, round_id, member)
    parts = server.live(round_id).summing.parts
    assert len(parts) > 1
    added = dict.fromkeys(parts, ('["m-0", "m-1"]', False))
    async with asyncio.timeout(10):
        while await kept(server) != added:  # noqa: ASYNC110 - no event to await
            await asyncio.sleep(0.02)
        # What a range had before is deleted once its row names the next.
        await wait_until(lambda: len(server.coordinator.blobs.list_names(f"sums/{round_id}")) == len(parts))
    assert (await formed.play(server, round_id))["state"] == "done"
    await formed.check_result(server, round_id)
    await server.tidy(round_id)
    assert await kept(server) == {}
    assert server.coordinator.blobs.list_names("sums") == ()


async def test_what_is_added_as_it_arrives_is_not_read_again(
    server: Server, formed: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = room_for(server, 1 << 20, monkeypatch)
    read = reads(monkeypatch)
    round_id = await formed.open_round(server)
    await formed.serve(server, round_id, "m-0")
    again = server.coordinator.blobs.get(chunk_name(round_id, "m-0", 0))
    server.live(round_id).summing.take_chunk("m-0", 0, b"", again)
    assert (await formed.play(server, round_id))["state"] == "done"
    assert read == []
    await formed.check_result(server, round_id)
    assert held.take_bytes(1 << 20)  # all of it is given back


async def test_memory_is_given_back_when_a_round_is_given_up(
    server: Server, formed: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = room_for(server, 1 << 20, monkeypatch)
    round_id = await formed.open_round(server)
    await formed.serve(server, round_id, "m-0")
    found = server.live(round_id).summing
    assert not held.take_bytes(1 << 20)
    await server.coordinator.catalogue.rounds[round_id].cancel(server.coordinator.now(), "no more")
    assert (await formed.play(server, round_id))["ended"]
    found.take_chunk("m-0", 0, b"", b"")  # its request was slow
    assert held.take_bytes(1 << 20)


async def test_a_running_sum_takes_the_bytes_of_its_range(server: Server, formed: Party) -> None:
    round_id = await formed.open_round(server)
    await formed.serve(server, round_id, "m-0")
    here, attempt = server.coordinator, server.live(round_id).attempt
    sizes = [attempt.chunk_elements(part) * attempt.ring.itemsize for part in range(2)]
    memory = Memory(sum(sizes) - 1)
    found = Summing(here.database, here.blobs, memory, round_id, attempt)
    for part in range(2):
        chunk = formed.chunks["m-0"][part]
        found.take_chunk("m-0", part, hashlib.sha256(chunk).digest(), chunk)
    added = [found.missing_uploads(part, 0) - summing.STORED_UPLOADS_MIN for part in range(2)]
    assert added == [1, 0]
    assert not memory.take_bytes(sizes[1])
    assert memory.take_bytes(sizes[1] - 1)
    found.discard_running()
    assert memory.take_bytes(sizes[0])
    assert not memory.take_bytes(1)


async def test_a_chunk_that_was_added_by_half_is_never_in_a_sum(
    server: Server, formed: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its running sum is dropped, with the chunks of others, which are read again from storage."""
    held = room_for(server, 1 << 20, monkeypatch)
    round_id = await formed.open_round(server)
    await formed.serve(server, round_id, "m-0")
    formed.seal("m-1", await server.opening(round_id, "m-1"), now_s=formed.now(server))
    found, chunk = server.live(round_id).summing, formed.chunks["m-1"][0]

    def half(total: Words, data: Buffer, bits: int) -> None:
        add_packed(total, data, bits)
        total[-1:] -= unpack_words(data, bits, total.size)[-1:]
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(summing, "add_packed", half)
        found.take_chunk("m-1", 0, hashlib.sha256(chunk).digest(), chunk)
    read = reads(monkeypatch)
    assert (await formed.play(server, round_id))["state"] == "done"
    await formed.check_result(server, round_id)
    assert set(read) == {"m-0"}
    assert held.take_bytes(1 << 20)


@pytest.mark.usefixtures("six")
@pytest.mark.parametrize("room", [1 << 20, 0])
async def test_who_is_not_certified_is_taken_off_again(
    server: Server, formed: Party, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sums contain all six when two members complain about one, and no chunk of the others is read again."""
    room_for(server, room, monkeypatch)
    formed.tamper = complaining(formed, dict.fromkeys(("m-4", "m-5"), ("m-1",)))
    round_id = await formed.open_round(server)
    for member in formed.ids:
        await formed.serve(server, round_id, member)
    parts = server.live(round_id).summing.parts
    async with asyncio.timeout(10):
        stored = {} if room else dict.fromkeys(parts, (json.dumps(list(formed.ids)), False))
        while await kept(server) != stored:  # noqa: ASYNC110 - no event to await
            await asyncio.sleep(0.02)
    read = reads(monkeypatch)
    view = await formed.play(server, round_id)
    assert (view["state"], view["survivors"]) == ("done", ["m-0", "m-2", "m-3", "m-4", "m-5"])
    assert set(read) == {"m-1"}
    await formed.check_result(server, round_id)


@pytest.mark.usefixtures("six")
async def test_a_running_sum_without_the_chunk_of_a_dropout_is_made_anew(
    server: Server, formed: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The missing chunk can't be subtracted, so all others are read."""
    formed.tamper = complaining(formed, dict.fromkeys(("m-4", "m-5"), ("m-1",)))
    round_id = await formed.open_round(server)
    await formed.play_until(server, round_id, "checking")
    server.coordinator.blobs.delete(f"uploads/{round_id}/m-1")
    read = reads(monkeypatch)
    view = await formed.play(server, round_id)
    assert (view["state"], "m-1" in view["survivors"]) == ("done", False)
    assert set(read) == set(formed.ids)
    await formed.check_result(server, round_id)


async def test_a_late_writer_changes_nothing(
    server: Server, formed: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_memory(monkeypatch)
    round_id = await formed.open_round(server)
    for member in formed.ids[:2]:
        await formed.serve(server, round_id, member)
    found = server.live(round_id).summing
    while len(await kept(server)) < len(found.parts):  # noqa: ASYNC110 - no event to await
        await asyncio.sleep(0.02)
    before = await kept(server)
    stale = summing.Kept(blob="0-gone", members=("m-0",))
    assert not await found._exchange_row(0, stale, summing.Kept(blob="0-late", members=("m-0", "m-1", "m-3")))
    assert not await found._exchange_row(0, summing.Kept(), summing.Kept(blob="0-late"))
    assert await kept(server) == before
    assert (await formed.play(server, round_id))["state"] == "done"
    assert not await found._exchange_row(0, summing.Kept(), summing.Kept(blob="0-late"))


async def test_a_chunk_that_another_process_has_added_is_not_added_again(
    server: Server, formed: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And of two that write a range at once, or one after another, the range that no row names is deleted."""
    monkeypatch.setattr(summing, "STORED_UPLOADS_MIN", 1)
    round_id = await formed.open_round(server)
    for member in formed.ids[:3]:
        await formed.serve(server, round_id, member)
    here, round_ = server.coordinator, server.live(round_id)
    standing = round_.standing
    assert standing is not None
    uploaded = {member: standing.announced[member] for member in standing.uploaded}
    two = {member: uploaded[member] for member in formed.ids[:2]}
    other, late = (Summing(here.database, here.blobs, Memory(0), round_id, round_.attempt) for _ in range(2))
    for part in other.parts:
        assert other.missing_uploads(part, 3) == 1 - 3
        await asyncio.gather(*(each.add_stored(part, two) for each in (other, late)))
        assert (await kept(server))[part] == ('["m-0", "m-1"]', False)
        await other.add_stored(part, uploaded)
        assert other.missing_uploads(part, 3) == 1
        assert len(here.blobs.list_names(f"sums/{round_id}")) == part + 1
    assert set((await kept(server)).values()) == {('["m-0", "m-1", "m-2"]', False)}
    assert (await formed.play(server, round_id))["state"] == "done"
    await formed.check_result(server, round_id)


async def test_a_range_of_the_sum_that_was_found_damaged_is_forgotten(server: Server, formed: Party) -> None:
    round_id = await formed.open_round(server)
    here, row = server.coordinator, {"round": round_id, "members": "[]", "done": True}
    rows = [row | {"part": part, "blob": f"{part}-x"} for part in range(2)]
    await carry_out(here.database, insert(sums).values(rows))
    found = Summing(here.database, here.blobs, Memory(0), round_id, server.live(round_id).attempt)
    for part in range(2):
        here.blobs.put(f"sums/{round_id}/{part}-x", b"")
        await found.add_stored(part, {})
    assert found.unmasked == {0, 1}
    await found.begin_again(DamagedRangeError(0, summing.Kept("0-x", done=True)))
    assert (found.unmasked, await kept(server)) == ({1}, {1: ("[]", True)})
    assert here.blobs.list_names(f"sums/{round_id}") == ("1-x",)
    await found.begin_again(DamagedRangeError(1, summing.Kept("1-late", done=True)))
    assert await kept(server) == {1: ("[]", True)}, "another process has made it again"


async def test_a_chunk_that_is_packed_wrongly_is_its_member_s_fault(
    server: Server, formed: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_memory(monkeypatch)
    round_id = await formed.open_round(server)
    await formed.serve(server, round_id, "m-0")
    here, round_ = server.coordinator, server.live(round_id)
    assert round_.standing is not None
    monkeypatch.setattr(summing, "STORED_UPLOADS_MIN", 1)

    def misread(*_: object) -> None:
        raise PackingError("x")

    monkeypatch.setattr(summing, "add_packed", misread)
    found = Summing(here.database, here.blobs, Memory(0), round_id, round_.attempt)
    with refused("chunk-mismatch", "m-0"):
        await found.add_stored(0, {"m-0": round_.standing.announced["m-0"]})


async def test_a_range_is_not_begun_again_once_the_round_has_ended(
    server: Server, formed: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows are deleted then; a process that looked at the round just before the end finds none."""
    round_id = await formed.open_round(server)
    found = server.live(round_id).summing
    unmasked = record_calls(monkeypatch, Summing, "unmask_range", lambda *arguments: arguments[-1])
    assert (await formed.play(server, round_id))["state"] == "done"
    await server.tidy(round_id)
    for part in found.parts:
        await found.unmask_range(part, unmasked[0])
        await found.add_stored(part, unmasked[0].uploads)
    assert await found.sum_pieces() is None
    assert server.coordinator.blobs.list_names("sums") == ()


def test_a_checksum_covers_a_range_s_numbers_and_its_row() -> None:
    row, numbers = summing.Kept("0-a", ("m-0",)), bytes(16)
    blob = row.compute_checksum(numbers) + numbers
    assert row.has_range(blob)
    assert not row.has_range(blob[:-1] + b"\1")
    others = replace(row, blob="0-b"), replace(row, members=("m-1",)), replace(row, done=True)
    assert not any(other.has_range(blob) for other in others)


def test_ranges_are_unmasked_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the threads of one process, each with its own stream of masks."""
    monkeypatch.setattr(round_spec, "CHUNK_ELEMENTS", 1 << 12)
    federation = Federation(4, question={"dim": 300, "ring_bits": 48, "records": RECORDS})
    federation.begin()
    recovered = federation.run_until()
    assert isinstance(recovered, Recovered)
    ring = recovered.attempt.ring

    def unmasked(index: int) -> npt.NDArray[np.int64]:
        total = np.zeros(recovered.attempt.chunk_elements(index), ring.dtype)
        for member in recovered.summed_members:
            add_packed(total, federation.spool[member, index], ring.bits)
        return recovered.prepare_unmasking().unmask_chunk(index, total)

    with ThreadPoolExecutor(8) as threads:
        chunks = tuple(threads.map(unmasked, range(recovered.attempt.chunk_count)))
    plain = np.sum([federation.vectors_now[member] for member in recovered.summed_members], axis=0)
    np.testing.assert_array_equal(np.concatenate(chunks), plain)
