import numpy as np
import pytest

from tests.support.simulator import After, Federation, of
from veilsum.protocol.coordinator import Recovered
from veilsum.protocol.errors import Misuse, PeerFault


@pytest.fixture(scope="module")
def recovered() -> tuple[Federation, Recovered]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("veilsum.protocol.round_spec.CHUNK_ELEMENTS", 64)
        federation = Federation(6, drop={2: After.CARD, 5: After.OPENING})
        federation.begin()
        phase = of(Recovered, federation.run_until())
        assert phase.attempt.chunks == 2
        return federation, phase


def packed(federation: Federation, index: int, members: tuple[str, ...]) -> list[tuple[str, bytes]]:
    return [(member, federation.spool[member, index]) for member in members]


def test_chunks_in_any_order_give_the_sum(recovered: tuple[Federation, Recovered]) -> None:
    federation, phase = recovered
    unmasking = phase.unmasking()
    assert unmasking.survivors == ("member-0", "member-1", "member-3", "member-4")
    total = sum(federation.vectors_now[member] for member in unmasking.survivors)
    for index in (1, 0, 1):
        chunk = unmasking.chunk(index, packed(federation, index, unmasking.survivors[::-1]))
        assert np.array_equal(chunk, np.asarray(total)[64 * index : 64 * index + 64])


@pytest.mark.parametrize(
    "members", [(), ("member-0",), ("member-0",) * 4, ("member-0", "member-1", "member-3", "member-5")]
)
def test_any_others_than_the_survivors_are_a_misuse(
    recovered: tuple[Federation, Recovered], members: tuple[str, ...]
) -> None:
    federation, phase = recovered
    chunk = federation.spool["member-0", 0]
    with pytest.raises(Misuse, match="one chunk of each survivor and no other"):
        phase.unmasking().chunk(0, [(member, chunk) for member in members])


@pytest.mark.parametrize("bad", [b"", bytes(139), bytes(141)], ids=["empty", "short", "long"])
def test_a_chunk_that_is_not_packed_as_it_should_be_names_its_member(
    recovered: tuple[Federation, Recovered], bad: bytes
) -> None:
    _, phase = recovered
    with pytest.raises(PeerFault, match=r"^chunk-mismatch: member-3's chunk 1: .*\[member-3\]$"):
        phase.unmasking().chunk(1, [("member-3", bad)])
