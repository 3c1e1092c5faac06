"""A restart at any point resumes the round, and nothing that was acknowledged is lost."""

import asyncio
import itertools
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from service.coordination.rounds import LiveRound
from tests.service.conftest import Past
from tests.support.party import FOUR, Party
from tests.support.serving import Clock, Server, running, snapshot
from tests.support.simulator import After
from veilsum.protocol.errors import Misuse

Saved = tuple[str, Path, Party, dict[str, Any], float]


async def see(server: Server, party: Party) -> dict[str, Any]:
    """Return all public views."""
    seen: dict[str, Any] = {}
    federation = (await server.client.get(f"/v1/federations/{party.federation}")).json()
    seen["federation"] = federation
    for cohort in federation.get("cohorts", ()):
        seen[cohort] = await server.cohort(cohort)
    for round_id in federation.get("rounds", ()):
        seen[round_id] = await server.view(round_id)
        for member in party.ids:
            asked = await server.client.get(f"/v1/rounds/{round_id}/requests/{member}")
            seen[f"asked of {member}"] = (asked.status_code, asked.headers["veilsum-version"], asked.content)
            upload = await server.client.get(f"/v1/rounds/{round_id}/uploads/{member}")
            seen[f"upload of {member}"] = (upload.status_code, upload.json())
    return seen


async def test_what_a_round_acknowledged_survives_a_crash_after_any_kind_of_request(tmp_path: Path) -> None:
    party = Party(FOUR, dim=3, classes=2)
    saved = list[Saved]()
    async with running(tmp_path / "data") as server:

        async def on_ack(label: str) -> None:
            """Keep the first of each kind."""
            new = label.split(maxsplit=1)[0] not in {known.split()[0] for known, *_ in saved}
            # The round may be solved at any moment now; that is a test of its own.
            found = server.coordinator.catalogue.rounds.get(round_id)
            solved = "Reveal" in label and (not isinstance(found, LiveRound) or found.recovered is not None)
            if new and not solved:
                seen = await see(server, party)
                copied = snapshot(server.folder, tmp_path / f"crash-{len(saved)}")
                if seen == await see(server, party):
                    saved.append((label, copied, party.copy(), seen, time.time()))

        party.on_ack = on_ack
        round_id = ""
        round_id = await party.begun(server)
        view = await party.play(server, round_id)
        assert view["state"] == "done"
        await server.tidy(round_id)
        ended = snapshot(server.folder, tmp_path / "end")
        saved.append(("the end", ended, party.copy(), await see(server, party), time.time()))
    kinds = "roster cohort card pairing round announcement chunk Receipt Vote Reveal"
    assert {label.split()[0] for label, *_ in saved} >= {*kinds.split()}
    finished = {"roster", "study", "cohort", "round"}
    for label, folder, then, seen, at_s in saved:
        clock = Clock()
        clock.ahead_s = at_s - time.time()  # however long this test takes, no deadline passes
        async with running(folder, clock) as again:
            assert await see(again, then) == seen, label
            # A party that continues from a card forms the cohort and opens the round.
            if label.split()[0] not in finished:
                finished.add(label.split()[0])
                await finish(again, then)


async def finish(server: Server, party: Party) -> None:
    """Continue from any state to a checked result."""
    await party.enrol(server)
    found = (await server.client.get(f"/v1/federations/{party.federation}")).json()["rounds"]
    round_id = found[0] if found else await party.open_round(server)
    assert (await party.play(server, round_id))["state"] == "done"
    await party.check_result(server, round_id)
    assert party.heard() == set(party.ids)


