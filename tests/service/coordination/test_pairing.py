"""Between manifest and formation: who has paired, who is left out, and what each member is shown."""

import asyncio
import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, func, select, update

from service.coordination import cohorts as cohorts_module
from service.storage.tables import ciphertexts, pairings
from tests.service.conftest import Past
from tests.support.forging import again as signed_again
from tests.support.party import SIX, Party
from tests.support.refusals import refusal
from tests.support.serving import Clock, Server, again, carry_out, running, snapshot
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.member import Paired, Ready
from veilsum.protocol.messages import Cards, Ciphertexts, Manifest, Pairing, Roster
from veilsum.protocol.messages.base import MAX_MEMBERS
from veilsum.protocol.pairing import check_pairing, lapse_s, recipients_of, senders_to
from veilsum.protocol.rest import OCTETS_TYPE

ANSWER_S = 120
"""Length of the window, in the party's study."""
pytestmark = pytest.mark.usefixtures("six")


async def pair(server: Server, party: Party, members: Iterable[str]) -> None:
    for member in members:
        assert await party.pair(server, member) is not None


def paired(party: Party, member: str) -> Paired:
    phase = party.phases[member]
    assert isinstance(phase, Paired)
    return phase


def manifest_of(party: Party, member: str) -> Manifest:
    return paired(party, member).manifest


async def end_window(server: Server, party: Party) -> dict[str, Any]:
    """Let the window of the newest manifest end, and return the cohort after that."""
    view = await server.cohort(party.cohort)
    server.clock.ahead_s += view["deadline_s"] - server.clock()
    server.coordinator.scheduler.wake_up()
    params = {"after": view["version"], "wait_s": 20}
    after: dict[str, Any] = (await server.client.get(f"/v1/cohorts/{party.cohort}", params=params)).json()
    return after


async def revision_of(server: Server, party: Party, state: str) -> int:
    """Return the revision of the runs that members poll; the newest is in a state."""
    view = (await server.client.get(f"{party.where}/runs")).json()
    assert view["runs"][-1]["state"] == state
    return int(view["revision"])


async def stored_rows(server: Server) -> tuple[int, int]:
    """Return how many pairings and ciphertexts are stored."""
    database = server.coordinator.database
    counted = [select(func.count()).select_from(table) for table in (pairings, ciphertexts)]
    found = [await database.read_value(query) for query in counted]
    return found[0], found[1]


async def test_nobody_is_shown_a_ciphertext_before_all_have_paired(server: Server, carded: Party) -> None:
    await pair(server, carded, SIX[:5])
    for member in SIX[:5]:
        manifest = manifest_of(carded, member)
        answers = [
            await carded.ciphertexts_of(server, member, manifest),
            await carded.send_pairing(server, member, paired(carded, member).pairing),
        ]
        for answer in answers:
            assert answer.json()["state"] == "pairing"
            assert answer.json()["paired"] == list(SIX[:5])
    view = await server.cohort(carded.cohort)
    assert (view["state"], view["cards"], view["left_out"]) == ("pairing", list(SIX), [])
    assert view["deadline_s"] == pytest.approx(server.clock() + ANSWER_S, abs=60)
    await pair(server, carded, SIX[5:])
    assert (await server.cohort(carded.cohort))["state"] == "formed"
    manifest = manifest_of(carded, "m-0")
    for member in SIX:
        shown = Ciphertexts.from_bytes((await carded.ciphertexts_of(server, member, manifest)).content)
        assert tuple(each.member for each in shown.shown) == senders_to(manifest, member)
        for each in shown.shown:
            sent = paired(carded, each.member).pairing.ciphertexts
            assert each.ciphertext == sent[recipients_of(manifest, each.member).index(member)]
        repeated = await carded.send_pairing(server, member, paired(carded, member).pairing)
        assert repeated.content == shown.to_bytes()
    await carded.take_manifest(server)
    assert all(isinstance(phase, Ready) for phase in carded.phases.values())


