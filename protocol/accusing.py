"""Evidence that a decryptor revealed what it was not dealt: kept by the coordinator, checked by anybody (protocol §4.7, §11)."""

from protocol.attempt import Attempt
from protocol.causes import Cause
from protocol.due import commitments_due, due_secrets
from protocol.errors import PeerFault
from protocol.merkle import verify
from protocol.messages import SHARE_BYTES, BadRun, Certificate, Receipt, share_commitments


def check_bad_run(attempt: Attempt, certificate: Certificate, receipt: Receipt, evidence: BadRun) -> None:
    """Accept only evidence that a decryptor is false, checked in this order.

    1. the dealer signed this header, it is the one that the certificate names, and the decryptor's receipt covers it;
    2. the reveal has a run for each dealer of its receipt, this one at the dealer's place and of the right length;
    3. the row leads to the dealer's commitment root;
    4. the shares are not the ones that the row commits to.

    Args:
        attempt: gives neighbours and places.
        certificate: names survivors.
        receipt: the decryptor's: it vouched for what it held.
        evidence: its reveal was checked to be the decryptor's, for this certificate.

    Raises:
        PeerFault: share-invalid, which names the coordinator.
    """
    reveal, header = evidence.reveal, evidence.header
    attempt.check_header(header)
    # A dealer that signs two uploads would frame whoever was dealt the other one.
    if not certificate.names(header):
        raise _invalid(evidence, "the certificate does not name this upload")
    staying = {survivor.member for survivor in certificate.survivors} - set(reveal.evicted)
    held = sorted(staying & {reveal.member, *receipt.dealers})
    due = due_secrets(attempt, header.member, staying)
    # Nor is a run out of place: who was dealt another upload of some dealer reveals a run less.
    if (
        evidence.count != len(held)
        or header.member not in held
        or held.index(header.member) != evidence.place
        or len(evidence.run) != SHARE_BYTES * len(due)
        or not verify(reveal.runs_root, evidence.run, evidence.place, evidence.count, evidence.run_path)
    ):
        raise _invalid(evidence, "this is not its run of that dealer's shares")
    place, rows = attempt.decryptor_place[reveal.member], 1 + len(attempt.decryptors)
    if not verify(header.commitment_root, evidence.row, 1 + place, rows, evidence.row_path):
        raise _invalid(evidence, "the row is not the one that was signed")
    indices = [each.index for each in due]
    made = share_commitments(attempt.context, header.member, reveal.member, indices, evidence.run)
    if made == commitments_due(evidence.row, due):
        raise _invalid(evidence, "the shares are those it was dealt")


def _invalid(evidence: BadRun, why: str) -> PeerFault:
    return PeerFault(Cause.SHARE_INVALID, f"against {evidence.reveal.member}: {why}", ["coordinator"])
