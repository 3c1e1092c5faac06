"""M4 of an indicator round: how many members hold each class, and what members are shown to count it themselves (protocol §9)."""

from protocol.causes import Cause
from protocol.errors import PeerFault
from protocol.identity import verify_signature
from protocol.recount import disclosure_request
from service.modes import PairedSummands
from service.rounds import Round
from service.solving import Outcome, sum_of
from service.storage.blobs import FileBlobs

DISCLOSURE = "disclosure"


def compute(round_: Round, recovered: PairedSummands, blobs: FileBlobs) -> Outcome:
    """Unmask the counts, and put together what members are shown.

    Raises:
        PeerFault: sum-check-failed, where a class has fewer holders than none or more than all: members would refuse such counts.
    """
    holders = sum_of(round_, recovered, blobs)
    members = recovered.vectors
    if (holders < 0).any() or (holders > members).any():
        raise PeerFault(
            Cause.SUM_CHECK_FAILED,
            f"the counts go from {holders.min()} to {holders.max()}, and {members} members were counted: one of them has not "
            "sent ones and zeros; open another indicator round",
        )
    shown = recovered.disclosure(lambda member, index: blobs.get(round_.chunk_name(member, index)))
    documents = {**recovered.documents(), DISCLOSURE: shown.to_bytes()}
    return Outcome(None, documents, tuple(holders.tolist()))


def check_asker(round_: Round, member: str, signature: str) -> None:
    """Refuse to show the chunks and seeds to anybody but a member of the cohort (unknown-member, bad-signature)."""
    attempt = round_.attempt
    if member not in attempt.manifest.place:
        raise PeerFault(Cause.UNKNOWN_MEMBER, f"{member} is not in this round's cohort", [member])
    digest = disclosure_request(attempt.context, member)
    verify_signature(attempt.roster.key_of(member), bytes.fromhex(signature), digest, member)
