"""What a hostile review broke in the SDK's part of the mode with helpers, each as it was done (docs/assurance.md)."""

from dataclasses import replace
from itertools import takewhile
from typing import Any

import pytest

from client_sdk.api import Coordinator
from client_sdk.effects import Response
from client_sdk.errors import LineageError, PeerFault, UnexpectedAnswer
from client_sdk.helping import Duty
from protocol.causes import Cause
from protocol.helpers.helper import Enrolled, Standing, Voted
from protocol.helpers.messages import HelperCertificate, HelperFreeze
from protocol.identity import SigningKey
from protocol.rest import UploadView
from service.rounds import Round
from tests.client_sdk.federation import Federation, asked
from tests.client_sdk.helping.driver import Killed, People
from tests.client_sdk.local_coordinator import model
from tests.service.helping.driver import HelperParty
from tests.service.serving import Server


async def voided(server: Server, party: HelperParty, people: People) -> HelperCertificate:
    """One attempt that has ended in VOID, without h-3; the SDK is h-3."""
    people.adopt("h-3")
    party.down = ("h-3", *party.ids)
    round_id = await party.begin(server)
    assert (await party.play(server, round_id))["state"] == "voided"
    await party.hear(server, round_id)
    return HelperCertificate.from_bytes((await server.client.get(f"{party.desk}/closings/0")).content)


@pytest.mark.parametrize(
    "error",
    [
        PeerFault(Cause.BAD_SIGNATURE, "says the coordinator", ["h-3"]),
        PeerFault(Cause.NOT_A_DECRYPTOR, "says the coordinator", ["h-3"]),
        PeerFault(Cause.WEAK_PARAMETERS, "says the coordinator", ["h-3"]),
        UnexpectedAnswer("says a proxy"),
    ],
)
async def test_no_refusal_of_the_coordinator_ends_a_helper(
    server: Server, party: HelperParty, people: People, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    people.adopt("h-0")
    await party.found(server)
    asked: list[str] = []

    def refusing(*_: Any) -> Any:
        asked.append("card")
        if asked:
            raise error
        yield

    monkeypatch.setattr(Coordinator, "send_helper_card", refusing)
    with pytest.raises(Killed):
        await people.run("h-0", people.process("h-0").serve(1), 12)
    assert len(asked) > 1


async def test_no_false_end_that_is_shown_ends_a_helper(
    server: Server, party: HelperParty, people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A certificate whose votes are nobody's raised bad-signature: a fault that a false roster ends a helper by."""
    certificate = await voided(server, party, people)
    forged = tuple(replace(vote, signature=bytes(64)) for vote in certificate.votes)
    asked: list[str] = []

    def shown(*_: Any) -> Any:
        asked.append("closing")
        if not asked:
            yield
        return replace(certificate, votes=forged)

    monkeypatch.setattr(Coordinator, "helper_closing", shown)
    with pytest.raises(Killed):
        await people.run("h-3", people.process("h-3").serve(1), 12)
    assert len(asked) > 1


async def test_an_empty_set_does_not_end_a_helper_that_has_voted(
    server: Server, party: HelperParty, people: People
) -> None:
    people.adopt("h-0")
    round_id = await party.begin(server)
    await party.play(server, round_id, "freezing")
    await party.serve(server, round_id, "h-0")
    phase = party.phases["h-0"]
    assert isinstance(phase, Voted)
    worker = Duty(people.process("h-0").session, phase)
    await people.run("h-0", worker._answer(round_id, HelperFreeze(phase.attempt.context, ())))
    assert worker.phase is phase
    assert any("refused a HelperFreeze: survivors-too-few" in event.detail for _, event in people.told)


async def test_an_end_that_is_known_does_not_take_an_enrolled_helpers_key(
    server: Server, party: HelperParty, people: People
) -> None:
    certificate = await voided(server, party, people)
    party.down = ()
    await party.enrol(server)
    phase = party.phases["h-0"]
    assert isinstance(phase, Enrolled)
    worker = Duty(people.process("h-3").session, phase)
    assert worker._receive(certificate) == ()
    assert worker.phase is phase


async def speaking(people: People, party: HelperParty, client: str, round_id: str, lineage: str) -> Any:
    return await people.run(client, people.process(client).speak(round_id, party.statistics(client), lineage))


async def test_records_do_not_go_under_other_helpers(
    server: Server, party: HelperParty, people: People
) -> None:
    """After a replacement two certificates need no honest helper in common: each could be signed without the other."""
    people.adopt("c-00")
    round_id = await party.begin(server)
    await speaking(people, party, "c-00", round_id, "main")
    assert (await party.play(server, round_id))["state"] == "done"
    await party.hear(server, round_id)
    party.keys["h-4"] = SigningKey(b"4" * 32)
    del party.keys["h-3"]
    party.helpers = ("h-0", "h-1", "h-2", "h-4")
    await party.found(server, 2)

    for helper in party.helpers[:3]:
        standing = party.phases[helper]
        assert isinstance(standing, Standing)
        party.phases[helper] = standing.trust(party.roster)
    await party.enrol(server)
    following = await party.open_round(server)
    with pytest.raises(LineageError, match="used in exact rounds with other helpers"):
        await speaking(people, party, "c-00", following, "main")
    with pytest.raises(LineageError, match="a record belongs to one lineage"):
        await speaking(people, party, "c-00", following, "other")
    assert not [kind for _, kind in people.sent if following in kind]


@pytest.mark.parametrize("missing", [(-1,), (10**9,)])
async def test_a_chunk_that_there_is_not_is_not_looked_for(
    server: Server,
    party: HelperParty,
    people: People,
    monkeypatch: pytest.MonkeyPatch,
    missing: tuple[int, ...],
) -> None:
    """It ended the process by "damaged or missing", which is what a client's own disk is blamed by."""
    people.adopt("c-00")
    round_id = await party.begin(server)
    shown = UploadView(member="c-00", chunks=2, missing=missing)
    monkeypatch.setattr(Round, "upload_view", lambda *_: shown)
    assert (await speaking(people, party, "c-00", round_id, "main")).whole


def test_a_chunk_that_is_said_to_be_missing_twice_leaves_once(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list of one index, as long as an answer may be, had a member send a chunk millions of times."""
    round_id = federation.coordinator.open_round(federation.enrol())
    view = federation.coordinator._upload_view

    def repeated(*what: Any) -> Response:
        shown = UploadView.model_validate_json(view(*what).body)
        return model(shown.model_copy(update={"missing": shown.missing * 50}))

    monkeypatch.setattr(federation.coordinator, "_upload_view", repeated)
    steps = federation.steps(federation.contributions(round_id, ["member-0"])["member-0"])
    seen = list(takewhile(lambda step: step[0] != "waits", steps))
    steps.close()
    sent = [asked(effect) for state, effect in seen if state == "after" and "/chunks/" in asked(effect)]
    assert sent
    assert len(sent) == len(set(sent))


def test_an_upload_among_members_is_remembered_before_it_leaves(federation: Federation) -> None:
    """In a federation's first round too, where no history is learned yet."""
    round_id = federation.coordinator.open_round(federation.enrol())
    federation.run_until(federation.contributions(round_id, ["member-0"])["member-0"], "uploads")
    assert federation.member("member-0").session.store.mode() == "members"
