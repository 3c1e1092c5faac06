"""Whole rounds of a thousand and of ten thousand members on one machine: their duration and memory, and whether the sum is exact.

Every member is real: it pairs after checking cards, masks its own vector, and decrypts what it must.
One process plays the coordinator, and one on each core plays members. Phases, ciphertexts, chunks and announcements are on disk,
and vectors are made when they are masked, so each member takes a few KB of memory. Values fill the whole ring: the sum is
compared with the plain sum mod 2^b, element by element.

    .venv/bin/python -m benchmarks.scale --output runs/scale.json
"""

import argparse
import gc
import multiprocessing
import os
import platform
import resource
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.disk import Folder, FolderPhases
from benchmarks.metered_round import BenchError
from benchmarks.reports import write_findings
from benchmarks.secure_sum import ROOT
from tests.support.simulator import After, Federation, Vector, of, total_of
from veilsum.protocol.coordinator import Checking, CoordinatorPhase, Ended, Freezing, Recovered, Revealing
from veilsum.protocol.messages import Message, parse_message
from veilsum.protocol.ring import Ring
from veilsum.protocol.statistics import FFC


@dataclass(frozen=True)
class Case:
    """A cohort with up to a quarter of colluders, and its dropouts.

    Attributes:
        members: n.
        dim: l.
        classes: C.
        ring_bits: b.
        nominated: decryptors, spread over the cohort; 0 for the protocol's choice.
        loss: dropouts per thousand members, both planned for and real: nine in ten of them vanish before
            their upload, the others after it.
    """

    members: int
    dim: int
    classes: int
    ring_bits: int
    nominated: int
    loss: int

    @property
    def question(self) -> dict[str, Any]:
        """Fields of the study's question, in addition to a simulation's own."""
        return {
            "dim": self.dim,
            "classes": [f"class-{label}" for label in range(self.classes)],
            "ring_bits": self.ring_bits,
            "members_min": self.members,
            "loss": self.loss,
        }

    @property
    def elements(self) -> int:
        """Number of elements of an FFC vector."""
        return FFC().elements_for(self.dim, self.classes, constant=False)

    @property
    def name(self) -> str:
        return f"{self.members:,} members × {self.elements:,} elements"


CASES = (Case(1_000, 1280, 100, 32, 0, 100), Case(10_000, 100, 49, 32, 50, 20))

QUICK = (Case(210, 40, 10, 32, 0, 100),)


class Crews(Federation):
    """A federation whose members play in one process for each core.

    The processes are forked in each phase from the coordinator's process, which receives the answers in the members' order.
    Members get the coordinator's requests as of the beginning of the phase.

    Attributes:
        traffic: bytes that passed through the coordinator, by the kind of message.
    """

    def __post_init__(self) -> None:
        self.traffic, self.tamper = Counter[str](), self._weigh
        self._weighed: tuple[Message | None, int] = (None, 0)
        super().__post_init__()

    def _weigh(self, _sender: str, message: Message) -> Message:
        if message is not self._weighed[0]:  # all members are shown one certificate
            self._weighed = message, len(message.to_bytes())
        self.traffic[type(message).__name__] += self._weighed[1]
        return message

    def _store(self, phase: CoordinatorPhase, member: str, index: int) -> CoordinatorPhase:
        self.traffic["chunks"] += phase.attempt.ring.packed_bytes(phase.attempt.chunk_elements(index))
        return super()._store(phase, member, index)

    def _each(
        self, says: Callable[[str], tuple[Message, ...]], members: tuple[str, ...]
    ) -> Iterator[tuple[str, tuple[Message, ...]]]:
        def said(member: str) -> tuple[list[bytes], Counter[str]]:
            self.random = os.urandom  # all processes would continue the same seeded stream
            self.traffic.clear()
            replies = says(member)
            if self.faults:
                raise BenchError(f"{member}: {self.faults}")
            return [reply.to_bytes() for reply in replies], self.traffic

        phase = getattr(self, "phase", None)
        told = [] if phase is None else [phase.attempt.opening, getattr(phase, "certificate", None)]
        of(FolderPhases, self.phases).beside(self.manifest, *filter(None, told))
        for member, (replies, shown) in zip(members, _forked(said, members), strict=True):
            self.traffic += shown
            yield member, tuple(map(parse_message, replies))

    def _total(self, phase: Recovered) -> Vector:
        """Have each process add up some of the survivors and remove their masks."""

        def added(summed: tuple[str, ...]) -> Vector:
            own = {member: phase.self_seeds[member] for member in summed}
            edges = {edge: seed for edge, seed in phase.edge_seeds.items() if edge[0] in own}
            return total_of(replace(phase, self_seeds=own, edge_seeds=edges), self.spool)

        ring = phase.attempt.ring
        total = np.zeros(phase.attempt.spec.elements, ring.dtype)
        for part in _forked(added, [phase.summed_members[core::CORES] for core in range(CORES)]):
            total += ring.to_ring(part)
        return ring.lift_signed(total)


