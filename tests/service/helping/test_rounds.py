"""Rounds with mask helpers over the app: who is down, who is false, and how each comes out."""

import hashlib

from protocol.helpers.helper import Standing
from protocol.helpers.messages import HelperCertificate, HelperCounted, HelperReceipt, HelperSums
from protocol.messages import Message
from protocol.preflight import PreflightView
from tests.service.helping.driver import HelperParty, complaining
from tests.service.serving import Server


async def test_a_round_of_thirty_clients_and_four_helpers(server: Server, party: HelperParty) -> None:
    round_id = await party.begin(server)
    party.down = ("c-07",)
    view = await party.play(server, round_id)
    assert (view["state"], view["mode"], view["helpers"]) == ("done", "helpers", list(party.helpers))
    assert (len(view["survivors"]), view["survivors_min"], view["threshold"]) == (29, 10, 3)
    record = await party.check_result(server, round_id)
    assert (record.members, record.outvoted, len(record.survivors)) == (30, (), 29)
    # A client is shown that it was counted, another one nothing.
    shown = await server.client.get(f"/v1/rounds/{round_id}/requests/c-03")
    attempt = server.coordinator.rounds[round_id].attempt
    party.spoken["c-03"].check_counted(attempt, HelperCounted.from_bytes(shown.content))
    assert (await server.client.get(f"/v1/rounds/{round_id}/requests/c-07")).status_code == 204
    # Every helper hears of the end, and the next round goes on from it.
    await party.hear(server, round_id)
    assert {type(phase) for phase in party.phases.values()} == {Standing}
    await party.enrol(server)
    following = await party.open_round(server)
    assert (await server.view(following))["sequence"] == 1
    party.down = ("c-07",)
    assert (await party.play(server, following))["state"] == "done"


async def test_what_is_said_beforehand_is_what_is_opened(server: Server, party: HelperParty) -> None:
    await party.found(server)
    path = f"{party.desk}/rounds/preflight"
    early = await server.client.post(path, json=party.request())
    assert early.json()["cause"] == "cohort-too-small"
    await party.enrol(server)
    answer = await server.client.post(path, json=party.request())
    assert answer.status_code == 200, answer.text
    said = PreflightView.model_validate(answer.json())
    assert (await server.client.get(f"/v1/federations/{party.federation}")).json()["rounds"] == []
    opened = await server.view(await party.open_round(server))
    assert (said.mode, said.cohort, said.cost, said.decryptors) == ("helpers", opened["cohort"], None, None)
    assert (said.members, said.survivors_min) == (30, opened["survivors_min"])
    assert (said.sequence, said.terms.elements) == (0, opened["terms"]["elements"])


async def test_one_helper_down_from_the_beginning(server: Server, party: HelperParty) -> None:
    party.down = ("h-2",)
    round_id = await party.begin(server)
    view = await party.play(server, round_id)
    assert (view["state"], view["helpers"]) == ("done", ["h-0", "h-1", "h-3"])
    await party.check_result(server, round_id)
    # It comes back, hears of what it missed, and takes part.
    party.down = ()
    await party.hear(server, round_id)
    await party.enrol(server)
    following = await party.open_round(server)
    assert (await party.play(server, following))["helpers"] == list(party.helpers)


async def test_a_helper_that_vanishes_before_the_vote(server: Server, party: HelperParty) -> None:
    round_id = await party.begin(server)
    await party.play(server, round_id, "freezing")
    party.down = ("h-0",)
    view = await party.play(server, round_id)
    assert view["state"] == "done"
    certificate = server.coordinator.rounds[round_id].end()
    assert isinstance(certificate, HelperCertificate)
    assert [vote.member for vote in certificate.votes] == ["h-1", "h-2", "h-3"]
    await party.check_result(server, round_id)


async def test_a_false_sum_is_outvoted_and_its_helper_named(server: Server, party: HelperParty) -> None:
    def lie(sender: str, message: Message) -> Message:
        if sender != "h-0" or not isinstance(message, HelperSums):
            return message
        attempt = server.coordinator.rounds[round_id].attempt
        packed = attempt.ring.packed_bytes(attempt.chunk_elements(0))

        false = (hashlib.sha256(bytes(packed)).digest(), *message.digests[0][1:])
        return HelperSums.make(
            party.keys["h-0"],
            context=message.context,
            member="h-0",
            outcome=message.outcome,
            digests=(false, *message.digests[1:]),
        )

    party.tamper = lie
    round_id = await party.begin(server)
    view = await party.play(server, round_id)
    assert view["state"] == "done", view
    record = await party.check_result(server, round_id)
    assert record.outvoted == ("h-0",)


async def test_a_false_helper_drops_a_clients_and_no_more(server: Server, party: HelperParty) -> None:
    few, many = party.ids[:7], party.ids[:8]
    lies = {"h-1": complaining(few, party.keys["h-1"])}

    def lie(sender: str, message: Message) -> Message:
        return lies[sender](message) if sender in lies and isinstance(message, HelperReceipt) else message

    party.tamper = lie
    round_id = await party.begin(server)
    view = await party.play(server, round_id)
    assert view["state"] == "done"
    assert set(view["survivors"]) == set(party.ids) - set(few)
    # One complaint more, and the helper itself is left out of the panel.
    lies["h-1"] = complaining(many, party.keys["h-1"])
    await party.hear(server, round_id)
    party.spoken.clear()
    await party.enrol(server)
    following = await party.open_round(server)
    view = await party.play(server, following, "freezing")
    assert view["waiting_for"] == ["h-0", "h-2", "h-3"]
