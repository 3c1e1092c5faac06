"""What a secure sum costs here, beside the floor and beside Flower: one run, ratios that may be compared.

A whole round runs in this process with the protocol's own classes: every member has real keys, a vector of its
own and a masked upload, every message crosses as its bytes, and the unmasked total is held against the plain
one, exactly. Each member's and the coordinator's CPU is taken around each call (`time.process_time`); there is
no network, and chunks wait on disk. Ours is always the complete graph.

    .venv/bin/python -m benchmarks.secure_sum --output runs/bench.json
"""

import argparse
import ctypes
import gc
import hashlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from benchmarks.floor import ELEMENTS, floor
from calibration import Lattice, SumsLattice
from protocol.attempt import Attempt
from protocol.coordinator import Collecting, CoordinatorPhase, Enrolling, Recovered, Windows
from protocol.identity import SigningKey
from protocol.member import Enrolled, MemberPhase, Opened, Step
from protocol.messages import Entry, KeyCard, Message, Opening, Roster, Terms, cohort_id, parse
from protocol.parameters import Quorum
from protocol.unmasking import Unmasking

ROOT = Path(__file__).parents[1]
PEERS_PYTHON = ROOT / "benchmarks/peers/.venv/bin/python"
FLOWER = ROOT / "benchmarks/peers/flower_secagg.py"
SPARSE_SHARES = 21  # Flower's graph at 100 members, where its complete one takes minutes

CHUNK_ELEMENTS = 1 << 17  # the service's default
RECORDS_MAX = 65_535
NOW_S = 1_800_000_000.0
COORDINATOR = "coordinator"

MEMBER_STAGES = ("enrol", "mask", "receipt", "reveal")
COORDINATOR_STAGES = ("enrol", "admit", "certify", "recover", "sum")
# What neither Flower's figures nor the floor's hold, counted apart so that the stages compare: messages to bytes
# and back, and a member's phase made ready for its disk.
APART = ("wire", "store")

Vector = npt.NDArray[np.int64]
Encode = Callable[[], Vector]


class BenchError(Exception):
    """The benchmark can't be run as asked, or what it measured is wrong."""


@dataclass(frozen=True)
class Case:
    """How many members, how many of them vanish after enrolment, and how often to measure: blocks of repeats."""

    members: int
    lost: int
    blocks: int = 1
    repeats: int = 1

    @property
    def name(self) -> str:
        return f"{self.members} members, {self.lost} lost"

    @property
    def threshold(self) -> int:
        return Quorum.derive(self.members, self.members).threshold


QUICK = (Case(10, 0), Case(10, 1))
CASES = (Case(10, 0, 3, 3), Case(10, 1, 3, 3), Case(100, 10))
RINGS = {32: 32, 48: 64}  # ours, and the floor's: an element of 48 bits takes a uint64

NOTES = """\
Ours is the complete graph in every row. A SPARSE row has 20 neighbours a member, so its cost does not grow with the
cohort, and its promise is weaker: that ratio is the price of a graph, not of an implementation.
Flower rounds to 22 bits and sends 64, whatever the ring. The floor of 48 bits is taken with words of 64.
The floor neither hashes an upload (most of admit, a fifth of mask at 10 members) nor commits to shares, nor certifies
a survivor set."""


class Meter:
    """CPU seconds by who spent them and in which stage."""

    def __init__(self) -> None:
        self.cpu_s: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))

    @contextmanager
    def charge(self, who: str, stage: str, sign: int = 1) -> Iterator[None]:
        """Count what runs inside; with −1 give it back, where it stands inside of what is another's."""
        started_s = time.process_time()
        yield
        self.cpu_s[who][stage] += sign * (time.process_time() - started_s)


def upload_of(
    opened: Opened, key: SigningKey, encode: Encode, records: int, keep: Callable[[memoryview], object]
) -> tuple[Vector, Step]:
    """A member's upload as the SDK makes it: integers, masked and packed chunk by chunk, then announced."""
    vector, step = encode(), opened.opening.terms.chunk_elements
    sealing = opened.seal()
    for start in range(0, len(vector), step):
        keep(sealing.chunk(vector[start : start + step]))
    upload, own = sealing.finish(key, lineage=bytes(8), records_tag=bytes(8), records=records)
    return vector, opened.uploaded(upload, own)


