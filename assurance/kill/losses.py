"""Flip a bit of every kind of stored thing, or lose it: `python -m assurance.kill.losses`.

A federation of six members is played to a state, one thing that the coordinator holds then is damaged, and the process starts again. The
operator and the admin do what docs/operations.md says of the states that follow, in order of what it costs. In the end a new period of
the same federation must give its head. Every sum that is signed on the way must be the plain one.
"""

import argparse
import asyncio
import itertools
import math
import os
import random
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sqlalchemy import Column, Connection, Table, and_, delete, select, update
from sqlalchemy.exc import IntegrityError

from assurance.reports import report
from service.coordination.repairing import repair_database
from service.settings import Settings
from service.storage.tables import metadata
from service.telemetry import logs
from tests.support import serving
from tests.support.party import SIX, Party
from tests.support.servers import CREDENTIALS, Servers, bucket_served
from tests.support.serving import OCTETS, TOKEN, Clock, Server, running
from veilsum.protocol import round_spec
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.messages import Lost

STATES = ("pairing", "formed", "collecting", "checking", "freezing", "revealing", "done")
BLOB_FOLDERS = ("uploads", "sums", "events", "results", "transcripts")
LEFT_OUT = frozenset({"leases", "nonces", "alembic_version"})
"""Tables of moments: what they hold is written anew."""
CHUNK_ELEMENTS = 16
PATIENCE_S, HANGS_S = 10.0, 120.0


class Members(Party):
    """Members that number their cards by themselves, as real ones do."""

    cards = 0

    def _serial(self) -> int:
        self.cards += 1
        return super()._serial() + self.cards


@dataclass(frozen=True)
class Fault:
    """A kind of stored thing, in a state of its round, that is flipped or lost."""

    state: str
    kind: str
    how: str

    def __str__(self) -> str:
        return f"{self.kind} {self.how}, {self.state}"


@dataclass
class Found:
    """What faults led to.

    Attributes:
        faults: those without a way out, and signed sums that are not the plain one.
        tried: by kind, and how.
        ways: the ways out that were taken.
    """

    faults: list[str] = field(default_factory=list)
    tried: Counter[str] = field(default_factory=Counter)
    ways: Counter[str] = field(default_factory=Counter)


def kinds() -> list[str]:
    """Name every kind of stored thing: each column, each table's rows, each folder of blobs."""
    columns = [
        f"{table.name}.{column.name}"
        for table in metadata.sorted_tables
        if table.name not in LEFT_OUT
        for column in table.columns
    ]
    return columns + [f"blobs.{folder}" for folder in BLOB_FOLDERS]


def flip_value(value: Any, draw: random.Random) -> Any:
    """Flip a bit of a stored value."""
    match value:
        case bool():
            return not value
        case int():
            return value ^ (1 << draw.randrange(8))
        case float():
            bits = bytearray(struct.pack("<d", value))
            bits[draw.randrange(8)] ^= 1 << draw.randrange(8)
            (changed,) = struct.unpack("<d", bits)
            return changed if math.isfinite(changed) else -value - 1.0
        case str():
            at = draw.randrange(len(value)) if value else 0
            return value[:at] + chr(ord(value[at]) ^ 1) + value[at + 1 :] if value else "x"
    data = bytearray(value)
    data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    return bytes(data)


def damage_row(
    table: Table, column: Column[Any], how: str, draw: random.Random
) -> Callable[[Connection], bool]:
    """Return a work that damages a row, and returns whether there was one."""

    def work(connection: Connection) -> bool:
        rows = connection.execute(select(table)).all()
        if how == "flipped":
            rows = [row for row in rows if getattr(row, column.name) not in {None, b"", ""}]
        if not rows:
            return False
        row = draw.choice(sorted(rows, key=repr))
        key = and_(*(each == getattr(row, each.name) for each in table.primary_key.columns))
        if how == "lost":
            connection.execute(delete(table).where(key))
        else:
            value = flip_value(getattr(row, column.name), draw)
            connection.execute(update(table).where(key).values({column.name: value}))
        return True

    return work


def blob_names(server: Server, folder: str) -> Iterator[str]:
    for name in server.coordinator.blobs.list_names(folder):
        inner = list(blob_names(server, f"{folder}/{name}"))
        yield from inner or [f"{folder}/{name}"]


