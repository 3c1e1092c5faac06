"""Federations that have stored something of every kind, each stopped in a state."""

import asyncio
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
import numpy as np
from sqlalchemy import func, select

from assurance.kill.damage import Kind, list_present
from service.coordination import summing
from service.coordination.jobs import Jobs
from service.storage.audit import prune_entries
from service.storage.tables import sums
from tests.support import serving
from tests.support.party import SIX, Party
from tests.support.serving import Clock, Server, running, settings_of
from veilsum.calibration import Head
from veilsum.calibration.judge_tables import ShownHeads
from veilsum.cli import backup
from veilsum.protocol import rest
from veilsum.protocol.messages import Lost, Study
from veilsum.protocol.rest import SiteReport
from veilsum.protocol.study import Content, Rehearsal
from veilsum.study.canaries import CanaryPack
from veilsum.study.judging import encode_shown

STATES = (
    *("pairing", "formed", "collecting", "checking", "freezing", "revealing", "recovered"),
    *("erasing", "failed", "repeating", "done"),
)
RANGES_S = 60.0
JUDGE = {"epsilon": 1.0, "delta": 1e-6, "heads": 1, "positive": None, "bins": {"confidence": 5, "score": 8}}


class Members(Party):
    """Members that number their cards by themselves, as real ones do."""

    cards = 0

    def _serial(self) -> int:
        self.cards += 1
        return super()._serial() + self.cards


@dataclass(frozen=True)
class Renewal:
    """A request that stores a thing, and stores it again after it was damaged.

    Attributes:
        shown_at: where it is shown; empty if it isn't shown as it was sent.
    """

    method: str
    path: str
    content: Mapping[str, Any]
    shown_at: str = ""

    async def send(self, server: Server) -> httpx.Response:
        return await server.client.request(self.method, self.path, **self.content)


@dataclass(frozen=True)
class Past:
    """A federation in a state, and the folder of its coordinator, which is stopped.

    Attributes:
        round_id: of the live round; empty if there is none.
        served: what was answered to GET requests, by path.
        renewals: how what members and operators store beside rounds is stored.
        present: the kinds of things that are stored, and how they can be damaged.
    """

    folder: Path
    state: str
    party: Party
    round_id: str = ""
    context: bytes = b""
    ahead_s: float = 0.0
    served: Mapping[str, bytes] = field(default_factory=dict)
    renewals: tuple[Renewal, ...] = ()
    present: frozenset[tuple[Kind, str]] = frozenset()

    @property
    def archive(self) -> Path:
        """Its backup, on SQLite and files."""
        return self.folder.with_suffix(".zip")

    async def copy(self, into: Path) -> "Past":
        """Copy it, with its stores."""
        if serving.SERVERS is not None:
            await serving.SERVERS.copy(self.folder, into)
        return replace(self, folder=serving.snapshot(self.folder, into), party=self.party.copy())

    async def restore(self, into: Path, key: bytes) -> None:
        """Restore its backup into a new folder."""
        if serving.SERVERS is not None:
            await self.copy(into)  # what their own backups restore
        else:
            backup.restore_backup(self.archive, into, key)


async def make_history(folder: Path) -> Past:
    """Play a federation with a history, and stop its coordinator."""
    party, clock = Members(SIX, readers=SIX[:1]), Clock()
    async with running(folder, clock) as server:
        rounds, renewals = await _play_history(server, party)
        shown = [each.shown_at for each in renewals if each.shown_at]
        shown += [f"{party.where}/roster", f"{party.where}/studies/{party.study.hash.hex()}"]
        for each in rounds:
            shown += [
                f"/v1/rounds/{each}/{part}"
                for part in ("result", "result/sums", "result/weights", "transcript")
            ]
        served = {path: await _fetch(server, path) for path in shown}
    return Past(folder, "", party, ahead_s=clock.ahead_s, served=served, renewals=renewals)


