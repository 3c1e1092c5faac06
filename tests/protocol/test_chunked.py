"""Vectors lie alike in both modes: the terms say how."""

from collections.abc import Callable

import pytest

from protocol.attempt import Attempt
from protocol.chunked import Chunked
from protocol.helpers.simulator import HelperFederation
from protocol.ring import Ring
from protocol.simulator import Federation


def members(elements: int) -> Chunked:
    federation = Federation(3)
    terms = federation.terms(elements, chunk_elements=64, ring_bits=40)
    return Attempt(federation.roster, federation.manifest, federation.opening(terms))


def helpers(elements: int) -> Chunked:
    federation = HelperFederation(8)
    federation.begin(federation.terms(elements, chunk_elements=64, ring_bits=40))
    return federation.attempt


@pytest.mark.parametrize("made", [members, helpers])
@pytest.mark.parametrize(
    ("elements", "lengths"), [(1, [1]), (64, [64]), (65, [64, 1]), (200, [64, 64, 64, 8])]
)
def test_chunks_are_alike_but_for_a_shorter_last(
    made: Callable[[int], Chunked], elements: int, lengths: list[int]
) -> None:
    attempt = made(elements)
    assert attempt.ring == Ring(40)
    assert [attempt.chunk_elements(index) for index in range(attempt.chunks)] == lengths
