"""Every ended round leaves a signed transcript, which replays without findings if all parties followed the rules."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import select

from service.storage.tables import events
from tests.service.conftest import Past
from tests.support.forging import again
from tests.support.party import Party
from tests.support.refusals import refusal
from tests.support.serving import Server, running, snapshot
from tests.support.simulator import After
from veilsum.protocol import rest
from veilsum.protocol.causes import Cause
from veilsum.protocol.messages import Lost, Message, Upload
from veilsum.protocol.replay import Verdict, replay_transcript
from veilsum.protocol.transcript import Transcript


async def verdict(server: Server, party: Party, round_id: str) -> Verdict:
    """Return an auditor's verdict on the transcript that the round's view and its record name."""
    got = await server.client.get(rest.TRANSCRIPT_PATH.format(round_id=round_id))
    assert got.status_code == 200, got.text
    assert got.headers["content-type"] == rest.TRANSCRIPT_TYPE
    assert "immutable" in got.headers["cache-control"]
    transcript = Transcript.from_json(got.text)
    view = await server.view(round_id)
    assert view["transcript"] == transcript.head.hex()
    if view["state"] == "done":
        result = await server.client.get(rest.RESULT_PATH.format(round_id=round_id))
        assert result.json()["transcript"] == transcript.head.hex()
        assert result.headers["link"].startswith(f"</v1/rounds/{round_id}/transcript>;")
    found = replay_transcript(transcript, party.admin.public)
    assert found.signed
    assert found.attempt.context.hex() == view["context"]
    return found


@pytest.mark.usefixtures("six")
@pytest.mark.parametrize(
    ("drop", "end"),
    [
        ({"m-5": After.ANNOUNCEMENT, "m-4": After.UPLOAD}, "done"),
        (dict.fromkeys(("m-3", "m-4", "m-5"), After.OPENING), "lost"),
        (dict.fromkeys(("m-3", "m-4", "m-5"), After.VOTE), "failed"),
        ({}, "voided"),
    ],
)
async def test_an_honest_round_leaves_one_that_replays_clean(
    server: Server, formed: Party, drop: dict[str, After], end: str
) -> None:
    formed.drop, round_id = drop, await formed.open_round(server)
    early = await server.client.get(rest.TRANSCRIPT_PATH.format(round_id=round_id))
    assert refusal(early) == (409, "wrong-phase")
    if end == "voided":
        await formed.seal_all(server, round_id)
        await server.cancel(round_id)
    view = await formed.play(server, round_id)
    if view["state"] == "erasing":
        view = await formed.lose(server, round_id)
    assert view["state"] == end
    found = await verdict(server, formed, round_id)
    assert found.findings == ()
    assert isinstance(found.closing, Lost) == (end == "lost")
    late = {member for member, after in drop.items() if after < After.UPLOAD}
    counted = {member for member in formed.ids if found.counts_upload(member)}
    assert counted == (set(formed.ids) - late if end == "done" else set())


# What is refused


async def refused(server: Server, round_id: str, message: Message) -> str:
    if isinstance(message, Upload):
        where = f"/v1/rounds/{round_id}/uploads/{message.header.member}"
        answer = await server.client.put(where, content=message.to_bytes())
    else:
        answer = await server.client.post(f"/v1/rounds/{round_id}/answers", content=message.to_bytes())
    assert answer.status_code >= 400
    return str(answer.json()["cause"])


def another(party: Party, member: str, number: int) -> Upload:
    """Make another upload, also signed by the member."""
    upload = Upload.from_bytes(party.upload_of(member))
    header = again(upload.header, party.keys[member], salt=number.to_bytes(32, "little"))
    return replace(upload, header=header)


async def kept(server: Server) -> list[tuple[str, int]]:
    query = select(events.c.kind, events.c.body).order_by(events.c.number)
    return [(kind, len(body)) for kind, body in await server.coordinator.database.read_rows(query)]


async def test_what_proves_a_member_false_survives_a_restart_and_is_kept_once(
    tmp_path: Path, stopped: Callable[[str], Past]
) -> None:
    past = stopped("formed")
    party = past.party
    async with running(past.folder) as server:
        round_id = await party.open_round(server)
        await party.serve(server, round_id, "m-1")
        before = await server.view(round_id)
        for number in range(1, 4):
            assert await refused(server, round_id, another(party, "m-1", number)) == "upload-conflict"
        assert [kind for kind, _ in await kept(server)].count("refused") == 1
        assert (await server.view(round_id))["version"] == before["version"] + 1
        snapshot(server.folder, tmp_path / "crash")
    async with running(tmp_path / "crash") as server:
        assert await refused(server, round_id, another(party, "m-1", 5)) == "upload-conflict"
        assert [kind for kind, _ in await kept(server)].count("refused") == 1
        assert (await party.play(server, round_id))["state"] == "done"
        found = await verdict(server, party, round_id)
        assert [(each.parties, each.cause) for each in found.findings] == [(("m-1",), Cause.UPLOAD_CONFLICT)]
        # Which of the two counts, the certificate says.
        assert found.counts_upload("m-1")


# It is not lost, whatever happens around the end


async def test_a_crash_before_the_end_is_kept_makes_the_same_transcript_again(
    tmp_path: Path, stopped: Callable[[str], Past], monkeypatch: pytest.MonkeyPatch
) -> None:
    past = stopped("formed")
    party = past.party
    async with running(past.folder) as server:
        round_id = await party.open_round(server)
        put = server.coordinator.blobs.put

        def crashing(name: str, data: bytes) -> None:
            if round_id not in server.coordinator.blobs.list_names("transcripts"):
                put(name, data)
            if name.startswith("transcripts/"):
                raise OSError("the power is gone")

        with monkeypatch.context() as patched:
            patched.setattr(server.coordinator.blobs, "put", crashing)
            await party.play_until(server, round_id, "recovered")
            while not server.coordinator.blobs.list_names(f"transcripts/{round_id}"):
                later = {"after": 1 << 20, "wait_s": 0.05}
                await server.client.get(rest.ROUND_PATH.format(round_id=round_id), params=later)
            assert not (await server.view(round_id))["ended"]
            [name] = server.coordinator.blobs.list_names(f"transcripts/{round_id}")
            written = server.coordinator.blobs.get(f"transcripts/{round_id}/{name}")
            snapshot(server.folder, tmp_path / "crash")
    async with running(tmp_path / "crash") as server:
        assert (await server.until(round_id))["state"] == "done"
        assert server.coordinator.blobs.list_names(f"transcripts/{round_id}") == (name,)
        assert server.coordinator.blobs.get(f"transcripts/{round_id}/{name}") == written
        assert (await verdict(server, party, round_id)).findings == ()
        await server.tidy(round_id)
    async with running(tmp_path / "crash") as server:
        assert (
            await server.coordinator.catalogue.find_round(round_id)
        ).documents.fetch_transcript() == written
        assert json.loads(written)["veilsum-transcript"] == 4