async def do_damage(server: Server, fault: Fault, draw: random.Random) -> bool:
    """Damage a thing of this kind. Returns False if there is none."""
    place, name = fault.kind.split(".")
    if place == "blobs":
        names = sorted(blob_names(server, name))
        if not names:
            return False
        chosen, blobs = draw.choice(names), server.coordinator.blobs
        data = bytearray(blobs.get(chosen))
        if fault.how == "lost" or not data:
            blobs.delete(chosen)
        else:
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
            blobs.put(chosen, bytes(data))
        return True
    table = metadata.tables[place]
    try:
        return await server.coordinator.database.write(
            damage_row(table, table.columns[name], fault.how, draw)
        )
    except IntegrityError:  # a key that another row has
        return False


class Way:
    """The operator and the admin, after a fault: they do what the table of states says until a new period has its head."""

    def __init__(self, folder: Path, party: Party, settings: Settings, clock: Clock) -> None:
        self._folder, self._party, self._settings, self._clock = folder, party, settings, clock
        self.taken: list[str] = []

    async def leave(self, round_id: str, context: bytes) -> None:
        """Take the ways in turn. Raises an exception if none leads on."""
        try:
            await self._go_on(round_id, context)
        except Exception as error:  # noqa: BLE001 - whatever it is, the operator looks at `db check`
            first = error
        else:
            return
        self.taken.append("db repair")
        await repair_database(self._settings)
        try:
            await self._go_on(round_id, context)
        except Exception as error:
            raise error from first

    async def _go_on(self, round_id: str, context: bytes) -> None:
        party = self._party
        async with running(self._folder, self._clock) as server:
            await party.publish_roster(server, party.roster)
            assert (await party.try_study(server, party.study)).status_code in {200, 201}
            if round_id:
                await self._end_round(server, round_id, context)
            party.phases.clear()  # members wait for the latest end, and enrol anew
            await party.next_period(server)
            done = await party.done(server)
            await party.check_result(server, done)

    async def _end_round(self, server: Server, round_id: str, context: bytes) -> None:
        ways = (
            ("it went on", self._play),
            ("round cancel", self._cancel),
            ("its latest end", self._wait),
            ("admin close", self._close),
        )
        for name, way in ways:
            # A member refuses what contradicts what it has signed.
            with suppress(AssertionError, KeyError, TimeoutError, PeerFault):
                if await way(server, round_id, context):
                    self.taken.append(name)
                    return
        self.taken.append("a new period")

    async def _play(self, server: Server, round_id: str, _context: bytes) -> bool:
        view = await self._party.play(server, round_id, within_s=PATIENCE_S)
        if view["state"] == "done":
            try:
                await self._party.check_result(server, round_id)
            except AssertionError as error:
                if (
                    b"storage-damaged"
                    not in (await server.client.get(f"/v1/rounds/{round_id}/result")).content
                ):
                    raise WrongSum(f"round {round_id}: {error}") from error
        return bool(view["ended"])

    async def _cancel(self, server: Server, round_id: str, context: bytes) -> bool:
        answer = await server.client.post(f"/v1/rounds/{round_id}/cancel", json={"reason": "damaged"})
        return answer.status_code == 200 and await self._play(server, round_id, context)

    async def _wait(self, server: Server, round_id: str, context: bytes) -> bool:
        view = await server.view(round_id)
        server.clock.ahead_s += max(0.0, view["spec"]["latest_end_s"] - server.clock() + 1)
        server.coordinator.scheduler.wake_up()
        return await self._play(server, round_id, context)

    async def _close(self, server: Server, round_id: str, context: bytes) -> bool:
        signed = Lost.make_signed(self._party.admin, context=context).to_bytes()
        paths = (f"/v1/rounds/{round_id}/lost", f"{self._party.where}/lost")
        answers = [await server.client.post(path, content=signed, headers=OCTETS) for path in paths]
        return any(answer.status_code in {200, 204} for answer in answers)


class WrongSum(Exception):  # noqa: N818 - a finding
    """A signed sum that is not the plain one."""


async def play_to(server: Server, party: Party, state: str) -> str:
    """Bring a federation with one finished period into a state; return its round."""
    await party.begin(server)
    await party.done(server)
    if state == "done":
        return ""
    party.number += 1
    await party.open_cohort(server, period=party.periods.format(party.number))
    if state == "pairing":
        for member in party.ids:
            card = party.card_of(member, party.now(server)).to_bytes()
            where = f"/v1/cohorts/{party.cohort}/cards/{member}"
            assert (await server.client.put(where, content=card, headers=OCTETS)).status_code == 200
        for member in party.ids[:3]:
            await party.pair(server, member)
        return ""
    await party.enrol(server)
    if state == "formed":
        return ""
    round_id = await party.open_round(server)
    if state == "collecting":
        for member in party.ids[:3]:
            await party.serve(server, round_id, member)
    else:
        await party.play_until(server, round_id, state)
    return round_id


