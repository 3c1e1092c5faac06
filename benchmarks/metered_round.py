"""One whole round of ours in this process, with the CPU time of each member and of the coordinator measured at each call."""

import ctypes
import gc
import hashlib
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tests.support.simulator import simulated_content, simulated_question
from veilsum.protocol.attempt import Attempt
from veilsum.protocol.coordinator import Collecting, CoordinatorPhase, Enrolling, PairingWindow, Recovered
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.member import Enrolled, MemberPhase, Opened, Step
from veilsum.protocol.messages import (
    NO_CONTEXT,
    Ciphertexts,
    Enrolment,
    Entry,
    Message,
    Opening,
    Pairing,
    Roster,
    ShownCiphertext,
    Study,
    Terms,
    parse_message,
)
from veilsum.protocol.pairing import split_pairing
from veilsum.protocol.sizing import Sizes, size_cohort
from veilsum.protocol.study import DAY_S, SUM_STEP, Content

RECORDS_MAX = 65_535
DIM, CLASSES = 1280, 100
NOW_S = 1_800_000_000.0
PERIOD = "period-0"
COORDINATOR = "coordinator"

MEMBER_STAGES = ("enrol", "pair", "mask", "receipt", "reveal")
COORDINATOR_STAGES = ("enrol", "pair", "admit", "certify", "recover", "sum")
# Work outside Flower's figures and the floor's, counted separately so that the stages compare: encoding and decoding
# messages, and preparing a member's phase for its disk.
APART = ("wire", "store")

Vector = npt.NDArray[np.int64]
Encode = Callable[[], Vector]


class BenchError(Exception):
    """The benchmark can't run with these arguments, or its result is wrong."""


@dataclass(frozen=True)
class Case:
    """The number of members, how many vanish after enrolment, and how often to measure: blocks of repeats.

    Attributes:
        members: n.
        lost: members that vanish.
        blocks: alternations between the compared systems.
        repeats: rounds in each block.
        loss: dropouts per thousand members for which the cohort is sized; a quarter may collude.
        nominated: number of decryptors that the roster nominates, from the first member on; 0 for the protocol's choice.
    """

    members: int
    lost: int
    blocks: int = 1
    repeats: int = 1
    loss: int = 100
    nominated: int = 0

    @property
    def name(self) -> str:
        return f"{self.members} members, {self.lost} lost"

    @property
    def sizes(self) -> Sizes:
        """Graph, committee and threshold by the protocol's rules."""
        return size_cohort(
            self.members,
            self.nominated or None,
            roster=self.members,
            colluders=self.members // 4,
            loss=self.loss,
        )


class Meter:
    """CPU seconds by party and stage."""

    def __init__(self) -> None:
        self.cpu_s: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))

    @contextmanager
    def charge(self, who: str, stage: str, sign: int = 1) -> Iterator[None]:
        """Count the CPU time of the block; with −1, subtract it from a surrounding block's."""
        started_s = time.process_time()
        yield
        self.cpu_s[who][stage] += sign * (time.process_time() - started_s)


def upload_of(
    opened: Opened, key: SigningKey, encode: Encode, keep: Callable[[bytes], object]
) -> tuple[Vector, Step]:
    """Make a member's upload as the SDK does: integers, masked and packed chunk by chunk, then announced."""
    vector, step = encode(), opened.attempt.spec.chunk_elements
    sealing = opened.begin_sealing()
    for start in range(0, len(vector), step):
        keep(sealing.mask_next_chunk(vector[start : start + step]))
    upload, own = sealing.finish(key)
    return vector, opened.store_upload(upload, own)


def study_of(case: Case, ring_bits: int) -> Content:
    """Make a study of FFC at l=1280 and C=100 without noise: 947,940 elements, scaled for sums of up to 65,535 rows."""
    most = RECORDS_MAX // case.members
    question = {
        **simulated_question(case.members),
        "dim": DIM,
        "classes": [f"class-{label}" for label in range(CLASSES)],
        "ring_bits": ring_bits,
        "records": {"least": most, "most": most, "least_per_class": 1, "rows_per_id": 1},
        "members_min": case.members,
        "loss": case.loss,
    }
    return simulated_content(question, int(NOW_S) + 80 * DAY_S)


