"""Predict the cost of a secure sum: orders of magnitude from sizes and unit costs.

Unit costs are CPU time on one core of a shared server (AES-NI, Python 3.11, OpenSSL), medians of repeated runs; other machines
differ by a factor. The estimate covers costs that grow with the members or the vector, not requests, disks or networks.
"""

from dataclasses import dataclass

from veilsum.protocol.errors import Misuse
from veilsum.protocol.quorum import Quorum
from veilsum.protocol.ring import Ring

AGREEMENT_NS = 27_000
"""One X25519 agreement."""
SIGNATURE_NS = 80_000
"""One Ed25519 signature checked."""
DERIVATION_NS = 2_200
"""One HKDF-SHA256."""
BOX_NS = 1_150
"""One AES-256-GCM box sealed or opened."""
COMMITMENT_NS = 500
"""One commitment to a share, made or checked."""
DEAL_PS = 450
"""One product in GF(p) when dealing a share: nine limbs, t coefficients."""
RECOVER_PS = 5_300
"""One product in GF(p) when recovering a secret."""
MASK_PS = 71
"""One byte of keystream, added: 0.27 ms for a mask of 947,940 4-byte words with GCM and VAES; twice that with CTR."""
ADD_PS = 67
"""One byte of a vector added to another."""
DIGEST_PS = 500
"""One byte through SHA-256."""

SHARE_BYTES = 36
COMMITMENT_BYTES = 16
BOX_TAG_BYTES = 16
_LIMBS = 9


@dataclass(frozen=True)
class Cost:
    """Cost of a cohort's first round, including its keys.

    Attributes:
        member_cpu_ns: CPU time of a member that is not a decryptor.
        decryptor_cpu_ns: total CPU time of a decryptor.
        upload_bytes: bytes that a member sends in M1: shares, commitments and its packed vector.
        stored_bytes: bytes that the coordinator stores after all uploads.
        coordinator_cpu_ns: CPU time of the coordinator with `lost` dropouts.
        lost: members that enrol and never upload, the costliest dropouts.
    """

    member_cpu_ns: int
    decryptor_cpu_ns: int
    upload_bytes: int
    stored_bytes: int
    coordinator_cpu_ns: int
    lost: int


def estimate(quorum: Quorum, degree: int, lost: int, elements: int, ring_bits: int) -> Cost:
    """Estimate a round's cost.

    Args:
        quorum: fixes n, L and t.
        degree: k, neighbours per member.
        lost: members that enrol and never upload, 0 … n.
        elements: length of the vector.
        ring_bits: width of an element on the wire, 8 … 64.

    Raises:
        Misuse: a number is outside its domain.
    """
    n, L, t = quorum.members, quorum.decryptors, quorum.threshold
    if not (1 <= degree < n and 0 <= lost <= n and elements >= 1):
        raise Misuse(f"no cost for n={n}, k={degree}, {lost} lost and {elements} elements")
    ring = Ring(ring_bits)
    secrets, survivors = 1 + degree, n - lost
    vector_bytes = elements * ring.itemsize
    mask_ns = vector_bytes * MASK_PS // 1000
    row_bytes, box_bytes = COMMITMENT_BYTES * secrets, SHARE_BYTES * secrets + BOX_TAG_BYTES
    upload_bytes = ring.packed_bytes(elements) + row_bytes * (1 + L) + box_bytes * L

    member_ns = (
        min(n, degree + L) * SIGNATURE_NS  # their cards
        + (degree + L) * (AGREEMENT_NS + 2 * DERIVATION_NS)
        + secrets * L * t * _LIMBS * DEAL_PS // 1000
        + secrets * (1 + L) * COMMITMENT_NS
        + L * BOX_NS
        + secrets * mask_ns
        + upload_bytes * DIGEST_PS // 1000
        + t * SIGNATURE_NS  # the certificate
    )
    opening_ns = (
        (SIGNATURE_NS + AGREEMENT_NS + 2 * DERIVATION_NS + BOX_NS)
        + secrets * COMMITMENT_NS
        + (row_bytes + box_bytes) * DIGEST_PS // 1000
    )
    # each survivor's own mask, and the masks between dropouts and their surviving neighbours
    opened = survivors + lost * min(degree, survivors)
    coordinator_ns = (
        n * (SIGNATURE_NS + 2 * AGREEMENT_NS)  # cards, including the low-order check of both keys
        + survivors * (SIGNATURE_NS + (upload_bytes * DIGEST_PS + vector_bytes * ADD_PS) // 1000)
        + 3 * L * SIGNATURE_NS  # receipts, votes, reveals
        + opened * (L * COMMITMENT_NS + t * _LIMBS * RECOVER_PS // 1000 + mask_ns)
    )
    return Cost(
        member_cpu_ns=member_ns,
        decryptor_cpu_ns=member_ns + n * opening_ns,
        upload_bytes=upload_bytes,
        stored_bytes=n * upload_bytes,
        coordinator_cpu_ns=coordinator_ns,
        lost=lost,
    )
