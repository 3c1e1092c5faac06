"""What the coordinator refuses of helpers, clients, the operator and the admin, each by its cause."""

from dataclasses import replace
from typing import Any

import pytest

from protocol.helpers.coordinator import Collecting
from protocol.helpers.helper import Enrolled
from protocol.helpers.messages import HelperCard, HelperLost, HelperSums, HelperVote
from protocol.messages import Message
from tests.service.driver import Party
from tests.service.helping.driver import HelperParty, phase_of
from tests.service.serving import OCTETS, Server


def cause(answer: Any) -> str:
    assert answer.status_code >= 400, answer.text
    return str(answer.json()["cause"])


async def test_a_round_takes_three_cards_at_least(server: Server, party: HelperParty) -> None:
    await party.found(server)
    party.down = ("h-1", "h-2")
    await party.enrol(server)
    refused = await party.try_round(server)
    assert cause(refused) == "cohort-too-small"
    assert refused.json()["parties"] == ["h-1", "h-2"]
    seen = (await server.client.get(party.desk)).json()
    assert (seen["cards"], seen["counter"], seen["round"]) == (["h-0", "h-3"], 0, None)


async def test_the_roster_must_name_four_helpers(server: Server, party: HelperParty) -> None:
    await party.found(server)
    await party.found(server, 2, helpers=party.helpers[:3])
    assert cause(await server.client.get(party.desk)) == "weak-parameters"
    assert cause(await party.try_round(server)) == "weak-parameters"
    stranger = "f" * 64
    assert cause(await server.client.get(f"/v1/federations/{stranger}/helpers")) == "not-found"


async def test_a_new_roster_asks_for_new_cards(server: Server, party: HelperParty) -> None:
    await party.found(server)
    await party.enrol(server)
    before = (await server.client.get(party.desk)).json()
    await party.found(server, 2)
    after = (await server.client.get(party.desk)).json()
    assert after["cohort"] != before["cohort"]
    assert (after["cards"], after["roster_version"]) == ([], 2)
    assert after["version"] > before["version"]
    old = party.phases["h-0"]
    assert isinstance(old, Enrolled)
    assert cause(await party.send_card(server, old.card)) == "wrong-cohort"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"mode": "members"}, "malformed-request"),
        ({"exceptions": ["00"]}, "malformed-request"),
        ({"colluders": 3}, "weak-parameters"),
        ({"survivors_min": 5}, "weak-parameters"),
        ({"survivors_min": 31}, "cohort-too-small"),
        ({"extractor": "00" * 32}, "terms-refused"),
        ({"records_max": 29}, "terms-refused"),
        ({"statistic": "indicator", "dim": None}, "terms-refused"),
        ({"ring_bits": 8}, "terms-refused"),
    ],
)
async def test_openings_that_no_client_would_answer(
    server: Server, party: HelperParty, changes: dict[str, Any], expected: str
) -> None:
    await party.found(server)
    await party.enrol(server)
    assert cause(await party.try_round(server, **changes)) == expected
    assert (await party.try_round(server)).status_code == 201
    assert cause(await party.try_round(server)) == "conflict"


async def test_withheld_classes_take_an_indicator_round(server: Server, party: HelperParty) -> None:
    await party.found(server, withhold=1)
    await party.enrol(server)
    refused = await party.try_round(server)
    assert cause(refused) == "terms-refused"
    assert "--publish-rare-classes" in refused.json()["detail"]


async def test_cards(server: Server, party: HelperParty) -> None:
    round_id = await party.begin(server)
    phase = party.phases["h-0"]
    assert isinstance(phase, Enrolled)
    assert cause(await party.send_card(server, phase.card)) == "wrong-phase"
    await server.client.post(f"/v1/rounds/{round_id}/cancel", json={"reason": "stop"})
    assert (await party.play(server, round_id))["state"] == "voided"
    seen = (await server.client.get(party.desk)).json()
    card: dict[str, Any] = {
        "cohort": bytes.fromhex(seen["cohort"]),
        "member": "h-0",
        "box_key": phase.card.box_key,
        "expires_s": phase.card.expires_s,
    }
    key = party.keys["h-0"]
    good = HelperCard.make(key, **card)
    assert cause(await party.send_card(server, replace(good, signature=bytes(64)))) == "bad-signature"
    assert (
        cause(await party.send_card(server, HelperCard.make(key, **{**card, "expires_s": 1})))
        == "card-expired"
    )
    low = HelperCard.make(key, **{**card, "box_key": bytes(32)})
    assert cause(await party.send_card(server, low)) == "low-order-point"
    client = HelperCard.make(party.keys["c-00"], **{**card, "member": "c-00"})
    assert cause(await party.send_card(server, client)) == "not-a-decryptor"
    elsewhere = await server.client.put(f"{party.desk}/h-1/card", content=good.to_bytes(), headers=OCTETS)
    assert cause(elsewhere) == "malformed-request"
    for _ in range(2):
        assert (await party.send_card(server, good)).status_code == 200
    other = HelperCard.make(key, **{**card, "expires_s": phase.card.expires_s + 1})
    assert cause(await party.send_card(server, other)) == "card-conflict"