CORES = os.cpu_count() or 1
AHEAD = 1_000
"""Items that are worked on or whose results wait: those of all members would fill memory, and few may hold all decryptors."""
_work: Callable[[Any], Any]


def _forked(work: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[Any]:
    """Map the items in one process per core, forked from the current state of this one. The processes end with the iterator."""
    global _work  # noqa: PLW0603 - the processes inherit it
    _work = work
    gc.collect()
    gc.freeze()  # so that the processes don't search what they inherit
    with multiprocessing.get_context("fork").Pool(CORES) as pool:
        try:
            waiting = deque[Any]()
            for item in items:
                waiting.append(pool.apply_async(_call, (item,)))
                if len(waiting) > AHEAD:
                    yield waiting.popleft().get()
            while waiting:
                yield waiting.popleft().get()
        finally:  # otherwise a process might be killed while it writes a phase
            pool.close()
            pool.join()


def _call(item: Any) -> Any:
    return _work(item)


class Meter:
    """CPU seconds, wall seconds and resident memory by stage."""

    def __init__(self) -> None:
        self.stages: dict[str, dict[str, float]] = {}
        self._base_bytes = resident_bytes()
        self._began()

    def _began(self) -> None:
        self._cpu_s, self._wall_s = cpu_s(), time.monotonic()

    def note(self, stage: str) -> None:
        """End a stage."""
        self.stages[stage] = {
            "cpu_s": cpu_s() - self._cpu_s,
            "wall_s": time.monotonic() - self._wall_s,
            "resident_bytes": resident_bytes() - self._base_bytes,
        }
        self._began()

    def total(self, figure: str) -> float:
        return sum(stage[figure] for stage in self.stages.values())


def cpu_s() -> float:
    """Return the CPU seconds of this process and of its finished children."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def vector(case: Case, member: str) -> Vector:
    """Return a member's vector, uniform over the whole ring and the same at each call."""
    half = 1 << (case.ring_bits - 1)
    rng = np.random.default_rng(int(member.removeprefix("member-")))
    return rng.integers(-half, half, case.elements, np.int64)


def plain_sum(case: Case, members: tuple[str, ...]) -> Vector:
    """Return the sum mod 2^b, in the centred range."""
    ring = Ring(case.ring_bits)
    total = np.zeros(case.elements, ring.dtype)
    for member in members:
        total += ring.to_ring(vector(case, member))
    return ring.lift_signed(total)


def vanishing(case: Case) -> dict[int, After]:
    """Return the dropouts, drawn from a seed, and their last action."""
    lost = np.random.default_rng(1).permutation(case.members)[: case.members * case.loss // 1000]
    late = len(lost) // 10
    early = dict.fromkeys(lost[late:].tolist(), After.OPENING)
    return {**early, **dict.fromkeys(lost[:late].tolist(), After.UPLOAD)}


def run(case: Case, folder: Path, console: Console) -> dict[str, Any]:
    """Run one round; return its figures.

    Raises:
        BenchError: if it ends without a sum, or with a sum that isn't the plain one.
    """
    meter = Meter()
    nominated = range(0, case.members, case.members // case.nominated) if case.nominated else ()
    federation = Crews(
        case.members,
        drop=vanishing(case),
        decryptors=tuple(nominated),
        question=case.question,
        storage=Folder(folder),
    )

    def note(stage: str) -> None:
        meter.note(stage)
        figures = meter.stages[stage]
        seconds = f"{figures['wall_s']:,.0f} s, {figures['cpu_s']:,.0f} of the processor's"
        console.log(f"{stage}: {seconds}, {figures['resident_bytes'] / 1e6:,.0f} MB")

    note("enrol and pair")
    federation.begin(lambda member: vector(case, member))
    for stage, phase in (
        ("upload", Checking),
        ("receipts", Freezing),
        ("votes", Revealing),
        ("reveals", Ended),
    ):
        federation.run_until(phase)
        note(stage)
    outcome = federation.finish()
    note("close and sum")
    if not isinstance(outcome.phase, Recovered) or outcome.total is None:
        raise BenchError(f"{case.name}: the attempt ended {outcome.phase!r}, {outcome.fault}")
    if not np.array_equal(outcome.total, plain_sum(case, outcome.phase.summed_members)):
        raise BenchError(f"{case.name}: the unmasked total is not the plain sum")
    manifest = federation.manifest
    return {
        "members": case.members,
        "elements": case.elements,
        "ring_bits": case.ring_bits,
        "degree": manifest.degree,
        "window_dropped_max": manifest.window_dropped_max,
        "decryptors": len(manifest.decryptors),
        "threshold": manifest.threshold,
        "lost": len(federation.drop),
        "survivors": len(outcome.survivors),
        "masks_taken_off": len(outcome.phase.self_seeds) + len(outcome.phase.edge_seeds),
        "sum_is_exact": True,
        "cpu_s": meter.total("cpu_s"),
        "wall_s": meter.total("wall_s"),
        "peak_resident_bytes": 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        "resident_bytes_a_member": meter.stages["upload"]["resident_bytes"] / case.members,
        "disk_bytes": sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()),
        "stages": meter.stages,
        "traffic_bytes": dict(federation.traffic),
    }


def table_of(rounds: list[dict[str, Any]]) -> Table:
    table = Table(title="Whole rounds on one machine")
    for name in ("members", "elements", "ring", "k", "D_max", "L", "t", "lost", "survivors"):
        table.add_column(name, justify="right")
    for name in ("CPU s", "wall s", "peak MB", "KB a member", "disk GB"):
        table.add_column(name, justify="right")
    for row in rounds:
        sizes = ("degree", "window_dropped_max", "decryptors", "threshold", "lost", "survivors")
        table.add_row(
            f"{row['members']:,}",
            f"{row['elements']:,}",
            f"{row['ring_bits']} b",
            *(f"{row[name]:,}" for name in sizes),
            f"{row['cpu_s']:,.0f}",
            f"{row['wall_s']:,.0f}",
            f"{row['peak_resident_bytes'] / 1e6:,.0f}",
            f"{row['resident_bytes_a_member'] / 1e3:.1f}",
            f"{row['disk_bytes'] / 1e9:.1f}",
        )
    return table


def run_in(where: Path | None, case: Case) -> dict[str, Any]:
    """Call `run` with its own folder below `where`."""
    console = _console()
    console.log(case.name, _stack_offset=2)
    with tempfile.TemporaryDirectory(prefix="veilsum-scale-", dir=where) as folder:
        return run(case, Path(folder), console)


def _console() -> Console:
    return Console(width=None if sys.stdout.isatty() else 140)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--output", type=Path, default=ROOT / "runs/scale.json")
    parser.add_argument(
        "--members", type=int, choices=[case.members for case in CASES], help="one case alone"
    )
    parser.add_argument("--quick", action="store_true", help="210 members: half a minute")
    parser.add_argument("--folder", type=Path, help="for some 8 GB; a temporary one unless given")
    given = parser.parse_args()
    console = _console()
    # Each case has its own process: memory freed by the first would hide what the second takes.
    spawning = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawning, max_tasks_per_child=1) as pool:
        cases = [case for case in (QUICK if given.quick else CASES) if given.members in {None, case.members}]
        try:
            rounds = list(pool.map(partial(run_in, given.folder), cases))
        except BenchError as error:
            sys.exit(f"scale: {error}")
    console.print(table_of(rounds))
    written = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "load": os.getloadavg(),
        "rounds": rounds,
    }
    write_findings(written, given.output)


if __name__ == "__main__":
    main()
