"""Rounds one after another on the same stores, while the processes that serve them are killed and restarted."""

import asyncio
import gc
import itertools
import os
import sys
import tempfile
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import httpx

from assurance.kill.coordinator import CHUNK_ELEMENTS, DAMAGE, serve
from assurance.kill.game import Game
from assurance.kill.games import GAMES, Rotten, outcome
from assurance.kill.harness import Doom, Fates, Fleet
from service.settings import Settings
from service.storage.stores import blobs_of
from tests.support.replicas import CONTEXT, Patient, Replica, warm_up
from tests.support.servers import CREDENTIALS, Servers, bucket_served
from tests.support.serving import TOKEN
from veilsum.protocol import rest, round_spec
from veilsum.protocol.audit import EMPTY_LOG_END, AuditPage, follow_entries

# Not only the coordinator: each process runs the main module again, and should find its imports loaded.
CONTEXT.set_forkserver_preload(["assurance.kill.campaign"])
# Otherwise the first collection in each process copies every page that it shares with the others: half of its work.
gc.freeze()
NO_WORK = ("migrat", "forget", "keys.", "tokens.", "sweep", "nonces.", "Leases.", "audit.", "LastHeard.")
"""Points of a process that starts, looks for work or writes the audit log."""
CLEAR_S = 40.0
"""Time within which another process finishes a dead process's deletions."""
LIVES = 2.0
"""Longest life of a process that is killed at any time, in multiples of a start."""
EVERY_FEW_S = (3.0, 12.0)


def replicas_on(stores: Mapping[str, Any], where: Path, count: int) -> list[Replica]:
    """Make replicas on the same stores, not yet started, each with its own folder."""
    values = {
        "operator_token": TOKEN,
        "resume_grace_s": 0.0,
        "coordinator_key": "5e" * 32,
        # A whole consortium's load comes from one address here.
        "address_requests_per_s": 1e6,
        "caller_requests_per_s": 1e6,
        **stores,
    }
    found = [
        Replica(serve, {**values, "data_dir": where / str(number)}, CREDENTIALS, where / "points")
        for number in range(count)
    ]
    for replica in found:
        replica.values["data_dir"].mkdir(mode=0o700, exist_ok=True)
    return found