async def test_uploads(server: Server, party: HelperParty) -> None:
    round_id = await party.begin(server)
    await party.speak(server, round_id, "c-00")
    where = f"/v1/rounds/{round_id}/uploads"
    assert (await server.client.get(f"{where}/c-00")).json()["missing"] == []
    upload = party.spoken["c-00"].upload

    async def announce(message: Message, member: str = "c-00") -> Any:
        return await server.client.put(f"{where}/{member}", content=message.to_bytes(), headers=OCTETS)

    assert (await announce(upload)).status_code == 200
    assert cause(await announce(upload, "c-01")) == "malformed-request"
    attempt = server.coordinator.rounds[round_id].attempt
    assert cause(await announce(attempt.opening)) == "unknown-message"
    del party.spoken["c-00"]
    assert cause(await announce(party.seal("c-00", attempt).upload)) == "upload-conflict"
    shape = replace(upload, commitments=upload.commitments[:3])
    assert cause(await announce(shape)) == "upload-misshapen"
    assert cause(await server.client.get(f"{where}/c-02")) == "chunk-unknown"
    data = bytes(7)
    put = await server.client.put(f"{where}/c-02/chunks/0", content=data, headers=OCTETS)
    assert cause(put) == "chunk-unknown"
    second = party.seal("c-01", attempt).upload
    assert (await announce(second, "c-01")).json()["missing"] == [0, 1]
    put = await server.client.put(f"{where}/c-01/chunks/0", content=data, headers=OCTETS)
    assert cause(put) == "chunk-mismatch"
    sums = HelperSums.make(
        party.keys["h-0"], context=attempt.context, member="h-0", outcome=bytes(32), digests=()
    )
    assert cause(await announce(sums, "h-0")) == "wrong-phase"
    stranger = await server.client.get(f"/v1/rounds/{round_id}/requests/nobody")
    assert cause(stranger) == "request-unsigned"


async def test_late_uploads_change_nothing(server: Server, party: HelperParty) -> None:
    round_id = await party.begin(server)
    party.down = ("c-29",)
    await party.play(server, round_id, "checking")
    attempt = server.coordinator.rounds[round_id].attempt
    where = f"/v1/rounds/{round_id}/uploads"
    version = (await server.view(round_id))["version"]
    # In already: the answer that got lost is given again.
    again = await server.client.put(
        f"{where}/c-00", content=party.spoken["c-00"].upload.to_bytes(), headers=OCTETS
    )
    assert (again.status_code, again.json()["missing"]) == (200, [])
    data = party.chunks["c-00"][0]
    put = await server.client.put(f"{where}/c-00/chunks/0", content=data, headers=OCTETS)
    assert put.status_code == 200
    wrong = data[:-1] + bytes([data[-1] ^ 1])
    put = await server.client.put(f"{where}/c-00/chunks/0", content=wrong, headers=OCTETS)
    assert cause(put) == "conflict"
    late = party.seal("c-29", attempt).upload
    assert (
        cause(await server.client.put(f"{where}/c-29", content=late.to_bytes(), headers=OCTETS))
        == "wrong-phase"
    )
    put = await server.client.put(f"{where}/c-29/chunks/0", content=data, headers=OCTETS)
    assert cause(put) == "wrong-phase"
    assert (await server.view(round_id))["version"] == version