async def make_past(history: Past, folder: Path, state: str) -> Past:
    """Play a copy of a federation with a history to a state."""
    past, clock = await history.copy(folder), Clock()
    clock.ahead_s = history.ahead_s
    party = past.party
    async with running(folder, clock) as server:
        round_id = await _play_to(server, party, state)
        context = bytes.fromhex((await server.view(round_id))["context"]) if round_id else b""
        reader = server.signing(SIX[0], party.keys[SIX[0]])  # whose nonce is stored
        sums = next(path for path in past.served if path.endswith("/sums"))
        assert (await reader.get(sums)).status_code == 200
    if state in {"checking", "freezing", "revealing"}:
        # A started coordinator adds up from storage what the stopped one held in memory.
        with patch.object(summing, "STORED_UPLOADS_MIN", 1):
            async with running(folder, clock) as server:
                await _store_ranges(server)
    past = replace(past, state=state, round_id=round_id, context=context, ahead_s=clock.ahead_s)
    if serving.SERVERS is None:
        backup.create_backup(folder, past.archive)
    return replace(past, present=frozenset(await list_present(await settings_of(folder))))


async def _store_ranges(server: Server, *, done: bool = False) -> None:
    """Wait until a round's ranges are stored, or even unmasked."""
    count = select(func.count()).select_from(sums).where(sums.c.done.is_(done))
    async with asyncio.timeout(RANGES_S):
        while not await server.coordinator.database.read_value(count):  # noqa: ASYNC110 - no event to await
            await asyncio.sleep(0.05)


async def _fetch(server: Server, path: str) -> bytes:
    answer = await server.client.get(path)
    assert answer.status_code == 200, f"{path}: {answer.text}"
    return answer.content


async def _play_history(server: Server, party: Party) -> tuple[list[str], tuple[Renewal, ...]]:
    """Finish two periods, and store something of every other kind."""
    await party.found(server)
    coordinator = server.coordinator
    await prune_entries(coordinator.database, coordinator.key, server.clock() + 1, server.clock())
    await party.open_cohort(server)
    await party.enrol(server)
    rounds = [await party.done(server), await party.done(server)]
    for each in rounds:
        await server.tidy(each)
    combining = Renewal("POST", f"{party.where}/combinations", {"json": {"rounds": rounds}})
    name = (await combining.send(server)).raise_for_status().json()["combination"]
    combining = replace(combining, shown_at=f"/v1/combinations/{name}/weights")
    await _make_tokens(server, party)
    failed = (await party.try_cohort(server, period="failed")).json()["cohort"]
    assert (await server.client.post(f"/v1/cohorts/{failed}/close")).json()["state"] == "failed"
    return rounds, (
        combining,
        await _close_context(server, party),
        *await _rehearse(server, party),
        *await _show_heads(server, party),
    )


async def _make_tokens(server: Server, party: Party) -> None:
    for name in ("night-shift", "revoked"):
        request = {"name": name, "scopes": ["rounds"], "federation": party.federation}
        answer = await server.client.post(rest.TOKENS_PATH, json=request)
        assert answer.status_code == 201, answer.text
    revoked = await server.client.post(rest.REVOKE_PATH.format(token=answer.json()["token"]))
    assert revoked.is_success, revoked.text


async def _close_context(server: Server, party: Party) -> Renewal:
    """Close an attempt that the coordinator does not know."""
    context = hashlib.sha256(b"another attempt").digest()
    content = Lost.make_signed(party.admin, context=context).to_bytes()
    shown_at = rest.CLOSING_PATH.format(context=context.hex()) + f"?federation={party.federation}"
    closing = Renewal("POST", f"{party.where}/lost", {"content": content}, shown_at)
    (await closing.send(server)).raise_for_status()
    return closing


