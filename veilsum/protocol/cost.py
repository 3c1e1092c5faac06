"""Predict the cost of a round: orders of magnitude from sizes and unit costs.

Unit costs are CPU times on one core of a shared server (AES-NI, Python 3.11, OpenSSL), medians of repeated runs. Other machines may be
several times faster or slower. The estimate covers costs that grow with the members or the vector, not requests, disks or networks.
"""

from dataclasses import dataclass

from veilsum.protocol.attempt import Attempt
from veilsum.protocol.errors import Misuse
from veilsum.protocol.forms import count_noun
from veilsum.protocol.messages import BOX_TAG_BYTES, COMMITMENT_BYTES, SHARE_BYTES
from veilsum.protocol.messages.cohort import CIPHERTEXT_BYTES, MLKEM_KEY_BYTES
from veilsum.protocol.ring import Ring
from veilsum.protocol.sizing import Quorum, count_dropouts

AGREEMENT_NS = 27_000
"""One X25519 agreement."""
ENCAPSULATION_NS = 28_000
"""One ML-KEM-768 encapsulation, with the check of the key."""
DECAPSULATION_NS = 23_000
"""One ML-KEM-768 decapsulation."""
MLKEM_CHECK_NS = 13_000
"""The check of one ML-KEM-768 key."""
SIGNATURE_NS = 80_000
"""Verification of one Ed25519 signature."""
DERIVATION_NS = 2_200
"""One HKDF-SHA256."""
BOX_NS = 1_150
"""Sealing or opening one AES-256-GCM box."""
COMMITMENT_NS = 500
"""Making or checking one commitment to a share."""
DEAL_PS = 450
"""One product in GF(p) when dealing a share: nine limbs, t coefficients."""
RECOVER_PS = 5_300
"""One product in GF(p) when recovering a secret."""
MASK_PS = 71
"""Generating and adding one byte of keystream: 0.27 ms for a mask of 947,940 4-byte words with GCM and VAES, twice that with CTR."""
ADD_ELEMENT_PS = 67
"""Adding one byte of a vector to another."""
DIGEST_PS = 500
"""Hashing one byte with SHA-256."""

_SECRET_LIMBS = 9


@dataclass(frozen=True)
class Cost:
    """Cost of a cohort's first round, including its keys.

    Attributes:
        member_cpu_ns: CPU time of a member that is not a decryptor.
        decryptor_cpu_ns: total CPU time of a decryptor.
        pairing_bytes: what a member that is not a decryptor sends before the cohort is formed: its ML-KEM key and its ciphertexts.
        coordinator_cpu_ns: CPU time of the coordinator with `lost` dropouts.
        lost: members that enrol and never upload, the costliest dropouts.
    """

    member_cpu_ns: int
    decryptor_cpu_ns: int
    pairing_bytes: int
    upload_bytes: int
    stored_bytes: int
    coordinator_cpu_ns: int
    lost: int