async def test_sums_that_do_not_fit(server: Server, party: HelperParty) -> None:
    round_id = await party.begin(server)
    await party.play(server, round_id, "summing")
    attempt = server.coordinator.rounds[round_id].attempt
    certificate = phase_of(server, round_id).certificate
    where = f"/v1/rounds/{round_id}/uploads"

    async def announce(helper: str, digests: Any, outcome: bytes = certificate.outcome) -> Any:
        sums = HelperSums.make(
            party.keys[helper], context=attempt.context, member=helper, outcome=outcome, digests=digests
        )
        return await server.client.put(f"{where}/{helper}", content=sums.to_bytes(), headers=OCTETS)

    good = tuple((bytes([place]) * 32,) * attempt.chunks for place in range(3))
    assert cause(await announce("h-0", good[:2])) == "reveal-misshapen"
    assert cause(await announce("h-0", good, bytes(32))) == "reveal-misshapen"
    assert cause(await announce("c-00", good)) == "not-a-decryptor"
    first = await announce("h-0", good)
    assert first.json() == {"member": "h-0", "chunks": 6, "missing": list(range(6))}
    assert (await announce("h-0", good)).status_code == 200
    assert cause(await announce("h-0", good[::-1])) == "conflict"
    data = bytes(attempt.ring.packed_bytes(attempt.chunk_elements(0)))
    for index, expected in ((0, "chunk-mismatch"), (6, "chunk-unknown")):
        put = await server.client.put(f"{where}/h-0/chunks/{index}", content=data, headers=OCTETS)
        assert cause(put) == expected
    # A client's chunk is late now, whatever was announced before.
    put = await server.client.put(f"{where}/c-00/chunks/9", content=data, headers=OCTETS)
    assert cause(put) == "wrong-phase"
    # Its sums never came whole: the others settle it without them.
    party.down = ("h-0",)
    assert (await party.play(server, round_id))["state"] == "done"
    await party.check_result(server, round_id)


async def test_answers_and_the_admins_word(server: Server, party: HelperParty) -> None:
    round_id = await party.begin(server)
    attempt = server.coordinator.rounds[round_id].attempt
    assert isinstance(phase_of(server, round_id), Collecting)
    answers = f"/v1/rounds/{round_id}/answers"
    vote = HelperVote.make(party.keys["h-0"], context=attempt.context, member="h-0", outcome=bytes(32))
    assert cause(await server.client.post(answers, content=vote.to_bytes(), headers=OCTETS)) == "wrong-phase"
    opening = attempt.opening.to_bytes()
    helper = server.signing("h-0", party.keys["h-0"])
    assert cause(await helper.post(answers, content=opening, headers=OCTETS)) == "unknown-message"
    assert cause(await server.client.get(f"/v1/rounds/{round_id}/reports")) == "wrong-phase"
    shown = await server.client.get(f"/v1/rounds/{round_id}/disclosure/c-00")
    assert cause(shown) == "wrong-phase", "there are no indicator rounds with helpers"
    lost = HelperLost.make(
        party.admin, context=attempt.context, family="exact", floor=attempt.manifest.floor, sets=()
    )
    posted = await server.client.post(f"/v1/rounds/{round_id}/lost", content=lost.to_bytes(), headers=OCTETS)
    assert cause(posted) == "wrong-phase"
    assert cause(await server.client.get(f"{party.desk}/closings/0")) == "not-found"


async def test_one_federation_runs_in_one_mode(server: Server, party: HelperParty) -> None:
    """Nobody keeps a ledger over both."""
    round_id = await party.begin(server)
    members = Party(party.ids[:6], admin_seed=b"a" * 32)
    members.keys = party.keys
    members.roster = party.roster
    await members.open_cohort(server, colluders=1)
    for member in (*party.ids, *party.helpers):
        card = await server.client.put(
            f"/v1/cohorts/{members.cohort}/cards/{member}",
            content=members.card_of(member).to_bytes(),
            headers=OCTETS,
        )
        assert card.status_code == 200, card.text
    assert cause(await members.try_round(server)) == "conflict"
    party.down = party.ids[9:]
    assert (await party.play(server, round_id))["state"] == "voided"
    refused = await members.try_round(server)
    assert cause(refused) == "ledger-refused"
    assert round_id in refused.json()["detail"]


async def test_rounds_with_helpers_are_not_combined(server: Server, party: HelperParty) -> None:
    rounds = [await party.begin(server)]
    assert (await party.play(server, rounds[0]))["state"] == "done"
    await party.hear(server, rounds[0])
    await party.enrol(server)
    rounds.append(await party.open_round(server))
    assert (await party.play(server, rounds[1]))["state"] == "done"
    refused = await server.client.post(
        f"/v1/federations/{party.federation}/combinations", json={"rounds": rounds}
    )
    assert cause(refused) == "terms-refused"
