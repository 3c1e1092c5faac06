"""Flip a bit of every kind of stored thing, or lose it: `python -m assurance.kill.losses`.

A federation of six members with a history is played to a state and its coordinator stopped. One thing that it stores is damaged, and it
starts again. The operator, the admin and the members do what docs/operations.md says of the states that follow, in order of what it
costs. In the end a new period of the same federation must give its head, and what was published must be served as it was, or refused.
Every sum that is signed on the way must be the plain one.
"""

import asyncio
import itertools
import os
import random
import sys
import tempfile
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assurance.kill.damage import BLOBS, FILES, Fault, do_damage, list_faults
from assurance.kill.pasts import STATES, Past, make_history, make_past
from assurance.reports import arguments, report
from service.coordination.repairing import repair_database
from service.storage.folder import DATABASE_FILE
from service.storage.stores import blobs_of
from service.telemetry import logs
from tests.support import serving
from tests.support.servers import CREDENTIALS, Servers, bucket_served
from tests.support.serving import Clock, Server, running, settings_of
from veilsum.protocol import round_spec
from veilsum.protocol.errors import Misuse, PeerFault
from veilsum.protocol.messages import Lost
from veilsum.system.key_files import COORDINATOR_KEY

RESTORED_KINDS = {f"{FILES}.{DATABASE_FILE}", "alembic_version.version_num"}
"""What only a backup of the whole database brings back."""
PUBLISHED_FOLDERS = {"results", "transcripts", "combined"}
"""Blobs that a backup holds as they were: they never change."""
LASTING_TABLES = {"rounds", "cohorts"}
"""A damaged row of theirs takes the pages of its round or cohort with it, and nothing else."""
CHUNK_ELEMENTS = 16
FEDERATIONS_AT_ONCE = 3
PATIENCE_S, PLAY_S, HANGS_S = 10.0, 60.0, 600.0


class WrongAnswer(Exception):  # noqa: N818 - a finding
    """A signed sum that is not the plain one, or published bytes that have changed."""


@dataclass
class Found:
    """What faults led to.

    Attributes:
        faults: those without a way out, and wrong answers.
        tried: by kind, and how.
        ways: the ways out that were taken.
    """

    faults: list[str] = field(default_factory=list)
    tried: Counter[str] = field(default_factory=Counter)
    ways: Counter[str] = field(default_factory=Counter)


