"""M1 as flows: the vector of a reservation, masked chunk by chunk into the spool, announced, and sent."""

import hashlib
from functools import partial

import numpy as np
import numpy.typing as npt

from client_sdk.effects import Flow, compute, together
from client_sdk.progress import Counter, Progress, Step
from client_sdk.reservations import Run
from client_sdk.session import Session
from client_sdk.store import Spool
from veilsum.protocol.attempt import Attempt
from veilsum.protocol.member import MemberPhase, Opened
from veilsum.protocol.messages import Upload
from veilsum.protocol.round_spec import RoundSpec
from veilsum.protocol.sealing import Sealing
from veilsum.study.vectors import Material, vector

Integers = npt.NDArray[np.int64]


def mask(session: Session, round_id: str, opened: Opened, material: Material) -> Flow[MemberPhase]:
    """Make this member's upload; nothing of it has left when it is interrupted, and it begins afresh.

    Args:
        session: the member.
        round_id: stored beside the phase.
        opened: the attempt.
        material: of the step.

    Returns:
        The Uploaded phase, stored, with every chunk of it.
    """
    attempt = opened.attempt
    run = session.store.ledger.check(attempt)
    values = yield from compute(partial(own_vector, session, run, attempt.spec, material))
    spool = session.store.spool(opened.opening.cohort)
    sealing = opened.seal(session.surroundings.random_bytes)
    yield from _fill(session, attempt, sealing, spool, values)
    upload, own_shares = yield from compute(partial(sealing.finish, session.key))
    spool.seal()
    phase, _ = opened.uploaded(upload, own_shares)
    # The chunks first, then the phase: a stored upload can always be sent whole.
    session.hold(opened.opening.cohort, opened, phase, round_id)
    return phase


def own_vector(session: Session, run: Run, spec: RoundSpec, material: Material) -> Integers:
    """A reservation's vector, (elements,): an exact one computed once and kept, a noisy one with fresh noise (docs/protocol.md §7.3)."""
    ledger, name = session.store.ledger, _name(spec)
    kept = None if spec.noisy else ledger.vector(run, name)
    if kept is not None:
        return kept
    features, labels, _ = ledger.rows(run)
    made = vector(spec, features, labels, material, session.surroundings.random_bytes)
    if not spec.noisy:
        ledger.keep_vector(run, name, made)
    return made


def _name(spec: RoundSpec) -> str:
    """Names a vector: one reservation has one for each step and list of withheld classes."""
    withheld = hashlib.sha256(repr(spec.withheld).encode()).hexdigest()[:16]
    return f"{spec.step}-{withheld}" if spec.withheld else spec.step


def _fill(session: Session, attempt: Attempt, sealing: Sealing, spool: Spool, values: Integers) -> Flow[None]:
    """Mask a vector, chunk by chunk, into an empty spool."""
    spool.begin()
    step = attempt.spec.chunk_elements
    for index in range(attempt.chunks):
        chunk = values[index * step : (index + 1) * step]
        yield from compute(partial(_keep, sealing, spool, index, chunk))
        session.report(Progress(Step.MASKING, done=index + 1, total=attempt.chunks))


def _keep(sealing: Sealing, spool: Spool, index: int, values: Integers) -> None:
    spool.write(index, sealing.chunk(values))


def send(session: Session, round_id: str, cohort: bytes, upload: Upload) -> Flow[None]:
    """Announce an upload and send its missing chunks, each once, several at a time; after a crash, the same bytes.

    Raises:
        StateError: a chunk is damaged or missing here too.
    """
    view = yield from session.coordinator.announce(round_id, upload)
    spool, digests = session.store.spool(cohort), upload.chunk_digests
    missing = sorted({index for index in view.missing if 0 <= index < len(digests)})
    counter = Counter(session.report, Step.UPLOADING, len(digests) - len(missing), len(digests))

    def chunk(index: int) -> Flow[None]:
        # Read when its turn comes: memory holds as many chunks as there are lanes.
        packed = spool.read(index, digests[index])
        yield from session.coordinator.chunk(round_id, session.member, index, packed)
        counter()

    yield from together([partial(chunk, index) for index in missing], session.lanes)
