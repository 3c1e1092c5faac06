"""M4 of an indicator round: how many members hold each class, and what members are shown to count it themselves (protocol §9)."""

import numpy as np

from protocol.causes import Cause
from protocol.errors import PeerFault
from service.course import Outcome
from service.modes import PairedSummands
from service.rounds import Round
from service.storage.blobs import Blobs
from service.summing import Pieces

DISCLOSURE = "disclosure"


def compute(
    round_: Round,
    recovered: PairedSummands,
    pieces: Pieces,
    blobs: Blobs,
) -> Outcome:
    """Check the counts, and put together what members are shown.

    Raises:
        PeerFault: sum-check-failed, where a class has fewer holders than none or more than all: members would refuse such counts.
    """
    holders = np.concatenate([piece for _, piece in pieces])
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
