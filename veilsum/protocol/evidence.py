"""Check proofs that a dealer or a decryptor is false (wire: Reveals, analysis: Transcripts)."""

from veilsum.protocol.attempt import Attempt
from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.merkle import verify_path
from veilsum.protocol.messages import (
    COMMITMENT_BYTES,
    SHARE_BYTES,
    BadRun,
    Certificate,
    Proof,
    Receipt,
    commitment_at,
    share_commitment,
    share_commitments,
)
from veilsum.protocol.reveal_plan import due_secrets, entries_due, secret_commitment
from veilsum.protocol.shamir import ShareError, recover_secrets


def check_bad_run(attempt: Attempt, certificate: Certificate, receipt: Receipt, evidence: BadRun) -> None:
    """Verify evidence that a decryptor is false, in this order. If a check fails, the coordinator is at fault.

    1. the dealer signed this header, the certificate names it, and the decryptor's receipt covers it;
    2. the reveal has a run for each dealer of its receipt; this run is at the dealer's place and has the right length;
    3. the row's path leads to the dealer's commitment root;
    4. the shares do not match the row's commitments.

    `receipt` is the decryptor's own, in which it vouches for its shares. The reveal must already be verified for this decryptor and
    certificate.
    """
    reveal, header = evidence.reveal, evidence.header
    attempt.check_header(header)
    # Otherwise a dealer that signs two uploads could frame a decryptor that received the other one.
    if not certificate.names_upload(header):
        raise _unproven_fault(evidence, "the certificate does not name this upload")
    staying = {survivor.member for survivor in certificate.survivors} - set(reveal.evicted)
    held = sorted(staying & {reveal.member, *receipt.dealers})
    due = due_secrets(attempt, header.member, staying)
    # A decryptor that received another upload of some dealer reveals one run less, which shifts the places.
    if (
        evidence.count != len(held)
        or header.member not in held
        or held.index(header.member) != evidence.place
        or len(evidence.run) != SHARE_BYTES * len(due)
        or not verify_path(reveal.runs_root, evidence.run, evidence.place, evidence.count, evidence.run_path)
    ):
        raise _unproven_fault(evidence, "the run does not belong to this dealer's shares")
    if not attempt.has_signed_row(header, reveal.member, evidence.row, evidence.row_path):
        raise _unproven_fault(evidence, "the row does not match the signed root")
    indices = [each.index for each in due]
    made = share_commitments(attempt.context, header.member, reveal.member, indices, evidence.run)
    if made == entries_due(evidence.row, due, COMMITMENT_BYTES):
        raise _unproven_fault(evidence, "the shares match the dealer's commitments")


def _unproven_fault(evidence: BadRun, why: str) -> PeerFault:
    return PeerFault(Cause.SHARE_INVALID, f"against {evidence.reveal.member}: {why}", ["coordinator"])


def check_proof(attempt: Attempt, certificate: Certificate, proof: Proof) -> None:
    """Verify a proof that its dealer is false, in the order of EVICT-2 to EVICT-6."""
    if not certificate.names_upload(proof.header):
        raise _proof_fault(proof, "the certificate does not name this upload")
    try:
        attempt.check_header(proof.header)
    except PeerFault as fault:
        raise _proof_fault(proof, fault.detail) from fault
    if not attempt.has_signed_commitments(proof.header, proof.commitments, proof.path):
        raise _proof_fault(proof, "the secrets' commitments do not match the signed root")
    shares = _shares_by_place(attempt, proof)
    threshold = attempt.quorum.threshold
    if len(shares) < threshold:
        raise _proof_fault(proof, f"{len(shares)} holders, the threshold is {threshold}")
    positions = tuple(shares)[:threshold]
    try:
        (seed,) = recover_secrets(positions, [shares[place] for place in positions])
    except ShareError:
        return
    if secret_commitment(attempt, proof.member, proof.index, seed) == commitment_at(
        proof.commitments, proof.index
    ):
        raise _proof_fault(proof, "the shares recover the committed secret")


def _shares_by_place(attempt: Attempt, proof: Proof) -> dict[int, bytes]:
    """Return the proof's shares by their holders' places, checked against the dealer's commitments."""
    shares: dict[int, bytes] = {}
    for holder in proof.holders:
        place = attempt.decryptor_place.get(holder.member)
        if place is None:
            raise _proof_fault(proof, f"{holder.member} is not a decryptor of this cohort")
        if not attempt.has_signed_row(proof.header, holder.member, holder.row, holder.path):
            raise _proof_fault(proof, f"{holder.member}'s row does not match the signed root")
        made = share_commitment(attempt.context, proof.member, holder.member, proof.index, holder.share)
        if made != commitment_at(holder.row, proof.index):
            raise _proof_fault(proof, f"{holder.member}'s share does not match the dealer's commitment")
        shares[place] = holder.share
    return shares


def _proof_fault(proof: Proof, why: str) -> PeerFault:
    return PeerFault(Cause.EVICTION_INVALID, f"against {proof.member}: {why}", ["coordinator"])