def terms_for(lattice: Lattice, ring_bits: int, elements: int, layout: bytes = b"") -> Terms:
    """Terms of a round without noise, in the service's chunks."""
    return Terms(
        statistic="ffc",
        layout=layout,
        elements=elements,
        ring_bits=ring_bits,
        lattice=lattice.name,
        lattice_bits=lattice.bits,
        chunk_elements=CHUNK_ELEMENTS,
        records_max=RECORDS_MAX,
        extractor=bytes(32),
        ridges=(),
        noise=b"",
        latest_end_s=int(NOW_S) + 86_400,
    )


class Round:
    """One cohort and its first round, from keys to the total, with everybody's part metered.

    Args:
        case: who takes part.
        terms: of the round.
        inputs: prepares, unmetered, what a member (by its number among those that stay) will encode.
        spool: a folder for the chunks.
        records: how many each member says it has.
    """

    def __init__(
        self, case: Case, terms: Terms, inputs: Callable[[int], Encode], spool: Path, records: int = 1
    ) -> None:
        self.case, self.terms, self.inputs, self.spool, self.records = case, terms, inputs, spool, records
        self.meter = Meter()
        self.sent_bytes: dict[str, int] = defaultdict(int)
        self.upload_bytes: dict[str, int] = {}
        self.peak_bytes: int | None = None
        self.keys = {f"member-{i:03}": SigningKey(os.urandom(32)) for i in range(case.members)}
        # Spread over the cohort: the masks between the lost and the rest come with either sign.
        lost = {round((i + 0.5) * case.members / case.lost) for i in range(case.lost)}
        self.staying = [member for i, member in enumerate(self.keys) if i not in lost]
        self.phases: dict[str, MemberPhase] = {}
        self.expected: Vector = np.zeros(terms.elements, np.int64)
        self.total: Vector = np.zeros(terms.elements, np.int64)

    def run(self, *, probe_memory: bool) -> None:
        """M0 to M4.

        Raises:
            BenchError: the attempt ended without a total, or with another one than the plain sum.
        """
        phase = self._collect(self._enrol(), probe_memory=probe_memory)
        phase = self._ask(phase, "checking", "receipt", "certify")
        phase = self._ask(phase, "freezing", "reveal", "certify")
        phase = self._ask(phase, "revealing", "reveal", "recover")
        if not isinstance(phase, Recovered):
            raise BenchError(f"{self.case.name}: the attempt ended {phase!r}, {getattr(phase, 'fault', '')}")
        self._add_up(phase)

    def member_cpu_s(self) -> list[dict[str, float]]:
        """By stage, of each member that was asked in every stage."""
        spent = [self.meter.cpu_s[member] for member in self.staying]
        return [
            {stage: stages.get(stage, 0.0) for stage in (*MEMBER_STAGES, *APART)}
            for stages in spent
            if set(MEMBER_STAGES) <= set(stages)
        ]

    def coordinator_cpu_s(self) -> dict[str, float]:
        """By stage."""
        return {stage: self.meter.cpu_s[COORDINATOR][stage] for stage in (*COORDINATOR_STAGES, "wire")}

    def _enrol(self) -> Attempt:
        admin, coordinator = SigningKey(os.urandom(32)), SigningKey(os.urandom(32))
        roster = Roster.make(
            admin,
            version_number=1,
            federation=admin.public,
            coordinator=coordinator.public,
            members=tuple(Entry(member, key.public) for member, key in self.keys.items()),
            decryptors=(),
            extractors=(bytes(32),),
            readers=(),
        )
        cohort, cards = cohort_id(roster.hash, 0), []
        for member, key in self.keys.items():
            # Each has its own: what an object remembers is then paid for by everybody.
            own = Roster.from_bytes(roster.to_bytes())
            with self.meter.charge(member, "enrol"):
                step = Enrolled.start(member, own, cohort, key, expires_s=int(NOW_S) + 10**7)
            cards += self._take(member, step)
        with self.meter.charge(COORDINATOR, "enrol"):
            enrolling = Enrolling(roster, 0, RECORDS_MAX // self.case.members)
            for card in cards:
                assert isinstance(card, KeyCard)
                enrolling = enrolling.receive(card, NOW_S)
            manifest = enrolling.manifest()
        for member in self.keys:
            self._tell(member, manifest, "enrol")
        opening = Opening.make(coordinator, cohort=cohort, sequence=0, attempt=0, links=(), terms=self.terms)
        return Attempt(roster, manifest, opening)

    def _collect(self, attempt: Attempt, *, probe_memory: bool) -> CoordinatorPhase:
        phase: CoordinatorPhase = Collecting.begin(attempt, Windows(), NOW_S)
        for number, member in enumerate(self.staying):
            opening = phase.request_for(member)
            assert opening is not None
            self._tell(member, opening, "mask")
            opened, encode = self.phases[member], self.inputs(number)
            assert isinstance(opened, Opened)
            if probe_memory and number == 0:
                # Of an upload that nobody gets: a trimmed heap would disturb the timing of one that counts.
                memory = ResidentMemory()
                upload_of(opened, self.keys[member], encode, self.records, len)
                self.peak_bytes = memory.rise_bytes()
            phase = self._upload(phase, member, opened, encode)
        return self._expired(phase, "collecting", "certify")

    def _upload(
        self, phase: CoordinatorPhase, member: str, opened: Opened, encode: Encode
    ) -> CoordinatorPhase:
        charge = self.meter.charge
        chunks: list[tuple[bytes, int]] = []
        with (self.spool / member).open("wb") as spooled:

            def keep(packed: memoryview) -> None:
                with charge(member, "mask", -1):
                    spooled.write(packed)
                    with charge(COORDINATOR, "admit"):
                        chunks.append((hashlib.sha256(packed).digest(), len(packed)))

            with charge(member, "mask"):
                vector, step = upload_of(opened, self.keys[member], encode, self.records, keep)
        self.expected += vector
        announced_from = self.sent_bytes[member]
        (upload,) = self._take(member, step)
        self.sent_bytes[member] += sum(size_bytes for _, size_bytes in chunks)
        self.upload_bytes[member] = self.sent_bytes[member] - announced_from
        with charge(COORDINATOR, "admit"):
            phase = phase.receive(upload, NOW_S)
            for index, (digest, size_bytes) in enumerate(chunks):
                assert isinstance(phase, Collecting)
                phase.check_chunk(member, index, digest, size_bytes)
                phase = phase.chunk_stored(member, index, NOW_S)
        return phase

    def _ask(self, phase: CoordinatorPhase, name: str, stage: str, served: str) -> CoordinatorPhase:
        """Let every member answer what the coordinator asks in this phase, until it moves on."""
        for member in self.staying:
            if phase.name != name:
                return phase
            with self.meter.charge(COORDINATOR, served):
                request = phase.request_for(member)
            if request is not None:
                for reply in self._tell(member, request, stage):
                    with self.meter.charge(COORDINATOR, served):
                        phase = phase.receive(reply, NOW_S)
        return self._expired(phase, name, served)

    def _expired(self, phase: CoordinatorPhase, name: str, stage: str) -> CoordinatorPhase:
        if phase.name != name or phase.deadline_s is None:
            return phase
        with self.meter.charge(COORDINATOR, stage):
            return phase.expire(phase.deadline_s)

    def _add_up(self, recovered: Recovered) -> None:
        with self.meter.charge(COORDINATOR, "sum"):
            unmasking = Unmasking(recovered)
        attempt, start = recovered.attempt, 0
        for index in range(attempt.chunks):
            elements = attempt.chunk_elements(index)
            # Read beforehand: the disk's time is nobody's here.
            size_bytes, offset = attempt.ring.packed_bytes(elements), attempt.ring.packed_bytes(start)
            packed = []
            for member in unmasking.survivors:
                with (self.spool / member).open("rb") as spooled:
                    spooled.seek(offset)
                    packed.append((member, spooled.read(size_bytes)))
            with self.meter.charge(COORDINATOR, "sum"):
                self.total[start : start + elements] = unmasking.chunk(index, packed)
            start += elements
        if not np.array_equal(self.total, self.expected):
            raise BenchError(f"{self.case.name}: the unmasked total is not the plain sum")

    def _tell(self, member: str, message: Message, stage: str) -> list[Message]:
        """Carry a message to a member; what it answers, as the coordinator reads it."""
        charge = self.meter.charge
        with charge(COORDINATOR, "wire"):
            sent = message.to_bytes()
        with charge(member, "wire"):
            received = parse(sent)
        with charge(member, stage):
            step = self.phases[member].receive(received, self.keys[member], NOW_S)
        return self._take(member, step)

    def _take(self, member: str, step: Step) -> list[Message]:
        self.phases[member], replies = step
        charge = self.meter.charge
        with charge(member, "store"):
            self.phases[member].to_bytes()
        with charge(member, "wire"):
            sent = [reply.to_bytes() for reply in replies]
        self.sent_bytes[member] += sum(map(len, sent))
        with charge(COORDINATOR, "wire"):
            return [parse(reply) for reply in sent]


class ResidentMemory:
    """How far this process's resident memory rises, where the kernel lets its peak be reset."""

    def __init__(self) -> None:
        gc.collect()
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:  # freed pages that are kept hide a peak reached by using them again
            trim(0)
        try:
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
            self._base_bytes: int | None = self._read("VmRSS")
        except OSError:
            self._base_bytes = None

    def rise_bytes(self) -> int | None:
        """The peak above what was resident at first; None where it can't be told."""
        return None if self._base_bytes is None else self._read("VmHWM") - self._base_bytes

    @staticmethod
    def _read(field: str) -> int:
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith(field))