def estimate_cost(quorum: Quorum, degree: int, lost: int, elements: int, ring_bits: int) -> Cost:
    """Estimate the cost of a round of k = `degree` neighbours, in which `lost` members, 0 … n, enrol and never upload."""
    n, L, t = quorum.members, quorum.decryptors, quorum.threshold
    if not (1 <= degree < n and 0 <= lost <= n and elements >= 1):
        raise Misuse(f"no cost for n={n}, k={degree}, {lost} lost and {elements} elements")
    ring = Ring(ring_bits)
    secrets, survivors = 1 + degree, n - lost
    vector_bytes = elements * ring.itemsize
    mask_ns = vector_bytes * MASK_PS // 1000
    row_bytes, box_bytes = COMMITMENT_BYTES * secrets, SHARE_BYTES * secrets + BOX_TAG_BYTES
    upload_bytes = ring.packed_bytes(elements) + row_bytes * (1 + L) + box_bytes * L
    pairs = min(n - 1, degree + L)
    decapsulated = (
        degree // 2
    )  # each of these members encapsulates to half of its neighbours and to the decryptors

    member_ns = (
        (1 + pairs) * SIGNATURE_NS  # the cards
        + pairs * AGREEMENT_NS
        + (pairs - decapsulated) * ENCAPSULATION_NS
        + decapsulated * (SIGNATURE_NS + DECAPSULATION_NS)
        + 2 * (degree + L) * DERIVATION_NS
        + secrets * L * t * _SECRET_LIMBS * DEAL_PS // 1000
        + secrets * (1 + L) * COMMITMENT_NS
        + L * BOX_NS
        + secrets * mask_ns
        + upload_bytes * DIGEST_PS // 1000
        + t * SIGNATURE_NS  # the certificate
    )
    # what a decryptor pairs with beyond that: each card and each ciphertext is signed
    further_ns = (n - 1 - pairs) * (2 * SIGNATURE_NS + AGREEMENT_NS + DECAPSULATION_NS + DERIVATION_NS)
    opening_ns = (
        (SIGNATURE_NS + DERIVATION_NS + BOX_NS)
        + secrets * COMMITMENT_NS
        + (row_bytes + box_bytes) * DIGEST_PS // 1000
    )
    # each survivor's own mask, and the masks between dropouts and their surviving neighbours
    opened = survivors + lost * min(degree, survivors)
    coordinator_ns = (
        n * (2 * SIGNATURE_NS + MLKEM_CHECK_NS)  # cards and pairings
        + survivors * (SIGNATURE_NS + (upload_bytes * DIGEST_PS + vector_bytes * ADD_ELEMENT_PS) // 1000)
        + 3 * L * SIGNATURE_NS  # receipts, votes, reveals
        + opened * (L * COMMITMENT_NS + t * _SECRET_LIMBS * RECOVER_PS // 1000 + mask_ns)
    )
    return Cost(
        member_cpu_ns=member_ns,
        decryptor_cpu_ns=member_ns + further_ns + n * opening_ns,
        pairing_bytes=MLKEM_KEY_BYTES + (pairs - decapsulated) * CIPHERTEXT_BYTES,
        upload_bytes=upload_bytes,
        stored_bytes=n * upload_bytes,
        coordinator_cpu_ns=coordinator_ns,
        lost=lost,
    )


def cost_of(attempt: Attempt) -> Cost:
    """Estimate the cost of an attempt's round with ⌊δn⌋ dropouts."""
    quorum, spec = attempt.quorum, attempt.spec
    lost = count_dropouts(quorum.members, spec.question.loss)
    return estimate_cost(quorum, attempt.manifest.degree, lost, spec.elements, spec.ring_bits)


def cost_in_words(attempt: Attempt) -> str:
    """Describe an attempt's sizes and cost in a few sentences."""
    q, cost, degree = attempt.quorum, cost_of(attempt), attempt.manifest.degree
    masks = (
        "each shares a mask with every other"
        if degree == q.members - 1
        else f"each shares a mask with {degree:,} others, and of any {degree // 2:,} in a row "
        f"{attempt.manifest.window_dropped_max:,} may drop out"
    )
    holders, cpu = "All", _format_seconds(cost.decryptor_cpu_ns)
    if q.decryptors < q.members:
        chosen = "nominated" if attempt.roster.decryptors else "drawn"
        holders = f"{q.decryptors:,} {chosen} ({q.decryptor_colluders:,} may collude)"
        cpu = f"{_format_seconds(cost.member_cpu_ns)} ({cpu} if it holds shares)"
    return (
        f"{q.members:,} members, up to {q.colluders:,} of them colluding; {masks}. {holders} hold shares, and any {q.threshold:,} of "
        f"them can open the sum of {q.survivors_min:,} or more members. A member computes for about {cpu} and sends "
        f"{in_bytes(cost.pairing_bytes + cost.upload_bytes)}. The coordinator stores {in_bytes(cost.stored_bytes)} and computes for "
        f"{_format_seconds(cost.coordinator_cpu_ns)} if {cost.lost:,} drop out."
    )


def in_bytes(number_bytes: int) -> str:
    """Format a size with its unit."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if number_bytes >= size:
            return f"{number_bytes / size:,.1f} {unit}"
    return count_noun(number_bytes, "byte")


def _format_seconds(cpu_ns: int) -> str:
    return f"{cpu_ns / 1e9:,.2g} s" if cpu_ns < 10**10 else f"{cpu_ns // 10**9:,} s"