class Round:
    """One cohort and its first round, from keys to the total, with each party's work metered.

    Args:
        case: the members.
        content: the study's content.
        inputs: prepares, unmetered, what a member encodes, by its number among the members that stay.
        spool: folder of the chunks.
    """

    def __init__(self, case: Case, content: Content, inputs: Callable[[int], Encode], spool: Path) -> None:
        self.case, self.content, self.inputs, self.spool = case, content, inputs, spool
        self.meter = Meter()
        self.sent_bytes: dict[str, int] = defaultdict(int)
        self.received_bytes: dict[str, int] = defaultdict(int)
        self.upload_bytes: dict[str, int] = {}
        self.peak_bytes: int | None = None
        self.keys = {f"member-{i:04}": SigningKey(os.urandom(32)) for i in range(case.members)}
        # Spread over the cohort, so that masks between dropped members and others have both signs.
        lost = {round((i + 0.5) * case.members / case.lost) for i in range(case.lost)}
        self.staying = [member for i, member in enumerate(self.keys) if i not in lost]
        self.bystanders: list[str] = []
        self.phases: dict[str, MemberPhase] = {}
        self.expected: Vector = np.zeros(content.question.elements, np.int64)
        self.total: Vector = np.zeros(content.question.elements, np.int64)

    def run(self, *, probe_memory: bool) -> None:
        """Run M0 to M4.

        Raises:
            BenchError: if the attempt ends without a total, or with a total that isn't the plain sum.
        """
        phase = self._collect(self._enrol(), probe_memory=probe_memory)
        phase = self._ask(phase, "checking", "receipt", "certify")
        phase = self._ask(phase, "freezing", "reveal", "certify")
        phase = self._ask(phase, "revealing", "reveal", "recover")
        if not isinstance(phase, Recovered):
            raise BenchError(f"{self.case.name}: the attempt ended {phase!r}, {getattr(phase, 'fault', '')}")
        self.bystanders = [m for m in self.staying if m not in phase.attempt.decryptor_place]
        for member in self.bystanders:
            self._tell(member, phase.certificate, "reveal")
        self._add_up(phase)
        gc.unfreeze()

    def member_cpu_s(self) -> list[dict[str, float]]:
        """CPU seconds by stage, of each member that holds shares and was asked in every stage."""
        spent = [self.meter.cpu_s[member] for member in self.staying]
        return [_staged(stages) for stages in spent if set(MEMBER_STAGES) <= set(stages)]

    def bystander_cpu_s(self) -> list[dict[str, float]]:
        """CPU seconds by stage, of each member that holds no shares."""
        return [_staged(self.meter.cpu_s[member]) for member in self.bystanders]

    def coordinator_cpu_s(self) -> dict[str, float]:
        """CPU seconds by stage."""
        return {stage: self.meter.cpu_s[COORDINATOR][stage] for stage in (*COORDINATOR_STAGES, "wire")}

    def _enrol(self) -> Attempt:
        admin, coordinator = SigningKey(os.urandom(32)), SigningKey(os.urandom(32))
        roster = Roster.make_signed(
            admin,
            number=1,
            name="benchmark",
            federation=admin.public,
            coordinator=coordinator.public,
            study_key=admin.public,
            members=tuple(Entry(member, key.public) for member, key in self.keys.items()),
            decryptors=tuple(self.keys)[: self.case.nominated],
            readers=(),
            revoked=(),
        )
        study = Study.make_signed(admin, federation=admin.public, content=self.content.to_bytes())
        enrolments = []
        for member, key in self.keys.items():
            # Each member parses its own copy, so that all members pay for what an object caches.
            own = Roster.from_bytes(roster.to_bytes())
            with self.meter.charge(member, "enrol"):
                step = Enrolled.begin_enrolment(
                    member, own, study, key, counter=0, period=PERIOD, serial=1, now_s=NOW_S
                )
            enrolments += self._take(member, step)
        with self.meter.charge(COORDINATOR, "enrol"):
            enrolling = Enrolling(roster, study, 0, PERIOD)
            for enrolment in enrolments:
                assert isinstance(enrolment, Enrolment)
                enrolling = enrolling.receive(enrolment, NOW_S)
            window = PairingWindow.begin(enrolling)
        self._pair(window)
        manifest = window.manifest
        terms = Terms(
            step=SUM_STEP,
            count=NO_CONTEXT,
            rows=NO_CONTEXT,
            withheld=(),
            evicted=(),
            material=NO_CONTEXT,
            latest_end_s=int(NOW_S) + DAY_S,
        )
        opening = Opening.make_signed(
            coordinator, cohort=manifest.cohort, sequence=0, attempt=0, links=(), terms=terms
        )
        return Attempt(roster, study, manifest, opening)

    def _pair(self, window: PairingWindow) -> None:
        shown: dict[str, list[ShownCiphertext]] = defaultdict(list)
        for member in self.keys:
            with self.meter.charge(COORDINATOR, "pair"):
                cards = window.enrolling.cards_for(window.manifest, member)
            for pairing in self._tell(member, cards, "pair"):
                assert isinstance(pairing, Pairing)
                with self.meter.charge(COORDINATOR, "pair"):
                    window = window.receive(pairing)
                    for recipient, ciphertext in split_pairing(window.manifest, pairing):
                        shown[recipient].append(ciphertext)
        for member in self.keys:
            with self.meter.charge(COORDINATOR, "pair"):
                ciphertexts = Ciphertexts(window.manifest.hash, tuple(shown[member]))
            self._tell(member, ciphertexts, "pair")

    def _collect(self, attempt: Attempt, *, probe_memory: bool) -> CoordinatorPhase:
        phase: CoordinatorPhase = Collecting.begin(attempt, NOW_S)
        for number, member in enumerate(self.staying):
            opening = phase.request_for(member)
            assert opening is not None
            self._tell(member, opening, "mask")
            opened, encode = self.phases[member], self.inputs(number)
            assert isinstance(opened, Opened)
            if probe_memory and number == 0:
                # Measured with a discarded upload: trimming the heap would disturb a timed one.
                memory = ResidentMemory()
                upload_of(opened, self.keys[member], encode, len)
                self.peak_bytes = memory.rise_bytes()
            phase = self._upload(phase, member, opened, encode)
        return self._expired(phase, "collecting", "certify")

    def _upload(
        self, phase: CoordinatorPhase, member: str, opened: Opened, encode: Encode
    ) -> CoordinatorPhase:
        charge = self.meter.charge
        chunks: list[tuple[bytes, int]] = []
        with (self.spool / member).open("wb") as spooled:

            def keep(packed: bytes) -> None:
                with charge(member, "mask", -1):
                    spooled.write(packed)
                    with charge(COORDINATOR, "admit"):
                        chunks.append((hashlib.sha256(packed).digest(), len(packed)))

            with charge(member, "mask"):
                vector, step = upload_of(opened, self.keys[member], encode, keep)
        self.expected += vector
        announced_from = self.sent_bytes[member]
        (upload,) = self._take(member, step)
        self.sent_bytes[member] += sum(size_bytes for _, size_bytes in chunks)
        self.upload_bytes[member] = self.sent_bytes[member] - announced_from
        with charge(COORDINATOR, "admit"):
            phase = phase.receive(upload, NOW_S)
        with (self.spool / member).open("rb") as stored:
            for index, (digest, size_bytes) in enumerate(chunks):
                packed = stored.read(size_bytes)
                with charge(COORDINATOR, "admit"):
                    assert isinstance(phase, Collecting)
                    phase.check_chunk(member, index, digest, packed)
                    phase = phase.chunk_stored(member, index, NOW_S)
        return phase

    def _ask(self, phase: CoordinatorPhase, name: str, stage: str, served: str) -> CoordinatorPhase:
        """Let every member answer the coordinator's requests in this phase, until the phase ends."""
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
            return phase.pass_deadline(phase.deadline_s)

    def _add_up(self, recovered: Recovered) -> None:
        with self.meter.charge(COORDINATOR, "sum"):
            unmasking = recovered.prepare_unmasking()
        attempt, start = recovered.attempt, 0
        for index in range(attempt.chunk_count):
            elements = attempt.chunk_elements(index)
            # Read in advance, so that disk time isn't counted.
            size_bytes, offset = attempt.ring.packed_bytes(elements), attempt.ring.packed_bytes(start)
            packed = []
            for member in unmasking.survivors:
                with (self.spool / member).open("rb") as spooled:
                    spooled.seek(offset)
                    packed.append((member, spooled.read(size_bytes)))
            with self.meter.charge(COORDINATOR, "sum"):
                self.total[start : start + elements] = unmasking.sum_chunk(index, packed)
            start += elements
        if not np.array_equal(self.total, self.expected):
            raise BenchError(f"{self.case.name}: the unmasked total is not the plain sum")

    def _tell(self, member: str, message: Message, stage: str) -> list[Message]:
        """Carry a message to a member; return its answers as the coordinator reads them."""
        charge = self.meter.charge
        with charge(COORDINATOR, "wire"):
            sent = message.to_bytes()
        self.received_bytes[member] += len(sent)
        with charge(member, "wire"):
            received = parse_message(sent)
        with charge(member, stage):
            step = self.phases[member].receive(received, self.keys[member], NOW_S)
        return self._take(member, step)

    def _take(self, member: str, step: Step) -> list[Message]:
        self.phases[member], replies = step
        gc.freeze()  # all other parties' objects are in this process too, and must not slow down this one's collector
        charge = self.meter.charge
        with charge(member, "store"):
            self.phases[member].to_bytes()
        with charge(member, "wire"):
            sent = [reply.to_bytes() for reply in replies]
        self.sent_bytes[member] += sum(map(len, sent))
        with charge(COORDINATOR, "wire"):
            return [parse_message(reply) for reply in sent]


def _staged(stages: dict[str, float]) -> dict[str, float]:
    return {stage: stages.get(stage, 0.0) for stage in (*MEMBER_STAGES, *APART)}


class ResidentMemory:
    """How far this process's resident memory rises, if the kernel allows a reset of its peak."""

    def __init__(self) -> None:
        gc.collect()
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:  # kept free pages would hide a peak reached by reusing them
            trim(0)
        try:
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
            self._base_bytes: int | None = self._read("VmRSS")
        except OSError:
            self._base_bytes = None

    def rise_bytes(self) -> int | None:
        """Return the peak above the initial resident memory; None if unknown."""
        return None if self._base_bytes is None else self._read("VmHWM") - self._base_bytes

    @staticmethod
    def _read(field: str) -> int:
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith(field))
