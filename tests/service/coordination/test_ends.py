"""Other ends of a round than the sum of all members: disputes, evictions, erasure, LOST, and what follows."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.service.conftest import Past
from tests.support.party import FOUR, Party
from tests.support.refusals import refusal
from tests.support.serving import Clock, Server, running, snapshot, wait_until
from tests.support.simulator import After
from veilsum.protocol import rest
from veilsum.protocol.evidence import check_proof
from veilsum.protocol.messages import Certificate, Chain, Erasure, ErasureRequest, Evictions, parse_message


async def overdue(server: Server, party: Party) -> str:
    """A round past its latest end: two of four decryptors vanished after their receipts, and the others have reported."""
    party.drop = dict.fromkeys(("m-2", "m-3"), After.RECEIPT)
    round_id = await party.open_round(server)
    view = await party.play(server, round_id)
    assert (view["state"], view["ended"], view["fault"]["cause"]) == ("erasing", False, "quorum-lost")
    return round_id


async def test_an_overdue_round_ends_once_enough_decryptors_have_reported(
    server: Server, formed: Party
) -> None:
    round_id = await overdue(server, formed)
    view = await server.view(round_id)
    assert (view["reported"], view["waiting_for"]) == (["m-0", "m-1"], ["m-2", "m-3"])
    assert view["reports_min"] == 3
    refused = await formed.try_round(server)
    assert refusal(refused) == (409, "conflict")
    assert all(each in refused.json()["detail"] for each in (round_id, "2 of 3", "m-2, m-3"))
    answer = await server.cancel(round_id)
    assert refusal(answer) == (409, "wrong-phase")
    assert refusal(await server.client.get(f"/v1/contexts/{view['context']}/closing")) == (409, "wrong-phase")
    formed.drop = {}
    ended = await formed.play(server, round_id)
    assert (ended["state"], ended["ended"]) == ("erased", True)
    closing = await server.client.get(f"/v1/contexts/{view['context']}/closing")
    assert isinstance(parse_message(closing.content), Erasure)
    chain = await server.client.get(f"/v1/federations/{formed.federation}/chain")
    [link] = Chain.from_bytes(chain.content).links
    assert (link.reason, link.context.hex(), link.spends_records) == ("erased", ended["context"], False)
    # Nothing was opened: the same records are summed in the next sequence.
    following = await formed.open_round(server)
    view = await formed.play(server, following)
    assert (view["state"], view["sequence"], view["attempt"]) == ("done", "1", 0)
    await server.tidy(round_id)
    assert server.coordinator.blobs.list_names("uploads") == ()


async def test_the_uploads_of_an_overdue_round_are_deleted_once(server: Server, formed: Party) -> None:
    """Not again at each report, and once more at the end."""
    garbage = server.coordinator.jobs.garbage

    async def deletions() -> int:
        await wait_until(lambda: not garbage.rounds)
        entries = (await server.client.get("/v1/audit")).json()["entries"]
        return sum(each["action"] == "uploads deleted" for each in entries)

    round_id = await overdue(server, formed)
    assert (len((await server.view(round_id))["reported"]), await deletions()) == (2, 1)
    assert server.coordinator.blobs.list_names("uploads") == ()
    await formed.lose(server, round_id)
    await server.tidy(round_id)
    assert await deletions() == 2


async def test_a_restart_in_each_new_state_goes_on_where_it_was(
    tmp_path: Path, stopped: Callable[[str], Past]
) -> None:
    past, clock = stopped("formed"), Clock()
    party = past.party
    async with running(past.folder, clock) as server:
        round_id = await overdue(server, party)
        erasing = snapshot(server.folder, tmp_path / "erasing")
        then = party.copy()
        await party.lose(server, round_id)
        lost = snapshot(server.folder, tmp_path / "lost")
    async with running(erasing, clock) as server:
        view = await server.view(round_id)
        assert (view["state"], view["reported"]) == ("erasing", ["m-0", "m-1"])
        asked = await server.client.get(f"/v1/rounds/{round_id}/requests/m-3")
        assert isinstance(parse_message(asked.content), ErasureRequest)
        then.drop = {}
        assert (await then.play(server, round_id))["state"] == "erased"
        await then.open_round(server)
    async with running(lost, clock) as server:
        assert (await party.lose(server, round_id))["state"] == "lost"  # sent again
        [link] = await server.coordinator.federations.read_links(party.federation)
        assert link.reason == "lost"
        assert refusal(await party.try_round(server)) == (409, "already-summed")


async def test_a_false_dealer_is_evicted_and_stays_so_after_a_restart(
    tmp_path: Path, stopped: Callable[[str], Past]
) -> None:
    past = stopped("formed")
    party = past.party
    party.false_dealer("m-3", threshold=3)
    async with running(past.folder) as server:
        round_id = await party.open_round(server)
        while not (await server.view(round_id))["evicted"]:
            for member in party.ids:
                if not (await server.view(round_id))["evicted"]:
                    await party.serve(server, round_id, member)
        snapshot(server.folder, tmp_path / "crash")
    async with running(tmp_path / "crash") as server:
        view = await server.view(round_id)
        assert (view["state"], view["evicted"]) == ("revealing", ["m-3"])
        asked = await server.client.get(f"/v1/rounds/{round_id}/requests/m-0")
        assert isinstance(parse_message(asked.content), Evictions)
        view = await party.play(server, round_id)
        assert (view["state"], view["survivors"]) == ("done", list(party.ids))
        record = await party.check_result(server, round_id)
        assert (record["evicted"], record["dropped"]) == (["m-3"], [])
        shown = await server.client.get(f"/v1/rounds/{round_id}/result/evictions")
        [proof] = Evictions.from_bytes(shown.content).proofs
        round_ = server.coordinator.catalogue.rounds[round_id]
        assert isinstance(round_.closing, Certificate)
        check_proof(round_.attempt, round_.closing, proof)


async def test_a_context_that_only_begins_like_a_rounds_is_not_found(server: Server, formed: Party) -> None:
    round_id = await formed.open_round(server)
    assert rest.round_name(server.coordinator.catalogue.rounds[round_id].attempt.context) == round_id
    answer = await server.client.get(f"/v1/contexts/{round_id}{'0' * 48}/closing")
    assert refusal(answer) == (404, "not-found")


async def test_a_bucket_that_stalls_as_a_round_ends_keeps_no_one_from_writing(
    server: Server, formed: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    stalled, release, blobs = threading.Event(), threading.Event(), server.coordinator.blobs
    put = blobs.put

    def stalling(name: str, data: bytes) -> None:
        if name.startswith("transcripts/"):
            stalled.set()
            assert release.wait(30)
        put(name, data)

    monkeypatch.setattr(blobs, "put", stalling)
    round_id = await formed.open_round(server)
    await formed.play_until(server, round_id, "recovered")
    assert await asyncio.to_thread(stalled.wait, 20)
    try:
        async with asyncio.timeout(10):
            await Party(FOUR, admin_seed=b"another federation of this one..").begin(server)
        assert not (await server.view(round_id))["ended"]
    finally:
        release.set()
    assert (await server.until(round_id))["state"] == "done"


async def test_a_bucket_that_stalls_under_uploads_keeps_no_other_federation_waiting(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    party, release, blobs = Party(FOUR, dim=16), threading.Event(), server.coordinator.blobs
    put, waiting = blobs.put, list[str]()

    def stalling(name: str, data: bytes) -> None:
        waiting.append(name)
        assert release.wait(30)
        put(name, data)

    round_id = await party.begun(server)
    for member in party.ids:
        await party.announce(server, round_id, member)
    monkeypatch.setattr(blobs, "put", stalling)
    uploading = [
        asyncio.create_task(
            server.client.put(f"/v1/rounds/{round_id}/uploads/{member}/chunks/{index}", content=chunk)
        )
        for member in party.ids
        for index, chunk in enumerate(party.chunks[member])
    ]
    try:
        async with asyncio.timeout(20):
            await wait_until(lambda: waiting)
            await asyncio.sleep(0.1)
            await Party(FOUR, admin_seed=b"another federation of this one..").begin(server)
    finally:
        release.set()
    assert len(uploading) > 32
    assert {answer.status_code for answer in await asyncio.gather(*uploading)} <= {200, 204}
    assert (await party.play(server, round_id))["state"] == "done"
