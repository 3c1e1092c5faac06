"""A federation of processes, from its first study to the end of a run, and what must hold whatever happens."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from safetensors.numpy import load

from assurance.liveness.faulty_process import FaultyProcess
from assurance.liveness.proxy import Fault, Proxy
from assurance.outages.cable import Cable
from client_sdk import Result
from client_sdk.database import StateDatabase
from client_sdk.errors import PeerFault
from client_sdk.operator import Operator
from client_sdk.reservations import State
from client_sdk.store import Store
from tests.support.simulator import simulated_content, simulated_question
from veilsum.cli.admin import load_admin
from veilsum.cli.demo.coordinator import free_port
from veilsum.cli.demo.federation import Federation
from veilsum.cli.demo.processes import Children
from veilsum.protocol.messages import NO_REASON, Link, Lost
from veilsum.protocol.messages.opening import LOST_REASON
from veilsum.protocol.rest import RoundView, round_name
from veilsum.protocol.study import DAY_S, DISCLOSED_STEPS
from veilsum.study.vectors import compute_vector

ROWS, LABELS, STUDY = 50, 3, "simulated"
WINDOWS = {"enrol": 40, "upload": 12, "answer": 6}
KINDS = ("at random", "absent", "unpaired", "away", "lost", "given up")
FAULTS_S = 60.0
"""Time in which faults begin."""
LATEST_S = 90.0
"""Longest time for which a member that comes late is away: private keys are erased before that."""
WITHIN_S, LEARNED_S = 900.0, 240.0
"""Longest time from the last fault to the run's end, and from there until every member has learned of it."""
LOOK_S = 0.3


