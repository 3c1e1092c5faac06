"""Proofs that a dealer dealt what it did not commit to: made by the coordinator, checked by everybody (protocol §4.7)."""

from protocol.attempt import Attempt
from protocol.causes import Cause
from protocol.due import secret_commitment
from protocol.errors import PeerFault
from protocol.merkle import verify
from protocol.messages import COMMITMENT_BYTES, Certificate, Proof, share_commitment
from protocol.shamir import ShareError, recover_secrets


def check_proof(attempt: Attempt, certificate: Certificate, proof: Proof) -> None:
    """Accept only a proof that its dealer is false, checked in this order.

    1. the dealer stands in the certificate with this digest, and signed this header;
    2. commitments and rows lead to the signed commitment root;
    3. each share is the one that the dealer committed to;
    4. at least t holders are different decryptors;
    5. what the first t shares recover is no 32-byte secret, or misses its commitment.

    Raises:
        PeerFault: eviction-invalid, whichever fails.
    """
    if not certificate.names(proof.header):
        raise _invalid(proof, "the certificate does not name this upload")
    try:
        attempt.check_header(proof.header)
    except PeerFault as fault:
        raise _invalid(proof, fault.detail) from fault
    secrets = 1 + attempt.neighbour_count
    committed = _entry(proof.commitments, proof.index)
    if (
        len(proof.commitments) != COMMITMENT_BYTES * secrets
        or proof.index >= secrets
        or not verify(
            proof.header.commitment_root, proof.commitments, 0, 1 + len(attempt.decryptors), proof.path
        )
    ):
        raise _invalid(proof, "the secrets' commitments are not those that were signed")
    shares = _shares(attempt, proof)
    threshold = attempt.quorum.threshold
    if len(shares) < threshold:
        raise _invalid(proof, f"{len(shares)} holders, the threshold is {threshold}")
    positions = tuple(shares)[:threshold]
    try:
        (seed,) = recover_secrets(positions, [shares[place] for place in positions])
    except ShareError:
        return
    if secret_commitment(attempt, proof.member, proof.index, seed) == committed:
        raise _invalid(proof, "the shares make the secret that was committed to")


def _shares(attempt: Attempt, proof: Proof) -> dict[int, bytes]:
    """The shares shown, by their holders' places; each with its row is the dealer's own."""
    dealer, holders = proof.member, len(attempt.decryptors)
    shares: dict[int, bytes] = {}
    for holder in proof.holders:
        place = attempt.decryptor_place.get(holder.member)
        if place is None:
            raise _invalid(proof, f"{holder.member} is not a decryptor of this cohort")
        if not verify(proof.header.commitment_root, holder.row, 1 + place, 1 + holders, holder.path):
            raise _invalid(proof, f"{holder.member}'s row is not the one that was signed")
        if share_commitment(attempt.context, dealer, holder.member, proof.index, holder.share) != _entry(
            holder.row, proof.index
        ):
            raise _invalid(proof, f"{holder.member}'s share is not the one that was dealt")
        shares[place] = holder.share
    return shares


def _entry(commitments: bytes, index: int) -> bytes:
    return commitments[index * COMMITMENT_BYTES : (index + 1) * COMMITMENT_BYTES]


def _invalid(proof: Proof, why: str) -> PeerFault:
    return PeerFault(Cause.EVICTION_INVALID, f"against {proof.member}: {why}", ["coordinator"])