@pytest.mark.usefixtures("six")
@pytest.mark.parametrize("state", ["voiding", "revealing"])
async def test_an_end_that_was_not_kept_before_the_crash_is_kept_after_it(
    tmp_path: Path, stopped: Callable[[str], Past], state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event that ends a round is stored, but its outcome isn't."""
    past = stopped("formed")
    party = past.party
    async with running(past.folder) as server:
        round_id = await party.open_round(server)
        party.drop = {"m-5": After.ANNOUNCEMENT} if state == "voiding" else {}
        await party.seal_all(server, round_id)
        await party.play_until(server, round_id, "collecting" if state == "voiding" else state)
        round_ = server.coordinator.catalogue.rounds[round_id]

        async def crash(*_: object) -> None:
            raise OSError("the disk is gone")

        with monkeypatch.context() as patched:
            patched.setattr(type(round_), "_store_end", crash)
            cancelled = await server.cancel(round_id)
            if state == "voiding":
                assert cancelled.status_code == 200
                with pytest.raises(AssertionError, match="unavailable"):
                    await party.play(server, round_id, within_s=0.5)
            else:
                assert cancelled.status_code == 503
            assert not (await server.view(round_id))["ended"]
            snapshot(server.folder, tmp_path / "crash")
        # Without a crash the scheduler tries again.
        assert (await server.until(round_id))["ended"]
    async with running(tmp_path / "crash") as server:
        view = await server.until(round_id)
        assert view["state"] == ("voided" if state == "voiding" else "failed")
        assert await party.open_round(server)


@pytest.mark.parametrize("ended", [False, True])
async def test_a_coordinator_whose_blobs_are_gone_does_not_start(
    stopped: Callable[[str], Past], *, ended: bool
) -> None:
    past = stopped("formed")
    data, party = past.folder, past.party
    async with running(data) as server:
        round_id = await party.open_round(server)
    shutil.rmtree(data / "blobs")
    async with running(data) as server:  # nothing was in them
        if ended:
            assert (await party.play(server, round_id))["state"] == "done"
            await server.tidy(round_id)
        else:
            await party.serve(server, round_id, party.ids[0])
    shutil.rmtree(data / "blobs")
    for _ in range(2):
        with pytest.raises(Misuse, match="`blobs`"):
            async with running(data):
                pass
    (data / "blobs" / "transcripts" / "lost").mkdir(parents=True)
    async with running(data) as server:
        assert (await server.client.get("/readyz")).status_code == 200


async def test_a_commit_that_was_reported_as_failed_is_taken_up(
    server: Server, formed: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Storage reports a failure but has committed: memory follows storage."""
    round_id = await formed.open_round(server)
    database = server.coordinator.database
    write = database.write

    async def unsure(work: Any) -> Any:
        found = await write(work)
        if work.__qualname__.startswith("Journal."):
            raise OSError("the answer got lost")
        return found

    formed.seal("m-0", await server.opening(round_id, "m-0"))
    where = f"/v1/rounds/{round_id}/uploads/m-0"
    with monkeypatch.context() as patched:
        patched.setattr(database, "write", unsure)
        put = await formed.announce(server, round_id, "m-0")
        assert (put.status_code, put.headers["retry-after"]) == (503, "5")
    # The scheduler checks by itself, without a request.
    for _ in range(100):
        if (await server.client.get(where)).status_code == 200:
            break
        await asyncio.sleep(0.02)
    put = await formed.announce(server, round_id, "m-0")
    assert put.status_code == 200
    assert (await server.view(round_id))["version"] == 2
    assert (await formed.play(server, round_id))["state"] == "done"
    await formed.check_result(server, round_id)


@pytest.mark.usefixtures("six")
async def test_an_end_that_was_reported_as_failed_is_found_although_nobody_speaks_any_more(
    server: Server, formed: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    formed.drop = {"m-4": After.VOTE, "m-5": After.VOTE}  # as few reveals as do
    round_id = await formed.open_round(server)
    database, lost = server.coordinator.database, itertools.count()
    write = database.write

    async def unsure(work: Any) -> Any:
        found = await write(work)
        if work.__qualname__.startswith("Journal.end") and next(lost) == 0:
            raise OSError("the answer got lost")
        return found

    monkeypatch.setattr(database, "write", unsure)
    async with asyncio.timeout(20):
        assert (await formed.play(server, round_id))["state"] == "done"
    assert next(lost) == 1
    await server.tidy(round_id)
    assert server.coordinator.blobs.list_names("uploads") == ()
    assert len(await server.coordinator.federations.read_links(formed.federation)) == 1


async def test_deadlines_that_passed_while_nobody_ran_wait_for_the_members(
    tmp_path: Path, stopped: Callable[[str], Past]
) -> None:
    past = stopped("formed")
    party = past.party
    async with running(past.folder) as server:
        formed = party.cohort
        late = await party.open_cohort(server)
        party.cohort = formed
        round_id = await party.open_round(server, lifetime_s=200_000)
        snapshot(server.folder, tmp_path / "crash")
    later = Clock()
    later.ahead_s = 100_000.0
    async with running(tmp_path / "crash", later, resume_grace_s=30.0) as server:
        view = await server.view(round_id)
        assert view["state"] == "collecting"
        assert view["deadline_s"] > later() + 20
        assert (await server.cohort(late))["state"] == "enrolling"
        assert (await party.play(server, round_id))["state"] == "done"
    async with running(tmp_path / "crash", later) as server:
        waited = await server.client.get(f"/v1/cohorts/{late}", params={"after": 0, "wait_s": 10})
        assert waited.json()["fault"]["cause"] == "cohort-too-small"
