"""The cost of a round, from its public terms."""

from veilsum.protocol.attempt import Attempt
from veilsum.protocol.estimate import estimate
from veilsum.protocol.messages import COMMITMENT_BYTES, SHARE_BYTES, Upload, UploadHeader
from veilsum.protocol.sizing import Assumptions, Committee, Plan


def upload_bytes(attempt: Attempt, member: str) -> int:
    """Bytes that `member` sends in M1: its announcement and all its chunks."""
    secrets = 1 + attempt.neighbour_count
    box = bytes(SHARE_BYTES * secrets + 16)
    announcement = Upload(
        header=UploadHeader(
            context=bytes(32),
            member=member,
            salt=bytes(32),
            chunk_root=bytes(32),
            commitment_root=bytes(32),
            box_root=bytes(32),
            signature=bytes(64),
        ),
        chunk_digests=(bytes(32),) * attempt.chunks,
        secret_commitments=(bytes(COMMITMENT_BYTES),) * secrets,
        share_rows=(bytes(COMMITMENT_BYTES * secrets),) * len(attempt.decryptors),
        boxes=tuple(b"" if decryptor == member else box for decryptor in attempt.decryptors),
    )
    chunks = sum(attempt.ring.packed_bytes(attempt.chunk_elements(index)) for index in range(attempt.chunks))
    return len(announcement.to_bytes()) + chunks


def plan_of(attempt: Attempt) -> Plan:
    """Compute a checked cohort's sizes and the cost of its round."""
    manifest, spec, quorum = attempt.manifest, attempt.spec, attempt.quorum
    if quorum.decryptors == quorum.members:
        committee = Committee.EVERYONE
    else:
        committee = Committee.NOMINATED if attempt.roster.decryptors else Committee.DRAWN
    lost = Assumptions(delta=spec.question.loss).dropped(quorum.members)
    return Plan(
        quorum,
        committee,
        manifest.degree,
        manifest.window_dropped_max,
        estimate(quorum, manifest.degree, lost, spec.elements, spec.ring_bits),
    )