# --- The three systems under the same terms --------------------------------------------------------------


def ours(case: Case, ring_bits: int) -> dict[str, Any]:
    """Our figures, each the median over the members and the repeats, in the names that the peers use.

    Raises:
        BenchError: as `Round.run`.
    """
    lattice = SumsLattice.for_ring(ring_bits, RECORDS_MAX, case.members)
    terms = terms_for(lattice, ring_bits, ELEMENTS)

    def statistic(number: int) -> Encode:
        values = np.random.default_rng(number).uniform(-1, 1, ELEMENTS)
        return lambda: lattice.encode(values)

    members, coordinators = [], []
    for repeat in range(case.repeats):
        with tempfile.TemporaryDirectory(prefix="veilsum-bench-") as spool:
            measured = Round(case, terms, statistic, Path(spool))
            measured.run(probe_memory=repeat == 0)
        members += measured.member_cpu_s()
        coordinators.append(measured.coordinator_cpu_s())
        if repeat == 0:
            first = measured
    return {
        "system": "veilsum",
        "graph": "complete",
        "bits": ring_bits,
        "client_cpu_s": _total(members, MEMBER_STAGES),
        "client_stage_cpu_s": median_of(members),
        "client_announced_and_chunks_bytes": statistics.median_high(first.upload_bytes.values()),
        "client_upload_bytes": statistics.median_high(first.sent_bytes[member] for member in first.staying),
        "client_peak_bytes": first.peak_bytes,
        "server_cpu_s": _total(coordinators, COORDINATOR_STAGES),
        "server_stage_cpu_s": median_of(coordinators),
    }