@dataclass
class Campaign:
    """Rounds one after another on the same stores, while processes are killed.

    Attributes:
        plays: the games, in turn.
        faults: broken promises.
        expected: the outcome of the first game of each kind.
        rotten: endings of rounds with flipped bits in storage.
        start_s: time from a process's start to its first answer, without kills.
        gaps_s: time from a kill to the next acknowledged request, by any process, without another kill between them.
    """

    replicas: list[Replica]
    games: int = 0
    faults: list[str] = field(default_factory=list)
    gaps_s: list[float] = field(default_factory=list)
    start_s: float = 0.0
    plays: tuple[type[Game], ...] = GAMES
    expected: dict[str, str] = field(default_factory=dict)
    rotten: Counter[str] = field(default_factory=Counter)

    @property
    def damage(self) -> Counter[str]:
        """Flipped bits and their detections, by kind of blob."""
        path = self.replicas[0].log.with_name(DAMAGE)
        return Counter(path.read_text("ascii").splitlines() if path.exists() else ())

    @property
    def flips(self) -> int:
        """Number of flipped bits."""
        return sum(count for what, count in self.damage.items() if what.startswith("flipped"))

    @asynccontextmanager
    async def _playing(self, fleet: Fleet) -> AsyncIterator[tuple[Patient, httpx.AsyncClient]]:
        waiting = len(fleet.deaths_s)

        def answered(now_s: float) -> None:
            nonlocal waiting
            self.start_s = self.start_s or now_s - begun
            if waiting < len(fleet.deaths_s):
                waiting = len(fleet.deaths_s)
                self.gaps_s.append(now_s - fleet.deaths_s[-1])

        begun = time.monotonic()
        members = Patient(
            lambda: [replica.port for replica in fleet.replicas if replica.runs], on_answer=answered
        )
        async with (
            fleet.kept(),
            httpx.AsyncClient(transport=members, base_url="http://coordinator", timeout=60.0) as client,
        ):
            yield members, client

    async def run(self, fates: Fates, enough: "Enough", title: str) -> dict[str, Any]:
        """Play games until `enough`.

        Returns:
            The counts of `killed` by label, and the times to recovery.
        """
        begun, first = time.monotonic(), len(self.gaps_s)
        fleet = Fleet(self.replicas, fates, fates.killed, fates.passed)
        games = calm = answers = 0
        while not enough(games, fleet, calm):
            async with self._playing(fleet) as (members, client):
                calm_before = calm
                # After a calm game, start new processes: the earlier ones may have died at all due points already.
                while (calm == calm_before or not enough.calm) and not enough(games, fleet, calm):
                    games, before = games + 1, fleet.killed.total()
                    fates.games = games
                    await self._game(fleet, members, client)
                    killed = fleet.killed.total() - before
                    calm = 0 if killed else calm + 1
                    sys.stderr.write(
                        f"{title}: game {games}, {killed} kills, {fleet.killed.total()} so far\n"
                    )
                answers += members.answers
        self.faults += fleet.faults
        gaps = self.gaps_s[first:]
        labels = {label: count for label, count in sorted(fleet.killed.items()) if label != Fleet.RANDOM}
        return {
            "rounds": games,
            "killed": fleet.killed.total(),
            "killed_at_any_time": fleet.killed[Fleet.RANDOM],
            "killed_by_label": labels,
            "acknowledged_requests": answers,
            "until_the_next_acknowledged_request_s": _spread(gaps),
            "until_work_goes_on_s": _spread(list(_pauses(self.replicas[0].log, fleet.deaths_s))),
            "seconds": round(time.monotonic() - begun, 1),
        }

    async def _game(self, fleet: Fleet, members: Patient, client: httpx.AsyncClient) -> None:
        self.games += 1
        game = self.plays[(self.games - 1) % len(self.plays)](self.games, fleet, members, client)
        kind = type(game).__name__
        try:
            found = outcome(await game.play())
        except (AssertionError, TimeoutError) as error:
            self.faults.append(f"game {self.games}, {kind}: {error!r}")
            return
        finally:
            self.rotten += game.ends
        if found != self.expected.setdefault(kind, found):
            self.faults.append(f"game {self.games}, {kind}: another head")
        if game.lost:
            self.faults.append(f"game {self.games}: {', '.join(sorted(game.lost))} lost")

    async def end(self) -> None:
        """Check that all rounds are cleaned up, and that the audit log's chain holds."""
        fleet = Fleet(self.replicas, Doom)
        async with self._playing(fleet) as (_, client):
            blobs, end = blobs_of(Settings(**self.replicas[0].values)), time.monotonic() + CLEAR_S
            while left := [
                f"{each}/{name}" for each in ("uploads", "sums", "events") for name in blobs.list_names(each)
            ]:
                if time.monotonic() > end:
                    self.faults.append(f"{', '.join(left)} left")
                    break
                await client.get(rest.HEALTH_PATH)
                await asyncio.sleep(0.2)
            reached, head = EMPTY_LOG_END, None
            while head is None or reached.number < head.end.number:
                answer = await client.get(rest.AUDIT_PATH, params={"after": reached.number})
                page = AuditPage.model_validate_json(answer.content)
                reached, head = follow_entries(page.entries, reached), page.head
            if reached != head.end:
                self.faults.append("the audit log's chain is broken")


def _pauses(log: Path, deaths_s: list[float]) -> Iterator[float]:
    """Yield the time from each kill to the next durable point of a round's work, by any process, if no other kill came between them."""
    worked = [
        float(at_s)
        for at_s, _, label in (line.split(" ", 2) for line in log.read_text("ascii").splitlines())
        if not any(name in label for name in NO_WORK)
    ]
    for died_s, next_s in itertools.pairwise((*sorted(deaths_s), float("inf"))):
        place = bisect_right(worked, died_s)
        if place < len(worked) and worked[place] < next_s:
            yield worked[place] - died_s


