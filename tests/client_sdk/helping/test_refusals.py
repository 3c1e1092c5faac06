"""What clients and helpers refuse, each by its cause, and how rounds end without a result for them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from client_sdk.client_result import ClientEvidence, ClientResult
from client_sdk.conversations import Conversations
from client_sdk.errors import Misuse, NoResult, PeerFault, StateError
from client_sdk.helping import Duty
from protocol.causes import Cause
from protocol.helpers.helper import Standing
from protocol.helpers.messages import HelperFreeze
from protocol.record import sign_record
from service.views import Shown
from tests.client_sdk.helping.driver import Killed, People
from tests.service.helping.driver import HelperParty
from tests.service.serving import Server


async def speaking(people: People, client: str, round_id: str, lineage: str = "main", **policy: Any) -> Any:
    process = people.process(client, **policy)
    return await people.run(client, process.speak(round_id, people.party.statistics(client), lineage))


async def done(server: Server, party: HelperParty, people: People) -> ClientResult:
    """A finished round in which c-00 was counted."""
    people.adopt("c-00")
    round_id = await party.begin(server)
    await speaking(people, "c-00", round_id)
    assert (await party.play(server, round_id))["state"] == "done"
    return await people.run("c-00", people.process("c-00").outcome(round_id))


async def test_a_policy_refuses_before_anything_is_made(
    server: Server, party: HelperParty, people: People
) -> None:
    people.adopt("c-00")
    round_id = await party.begin(server)
    for policy, words in (
        ({"members_min": 13}, "members_min: this member wants at least 13, the coordinator offers 12"),
        ({"survivors_min": 7}, "survivors_min"),
        ({"honest_min": 4}, "honest_min"),
        ({"colluders_min": 4}, "colluders_min"),
        ({"statistics": {"ffc-bias"}}, "statistics"),
        ({"lifetime_max_s": 10.0}, "lifetime_max_s"),
        ({"publish_rare_classes": False}, "publish_rare_classes"),
    ):
        with pytest.raises(PeerFault, match=words) as caught:
            await speaking(people, "c-00", round_id, **policy)
        assert caught.value.cause is Cause.POLICY_REFUSED
    assert not [kind for _, kind in people.sent if "uploads" in kind]
    assert people.open["c-00"].session.store.mode() is None


async def test_nothing_is_spoken_twice_or_unmade(server: Server, party: HelperParty, people: People) -> None:
    people.adopt("c-00", "c-01")
    round_id = await party.begin(server)
    with pytest.raises(Misuse, match="pass the statistics"):
        await people.run("c-00", people.process("c-00").speak(round_id, None, "main"))
    with pytest.raises(Misuse, match="has not spoken"):
        await people.run("c-00", people.process("c-00").outcome(round_id))
    with pytest.raises(Misuse, match="no round's id"):
        people.process("c-00").outcome("zz")
    await speaking(people, "c-00", round_id)
    with pytest.raises(Misuse, match="made from other records"):
        await people.run("c-00", people.process("c-00").speak(round_id, party.statistics("c-01"), "main"))
    # What stands for the upload is gone: the opening is answered all the same.
    folder = people.open["c-00"].session.store.results(round_id)
    (folder / "helper-upload.bin").unlink()
    with pytest.raises(PeerFault) as caught:
        await speaking(people, "c-00", round_id)
    assert caught.value.cause is Cause.WRONG_SEQUENCE
    (folder / "helper-upload.bin").write_bytes(b"damaged")
    with pytest.raises(StateError, match="no complete evidence"):
        await speaking(people, "c-00", round_id)


async def test_one_identity_speaks_in_one_mode(server: Server, party: HelperParty, people: People) -> None:
    people.adopt("c-00", "c-01")
    round_id = await party.begin(server)
    process = people.process("c-00")
    with pytest.raises(Misuse, match=r"call Member\.speak if that is meant"):
        await people.run("c-00", process.contribute(round_id, party.statistics("c-00"), "main"))
    store = people.process("c-01").session.store
    store.remember(store.history(), store.history())
    with pytest.raises(PeerFault, match="mode: this member wants rounds in the mode 'members'") as caught:
        await speaking(people, "c-01", round_id)
    assert caught.value.cause is Cause.POLICY_REFUSED
    await speaking(people, "c-00", round_id)
    session = people.process("c-00").session
    assert session.store.mode() == "helpers"
    view = server.coordinator.rounds[round_id].view().model_copy(update={"mode": "members"})
    with pytest.raises(PeerFault, match="wants rounds in the mode 'helpers'"):
        session.check_mode(view, "members")
    with pytest.raises(Misuse, match=r"call Member\.contribute"):
        session.check_mode(view, "helpers")


async def test_the_coordinator_holds_another_context(
    server: Server, party: HelperParty, people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    people.adopt("c-00")
    round_id = await party.begin(server)
    round_ = server.coordinator.rounds[round_id]
    view = round_.view().model_copy(update={"context": "00" * 32})
    monkeypatch.setattr(type(round_), "shown", property(lambda self: Shown(self.version, view)))
    with pytest.raises(PeerFault, match="another context") as caught:
        await speaking(people, "c-00", round_id)
    assert caught.value.cause is Cause.WRONG_CONTEXT


async def test_who_was_not_counted_gets_its_records_back(
    server: Server, party: HelperParty, people: People
) -> None:
    people.adopt("c-00", "c-01")
    round_id = await party.begin(server)
    await speaking(people, "c-00", round_id)
    # c-01 dies between its announcement and its chunks.
    budget = 0
    while not any(member == "c-01" for member, _ in people.sent):
        budget += 1
        flow = people.process("c-01").speak(round_id, party.statistics("c-01"), "main")
        with pytest.raises(Killed):
            await people.run("c-01", flow, budget)
    people.close("c-01")
    party.down = ("c-01",)
    assert (await party.play(server, round_id))["state"] == "done"
    late = people.process("c-01")
    assert late.session.store.lineages.all() != ()
    assert not (await people.run("c-01", late.speak(round_id, None, "main"))).whole
    with pytest.raises(NoResult, match="went on without this member") as caught:
        await people.run("c-01", people.process("c-01").outcome(round_id))
    assert caught.value.state == "missed"
    assert people.open["c-01"].session.store.lineages.all() == ()


@pytest.mark.parametrize("state", ["voided", "failed"])
async def test_rounds_without_a_sum(server: Server, party: HelperParty, people: People, state: str) -> None:
    people.adopt("c-00")
    round_id = await party.begin(server)
    await speaking(people, "c-00", round_id)
    if state == "failed":
        await party.play(server, round_id, "summing")
        party.down = party.helpers[:3]
    else:
        party.down = party.ids
    assert (await party.play(server, round_id))["state"] == state
    with pytest.raises(NoResult) as caught:
        await people.run("c-00", people.process("c-00").outcome(round_id))
    assert caught.value.state == state
    # VOID opened nothing; a certified set counts as opened.
    assert bool(people.open["c-00"].session.store.lineages.all()) == (state == "failed")


async def test_a_result_that_proves_nothing(server: Server, party: HelperParty, people: People) -> None:
    result = await done(server, party, people)
    key, record, counted = server.coordinator.key, result.record, result.counted
    other = party.seal("c-01", result.evidence.attempt).upload

    def signed(**changes: Any) -> ClientResult:
        return replace(result, record=sign_record(record.model_copy(update=changes), key))

    result.verify()
    for false, cause in (
        (replace(result, record=record.model_copy(update={"records": 1})), Cause.BAD_SIGNATURE),
        (signed(closing="00" * 32), Cause.RESULT_MISMATCH),
        (signed(mode="members"), Cause.RESULT_MISMATCH),
        (signed(survivors=record.survivors[1:]), Cause.RESULT_MISMATCH),
        (signed(survivors=(*record.survivors[1:], record.survivors[1])), Cause.RESULT_MISMATCH),
        (signed(outvoted=("c-00",)), Cause.RESULT_MISMATCH),
        (signed(records=10**12), Cause.RESULT_MISMATCH),
        (signed(weights_sha256="00" * 32), Cause.RESULT_MISMATCH),
        (replace(result, counted=replace(counted, votes=counted.votes[1:])), Cause.CERTIFICATE_INVALID),
        (replace(result, counted=replace(counted, count=1)), Cause.RESULT_MISMATCH),
        (replace(result, evidence=replace(result.evidence, upload=other)), Cause.RESULT_MISMATCH),
    ):
        with pytest.raises(PeerFault) as caught:
            false.verify(party.admin.public)
        assert caught.value.cause is cause, false.record
    with pytest.raises(PeerFault) as caught:
        result.verify(b"x" * 32)
    assert caught.value.cause is Cause.WRONG_FEDERATION


async def test_a_result_on_disk(server: Server, party: HelperParty, people: People, tmp_path: Path) -> None:
    result = await done(server, party, people)
    folder = tmp_path / "copy"
    result.save(folder)
    (folder / "record.json").write_text("{}")
    with pytest.raises(StateError, match="no complete result"):
        ClientResult.load(folder)
    (folder / "weights.safetensors").unlink()
    result.evidence.save(folder)
    with pytest.raises(StateError):
        ClientResult.load(folder)
    assert ClientEvidence.load(folder) == result.evidence


async def test_a_kept_result_that_was_changed_is_fetched_anew(
    server: Server, party: HelperParty, people: People
) -> None:
    round_id = (await done(server, party, people)).record.round
    process = people.process("c-00")
    folder = process.session.store.results(round_id)
    weights = folder / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"!")
    with pytest.raises(StateError, match=f"^{folder} does not hold .*counted.bin"):
        await people.run("c-00", process.outcome(round_id))
    (folder / "counted.bin").unlink()
    assert (await people.run("c-00", process.outcome(round_id))).record.round == round_id


# Helpers


def duty(process: Conversations, party: HelperParty) -> Duty:
    standing = Standing.start(process.session.member, party.admin.public, party.roster)
    return Duty(process.session, standing)


async def test_a_helper_that_the_roster_does_not_name_stops(
    server: Server, party: HelperParty, people: People
) -> None:
    people.adopt("h-0")
    await party.found(server)
    await party.found(server, 2, helpers=())
    with pytest.raises(PeerFault) as caught:
        await people.run("h-0", people.process("h-0").serve(1))
    assert caught.value.cause is Cause.NOT_A_DECRYPTOR


async def test_a_wrong_answer_is_reported_and_asked_again(
    server: Server, party: HelperParty, people: People, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A coordinator that shows nonsense ends no helper."""
    people.adopt("h-0")
    await party.found(server)
    session = people.process("h-0").session
    seen: list[str] = []

    def nonsense(*_: Any) -> Any:
        seen.append("asked")
        if seen:
            raise PeerFault(Cause.MALFORMED, "nonsense", ["coordinator"])
        yield

    monkeypatch.setattr(type(session.coordinator), "helpers", nonsense)
    with pytest.raises(Killed):
        await people.run("h-0", people.process("h-0").serve(1), 8)
    assert len(seen) > 1
    assert any("asked again" in event.detail for _, event in people.told)


async def test_what_is_asked_wrongly_is_refused_and_moves_nothing(
    server: Server, party: HelperParty, people: People
) -> None:
    people.adopt("h-0")
    await party.begin(server)
    worker = duty(people.process("h-0"), party)
    before = worker.phase
    await people.run("h-0", worker._answer("00" * 8, HelperFreeze(bytes(32), ())))
    assert worker.phase is before
    assert any(event.detail.startswith("refused a HelperFreeze: wrong-phase") for _, event in people.told)


async def test_a_helper_hears_of_every_end_that_it_missed(
    server: Server, party: HelperParty, people: People
) -> None:
    people.adopt("h-3")
    party.down = ("h-3", *party.ids)
    for attempt in range(2):
        round_id = await (party.begin(server) if not attempt else party.open_round(server))
        assert (await party.play(server, round_id))["state"] == "voided"
        await party.hear(server, round_id)
        await party.enrol(server)
    worker = duty(people.process("h-3"), party)
    await people.run("h-3", worker._enrol())
    assert worker.ended == 2
    assert isinstance(people.process("h-3").session.store.helper(), type(worker.phase))
    # A new roster asks for a new card.
    await party.found(server, 2)
    await people.run("h-3", worker._enrol())
    assert worker.standing.roster == party.roster