async def test_a_pairing_is_answered_once_the_cohort_is_formed(server: Server, carded: Party) -> None:
    """The pairings in between wake nobody who waits for what is asked next."""
    first = await carded.make_pairing(server, "m-0")
    waiting = asyncio.create_task(carded.send_pairing(server, "m-0", first, wait_s=30))
    params = {"after": 6, "wait_s": 20}
    assert (await server.client.get(f"/v1/cohorts/{carded.cohort}", params=params)).json()["paired"] == [
        "m-0"
    ]
    await pair(server, carded, ["m-1"])
    asking = asyncio.create_task(carded.ciphertexts_of(server, "m-1", manifest_of(carded, "m-1"), wait_s=30))
    for member in SIX[2:5]:
        await pair(server, carded, [member])
        await asyncio.sleep(0.05)
        assert not waiting.done()
        assert not asking.done()
    await pair(server, carded, ["m-5"])
    for member, answer in (("m-0", await waiting), ("m-1", await asking)):
        assert answer.headers["content-type"] == OCTETS_TYPE
        shown = Ciphertexts.from_bytes(answer.content)
        carded.phases[member], _ = paired(carded, member).receive(shown, carded.keys[member], server.clock())
        assert isinstance(carded.phases[member], Ready)


async def test_a_wait_without_news_ends_with_the_cohort(server: Server, carded: Party) -> None:
    first = await carded.make_pairing(server, "m-0")
    answer = await carded.send_pairing(server, "m-0", first, wait_s=0.2)
    assert (answer.json()["state"], answer.json()["paired"]) == ("pairing", ["m-0"])


async def test_who_has_not_paired_in_time_is_left_out_and_the_others_pair_again(
    server: Server, carded: Party
) -> None:
    await pair(server, carded, SIX[:5])
    late = await carded.make_pairing(server, "m-5")
    former, phases = manifest_of(carded, "m-0"), dict(carded.phases)
    waiting = asyncio.create_task(carded.ciphertexts_of(server, "m-0", former, wait_s=30))
    await asyncio.sleep(0.1)
    revision = await revision_of(server, carded, "pairing")
    view = await end_window(server, carded)
    assert await revision_of(server, carded, "pairing") == revision + 1
    assert (view["state"], view["left_out"], view["paired"]) == ("pairing", ["m-5"], [])
    assert (view["cards"], view["quorum"]["members"]) == (list(SIX), 5)
    assert view["deadline_s"] == pytest.approx(server.clock() + ANSWER_S, abs=60)
    assert await stored_rows(server) == (0, 0)
    cards = Cards.from_bytes((await waiting).content)
    assert cards.manifest.members == SIX[:5]
    assert cards.manifest.hash != former.hash
    # A pairing of the former manifest changes nothing, and is answered by the newest cards.
    stale = await carded.send_pairing(server, "m-1", phases["m-1"].messages_to_resend()[0])
    assert Cards.from_bytes(stale.content).manifest == cards.manifest
    assert (await server.cohort(carded.cohort))["version"] == view["version"]
    where = f"/v1/cohorts/{carded.cohort}"
    for answer in (
        await server.client.get(f"{where}/manifest/m-5"),
        await carded.send_pairing(server, "m-5", late),
        await carded.ciphertexts_of(server, "m-5", former),
        await carded.send_pairing(
            server, "m-5", signed_again(late, carded.keys["m-5"], manifest=cards.manifest.hash)
        ),
    ):
        assert refusal(answer) == (422, "unknown-member")
    await carded.take_manifest(server)
    view = await server.cohort(carded.cohort)
    assert (view["state"], view["paired"], view["left_out"]) == ("formed", list(SIX[:5]), ["m-5"])
    assert await revision_of(server, carded, "formed") == revision + 2
    assert refusal(await carded.ciphertexts_of(server, "m-5", cards.manifest)) == (422, "unknown-member")
    manifest = await server.client.get(f"{where}/manifest")
    assert Manifest.from_bytes(manifest.content) == cards.manifest
    round_id = await carded.open_round(server)
    view = await carded.play(server, round_id)
    assert (view["state"], view["survivors"]) == ("done", list(SIX[:5]))
    await carded.check_result(server, round_id)


