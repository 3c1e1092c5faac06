"""M1 as flows: a reservation's vector is masked chunk by chunk, announced and sent.

Masked chunks are not stored. They are derived from the vector, the phase's keys and the seed of the member's own mask, which are.
"""

import hashlib
import threading
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np
import numpy.typing as npt

from client_sdk.api import Asked
from client_sdk.effects import Flow, compute, together
from client_sdk.errors import StateError
from client_sdk.progress import Counter, Progress, Step
from client_sdk.reservations import Run
from client_sdk.session import Session
from client_sdk.site_report import report_refused_upload, report_upload
from veilsum.calibration.judge_tables import ShownHeads
from veilsum.protocol.attempt import Attempt
from veilsum.protocol.member import MemberPhase, Opened
from veilsum.protocol.member.attempting import Attempting
from veilsum.protocol.messages import Upload
from veilsum.protocol.periods import PeriodKind
from veilsum.protocol.round_spec import RoundSpec
from veilsum.protocol.sealing import Sealing
from veilsum.study.judging import judge_mechanism, judge_vector
from veilsum.study.vectors import Material, compute_vector

Integers = npt.NDArray[np.int64]


def mask_upload(
    session: Session, round_id: str, opened: Opened, material: Material | ShownHeads
) -> Flow[tuple[MemberPhase, dict[int, bytes]]]:
    """Make this member's upload. Nothing is sent yet, so an interrupted call starts afresh.

    Args:
        session: the member.
        round_id: stored beside the phase.
        opened: the attempt.
        material: of the step.

    Returns:
        The Uploaded phase, stored with everything that its chunks are derived from; and the chunks by index.
    """
    attempt = opened.attempt
    run = session.store.ledger.check_attempt(attempt)
    values = yield from compute(partial(own_vector, session, run, attempt.spec, material))
    sealing = opened.begin_sealing(session.environment.random_bytes)
    chunks = yield from _mask_chunks(session, attempt, sealing, values)
    upload, own_shares = sealing.finish(session.key)
    phase, _ = opened.store_upload(upload, own_shares)
    store, cohort = session.store, opened.opening.cohort

    def store_sources() -> None:
        with store.database.write():  # a stored upload can always be sent whole
            store.ledger.check_attempt(attempt)  # the run may have been given up since
            name = None if attempt.spec.adds_noise else _vector_name(attempt.spec)
            store.keep_unsent(cohort, sealing.self_seed, store.ledger.keep_vector(run, name, values))
            session.store_phase(cohort, opened, phase, round_id)
            store.ledger.mark_uploaded(attempt.context)

    yield from compute(store_sources)
    return phase, chunks


def own_vector(session: Session, run: Run, spec: RoundSpec, material: Material | ShownHeads) -> Integers:
    """Compute a reservation's vector, (elements,). An exact vector is stored once it was masked; a noisy one gets fresh noise (member: Ledger)."""
    ledger = session.store.ledger
    kept = None if spec.adds_noise else ledger.load_vector(run, _vector_name(spec))
    if kept is not None:
        return kept
    features, labels, _ = ledger.load_rows(run)
    if isinstance(material, ShownHeads):
        mechanism = judge_mechanism(spec.question, spec.members, spec.survivors_min)
        return judge_vector(
            spec.question, material, features, labels, mechanism, session.environment.random_bytes
        )
    return compute_vector(spec, features, labels, material, session.environment.random_bytes)


def _vector_name(spec: RoundSpec) -> str:
    """Name a vector: a reservation has one for each step and list of withheld classes."""
    withheld = hashlib.sha256(repr(spec.withheld).encode()).hexdigest()[:16]
    return f"{spec.step}-{withheld}" if spec.withheld else spec.step


