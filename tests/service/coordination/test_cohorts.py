import asyncio
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import select

from service.storage.tables import cohorts
from tests.support.forging import again
from tests.support.party import FOUR, Party
from tests.support.refusals import refusal
from tests.support.serving import Server, running
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.messages import Cards, Enrolment, Entry, Manifest, Pairing


def changed(party: Party, member: str, **fields: Any) -> Enrolment:
    """Make an enrolment with other fields of the card."""
    sent = party.card_of(member)
    assert isinstance(sent, Enrolment)
    return replace(sent, card=again(sent.card, party.keys[member], **fields))


async def put_card(server: Server, party: Party, member: str, card: bytes) -> Any:
    return await server.client.put(f"/v1/cohorts/{party.cohort}/cards/{member}", content=card)


async def test_a_manifest_that_is_listed_is_served_though_its_store_has_just_ended(
    server: Server, party: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    await party.found(server)
    await party.open_cohort(server)
    *early, last = party.ids
    await party.enrol(server, tuple(early))
    database, stored, go_on = server.coordinator.database, asyncio.Event(), asyncio.Event()
    write, query = database.write, select(cohorts.c.manifests).where(cohorts.c.id == party.cohort)

    async def pause_after(work: Any) -> Any:
        result = await write(work)
        if await database.read_value(query) and not stored.is_set():
            stored.set()
            await go_on.wait()
        return result

    monkeypatch.setattr(database, "write", pause_after)
    enrolling = asyncio.create_task(party.enrol(server, (last,)))
    await stored.wait()
    runs = (await server.client.get(f"{party.where}/runs")).json()["runs"]
    assert [each["state"] for each in runs] == ["pairing"]
    asked = asyncio.create_task(server.client.get(f"/v1/cohorts/{party.cohort}/manifest/{last}"))
    await asyncio.wait([asked], timeout=0.1)
    go_on.set()
    await enrolling
    assert (await asked).status_code == 200


@pytest.mark.usefixtures("six")
async def test_the_last_card_makes_the_manifest_and_the_last_pairing_forms_the_cohort(
    server: Server, party: Party
) -> None:
    await party.found(server)
    await party.open_cohort(server)
    where = f"/v1/cohorts/{party.cohort}"
    early = Pairing.make_signed(party.keys["m-0"], manifest=bytes(32), member="m-0", ciphertexts=())
    assert refusal(await party.send_pairing(server, "m-0", early)) == (409, "wrong-phase")
    assert refusal(await server.client.get(f"{where}/manifest")) == (409, "wrong-phase")
    assert refusal(await party.try_round(server)) == (409, "wrong-phase")
    waiting = asyncio.create_task(server.client.get(where, params={"after": 5, "wait_s": 20}))
    await party.enrol(server, party.ids)
    view = (await waiting).json()
    assert (view["state"], view["version"], view["cards"]) == ("pairing", 6, list(party.ids))
    assert refusal(await server.client.get(f"{where}/manifest")) == (409, "wrong-phase")
    assert refusal(await party.try_round(server)) == (409, "wrong-phase")
    waiting = asyncio.create_task(server.client.get(where, params={"after": 11, "wait_s": 20}))
    await party.take_manifest(server)
    view = (await waiting).json()
    assert (view["state"], view["version"], view["paired"]) == ("formed", 12, list(party.ids))
    assert view["deadline_s"] is None
    assert view["quorum"] == {
        "members": 6,
        "colluders": 1,
        "decryptors": 6,
        "decryptor_colluders": 1,
        "survivors_min": 4,
        "threshold": 4,
        "members_may_miss": 2,
        "decryptors_may_miss": 2,
        "neighbours": 5,
        "window_dropped_max": 0,
        "caution": None,
    }
    manifest = Manifest.from_bytes((await server.client.get(f"{where}/manifest")).content)
    assert manifest.members == party.ids


async def test_a_card_is_answered_once_enrolment_has_ended(server: Server, party: Party) -> None:
    await party.found(server)
    await party.open_cohort(server)
    where, card = f"/v1/cohorts/{party.cohort}", party.card_of("m-0").to_bytes()
    waits = {"after": 0, "wait_s": 20}
    waiting = asyncio.create_task(server.client.put(f"{where}/cards/m-0", content=card, params=waits))
    card_in = await server.client.get(where, params={"after": 0, "wait_s": 20})
    assert card_in.json()["cards"] == ["m-0"]
    await party.enrol(server, party.ids[1:-1])
    assert not waiting.done()
    await party.enrol(server, party.ids[-1:])
    assert (await waiting).content == (await server.client.get(f"{where}/manifest/m-0")).content
    assert Cards.from_bytes((await waiting).content).manifest.members == party.ids


async def test_an_invitation_holds_all_that_a_card_is_bound_to(server: Server, party: Party) -> None:
    await party.found(server)
    await party.open_cohort(server)
    where = f"/v1/cohorts/{party.cohort}"
    for cards in (0, 1):
        invitation = (await server.client.get(f"{where}/invitation")).json()
        assert invitation["cohort"] == (await server.client.get(where)).json()
        assert len(invitation["cohort"]["cards"]) == cards
        roster, study = (bytes.fromhex(invitation[name]) for name in ("roster", "study"))
        assert (roster, study) == (party.roster.to_bytes(), party.study.to_bytes())
        await party.enrol(server, party.ids[:1])


async def newest(server: Server, party: Party, member: str | None) -> str | None:
    """Return the card in the invitation that a member, or anybody, is shown."""
    client = server.anonymous() if member is None else server.signing(member, party.keys[member])
    async with client:
        answer = await client.get(f"/v1/cohorts/{party.cohort}/invitation")
    assert answer.headers["cache-control"] == ("no-cache" if answer.json()["card"] is None else "no-store")
    card: str | None = answer.json()["card"]
    return card


@pytest.mark.both_stores
async def test_an_invitation_shows_its_signer_the_newest_card_of_its_key(
    server: Server, party: Party
) -> None:
    """Over all cohorts of all federations, whatever came first."""
    await party.found(server)
    await party.open_cohort(server)
    assert await newest(server, party, "m-0") is None
    sent = changed(party, "m-0", serial=2**64 - 1)
    high = sent.card.to_bytes().hex()
    assert (await put_card(server, party, "m-0", sent.to_bytes())).status_code == 200
    assert await newest(server, party, "m-0") == high
    assert await newest(server, party, "m-1") is None
    assert await newest(server, party, None) is None
    forged = server.signing("m-0", SigningKey(b"x" * 32))
    async with forged:
        assert (await forged.get(f"/v1/cohorts/{party.cohort}/invitation")).json()["card"] is None
    # A card with a lower serial may come later: its member was offline.
    other = Party(FOUR, admin_seed=b"o" * 32)
    await other.found(server)
    await other.open_cohort(server)
    for member, serial in (("m-0", 7), ("m-1", 2**63), ("m-2", 255)):
        low = changed(other, member, serial=serial).to_bytes()
        assert (await put_card(server, other, member, low)).status_code == 200
    assert await newest(server, other, "m-0") == high
    for serial in (256, 2**63 - 1):
        await party.open_cohort(server, period=f"period-{serial}")
        sent = changed(party, "m-2", serial=serial)
        assert (await put_card(server, party, "m-2", sent.to_bytes())).status_code == 200
        assert await newest(server, other, "m-2") == sent.card.to_bytes().hex()
    if server.coordinator.database.shared:
        async with running(server.folder) as replica:
            assert await newest(replica, party, "m-0") == high


@pytest.mark.both_stores
async def test_two_cards_of_one_serial_are_a_conflict(server: Server, party: Party) -> None:
    parties = (party, Party(FOUR, admin_seed=b"o" * 32))
    for each in parties:
        await each.found(server)
        await each.open_cohort(server)
    first, second = (changed(each, "m-0", serial=5).to_bytes() for each in parties)
    answers = await asyncio.gather(
        *(put_card(server, each, "m-0", card) for each, card in zip(parties, (first, second), strict=True))
    )
    assert sorted(answer.status_code for answer in answers) == [200, 409]
    [refused] = [answer for answer in answers if answer.status_code == 409]
    assert (refused.json()["cause"], refused.json()["parties"]) == ("card-conflict", ["m-0"])
    taken = [len((await server.cohort(each.cohort))["cards"]) for each in parties]
    assert sorted(taken) == [0, 1]
    again_ = [
        await put_card(server, each, "m-0", card) for each, card in zip(parties, (first, second), strict=True)
    ]
    assert [answer.status_code for answer in again_] == [answer.status_code for answer in answers]
    # Another member's card of that serial is its own.
    same = changed(party, "m-1", serial=5).to_bytes()
    assert (await put_card(server, party, "m-1", same)).status_code == 200


async def test_a_card_twice_changes_nothing_and_another_is_a_conflict(server: Server, party: Party) -> None:
    await party.found(server)
    await party.open_cohort(server)
    card = party.card_of("m-0").to_bytes()
    first = await put_card(server, party, "m-0", card)
    again = await put_card(server, party, "m-0", card)
    assert (again.status_code, again.json()) == (200, first.json())
    for member, sent, status, cause in (
        ("m-0", party.card_of("m-0").to_bytes(), 409, "card-conflict"),
        ("m-1", card, 400, "malformed-request"),
        ("m-1", card[:-1], 400, "truncated"),
        (
            "m-1",
            changed(party, "m-1", expires_s=party.content.notes.expires - 1).to_bytes(),
            422,
            "card-expired",
        ),
    ):
        assert refusal(await put_card(server, party, member, sent)) == (status, cause)
    assert (await server.cohort(party.cohort))["version"] == 1


@pytest.mark.usefixtures("six")
async def test_the_operator_may_close_early_and_who_comes_later_is_refused(
    server: Server, party: Party
) -> None:
    await party.send_cards(server, party.ids[:5])
    closed = await server.client.post(f"/v1/cohorts/{party.cohort}/close")
    assert (closed.json()["state"], closed.json()["version"]) == ("pairing", 6)
    assert closed.json()["left_out"] == []
    assert (await server.client.post(f"/v1/cohorts/{party.cohort}/close")).json() == closed.json()
    answer = await put_card(server, party, "m-5", party.card_of("m-5").to_bytes())
    assert refusal(answer) == (409, "wrong-phase")
    again = await put_card(server, party, "m-0", party.phases["m-0"].messages_to_resend()[0].to_bytes())
    assert again.status_code == 200
    await party.take_manifest(server)
    await party.done(server)


async def test_enrolment_with_too_few_cards_fails_by_its_deadline(server: Server, party: Party) -> None:
    await party.send_cards(server, party.ids[:2])
    server.clock.ahead_s += (await server.cohort(party.cohort))["deadline_s"] - server.clock()
    server.coordinator.scheduler.wake_up()
    view = (await server.client.get(f"/v1/cohorts/{party.cohort}", params={"after": 2, "wait_s": 10})).json()
    assert (view["state"], view["fault"]["cause"]) == ("failed", "cohort-too-small")
    assert refusal(await party.try_round(server)) == (409, "wrong-phase")
    # The way on is another cohort.
    await party.open_cohort(server)
    party.phases.clear()
    await party.enrol(server)
    assert (await party.try_round(server)).status_code == 201


@pytest.mark.usefixtures("six")
async def test_a_cohort_that_cannot_form_is_refused_before_cards_go_out(server: Server, party: Party) -> None:
    """The roster is larger or smaller than the study allows."""
    await party.found(server)
    key = party.roster.coordinator
    for number, count, cause in ((2, 7, "weak-parameters"), (3, 3, "cohort-too-small")):
        entries = tuple(Entry(f"m-{index}", bytes([index + 1]) * 32) for index in range(count))
        await party.publish_roster(server, party.make_roster(key, number, members=entries))
        assert refusal(await party.try_cohort(server)) == (422, cause)
    assert (await server.client.get(party.where)).json()["cohorts"] == []


async def test_a_cohort_whose_study_has_expired_opens_no_round(server: Server, formed: Party) -> None:
    server.clock.ahead_s += 81 * 86_400
    assert refusal(await formed.try_round(server)) == (422, "study-refused")


async def test_a_cohort_of_a_superseded_roster_opens_no_round_and_its_run_goes_on_in_another(
    server: Server, formed: Party
) -> None:
    formed.roster = formed.make_roster(formed.roster.coordinator, 2, name="renamed")
    await formed.publish_roster(server, formed.roster)
    assert refusal(await formed.try_round(server)) == (409, "roster-rollback")
    await formed.open_cohort(server)
    await formed.enrol(server)
    assert (await formed.play(server, await formed.open_round(server)))["state"] == "done"
    assert refusal(await formed.try_cohort(server)) == (409, "already-summed")
