"""Every way in which decryptors can end an attempt after its latest end, counted for small committees (protocol §4.9)."""

from collections.abc import Iterator
from itertools import product

import pytest

from protocol.parameters import Quorum

SIZES = range(2, 10)


def committees() -> Iterator[tuple[int, int, int, int]]:
    """L, a_D, t and q of every committee that the rules allow."""
    for decryptors in SIZES:
        for colluders in range((decryptors - 1) // 2 + 1):
            threshold = (decryptors + colluders) // 2 + 1
            if threshold <= decryptors:
                quorum = Quorum(9, decryptors, colluders, colluders, 3, 3, threshold)
                yield decryptors, colluders, threshold, quorum.erasures_min


def splits(decryptors: int, colluders: int) -> Iterator[tuple[int, int, int, int]]:
    """Honest decryptors that revealed, and of those and of the others how many come back; how many of the colluders lie.

    Votes take no part in it: a decryptor votes or not whatever it does later.
    """
    honest = decryptors - colluders
    for revealed in range(honest + 1):
        yield from (
            (revealed, told, silent, lying)
            for told, silent, lying in product(
                range(revealed + 1), range(honest - revealed + 1), range(colluders + 1)
            )
        )


@pytest.mark.parametrize(("decryptors", "colluders", "threshold", "needed"), list(committees()))
def test_an_erasure_and_a_sum_never_exist_together(
    decryptors: int, colluders: int, threshold: int, needed: int
) -> None:
    for revealed, _told, silent, lying in splits(decryptors, colluders):
        # a colluder that reports nothing revealed may have revealed all the same
        erased = silent + lying >= needed
        summed = revealed + colluders >= threshold
        assert not (erased and summed), (revealed, silent, lying)
    # one report fewer would not do
    assert any(
        silent + lying >= needed - 1 and revealed + colluders >= threshold
        for revealed, _told, silent, lying in splits(decryptors, colluders)
    )


@pytest.mark.parametrize(("decryptors", "colluders", "threshold", "needed"), list(committees()))
def test_honest_decryptors_that_revealed_nothing_end_an_attempt_by_themselves(
    decryptors: int, colluders: int, threshold: int, needed: int
) -> None:
    assert needed <= threshold
    for revealed, _told, silent, _lying in splits(decryptors, colluders):
        if revealed == 0 and silent == decryptors - colluders:
            assert (silent >= needed) == (decryptors >= 3 * colluders)