def _total(figures: list[dict[str, float]], stages: Sequence[str]) -> float:
    return statistics.median(sum(one[stage] for stage in stages) for one in figures)


def median_of(measured: Sequence[Any]) -> Any:
    """The median of each figure; names as they stand in the first."""
    first = measured[0]
    if isinstance(first, dict):
        return {name: median_of([figures[name] for figures in measured]) for name in first}
    if None in measured or isinstance(first, str):
        return first
    return (statistics.median if isinstance(first, float) else statistics.median_high)(measured)


def flower(case: Case, shares: int | None, threshold: int) -> dict[str, Any]:
    """Flower's own secure sum in its own environment; `shares` None is its complete graph.

    Raises:
        BenchError: the environment is missing, or the run failed.
    """
    if not PEERS_PYTHON.exists():
        raise BenchError(
            f"Flower's environment is missing ({PEERS_PYTHON.parents[1]}): make it with `make bench-peers`, "
            "or go without by --skip-flower"
        )
    terms = {
        "members": case.members,
        "shares": shares or "complete",
        "threshold": threshold,
        "lost": case.lost / case.members,
        "repeats": case.repeats,
        "elements": ELEMENTS,
    }
    command = [str(PEERS_PYTHON), str(FLOWER)]
    for name, value in terms.items():
        command += [f"--{name}", str(value)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise BenchError(f"Flower's run failed: {done.stderr.strip() or done.returncode}")
    measured: dict[str, Any] = json.loads(done.stdout)
    return measured


def flower_rounds(case: Case, *, full: bool) -> list[dict[str, Any]]:
    """Flower at the same graph; at 100 members, unless `full`, at its sparse one alone."""
    if case.members <= 50:
        return [flower(case, None, case.threshold)]
    # Of 21 as many must answer as our rule asks of a cohort of 21.
    sparse = flower(case, SPARSE_SHARES, Quorum.derive(SPARSE_SHARES, SPARSE_SHARES).threshold)
    return [flower(case, None, case.threshold), sparse] if full else [sparse]


def compare(case: Case, *, with_flower: bool, full: bool) -> list[dict[str, Any]]:
    """Ours, the floor's and Flower's figures of one case, an entry a ring.

    The systems take turns: a shared machine's speed changes within seconds, and so all meet all of it.
    """
    turns: dict[int, list[dict[str, Any]]] = {bits: [] for bits in RINGS}
    for _ in range(case.blocks):
        peers = flower_rounds(case, full=full) if with_flower else []
        for bits, words in RINGS.items():
            own = ours(case, bits)
            repeats = max(case.repeats, 3)
            bound = floor(case.members, words, case.lost, repeats=repeats, threshold=case.threshold)
            graphs = {f"flower_{peer['graph']}": peer for peer in peers}
            turns[bits].append({"ours": own, "floor": bound, **graphs})
    rounds = []
    for bits, measured in turns.items():
        systems = median_of(measured)
        own = systems["ours"]
        rounds.append(
            {
                "members": case.members,
                "lost": case.lost,
                "threshold": case.threshold,
                "ring_bits": bits,
                "systems": systems,
                "ours_over_floor": _ratios(own, systems["floor"]),
                "over_ours": {name: _ratios(system, own) for name, system in systems.items()},
            }
        )
    return rounds


def _ratios(costly: dict[str, Any], cheap: dict[str, Any]) -> dict[str, float]:
    figures = ("client_cpu_s", "server_cpu_s", "client_upload_bytes", "client_peak_bytes")
    return {name: costly[name] / cheap[name] for name in figures if costly.get(name) and cheap.get(name)}


# --- What is printed ---------------------------------------------------------------------------------------


def comparison_table(rounds: list[dict[str, Any]]) -> Table:
    table = Table(title=f"A secure sum of {ELEMENTS:,} elements; CPU in ms of process time")
    for name in ("members", "ring", "system", "graph"):
        table.add_column(name)
    for name in ("member", "÷ floor", "÷ ours", "MB up", "peak MB", "coordinator", "÷ floor", "÷ ours"):
        table.add_column(name, justify="right")
    for row in rounds:
        shown = f"{row['members']}, {row['lost']} lost"
        for name, system in row["systems"].items():
            sparse = system["graph"] == "sparse"
            # A sparse graph has another floor.
            above = {} if sparse else _ratios(system, row["systems"]["floor"])
            beside = row["over_ours"][name]
            table.add_row(
                shown,
                f"{system['bits']} b" if "bits" in system else "",
                system["system"],
                f"SPARSE, {system['shares']}" if sparse else "complete",
                _ms(system["client_cpu_s"]),
                _times(above.get("client_cpu_s")),
                _times(beside["client_cpu_s"]),
                f"{system['client_upload_bytes'] / 1e6:.2f}",
                f"{system['client_peak_bytes'] / 1e6:.0f}" if system.get("client_peak_bytes") else "–",
                _ms(system["server_cpu_s"]),
                _times(above.get("server_cpu_s")),
                _times(beside["server_cpu_s"]),
            )
            shown = ""
        table.add_section()
    return table


def stage_table(rounds: list[dict[str, Any]]) -> Table:
    table = Table(title="Ours by stage, CPU ms; wire and store come on top of the figures above")
    for name in ("members", "ring", "who"):
        table.add_column(name)
    columns = ("enrol", "mask", "receipt", "reveal", "admit", "certify", "recover", "sum", *APART)
    for name in columns:
        table.add_column(name, justify="right")
    for row in rounds:
        shown = (f"{row['members']}, {row['lost']} lost", f"{row['ring_bits']} b")
        for who, figures in (("member", "client_stage_cpu_s"), ("coordinator", "server_stage_cpu_s")):
            spent = row["systems"]["ours"][figures]
            table.add_row(*shown, who, *(_ms(spent[name]) if name in spent else "" for name in columns))
            shown = ("", "")
        table.add_section()
    return table


def _ms(cpu_s: float) -> str:
    return f"{1e3 * cpu_s:.1f}" if cpu_s < 1 else f"{1e3 * cpu_s:,.0f}"


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--output", type=Path, default=ROOT / "runs/bench.json")
    parser.add_argument("--quick", action="store_true", help="10 members, measured once, no Flower: seconds")
    parser.add_argument("--skip-flower", action="store_true", help="ours and the floor only")
    parser.add_argument("--full", action="store_true", help="Flower's complete graph of 100 too: minutes")
    given = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 140)
    with_flower = not (given.quick or given.skip_flower)
    rounds = []
    try:
        ours(Case(10, 0), 32)  # the first round of a process is slower, and counts for nobody
        for case in QUICK if given.quick else CASES:
            console.log(case.name, _stack_offset=2)
            rounds += compare(case, with_flower=with_flower, full=given.full)
    except BenchError as error:
        sys.exit(f"secure_sum: {error}")
    console.print(comparison_table(rounds), stage_table(rounds))
    console.print(NOTES)
    machine = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "load": os.getloadavg(),
    }
    written = {"elements": ELEMENTS, **machine, "rounds": rounds}
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")
    console.print(f"written to {given.output}")


if __name__ == "__main__":
    main()