class Exits:
    """The operator and the admin, after a fault: they do what the table of states says until a new period has its head.

    Args:
        known: the past before the fault.
        past: the damaged copy.
        fault: what was done to it.
        thing: the name of the damaged blob.

    Attributes:
        taken: the ways that were taken.
    """

    def __init__(self, known: Past, past: Past, fault: Fault, thing: str) -> None:
        self._known, self._past, self._fault, self._thing = known, past, fault, thing
        self._folder, self._party = past.folder, past.party
        self._clock = Clock()
        self._clock.ahead_s = past.ahead_s
        self.taken: list[str] = []

    async def leave(self) -> None:
        """Take the ways in turn. Raises an exception if none leads on."""
        errors = list[Exception]()
        ways = {
            "": self._nothing,
            "put back": self._put_back,
            "db repair": self._repair,
            "backup restore": self._restore,
        }
        for name, way in ways.items():
            if not await way():
                continue
            self.taken += [name] if name else []
            try:
                await self._go_on()
            except WrongAnswer:
                raise
            except Exception as error:  # noqa: BLE001 - whatever it is, the next way is tried
                errors.append(error)
            else:
                return
        raise errors[-1] from errors[0]

    async def _nothing(self) -> bool:
        return True

    async def _put_back(self) -> bool:
        """Put a file back from a backup."""
        kind = self._fault.kind
        if str(kind) == f"{FILES}.{COORDINATOR_KEY}":
            path = self._folder / COORDINATOR_KEY
            path.unlink(missing_ok=True)
            path.touch(0o600)
            path.write_bytes((self._known.folder / COORDINATOR_KEY).read_bytes())
            return True
        if kind.place != BLOBS or kind.name not in PUBLISHED_FOLDERS:
            return False
        content = blobs_of(await settings_of(self._known.folder)).get(self._thing)
        blobs_of(await settings_of(self._folder)).put(self._thing, content)
        return True

    async def _repair(self) -> bool:
        with suppress(Misuse):
            await repair_database(await settings_of(self._folder))
        return True

    async def _restore(self) -> bool:
        if str(self._fault.kind) not in RESTORED_KINDS:
            return False
        async with running(self._known.folder) as server:
            key = server.coordinator.key.public
        self._folder = self._folder.with_name(f"{self._folder.name}-restored")
        await self._known.restore(self._folder, key)
        return True

    async def _go_on(self) -> None:
        party, past = self._party, self._past
        async with running(self._folder, self._clock) as server:
            await self._find_refused(server)
            await party.publish_roster(server, party.roster)
            assert (await party.try_study(server, party.study)).status_code in {200, 201}
            if past.round_id:
                await self._end_round(server)
            party.phases.clear()  # members wait for the latest end, and enrol anew
            await party.next_period(server)
            done = await party.done(server)
            await party.check_result(server, done)
            await self._store_again(server)
            assert (await server.client.get(f"/federations/{party.federation}")).status_code == 200

    async def _store_again(self, server: Server) -> None:
        """Store again what is refused, and what isn't shown. Rows of a round that are damaged may keep it refused."""
        refused = await self._find_refused(server)
        for renewal in self._past.renewals:
            if not renewal.shown_at or renewal.shown_at in refused:
                answer = await renewal.send(server)
                assert answer.is_success or self._fault.kind.place in LASTING_TABLES, (
                    f"{renewal.path}: {answer.text}"
                )
        refused = await self._find_refused(server)
        assert not refused or self._fault.kind.place in LASTING_TABLES, refused

    async def _find_refused(self, server: Server) -> dict[str, str]:
        """Return what of the published is refused, with the answer. Raises WrongAnswer for what is served changed."""
        refused = dict[str, str]()
        for path, before in self._past.served.items():
            answer = await server.client.get(path)
            if answer.status_code != 200:
                refused[path] = answer.text
            elif answer.content != before:
                raise WrongAnswer(f"{path} is served changed")
        return refused

    async def _end_round(self, server: Server) -> None:
        ways = {
            "it went on": self._play,
            "round cancel": self._cancel,
            "its latest end": self._wait,
            "admin close": self._close,
        }
        for name, way in ways.items():
            # A member refuses what contradicts what it has signed.
            with suppress(AssertionError, KeyError, TimeoutError, PeerFault):
                if await way(server):
                    self.taken.append(name)
                    return
        self.taken.append("a new period")

    async def _play(self, server: Server) -> bool:
        round_id = self._past.round_id
        async with asyncio.timeout(PLAY_S):
            view = await self._party.play(server, round_id, within_s=PATIENCE_S)
        if view["state"] == "done":
            try:
                await self._party.check_result(server, round_id)
            except AssertionError as error:
                where = f"/v1/rounds/{round_id}/result"
                if b"storage-damaged" not in (await server.client.get(where)).content:
                    raise WrongAnswer(f"round {round_id}: {error}") from error
        return bool(view["ended"])

    async def _cancel(self, server: Server) -> bool:
        answer = await server.cancel(self._past.round_id)
        return answer.status_code == 200 and await self._play(server)

    async def _wait(self, server: Server) -> bool:
        view = await server.view(self._past.round_id)
        server.clock.ahead_s += max(0.0, view["spec"]["latest_end_s"] - server.clock() + 1)
        server.coordinator.scheduler.wake_up()
        return await self._play(server)

    async def _close(self, server: Server) -> bool:
        party, context = self._party, self._past.context
        signed = Lost.make_signed(party.admin, context=context).to_bytes()
        paths = (f"/v1/rounds/{self._past.round_id}/lost", f"{party.where}/lost")
        answers = [await server.client.post(path, content=signed) for path in paths]
        return any(answer.status_code in {200, 204} for answer in answers)


