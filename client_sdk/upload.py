"""M1 as flows: mask chunk by chunk into the spool, announce, and send what is missing."""

from functools import partial

import numpy as np
import numpy.typing as npt

from calibration.privacy import MemberNoise
from client_sdk.asked import mu_of, terms_lattice, terms_mechanism
from client_sdk.effects import Flow, compute, together
from client_sdk.errors import Misuse
from client_sdk.offer import Offer, Statistics, cap_of
from client_sdk.progress import Counter, Progress, Step
from client_sdk.session import Session
from client_sdk.spool import Spool
from protocol.attempt import Attempt
from protocol.codec import SecretBytes
from protocol.keystream import SEED_BYTES, Keystream
from protocol.member import MemberPhase, Opened
from protocol.messages import Terms, Upload
from protocol.sealing import Sealing


def mask(session: Session, round_id: str, opened: Opened, offer: Offer) -> Flow[MemberPhase]:
    """Make this member's upload; nothing of it has left when it is interrupted, and it begins afresh.

    Args:
        session: the member.
        round_id: stored beside the phase.
        opened: the attempt.
        offer: statistics that `Offer.check` has passed.

    Returns:
        The Uploaded phase, stored, with every chunk of it.
    """
    attempt, statistics = opened.attempt, offer.statistics
    spool = session.store.spool(opened.opening.cohort)
    sealing = opened.seal(session.surroundings.random_bytes)
    yield from _fill(session, attempt, sealing, spool, statistics)
    upload, own_shares = yield from compute(
        partial(
            sealing.finish,
            session.key,
            lineage=offer.lineage,
            records_tag=offer.tag(attempt.opening.terms),
            records=min(
                statistics.records, cap_of(attempt, session.member)
            ),  # an exact sum of more was refused
        )
    )
    spool.seal()
    phase, _ = opened.uploaded(upload, own_shares)
    # The ledger and the chunks first, then the phase: a stored upload is accounted for, and can always be sent whole.
    family = opened.opening.terms.family.value
    charged = mu_of(attempt)
    yield from compute(partial(session.store.lineages.use, offer, family, attempt.context, charged=charged))
    session.hold(opened.opening.cohort, opened, phase, round_id)
    return phase


def _fill(
    session: Session,
    attempt: Attempt,
    sealing: Sealing,
    spool: Spool,
    statistics: Statistics,
) -> Flow[None]:
    """Add noise, if the terms ask for it, and mask, chunk by chunk into an empty spool.

    Raises:
        Misuse: the vector is not of the terms' length.
    """
    terms = attempt.opening.terms
    spool.begin()
    pieces = yield from compute(partial(statistics.pieces, terms_lattice(attempt), terms.chunk_elements))
    noise, done = _noise(session, attempt), 0
    if noise is not None and (left_out := getattr(statistics, "left_out", 0)):
        detail = (
            f"{left_out} records are none (NaN, a row of zeros, a label that is no class) and add nothing"
        )
        session.report(Progress(Step.MASKING, detail=detail))
    for index in range(attempt.chunks):
        values = yield from compute(partial(next, pieces, None))
        size = attempt.chunk_elements(index)
        if values is None or values.shape != (size,):
            seen = "none" if values is None else values.shape
            raise Misuse(
                f"the statistics' vector has {seen} for the {size} elements from {done} on that their layout has"
            )
        if noise is not None:
            values = yield from compute(partial(_noised, session, attempt, values, noise))
        yield from compute(partial(_keep, sealing, spool, index, values))
        done += size
        session.report(Progress(Step.MASKING, done=index + 1, total=attempt.chunks))
    if (yield from compute(partial(next, pieces, None))) is not None:
        raise Misuse(f"the statistics' vector goes on after the {done} elements that their layout has")


def _noise(session: Session, attempt: Attempt) -> MemberNoise | None:
    """This upload's share of the noise, of a seed that is used for nothing else and kept nowhere."""
    mechanism = terms_mechanism(attempt)
    if mechanism is None:
        return None
    seed = SecretBytes(session.surroundings.random_bytes(SEED_BYTES))
    return MemberNoise(mechanism.layout, mechanism.shares, Keystream(seed))


def _noised(
    session: Session, attempt: Attempt, values: npt.NDArray[np.int64], noise: MemberNoise
) -> npt.NDArray[np.int64]:
    """Numbers cut to what a cap's records can reach, each by itself, which brings no two data sets further apart; and noise."""
    most = terms_lattice(attempt).bound(cap_of(attempt, session.member), 1)
    cut = values.clip(-most, most)  # a copy: another round may ask for the same statistics again
    noise.add_to(cut)
    return cut


def _keep(sealing: Sealing, spool: Spool, index: int, values: npt.NDArray[np.int64]) -> None:
    spool.write(index, sealing.chunk(values))


def check_same(upload: Upload, offer: Offer, terms: Terms) -> None:
    """Refuse to go on with other records than those the upload was made from, where it says which; Misuse says so."""
    if (upload.header.lineage, upload.header.records) != (offer.lineage, offer.tag(terms)):
        raise Misuse(
            "this round's upload was made from other records or under another lineage before this member was "
            "restarted, and it never changes: pass the same statistics, or statistics=None to send what was made"
        )


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