class World:
    """A coordinator, an operator and members. Faults follow from the seed, as far as the timing of processes allows.

    Attributes:
        kind: what happens in addition to random faults: a member comes late or never; it enrols, and pairs late or never; too many members
            leave for a while to decrypt; they never come back; or all members give the run up afterwards and sum the records in another
            period.
        ended: "result", or how the last round ended.
        steps: how each attempt ended.
        faults: number of faults by kind.
        network: number of the network's faults by kind.
        requests: how many the network has passed on.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.seed, self.chance = folder, seed, Random(seed)
        self.kind, self.ended, self.period = KINDS[seed % len(KINDS)], "", "first"
        self.steps, self.faults, self._digests = (
            list[str](),
            Counter[str](),
            dict[tuple[str, int, str], bytes](),
        )
        self.network, self.requests = Counter[Fault](), 0
        self.names = tuple(f"m-{index}" for index in range(self.chance.choice((5, 6))))

    async def play(self) -> None:
        """Play a run to its end. Raises AssertionError if something that must hold doesn't."""
        async with AsyncExitStack() as stack:
            await self._begin(stack)
            async with asyncio.TaskGroup() as faults:
                for _ in range(self.chance.randrange(3, 9)):
                    faults.create_task(self._harm(self.chance.uniform(0.0, FAULTS_S)))
                await self._happen(faults)
            await self._end()
            self.network, self.requests = self.proxy.done, self.proxy.passed
            await asyncio.to_thread(self._check)

    async def _begin(self, stack: AsyncExitStack) -> None:
        port, token = free_port(), "an operator's token"
        settings = {
            "VEILSUM_DATA_DIR": "data",
            "VEILSUM_OPERATOR_TOKEN": token,
            "VEILSUM_RESUME_GRACE_S": "3",
            "PYTHONPATH": str(Path(__file__).parents[2]),
        }
        serve = f"-m uvicorn assurance.liveness.hasty:app --port {port}".split()
        self.coordinator = self._party(stack, "coordinator", serve, settings, None)
        self.coordinator.start()
        url = f"http://127.0.0.1:{port}"
        self.client = stack.enter_context(Operator(url, token, patience_s=120.0))
        await asyncio.to_thread(self.client.coordinator)
        rate = self.chance.choice((0.0, 0.05, 0.2))
        self.proxy = await stack.enter_async_context(Proxy(port, self.seed, rate, 0.2).running())
        to_publish = self.folder, Children(), self.client, url, self.names, self._study(), 0.0
        self.made = await asyncio.to_thread(Federation.publish_federation, *to_publish)
        self.federation, self.members = self.made.admin_key.hex(), dict[str, FaultyProcess]()
        for name in (*self.names, "operator"):
            cable = await stack.enter_async_context(Cable(self.proxy.url).laid())
            given = {"VEILSUM_URL": cable.url, "VEILSUM_ADMIN_KEY": self.federation}
            given |= {"VEILSUM_OPERATOR_TOKEN": token} if name == "operator" else {}
            join = f"-m veilsum member join . rows.npz --approve {self.made.published.approval}".split()
            self.members[name] = self._party(stack, f"members/{name}", join, given, cable)
        self.operator = self.members.pop("operator")
        self.late, self.last = self.chance.sample(self.names, 2)
        waits = {"absent": self.late, "unpaired": self.last}.get(self.kind)
        for name, party in self.members.items():
            features, labels = self._rows(name)
            np.savez(party.folder / "rows.npz", features=features, labels=labels, ids=np.arange(ROWS))
            if name != waits:
                party.start()
        self._run()

    def _party(
        self, stack: AsyncExitStack, path: str, words: Any, environment: Any, cable: Any
    ) -> FaultyProcess:
        (folder := self.folder / path).mkdir(parents=True, exist_ok=True)
        party = FaultyProcess(folder.name, folder, words, environment, cable)
        stack.callback(party.kill)
        return party

    def _run(self) -> None:
        """Start `veilsum operator run`."""
        run = f"-m veilsum operator run {STUDY} --federation {self.federation} --period {self.period}"
        self.operator.words = run.split()
        self.operator.start()

    def _study(self) -> Any:
        question = {
            **simulated_question(len(self.names), margin=1 if self.chance.random() < 0.4 else None),
            "dim": 4,
            "classes": [f"class-{label}" for label in range(LABELS)],
            "records": {"least": ROWS, "most": ROWS, "least_per_class": 5, "rows_per_id": 1},
            "windows": WINDOWS,
        }
        return simulated_content(question, int(time.time()) + DAY_S)

    def _rows(self, name: str) -> tuple[Any, Any]:
        rng = np.random.default_rng([self.seed, self.names.index(name)])
        return rng.normal(size=(ROWS, 4)), np.arange(ROWS) % LABELS

    # What happens

    async def _harm(self, after_s: float) -> None:
        await asyncio.sleep(after_s)
        party = self.chance.choice((self.coordinator, self.operator, *self.members.values()))
        kind = await party.suffer_something(self.chance)
        self.faults[f"{party.name.partition('-')[0]}: {kind}"] += 1
        self._check_vectors()

    async def _happen(self, faults: asyncio.TaskGroup) -> None:
        if self.kind == "unpaired":
            await self._stay_unpaired()
        if self.kind in {"absent", "unpaired"} and (
            len(self.names) == 5 or self.chance.random() < 0.7
        ):  # all five may be needed
            await asyncio.sleep(self.chance.uniform(5.0, LATEST_S))
            self.members[self.late].start()
        if self.kind in {"away", "lost", "given up"}:
            view = await self._until(
                lambda view: bool(view.uploaded) and not (view.ended and view.spec.step != "sum")
            )
            leaving = 0 if view.ended else len(view.members) - view.threshold + 1  # it may be done already
            for name in self.chance.sample(view.members, leaving):
                party = self.members[name]
                self.faults["m: gone for good" if self.kind == "lost" else "m: away"] += 1
                if self.kind == "lost":
                    async with party.lock:
                        party.kill()
                else:
                    kind = self.chance.choice(("kill", "stop", "cut"))
                    faults.create_task(party.suffer(kind, self.chance.uniform(50.0, 100.0)))
        if self.kind == "given up":
            await self._until(lambda view: view.ended)
            async with self.operator.lock:
                self.operator.kill()
            links = self.client.chain(self.federation).links
            if all(link.reason != NO_REASON for link in links):  # a count may have spent the records
                await self._give_up()
            self._run()

    async def _stay_unpaired(self) -> None:
        """Kill a member that has sent its card and can't have paired yet, and then let the last card come."""
        party = self.members[self.late]

        def has_enrolled() -> bool:
            cohorts = self.client.federation(self.federation).cohorts
            return bool(cohorts) and self.late in self.client.cohort(cohorts[-1]).cards

        await self._wait(has_enrolled, WITHIN_S, party)
        async with party.lock:
            party.kill()
        self.members[self.last].start()

    async def _give_up(self) -> None:
        """Have every member give up a run that certified nothing, so that the next period can use its records."""
        await asyncio.sleep(20.0)  # members learn of its end
        for party in self.members.values():
            async with party.lock:
                if not Store(party.folder).ledger.list_runs():  # it was not in this run
                    continue
                party.kill()
                words = f"-m veilsum member ledger . --give-up {STUDY} --period {self.period}".split()
                giving = FaultyProcess(party.name, party.folder, words, party.environment)
                giving.start()
                await self._wait(giving.over, 120.0, giving)
                if giving.code:
                    raise AssertionError(giving.said)
                party.start()
        self.period = "second"

    async def _until(self, holds: Callable[[RoundView], bool]) -> RoundView:
        """Wait until the newest round meets a condition, and return it."""
        found: list[RoundView] = []

        def look() -> bool:
            rounds = self.client.federation(self.federation).rounds
            found[:] = [self.client.round(each) for each in rounds[-1:]]
            return bool(found) and holds(found[0])

        await self._wait(look, WITHIN_S, self.operator)
        return found[0]

    async def _wait(self, holds: Callable[[], Any], within_s: float, party: FaultyProcess) -> None:
        """Wait for a condition. Meanwhile no process may end by itself, except an operator's with its result."""
        until = time.monotonic() + within_s
        while not await asyncio.to_thread(holds):
            ended = [each for each in (self.coordinator, *self.members.values()) if each.over()]
            if ended or self.operator.code or time.monotonic() > until:
                raise AssertionError("\n".join(each.said for each in (*ended, party)))
            await asyncio.sleep(LOOK_S)

    # How it ends

    async def _end(self) -> None:
        if self.kind == "lost":
            view = await self._until(lambda view: view.ended or view.state == "erasing")
            lost = Lost.make_signed(load_admin(self.folder / "admin"), context=bytes.fromhex(view.context))
            with suppress(PeerFault):  # it has ended meanwhile
                await asyncio.to_thread(self.client.close_lost, view.round, lost)
            self.ended = (await self._until(lambda view: view.ended)).state
            self.operator.kill()
        else:
            await self._wait(lambda: self.operator.code == 0, WITHIN_S, self.operator)
            self.ended = "result"
        rounds = await asyncio.to_thread(lambda: self.client.federation(self.federation).rounds)
        views = [await asyncio.to_thread(self.client.round, each) for each in rounds]
        self.steps = [f"{view.spec.step}: {view.state}" for view in views]
        self.sums = [view for view in views if view.state == "done" and view.spec.step == "sum"]
        expected = [self.period] if self.ended in {"result", "done"} else []
        if [view.spec.period for view in self.sums] != expected or ("lost" in str(self.steps) and expected):
            raise AssertionError(f"{self.steps}: expected one sum of {expected}")
        self.away = {name for name, party in self.members.items() if party.gone}
        for name in self.members.keys() - self.away:
            await self._wait(partial(self._informed, name), LEARNED_S, self.members[name])

    def _informed(self, name: str) -> bool:
        """Return whether a member has saved every result in which it was counted."""
        own = self.folder / "members" / name / "results" / STUDY
        counted = [view.spec.period for view in self.sums if name in view.survivors]
        return all(Result.saved_in(own / period) for period in counted)

    def _check(self) -> None:
        """Check that no answer was a 500, that sums are those of their survivors' rows, and that every ledger agrees with the chain."""
        if '"status": 500' in (self.coordinator.folder / "log").read_text():
            raise AssertionError("the coordinator answered with 500")
        links = self.client.chain(self.federation).links
        for view in self.sums:
            found = [*self.folder.glob(f"members/*/results/{STUDY}/{view.spec.period}")]
            for kept in found:
                Result.load(kept).verify(self.made.admin_key)
            spec = Result.load(found[0]).spec
            plain = np.sum([compute_vector(spec, *self._rows(each)) for each in view.survivors], axis=0)
            if not np.array_equal(load(self.client.sums(view.round))["sum"], plain):
                raise AssertionError(f"round {view.round} is not the sum of {view.survivors}")
        for name in self.names:
            store = Store(self.folder / "members" / name)
            if strange := [link for link in store.ledger.load_history().settled if link not in links]:
                raise AssertionError(f"{name} knows ends that the chain has not: {strange}")
            for run in store.ledger.list_runs():
                spent = any(link.period == run.period and self._spends(name, link) for link in links)
                # Who is gone for good learns of no sum.
                summed = name not in self.away and any(
                    run.period == view.spec.period and name in view.survivors for view in self.sums
                )
                wrong = not spent if run.state is State.SPENT else summed
                if wrong or (
                    run.period != self.period and run.state is State.RESERVED
                ):  # free after it was given up
                    raise AssertionError(f"{name}'s ledger and the chain differ: {run}, {links}")
        self._check_vectors()

    def _spends(self, name: str, link: Link) -> bool:
        if link.step in DISCLOSED_STEPS:
            return False
        certified = link.reason == NO_REASON and name in self.client.round(round_name(link.context)).survivors
        return certified or link.reason == LOST_REASON

    def _check_vectors(self) -> None:
        """Check that a reservation's vectors never change."""
        for name in self.names:
            kept = list[tuple[int, str, bytes]]()
            database = StateDatabase(self.folder / "members" / name / "state")
            with suppress(OSError), database.read() as opened:  # locked if its writer was stopped
                kept = opened.execute("SELECT run, name, sha256 FROM vector").fetchall()
            for run, made_for, digest in kept:
                if self._digests.setdefault((name, run, made_for), digest) != digest:
                    raise AssertionError(f"{name} has another vector {made_for} of run {run} than before")