async def try_fault(known: Past, folder: Path, fault: Fault, draw: random.Random, found: Found) -> bool:
    """Damage one thing in a copy of a past, and leave what follows; note what that led to. Returns False if nothing was damaged."""
    past = await known.copy(folder)
    thing = await do_damage(await settings_of(folder), fault, draw)
    if thing is None:
        return False
    found.tried[f"{fault.kind} {fault.how}"] += 1
    exits = Exits(known, past, fault, thing)
    try:
        async with asyncio.timeout(HANGS_S):
            await exits.leave()
    except Exception as error:  # noqa: BLE001 - that is what is looked for
        found.faults.append(f"{fault}: {type(error).__name__}: {str(error)[:300]}")
        sys.stderr.write(f"{found.faults[-1]}\n")
    found.ways.update(exits.taken or ["nothing was needed"])
    return True


@dataclass(frozen=True)
class Campaign:
    """How much is tried, on one pair of stores.

    Attributes:
        only: the kinds that are tried, by a part of their name; empty for all.
    """

    faults: int
    seed: int
    only: str = ""

    async def run(self, folder: Path) -> dict[str, Any]:
        """Try faults of each kind in turn, each in a state that has such a thing."""
        found = Found()
        history = await make_history(folder / "history")
        pasts = [await make_past(history, folder / state, state) for state in STATES]
        places = {each: [past for past in pasts if each in past.present] for each in list_faults()}
        chosen = [each for each, known in places.items() if known and self.only in f"{each[0]} {each[1]}"]
        random.Random(self.seed).shuffle(chosen)
        drawn = enumerate(itertools.cycle(chosen))

        async def try_next() -> None:
            for number, (kind, how) in drawn:
                if found.tried.total() >= self.faults:
                    return
                draw = random.Random(f"{self.seed} {number}")
                known = draw.choice(places[kind, how])
                fault = Fault(known.state, kind, how)
                if await try_fault(known, folder / str(number), fault, draw, found):
                    count, left = found.tried.total(), len(found.faults)
                    sys.stderr.write(f"{count} of {self.faults}: {fault}, {left} without a way out\n")

        await asyncio.gather(*(try_next() for _ in range(FEDERATIONS_AT_ONCE)))
        return {
            "tried": found.tried.total(),
            "kinds": len(found.tried),
            "never_stored": [f"{kind} {how}" for (kind, how), known in places.items() if not known],
            "faults": found.faults,
            "ways": dict(found.ways.most_common()),
        }


def run_on_pair(pair: str, campaign: Campaign) -> dict[str, Any]:
    """Run a campaign on a pair of stores."""
    round_spec.CHUNK_ELEMENTS = CHUNK_ELEMENTS
    with tempfile.TemporaryDirectory() as name:
        if pair == "embedded":
            return asyncio.run(campaign.run(Path(name)))
        with bucket_served() as endpoint:
            serving.SERVERS = servers = Servers(endpoint)
            try:
                return asyncio.run(campaign.run(Path(name)))
            finally:
                asyncio.run(servers.drop())
                serving.SERVERS = None


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--faults", type=int, default=300, help="on each pair of stores")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help='kinds with this in their names, for example "rounds."')
    parser.add_argument("--pair", choices=("embedded", "servers"), action="append")
    chosen = parser.parse_args()
    os.environ.update(CREDENTIALS)
    logs.configure_logs(sys.stderr, quiet=True)
    pairs = chosen.pair or ["embedded", "servers"]
    campaign = Campaign(chosen.faults, chosen.seed, chosen.only)
    found = {pair: run_on_pair(pair, campaign) for pair in pairs}
    report(found, chosen.output, sound=not any(found[pair]["faults"] for pair in pairs))


if __name__ == "__main__":
    main()