def _spread(values: list[float]) -> dict[str, float]:
    if len(values) < 2:
        return {}
    shown = {"median": median(values), "99_in_100": quantiles(values, n=100)[98], "most": max(values)}
    return {name: round(value, 3) for name, value in shown.items()}


class Enough:
    """When a campaign may end.

    Attributes:
        calm: after this many games in a row without a death, each with new processes.
        kills: after this many kills, and
        rounds: this many rounds, and
        done: once this returns True.
        by_s: in any case at this monotonic time.
    """

    def __init__(
        self,
        *,
        calm: int = 0,
        kills: int = 0,
        rounds: int = 0,
        done: Callable[[], bool] = lambda: True,
        by_s: float = float("inf"),
    ) -> None:
        self.calm, self.kills, self.rounds, self.done, self.by_s = calm, kills, rounds, done, by_s

    def __call__(self, games: int, fleet: Fleet, calm: int) -> bool:
        if time.monotonic() > self.by_s:
            return True
        reached = calm >= self.calm and fleet.killed.total() >= self.kills and games >= self.rounds
        return reached and self.done()


@dataclass(frozen=True)
class Plan:
    """The size of a pair's campaigns.

    Attributes:
        times: kills at each label.
        random: kills at any time.
        rounds: of three replicas, one of which is killed every few seconds.
        flips: of bits in stored chunks and sums.
        limit_s: time limit of each campaign.
        plays: the games, in turn.
    """

    times: int = 10
    random: int = 600
    rounds: int = 80
    flips: int = 300
    limit_s: float = float("inf")
    plays: tuple[type[Game], ...] = GAMES

    def end_s(self) -> float:
        """The end of a campaign that starts now, in monotonic time."""
        return time.monotonic() + self.limit_s


async def campaigns(pair: str, plan: Plan, folder: Path, servers: Servers | None) -> dict[str, Any]:
    """Run all campaigns on a pair of stores, ordered by what each finds most easily."""
    found: dict[str, Any] = {}
    stores = await servers.settings(folder) if servers is not None else {}
    campaign = Campaign(replicas_on(stores, folder, 1 if servers is None else 2), plays=plan.plays)
    turn = len(plan.plays)
    found["nobody_killed"] = await campaign.run(Fates(), Enough(rounds=turn), pair)
    by_label = Fates(times=plan.times)
    found["each_point"] = await campaign.run(
        by_label, Enough(calm=2 * turn, by_s=plan.end_s()), f"{pair}, points"
    )
    any_time = Fates(among_s=(0.0, LIVES * campaign.start_s), recovered=lambda: len(campaign.gaps_s))
    found["any_time"] = await campaign.run(
        any_time, Enough(kills=plan.random, by_s=plan.end_s()), f"{pair}, any time"
    )
    few = Fates(among_s=EVERY_FEW_S)
    if servers is not None:
        campaign.replicas.append(replicas_on(stores, folder, 3)[2])
        found["three_replicas"] = await campaign.run(
            few, Enough(rounds=plan.rounds, by_s=plan.end_s()), f"{pair}, three"
        )
    campaign.plays, flipped = (Rotten,), Enough(done=lambda: campaign.flips >= plan.flips, by_s=plan.end_s())
    found["flips"] = await campaign.run(few, flipped, f"{pair}, flips")
    await campaign.end()
    found["damage"] = {**campaign.damage, **{f"rounds {end}": n for end, n in campaign.rotten.items()}}
    found["rounds"], found["faults"] = campaign.games, campaign.faults
    return found


def on_pair(pair: str, plan: Plan) -> dict[str, Any]:
    """Run all campaigns on a new pair of stores."""
    os.environ.update(CREDENTIALS)
    round_spec.CHUNK_ELEMENTS = CHUNK_ELEMENTS  # tests restore it
    warm_up()
    with tempfile.TemporaryDirectory() as folder:
        if pair == "embedded":
            return asyncio.run(campaigns(pair, plan, Path(folder), None))
        with bucket_served() as endpoint:
            servers = Servers(endpoint)
            try:
                return asyncio.run(campaigns(pair, plan, Path(folder), servers))
            finally:
                asyncio.run(servers.drop())