async def test_a_cohort_has_three_manifests_at_most(server: Server) -> None:
    """Also if the members that are left would be enough for a fourth."""
    party = Party(tuple(f"m-{index:02}" for index in range(12)))
    await party.send_cards(server)
    for many in (11, 10):
        await pair(server, party, party.ids[:many])
        view = await end_window(server, party)
        assert (view["state"], view["left_out"]) == ("pairing", list(party.ids[many:]))
    await pair(server, party, party.ids[:9])
    late, manifest = await party.make_pairing(server, "m-09"), manifest_of(party, "m-00")
    waiting = asyncio.create_task(party.ciphertexts_of(server, "m-00", manifest, wait_s=30))
    await asyncio.sleep(0.1)
    view = await end_window(server, party)
    assert (view["state"], view["fault"]["cause"]) == ("failed", "cohort-too-small")
    assert view["fault"]["parties"] == ["m-09"]
    assert (view["paired"], view["left_out"]) == (list(party.ids[:9]), ["m-10", "m-11"])
    assert view["deadline_s"] is None
    assert (await waiting).json() == view
    assert (await party.ciphertexts_of(server, "m-00", manifest)).json() == view
    assert (await party.send_pairing(server, "m-00", paired(party, "m-00").pairing)).json() == view
    await server.coordinator.jobs.sweep_storage()
    assert await stored_rows(server) == (9, 0)  # the view still says who has paired
    assert await server.cohort(party.cohort) == view
    for answer in (
        await server.client.get(f"/v1/cohorts/{party.cohort}/manifest/m-00"),
        await party.send_pairing(server, "m-09", late),
        await party.try_round(server),
    ):
        assert refusal(answer) == (409, "wrong-phase")
    # The way on is another cohort.
    await party.next_period(server)
    assert (await party.try_round(server)).status_code == 201


async def test_a_pairing_twice_changes_nothing_and_another_is_a_conflict(
    server: Server, carded: Party
) -> None:
    first = await carded.make_pairing(server, "m-0")
    other = await carded.make_pairing(server, "m-1")
    sent = await carded.send_pairing(server, "m-0", first)
    repeated = await carded.send_pairing(server, "m-0", first)
    assert (repeated.status_code, repeated.json()) == (200, sent.json())
    changed = signed_again(first, carded.keys["m-0"], ciphertexts=other.ciphertexts)
    for member, pairing, status, cause in (
        ("m-0", changed, 409, "pairing-conflict"),
        ("m-1", first, 400, "malformed-request"),
        ("m-1", signed_again(other, SigningKey(b"x" * 32)), 422, "bad-signature"),
    ):
        assert refusal(await carded.send_pairing(server, member, pairing)) == (status, cause)
    where = f"/v1/cohorts/{carded.cohort}/pairings/m-1"
    unreadable = await server.client.put(where, content=carded.roster.to_bytes())
    assert refusal(unreadable) == (400, "unknown-message")
    async with server.signing("m-2", carded.keys["m-2"]) as forged:
        answer = await forged.put(where, content=other.to_bytes())
    assert refusal(answer) == (403, "forbidden")
    unasked = await server.client.get(where, params={"manifest": "no hash"})
    assert refusal(unasked) == (400, "malformed-request")
    view = await server.cohort(carded.cohort)
    assert (view["version"], view["paired"]) == (7, ["m-0"])
    assert await stored_rows(server) == (1, len(first.ciphertexts))
    await carded.take_manifest(server)
    assert all(isinstance(phase, Ready) for phase in carded.phases.values())


