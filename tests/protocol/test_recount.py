"""Every member recounts a count round; the sum then withholds rare classes (wire: Counts)."""

from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256

import numpy as np
import pytest

from tests.protocol.counting import CLASSES, QUESTION, closed, counted, counts, disclosure
from tests.support.calls import record_calls
from tests.support.forging import false_dealers, other_secrets
from tests.support.refusals import refused
from tests.support.simulator import After, Federation
from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator import Recovered
from veilsum.protocol.graph import Graph
from veilsum.protocol.messages import Disclosure
from veilsum.protocol.recount import recount_disclosure

# Counting


def test_without_the_proof_nobody_may_be_left_out_of_the_count() -> None:
    federation = Federation(7, decryptors=(1, 2, 3, 4), margin=1, question=QUESTION)
    false_dealers(federation, {"member-0": other_secrets})
    federation.run_round(counts(federation))
    assert isinstance(federation.phase, Recovered)
    before = closed(federation, "member-5")
    # who does not decrypt has seen no proof yet
    assert before.evicted == ()
    federation.disclose()
    assert counted(federation, "member-5") == (6, 4, 5, 2, 0, 0)
    assert closed(federation, "member-5").reveals == ()
    federation.phases["member-5"] = before
    with refused("disclosure-invalid", "coordinator"):
        federation.ask("member-5", disclosure(federation))


@pytest.mark.parametrize("wrong", [-1, 7, 8])
def test_no_class_has_fewer_holders_than_none_or_more_than_all(wrong: int) -> None:
    federation = Federation(7, margin=1, question=QUESTION)
    vectors = {member: np.zeros(CLASSES, np.int64) for member in federation.ids}
    vectors["member-3"][2] = wrong
    federation.run_round(vectors)
    federation.disclose()
    if wrong == 7:
        assert counted(federation) == (0, 0, 7, 0, 0, 0)
    else:
        assert {fault.cause for _, fault in federation.faults} == {Cause.DISCLOSURE_INVALID}
        assert counted(federation) is None


# Each tampering of a disclosure


@pytest.fixture(scope="module")
def round_() -> Iterator[tuple[Federation, Disclosure]]:
    """A count in two chunks, without member-6: every survivor must reveal r_u6."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("veilsum.protocol.round_spec.CHUNK_ELEMENTS", 8)
        question = {"classes": list("abcdefghijkl")}
        federation = Federation(7, drop={6: After.OPENING}, margin=1, question=question)
        federation.run_round(dict.fromkeys(federation.ids, np.ones(12, np.int64)))
        yield federation, disclosure(federation)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make two chunks of twelve classes."""
    monkeypatch.setattr("veilsum.protocol.round_spec.CHUNK_ELEMENTS", 8)


@pytest.mark.parametrize("chunks", [(b"",) * 3, (bytes(32), bytes(15)), (bytes(31), bytes(16))])
def test_chunks_of_another_number_or_length_are_refused_before_they_are_hashed(
    round_: tuple[Federation, Disclosure], chunks: tuple[bytes, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    federation, shown = round_
    phase = closed(federation)
    monkeypatch.setattr("veilsum.protocol.recount.sha256", None)
    first, *others = shown.entries
    with refused("disclosure-invalid", "coordinator"):
        recount_disclosure(
            phase.attempt,
            phase.staying_survivors,
            replace(shown, entries=(replace(first, chunks=chunks), *others)),
        )


def test_other_chunks_under_their_own_digests_are_not_what_was_signed(
    round_: tuple[Federation, Disclosure],
) -> None:
    federation, shown = round_
    phase = closed(federation)
    first, *others = shown.entries
    chunks = tuple(bytes(len(chunk)) for chunk in first.chunks)
    digests = tuple(sha256(chunk).digest() for chunk in chunks)
    false = replace(first, chunks=chunks, chunk_digests=digests)
    with refused("disclosure-invalid", "coordinator"):
        recount_disclosure(phase.attempt, phase.staying_survivors, replace(shown, entries=(false, *others)))


def test_each_members_neighbours_are_looked_up_once_however_many_of_them_are_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # on a ring a look-up sorts k members: one for each seed kept a member of 10,000 busy for ten seconds
    federation = Federation(
        7, drop={5: After.OPENING, 6: After.OPENING}, margin=0, question={**QUESTION, "members_min": 5}
    )
    federation.run_round(counts(federation))
    shown, phase = disclosure(federation), closed(federation)
    asked = record_calls(monkeypatch, Graph, "neighbours_of", lambda _, member: member)
    recount_disclosure(phase.attempt, phase.staying_survivors, shown)
    assert asked == [survivor.member for survivor in phase.staying_survivors]