def _mask_chunks(
    session: Session, attempt: Attempt, sealing: Sealing, values: Integers
) -> Flow[dict[int, bytes]]:
    """Mask a vector, chunk by chunk.

    All chunks stay in memory, to be sent without masking them again: they take less than the statistics that the vector was made of.
    """
    chunks = dict[int, bytes]()
    for index in range(attempt.chunk_count):
        chunks[index] = yield from compute(
            partial(sealing.mask_next_chunk, _chunk_values(attempt, values, index))
        )
        session.report(Progress(Step.MASKING, done=index + 1, total=attempt.chunk_count))
    return chunks


def _chunk_values(attempt: Attempt, values: Integers, index: int) -> Integers:
    step = attempt.spec.chunk_elements
    return values[index * step : (index + 1) * step]


@dataclass(frozen=True, repr=False)
class _Chunks:
    """The chunks of a stored upload, masked again by one lane at a time."""

    session: Session
    phase: Attempting
    upload: Upload
    turn: threading.Lock = field(default_factory=threading.Lock)

    def mask_again(self, index: int) -> bytes:
        """Return a masked chunk. Raises StateError if what it is derived from is damaged or missing."""
        with self.turn:
            sealing, values = self._masking_source
            packed = sealing.mask_chunk(index, _chunk_values(self.phase.attempt, values, index))
        # Under these masks no other bytes may ever leave.
        if hashlib.sha256(packed).digest() != self.upload.chunk_digests[index]:
            raise self._lost_source_error()
        return packed

    @cached_property
    def _masking_source(self) -> tuple[Sealing, Integers]:
        try:
            unsent = self.session.store.load_unsent(self.phase.attempt.manifest.cohort)
        except StateError as error:
            raise self._lost_source_error() from error
        if unsent is None:
            raise self._lost_source_error()
        seed, values = unsent
        return self.phase.sealed_again(seed), values

    def _lost_source_error(self) -> StateError:
        return StateError(
            "this upload can't be completed: its stored data is damaged or missing. Take part in the next round"
        )


def send_upload(
    session: Session, round_id: str, phase: Attempting, upload: Upload, memory: dict[int, bytes], after: int
) -> Flow[Asked | None]:
    """Announce an upload and send its missing chunks, several at a time. After a crash it sends the same bytes.

    Args:
        session: the member.
        round_id: 16 hexadecimal digits.
        phase: as it is stored.
        upload: the phase's.
        memory: chunks that need not be masked again, by index; each leaves it once it is sent.
        after: the version of the request that the upload answers.

    Returns:
        What the member is asked next; None if no chunk was missing.

    Raises:
        StateError: what a chunk is derived from is damaged or missing.
    """
    view = yield from session.coordinator.announce_upload(round_id, upload)
    chunks, total = _Chunks(session, phase, upload), len(upload.chunk_digests)
    missing = sorted({index for index in view.missing if 0 <= index < total})
    counter = Counter(session.report, Step.UPLOADING, total - len(missing), total)

    attempt, rehearses = phase.attempt, phase.attempt.spec.kind is PeriodKind.REHEARSAL
    too_large = partial(report_refused_upload, session, attempt.manifest.cohort) if rehearses else None

    def send_chunk(index: int, after: int | None = None) -> Flow[Asked]:
        packed = memory.pop(index, None)
        if packed is None:
            packed = yield from compute(partial(chunks.mask_again, index))
        asked = yield from session.coordinator.send_chunk(round_id, upload, index, packed, after, too_large)
        counter()
        return asked

    if not missing:
        return None
    began_s = session.environment.monotonic_s()
    yield from together([send_chunk(index) for index in missing[:-1]], session.lanes)
    if not rehearses:
        return (yield from send_chunk(missing[-1], after))
    asked = yield from send_chunk(missing[-1])  # no long poll: the upload is timed
    sent_bytes = attempt.ring.packed_bytes(attempt.spec.elements) * len(missing) // total
    upload_s = session.environment.monotonic_s() - began_s
    yield from report_upload(session, attempt.manifest.cohort, sent_bytes, upload_s)
    return asked
