"""A sum takes the survivors' chunks and the agreed sums."""

import pytest

from protocol.causes import Cause
from protocol.errors import Misuse, PeerFault
from protocol.helpers.coordinator import Recovered
from protocol.helpers.simulator import HelperFederation
from protocol.helpers.unmasking import HelperUnmasking


def test_a_sum_takes_the_survivors_chunks_and_the_agreed_sums(federation: HelperFederation) -> None:
    ended = federation.run(federation.terms(100)).phase
    assert isinstance(ended, Recovered)
    unmasking = HelperUnmasking(ended)
    packed = [(client, federation.spool[client, 1]) for client in federation.ids]
    sums = [federation.spool[f"{source.holders[-1]}/{seed}", 1] for seed, source in enumerate(ended.sources)]
    expected = sum(federation.vector(index, 100)[64:] for index in range(8))
    assert (unmasking.chunk(1, reversed(packed), sums) == expected).all()
    with pytest.raises(Misuse, match="one chunk of each survivor"):
        unmasking.chunk(1, packed[1:], sums)
    with pytest.raises(Misuse, match="one chunk of each survivor"):
        unmasking.chunk(1, [*packed[1:], packed[1]], sums)
    with pytest.raises(Misuse, match="by 4 sums, not 3"):
        unmasking.chunk(1, packed, sums[:3])
    with pytest.raises(PeerFault) as refused:
        unmasking.chunk(1, packed, [*sums[:3], bytes(len(sums[3]))])
    assert (refused.value.cause, refused.value.parties) == (Cause.CHUNK_MISMATCH, ended.sources[3].holders)
    with pytest.raises(PeerFault) as refused:
        unmasking.chunk(1, [("client-0", b""), *packed[1:]], sums)
    assert (refused.value.cause, refused.value.parties) == (Cause.CHUNK_MISMATCH, ("client-0",))
    with pytest.raises(Misuse, match="stranger is no survivor"):
        ended.counted("stranger")
