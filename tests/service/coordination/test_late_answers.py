"""Answers after a round's end: forged and contradicting ones are refused, honest ones are harmless (ANSWER-1 to ANSWER-6)."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.service.coordination.test_transcripts import verdict
from tests.support.forging import again
from tests.support.party import Party
from tests.support.refusals import refusal
from tests.support.serving import Server, running
from veilsum.protocol.messages import Message

OTHER = b"\x66" * 32


def remember(party: Party) -> dict[tuple[str, str], Any]:
    """Return the party's answers, by sender and form, as they will be sent."""
    sent = dict[tuple[str, str], Any]()

    def note(member: str, message: Message) -> Message:
        sent[member, type(message).__name__] = message
        return message

    party.tamper = note
    return sent


async def show(server: Server, round_id: str, message: Any) -> str:
    """Send an answer; return the cause of its refusal, or nothing."""
    answer = await server.client.post(f"/v1/rounds/{round_id}/answers", content=message.to_bytes())
    return "" if answer.is_success else refusal(answer)[1]


async def check_late(server: Server, party: Party, round_id: str, sent: dict[tuple[str, str], Any]) -> None:
    """Show the coordinator every kind of late vote, receipt and reveal of m-0, whose own are known."""
    vote, receipt = sent["m-0", "Vote"], sent["m-0", "Receipt"]
    key = party.keys["m-0"]
    for message in (vote, receipt, sent["m-0", "Reveal"]):
        assert await show(server, round_id, message) == ""
        assert await show(server, round_id, again(message, key, context=OTHER)) == "wrong-context"
        assert await show(server, round_id, replace(message, signature=bytes(64))) == "bad-signature"
    assert await show(server, round_id, again(vote, key, outcome=OTHER)) == "already-voted"
    assert await show(server, round_id, again(receipt, key, uploads=OTHER)) == "conflict"


async def test_after_the_result_and_a_restart(tmp_path: Path, party: Party, stores: str) -> None:
    sent = remember(party)
    async with running(tmp_path / "data") as server:
        round_id = await party.begun(server)
        assert (await party.play(server, round_id))["state"] == "done"
        await check_late(server, party, round_id, sent)
        signed = (await server.view(round_id))["transcript"]
    async with running(tmp_path / "data") as server:
        await check_late(server, party, round_id, sent)
        view = await server.view(round_id)
        certified = sent["m-0", "Vote"]
        late = again(certified, party.keys["m-3"], member="m-3")
        assert await show(server, round_id, late) == ""
        unasked = again(late, party.keys["m-3"], outcome=OTHER)
        assert await show(server, round_id, unasked) in {"already-voted", "survivors-invalid"}
        reveal = again(sent["m-0", "Reveal"], party.keys["m-0"], outcome=OTHER)
        assert await show(server, round_id, reveal) == "reveal-misshapen"
        assert view["transcript"] == signed
        assert (await verdict(server, party, round_id)).findings == ()


async def test_without_its_transcript_an_ended_round_checks_signatures_alone(
    tmp_path: Path, party: Party, stores: str
) -> None:
    sent = remember(party)
    async with running(tmp_path / "data") as server:
        await party.begin(server)
        round_id = await party.done(server)
        vote, key = sent["m-0", "Vote"], party.keys["m-0"]
        await party.done(server)
        await server.tidy(round_id)
        server.coordinator.blobs.delete(f"transcripts/{round_id}")
    async with running(tmp_path / "data") as server:
        assert await show(server, round_id, again(vote, key, context=OTHER)) == "wrong-context"
        assert await show(server, round_id, again(vote, key, outcome=OTHER)) == ""