async def _publish_variant(
    server: Server, party: Party, period: str, **changes: Any
) -> tuple[Content, str, Renewal]:
    """Publish another study, and open a cohort of it. Returns its content, the cohort, and how it was published."""
    plain = party.make_content(server.clock(), name=period)
    content = plain.model_copy(update=changes)
    study = Study.make_signed(party.admin, federation=party.admin.public, content=content.to_bytes())
    where = f"{party.where}/studies/{study.hash.hex()}"
    publishing = Renewal("PUT", where, {"content": study.to_bytes()}, shown_at=where)
    (await publishing.send(server)).raise_for_status()
    opened = await party.try_cohort(server, study=study.hash.hex(), period=period)
    assert opened.status_code == 201, opened.text
    return content, opened.json()["cohort"], publishing


async def _rehearse(server: Server, party: Party) -> tuple[Renewal, ...]:
    """Store a canary pack and a site's report."""
    pack = CanaryPack(["canary-1"], ["class-0"], np.ones((1, party.dim))).to_bytes()
    digest = hashlib.sha256(pack).hexdigest()
    named = Rehearsal(pack=digest, tolerance=0.01)
    _, cohort, publishing = await _publish_variant(server, party, "rehearsal-1", rehearsal=named)
    where = rest.CANARIES_PATH.format(federation=party.federation, pack=digest)
    storing = Renewal("PUT", where, {"content": pack}, shown_at=where)
    report = SiteReport(
        release="1", sent_s=server.clock(), free_bytes=1 << 40, slips=(), difference=0.0, detail=""
    )
    where = rest.SITE_PATH.format(cohort=cohort, member=party.ids[0])
    reporting = Renewal("PUT", where, {"json": report.model_dump()})
    for each in (storing, reporting):
        (await each.send(server)).raise_for_status()
    return publishing, storing, reporting


async def _show_heads(server: Server, party: Party) -> tuple[Renewal, ...]:
    """Store heads for a judgement."""
    question = party.content.question.model_validate({**party.content.question.model_dump(), "judge": JUDGE})
    content, cohort, publishing = await _publish_variant(server, party, "judge-1", question=question)
    shown = ShownHeads((Head(np.zeros((party.dim, party.classes)), None, ()),), 1.0, np.zeros(0))
    heads = encode_shown(content.question, shown)
    where = rest.HEADS_PATH.format(cohort=cohort, heads=hashlib.sha256(heads).hexdigest())
    storing = Renewal("PUT", where, {"content": heads})
    (await storing.send(server)).raise_for_status()
    return publishing, storing


async def _play_to(server: Server, party: Party, state: str) -> str:
    """Bring a federation into a state; return its live round."""
    if state == "done":
        return ""
    party.number += 1
    await party.open_cohort(server, period=party.periods.format(party.number))
    if state == "pairing":
        await _begin_pairing(server, party)
        return ""
    await party.enrol(server)
    if state == "formed":
        return ""
    round_id = await party.open_round(server)
    match state:
        case "collecting":
            for member in party.ids[:3]:
                await party.serve(server, round_id, member)
        case "erasing":
            await party.play_until(server, round_id, "checking")
            assert (await server.cancel(round_id)).status_code == 200
            await server.pass_time(await server.view(round_id))
        case "failed" | "repeating":
            await party.play_until(server, round_id, "revealing")
            assert (await server.cancel(round_id)).status_code == 200
            view = await party.play(server, round_id)
            assert view["state"] == "failed", view
            if state == "repeating":
                await party.open_cohort(server, repeats=view["context"], period=party.period)
                await party.enrol(server)
            return ""
        case "recovered":
            with patch.object(Jobs, "_solve_round", _wait_forever):
                await party.play_until(server, round_id, state)
                await _store_ranges(server, done=True)
        case _:
            await party.play_until(server, round_id, state)
    return round_id


async def _begin_pairing(server: Server, party: Party) -> None:
    await party.enrol(server, party.ids)
    for member in party.ids[:3]:
        await party.pair(server, member)


async def _wait_forever(*_: object) -> None:
    await asyncio.Event().wait()