async def test_the_longest_pairing_is_refused_and_holds_up_no_other(
    server: Server, carded: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its signature and tree are checked beside others' pairings."""
    first = await carded.make_pairing(server, "m-0")
    longest = signed_again(first, carded.keys["m-0"], ciphertexts=(os.urandom(1088),) * MAX_MEMBERS)
    assert refusal(await carded.send_pairing(server, "m-0", longest)) == (422, "pairing-misshapen")
    release, begun = threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def slow(roster: Roster, manifest: Manifest, pairing: Pairing) -> None:
        if pairing.member == "m-0":
            loop.call_soon_threadsafe(begun.set)
            assert release.wait(60)
        check_pairing(roster, manifest, pairing)

    monkeypatch.setattr(cohorts_module, "check_pairing", slow)
    waiting = asyncio.create_task(carded.send_pairing(server, "m-0", longest))
    try:
        await asyncio.wait_for(begun.wait(), 20)
        await pair(server, carded, SIX[1:])
        assert not waiting.done()
    finally:
        release.set()
    assert refusal(await waiting) == (422, "pairing-misshapen")
    assert (await server.cohort(carded.cohort))["paired"] == list(SIX[1:])


async def test_a_restart_after_a_second_manifest_goes_on_with_it(
    server: Server, carded: Party, tmp_path: Path
) -> None:
    await pair(server, carded, SIX[:5])
    await end_window(server, carded)
    await pair(server, carded, SIX[:2])
    before = await server.cohort(carded.cohort)
    assert before["paired"] == ["m-0", "m-1"]
    sent = paired(carded, "m-0").pairing
    async with again(server, tmp_path / "again", server.clock) as restarted:
        assert await restarted.cohort(carded.cohort) == before
        assert (await carded.send_pairing(restarted, "m-0", sent)).json() == before
        other = signed_again(sent, carded.keys["m-0"], ciphertexts=sent.ciphertexts[::-1])
        assert refusal(await carded.send_pairing(restarted, "m-0", other)) == (409, "pairing-conflict")
        await carded.take_manifest(restarted)
        formed = await restarted.cohort(carded.cohort)
        assert (formed["state"], formed["paired"]) == ("formed", list(SIX[:5]))
    async with running(server.folder, server.clock, data_dir=tmp_path / "again") as restarted:
        assert await restarted.cohort(carded.cohort) == formed
        await carded.done(restarted)


async def test_a_window_that_ended_while_nobody_ran_waits_for_the_members(
    tmp_path: Path, stopped: Callable[[str], Past]
) -> None:
    past = stopped("carded")
    party = past.party
    async with running(past.folder) as server:
        await pair(server, party, SIX[:5])
        for copy in ("late", "early"):
            snapshot(server.folder, tmp_path / copy)
    later = Clock()
    later.ahead_s = 2.0 * ANSWER_S
    async with running(tmp_path / "late", later, resume_grace_s=30.0) as server:
        view = await server.cohort(party.cohort)
        assert (view["state"], len(view["paired"])) == ("pairing", 5)
        assert view["deadline_s"] > later() + 20
        then = party.copy()
        await then.take_manifest(server)
        assert (await server.cohort(then.cohort))["state"] == "formed"
    async with running(tmp_path / "early", later) as server:
        params = {"after": view["version"], "wait_s": 20}
        waited = await server.client.get(f"/v1/cohorts/{party.cohort}", params=params)
        assert waited.json()["left_out"] == ["m-5"]


async def test_a_pairing_and_what_it_changes_are_stored_at_once(
    stopped: Callable[[str], Past], monkeypatch: pytest.MonkeyPatch
) -> None:
    past = stopped("carded")
    party = past.party
    async with running(past.folder) as server:
        await pair(server, party, SIX[:5])
        last = await party.make_pairing(server, "m-5")
        before, database = await stored_rows(server), server.coordinator.database
        add_all = database.add_all

        def full(*_: object) -> Any:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(database, "add_all", full)  # after the cohort's change and the pairing's row
        refused = await party.send_pairing(server, "m-5", last)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
        view = await server.cohort(party.cohort)
        assert (view["state"], view["version"], view["paired"]) == ("pairing", 11, list(SIX[:5]))
        assert await stored_rows(server) == before
        monkeypatch.setattr(database, "add_all", add_all)
        answer = await party.send_pairing(server, "m-5", last)
        assert Ciphertexts.from_bytes(answer.content).manifest == manifest_of(party, "m-5").hash
    async with running(past.folder) as server:
        assert (await server.cohort(party.cohort))["state"] == "formed"


async def test_a_pairing_that_was_reported_as_failed_is_taken_up(
    server: Server, carded: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Storage reports a failure but has committed: memory follows storage."""
    await pair(server, carded, SIX[:5])
    last = await carded.make_pairing(server, "m-5")
    write = server.coordinator.database.write

    async def unsure(work: Any) -> Any:
        await write(work)
        raise OSError("the answer got lost")

    with monkeypatch.context() as patched:
        patched.setattr(server.coordinator.database, "write", unsure)
        assert (await carded.send_pairing(server, "m-5", last)).status_code == 503
    await carded.take_manifest(server)
    assert all(isinstance(phase, Ready) for phase in carded.phases.values())
    assert (await server.cohort(carded.cohort))["version"] == 12


@pytest.mark.both_stores
async def test_ciphertexts_are_deleted_once_no_member_has_the_keys_for_them(
    server: Server, carded: Party, tmp_path: Path
) -> None:
    windows = carded.content.question.windows
    await pair(server, carded, SIX)
    manifest, view = manifest_of(carded, "m-0"), await server.cohort(carded.cohort)
    shown = await carded.ciphertexts_of(server, "m-0", manifest)
    server.clock.ahead_s += lapse_s(windows) - 60
    await server.coordinator.jobs.sweep_storage()
    assert await stored_rows(server) == (6, 15)
    assert (await carded.ciphertexts_of(server, "m-0", manifest)).content == shown.content
    server.clock.ahead_s += 61
    for _ in range(2):
        await server.coordinator.jobs.sweep_storage()
    assert await stored_rows(server) == (6, 0)
    for answer in (
        await carded.ciphertexts_of(server, "m-0", manifest),
        await carded.send_pairing(server, "m-0", paired(carded, "m-0").pairing),
    ):
        assert refusal(answer) == (409, "wrong-phase")
    assert await server.cohort(carded.cohort) == view
    async with again(server, tmp_path / "again", server.clock) as restarted:
        assert await restarted.cohort(carded.cohort) == view  # who has paired is still known


@pytest.mark.parametrize("spoil", ["other bytes", "one is missing"])
async def test_damaged_ciphertexts_are_named_and_all_else_goes_on(
    server: Server, carded: Party, spoil: str
) -> None:
    await pair(server, carded, SIX)
    manifest = manifest_of(carded, "m-0")
    first = senders_to(manifest, "m-0")[0]
    one = ciphertexts.c.recipient == "m-0", ciphertexts.c.sender == first
    changes = (
        delete(ciphertexts).where(*one)
        if spoil == "one is missing"
        else update(ciphertexts).where(*one).values(body=b"\x00" * 1088)
    )
    await carry_out(server.coordinator.database, changes)
    named = f"ciphertexts for m-0 in cohort {carded.cohort}"
    answer = await carded.ciphertexts_of(server, "m-0", manifest)
    assert refusal(answer) == (500, "storage-damaged")
    assert named in answer.json()["detail"]
    assert named in (await server.client.get("/readyz")).json()["damaged"]
    for member in SIX[1:]:
        await carded.take_ciphertexts(server, member, paired(carded, member))
        assert isinstance(carded.phases[member], Ready)


async def test_ciphertexts_of_a_cohort_that_still_pairs_are_not_deleted(
    stopped: Callable[[str], Past],
) -> None:
    """Its coordinator stood still until after the members' keys had lapsed by its clock."""
    past = stopped("carded")
    party = past.party
    async with running(past.folder) as server:
        await pair(server, party, SIX[:5])
        last = await party.make_pairing(server, "m-5")
    later = Clock()
    later.ahead_s = 100_000.0
    async with running(past.folder, later, resume_grace_s=30.0) as server:
        assert await stored_rows(server) == (5, 13)
        answer = await party.send_pairing(server, "m-5", last)
        shown = Ciphertexts.from_bytes(answer.content).shown
        assert tuple(each.member for each in shown) == senders_to(manifest_of(party, "m-5"), "m-5")