@dataclass(frozen=True)
class Past:
    """A federation in a state, and the folder of its coordinator."""

    folder: Path
    party: Party
    round_id: str
    context: bytes
    ahead_s: float


async def make_past(folder: Path, state: str) -> Past:
    party, clock = Members(SIX), Clock()
    async with running(folder, clock) as server:
        round_id = await play_to(server, party, state)
        context = bytes.fromhex((await server.view(round_id))["context"]) if round_id else b""
    return Past(folder, party, round_id, context, clock.ahead_s)


async def try_fault(past: Past, fault: Fault, draw: random.Random, found: Found) -> None:
    """Damage one thing and leave what follows; note what that led to."""
    folder, party, clock = past.folder, past.party, Clock()
    clock.ahead_s = past.ahead_s
    own = await serving.SERVERS.settings(folder) if serving.SERVERS is not None else {}
    settings = Settings(data_dir=folder, operator_token=TOKEN, **own)
    async with running(folder, clock) as server:
        if not await do_damage(server, fault, draw):
            return
    found.tried[f"{fault.kind} {fault.how}"] += 1
    way = Way(folder, party, settings, clock)
    try:
        async with asyncio.timeout(HANGS_S):
            await way.leave(past.round_id, past.context)
    except Exception as error:  # noqa: BLE001 - that is what is looked for
        found.faults.append(f"{fault}: {type(error).__name__}: {str(error)[:300]}")
        sys.stderr.write(f"{found.faults[-1]}\n")
    found.ways.update(way.taken or ["nothing was needed"])


async def campaign(faults: int, seed: int, limit_s: float, folder: Path) -> Found:
    """Try so many faults, of each kind in turn, in states that are drawn."""
    found, draw, begun, pasts = Found(), random.Random(seed), time.monotonic(), dict[str, Past]()
    every = [(kind, how) for kind in kinds() for how in ("flipped", "lost")]
    # A row is lost as a whole, so once for each table.
    every = [each for each in every if each[1] == "flipped" or each[0] in _first_of_each_place()]
    draw.shuffle(every)
    for number, (kind, how) in enumerate(itertools.cycle(every)):
        if found.tried.total() >= faults or time.monotonic() - begun > limit_s or number > 20 * faults:
            break
        fault, own = Fault(draw.choice(STATES), kind, how), folder / str(number)
        if serving.SERVERS is not None:
            past = await make_past(own, fault.state)
        else:  # each state is played once, and copied
            if fault.state not in pasts:
                pasts[fault.state] = await make_past(folder / fault.state, fault.state)
            known = pasts[fault.state]
            past = replace(known, folder=serving.snapshot(known.folder, own), party=known.party.copy())
        await try_fault(past, fault, draw, found)
        sys.stderr.write(
            f"{found.tried.total()} of {faults}: {fault}, {len(found.faults)} without a way out\n"
        )
    return found


def _first_of_each_place() -> set[str]:
    firsts = {kind.partition(".")[0]: kind for kind in reversed(kinds())}
    return {*firsts.values(), *(kind for kind in kinds() if kind.startswith("blobs."))}


def on_pair(pair: str, faults: int, seed: int, limit_s: float) -> dict[str, Any]:
    """Try faults on a pair of stores."""
    round_spec.CHUNK_ELEMENTS = CHUNK_ELEMENTS
    with tempfile.TemporaryDirectory() as name:
        if pair == "embedded":
            found = asyncio.run(campaign(faults, seed, limit_s, Path(name)))
        else:
            with bucket_served() as endpoint:
                serving.SERVERS = servers = Servers(endpoint)
                try:
                    found = asyncio.run(campaign(faults, seed, limit_s, Path(name)))
                finally:
                    asyncio.run(servers.drop())
                    serving.SERVERS = None
    return {
        "tried": found.tried.total(),
        "kinds": len(found.tried),
        "faults": found.faults,
        "ways": dict(found.ways.most_common()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--faults", type=int, default=300, help="on each pair of stores")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit-s", type=float, default=float("inf"), help="for each pair")
    parser.add_argument("--pair", choices=("embedded", "servers"), action="append")
    parser.add_argument("--output", type=Path)
    chosen = parser.parse_args()
    os.environ.update(CREDENTIALS)
    logs.configure_logs(sys.stderr, quiet=True)
    pairs = chosen.pair or ["embedded", "servers"]
    found = {pair: on_pair(pair, chosen.faults, chosen.seed, chosen.limit_s) for pair in pairs}
    report(found, chosen.output, sound=not any(found[pair]["faults"] for pair in pairs))


if __name__ == "__main__":
    main()
