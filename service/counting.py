"""M4 of an indicator round: how many members hold each class, and what members are shown to count it themselves (protocol §9)."""

import numpy as np

from protocol.causes import Cause
from protocol.coordinator import Recovered, disclose
from protocol.errors import PeerFault
from service.documents import Outcome
from service.rounds import Round
from service.solving import EVICTIONS, evictions_of
from service.storage.blobs import Blobs
from service.summing import Pieces

DISCLOSURE = "disclosure"


def compute(
    round_: Round,
    recovered: Recovered,
    pieces: Pieces,
    blobs: Blobs,
) -> Outcome:
    """Check the counts, and put together what members are shown.

    Raises:
        PeerFault: sum-check-failed, where a class has fewer holders than none or more than all: members would refuse such counts.
    """
    holders = np.concatenate([piece for _, piece in pieces])
    members = len(recovered.summed)
    if (holders < 0).any() or (holders > members).any():
        raise PeerFault(
            Cause.SUM_CHECK_FAILED,
            "a class has fewer holders than none, or more than there are members: a member did not send ones and zeros. "
            "Open another indicator round",
        )
    shown = disclose(recovered, lambda member, index: blobs.get(round_.chunk_name(member, index)))
    documents = {EVICTIONS: evictions_of(recovered), DISCLOSURE: shown.to_bytes()}
    return Outcome(None, documents, tuple(holders.tolist()))
