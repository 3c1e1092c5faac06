"""An indicator round is recounted by every member; the sum then withholds what few hold (protocol §8.2)."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from hashlib import sha256
from typing import Any

import numpy as np
import pytest

from tests.protocol.forging import false_dealers, other_secrets
from tests.protocol.indicating import (
    CLASSES,
    QUESTION,
    answer,
    closed,
    counted,
    disclosure,
    indicated,
    indicators,
)
from tests.support.simulator import After, Federation
from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator import Recovered, Voided
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.graph import Graph
from veilsum.protocol.messages import Disclosed, Disclosure, Upload
from veilsum.protocol.recount import recount

# Counting


def test_members_count_for_themselves_what_the_round_was_made_of() -> None:
    federation = indicated()
    assert counted(federation) is None
    federation.disclose()
    assert federation.faults == []
    for member in federation.ids:
        assert counted(federation, member) == (7, 5, 6, 3, 1, 0)
        (said,) = federation.phases[member].history.counted  # type: ignore[attr-defined]  # as above
        assert said.context == federation.phase.attempt.context
        assert tuple(s.member for s in said.survivors) == federation.ids


def test_lost_members_are_not_counted() -> None:
    federation = indicated(drop={5: After.OPENING, 6: After.UPLOAD})
    federation.drop = {}
    assert federation.ending is not None
    federation._tell("member-6", federation.ending)
    federation.disclose()
    # member-6's upload was whole
    assert counted(federation) == counted(federation, "member-6") == (6, 5, 5, 2, 1, 0)


def test_who_was_evicted_is_not_counted_and_the_proof_is_shown_first() -> None:
    federation = Federation(7, margin=1, question=QUESTION)
    false_dealers(federation, {"member-0": other_secrets})
    federation.run_round(indicators(federation))
    assert isinstance(federation.phase, Recovered)
    assert federation.phase.evicted == ("member-0",)
    federation.disclose()
    assert federation.faults == []
    for member in federation.ids:
        assert counted(federation, member) == (6, 4, 5, 2, 0, 0)
    (said,) = closed(federation).history.counted
    assert tuple(s.member for s in said.survivors) == federation.ids[1:]


def test_without_the_proof_nobody_may_be_left_out_of_the_count() -> None:
    federation = Federation(7, decryptors=(1, 2, 3, 4), margin=1, question=QUESTION)
    false_dealers(federation, {"member-0": other_secrets})
    federation.run_round(indicators(federation))
    phase = federation.phase
    assert isinstance(phase, Recovered)
    before = closed(federation, "member-5")
    # who does not decrypt has seen no proof yet
    assert before.evicted == ()
    federation.disclose()
    assert counted(federation, "member-5") == (6, 4, 5, 2, 0, 0)
    assert closed(federation, "member-5").reveals == ()
    federation.phases["member-5"] = before
    with pytest.raises(PeerFault, match=r"^disclosure-invalid: the entries are not the certified survivors'"):
        answer(federation, disclosure(federation), "member-5")


@pytest.mark.parametrize("wrong", [-1, 7, 8, 1 << 20])
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


def test_only_a_sum_is_recounted() -> None:
    federation = Federation(5, margin=1)
    federation.tamper = lambda who, m: (
        None if who in {"member-3", "member-4"} and isinstance(m, Upload) else m
    )
    outcome = federation.run_round()
    assert isinstance(outcome.phase, Voided)
    with pytest.raises(PeerFault, match=r"^wrong-phase: only a certified indicator is recounted"):
        answer(federation, Disclosure(outcome.phase.attempt.context, ()))


# Each tampering of a disclosure


@pytest.fixture(scope="module")
def round_() -> Iterator[tuple[Federation, Disclosure]]:
    """An indicator in two chunks, without member-6; r_u6 is due of every survivor."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("veilsum.protocol.round_spec.CHUNK_ELEMENTS", 8)
        question = {"classes": list("abcdefghijkl")}
        federation = Federation(7, drop={6: After.OPENING}, margin=1, question=question)
        federation.run_round(dict.fromkeys(federation.ids, np.ones(12, np.int64)))
        yield federation, disclosure(federation)


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two chunks of twelve classes."""
    monkeypatch.setattr("veilsum.protocol.round_spec.CHUNK_ELEMENTS", 8)


def test_an_honest_disclosure_passes(round_: tuple[Federation, Disclosure]) -> None:
    federation, shown = round_
    phase = closed(federation)
    assert recount(phase.attempt, phase.staying, shown).tolist() == [6] * 12


def test_each_members_neighbours_are_looked_up_once_however_many_of_them_are_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # on a ring a look-up sorts k members: one for each seed kept a member of 10,000 busy for ten seconds
    federation = Federation(
        7, drop={5: After.OPENING, 6: After.OPENING}, margin=1, question={**QUESTION, "members_min": 5}
    )
    federation.run_round(indicators(federation))
    shown, phase, asked = disclosure(federation), closed(federation), list[str]()
    look_up = Graph.neighbours

    def neighbours(graph: Graph, member: str) -> tuple[str, ...]:
        asked.append(member)
        return look_up(graph, member)

    monkeypatch.setattr(Graph, "neighbours", neighbours)
    recount(phase.attempt, phase.staying, shown)
    assert asked == [survivor.member for survivor in phase.staying]


def entry_changed(shown: Disclosure, place: int, **changes: Any) -> Disclosure:
    entries = list(shown.entries)
    entries[place] = replace(entries[place], **changes)
    return replace(shown, entries=tuple(entries))


def flipped(data: bytes, at: int = 0) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


ENTRIES: dict[str, Callable[[tuple[Disclosed, ...]], tuple[Disclosed, ...]]] = {
    "none": lambda _: (),
    "one too few": lambda entries: entries[1:],
    "one too many": lambda entries: (
        *entries,
        replace(entries[0], header=replace(entries[0].header, member="z")),
    ),
    "another order": lambda entries: entries[::-1],
    "one twice": lambda entries: (entries[0], *entries),
    "another digest": lambda entries: (
        replace(entries[0], header=replace(entries[0].header, salt=bytes(32))),
        *entries[1:],
    ),
    "other records": lambda entries: (
        replace(entries[0], header=replace(entries[0].header, salt=b"R" * 32)),
        *entries[1:],
    ),
}


@pytest.mark.parametrize("how", ENTRIES)
def test_there_is_one_entry_for_each_survivor_with_the_certified_header(
    round_: tuple[Federation, Disclosure], how: str
) -> None:
    federation, shown = round_
    changed = replace(shown, entries=ENTRIES[how](shown.entries))
    with pytest.raises(PeerFault, match=r"^disclosure-invalid: the entries are not .*\[coordinator\]$"):
        answer(federation, changed)


COMMITMENTS: dict[str, Callable[[Disclosed, Disclosed], dict[str, Any]]] = {
    "changed": lambda entry, _: {"commitments": flipped(entry.commitments)},
    "cut": lambda entry, _: {"commitments": entry.commitments[:-16]},
    "longer": lambda entry, _: {"commitments": entry.commitments + bytes(16)},
    "another's": lambda _, other: {"commitments": other.commitments, "path": other.path},
    "no path": lambda _entry, _: {"path": ()},
    "another path": lambda entry, _: {"path": entry.path[::-1]},
}


@pytest.mark.parametrize("how", COMMITMENTS)
def test_commitments_lead_to_the_signed_root(round_: tuple[Federation, Disclosure], how: str) -> None:
    federation, shown = round_
    changes = COMMITMENTS[how](shown.entries[2], shown.entries[3])
    with pytest.raises(
        PeerFault, match=r"^disclosure-invalid: member-2: the secrets' commitments are not those"
    ):
        answer(federation, entry_changed(shown, 2, **changes))


def test_each_seed_due_is_there_and_no_other(round_: tuple[Federation, Disclosure]) -> None:
    federation, shown = round_
    one, two = shown.entries[2].seeds
    for seeds in ((), (one,), (two,), (two, one), (one, one), (one, two, two), (one, replace(two, index=1))):
        with pytest.raises(PeerFault, match=r"^disclosure-invalid: member-2: other seeds are shown than"):
            answer(federation, entry_changed(shown, 2, seeds=seeds))


def test_each_seed_is_the_one_committed_to(round_: tuple[Federation, Disclosure]) -> None:
    federation, shown = round_
    one, two = shown.entries[2].seeds
    other = shown.entries[3].seeds
    for seeds, index in (
        ((replace(one, seed=flipped(one.seed)), two), 0),
        ((replace(one, seed=two.seed), two), 0),
        ((other[0], two), 0),
        ((one, replace(two, seed=other[1].seed)), 6),
    ):
        with pytest.raises(
            PeerFault, match=rf"^disclosure-invalid: member-2: seed {index} is not the one committed to"
        ):
            answer(federation, entry_changed(shown, 2, seeds=seeds))


CHUNKS: dict[str, Callable[[Disclosed, Disclosed], dict[str, Any]]] = {
    "a byte changed": lambda entry, _: {"chunks": (flipped(entry.chunks[0]), entry.chunks[1])},
    "one missing": lambda entry, _: {"chunks": entry.chunks[:1]},
    "one more": lambda entry, _: {"chunks": (*entry.chunks, b"")},
    "swapped": lambda entry, _: {"chunks": entry.chunks[::-1], "chunk_digests": entry.chunk_digests[::-1]},
    "another's": lambda _, other: {"chunks": other.chunks, "chunk_digests": other.chunk_digests},
    "a digest changed": lambda entry, _: {"chunk_digests": (bytes(32), entry.chunk_digests[1])},
    "a digest missing": lambda entry, _: {"chunk_digests": entry.chunk_digests[:1]},
    "both changed": lambda entry, _: {
        "chunks": (flipped(entry.chunks[0]), entry.chunks[1]),
        "chunk_digests": (sha256(flipped(entry.chunks[0])).digest(), entry.chunk_digests[1]),
    },
    "a chunk and its digest missing": lambda entry, _: {
        "chunks": entry.chunks[:1],
        "chunk_digests": entry.chunk_digests[:1],
    },
}


@pytest.mark.parametrize("how", CHUNKS)
def test_chunks_are_those_that_were_signed(round_: tuple[Federation, Disclosure], how: str) -> None:
    federation, shown = round_
    changes = CHUNKS[how](shown.entries[2], shown.entries[3])
    with pytest.raises(PeerFault, match=r"^disclosure-invalid: member-2: the chunks are not those"):
        answer(federation, entry_changed(shown, 2, **changes))


def test_a_disclosure_of_another_round_is_refused(round_: tuple[Federation, Disclosure]) -> None:
    federation, shown = round_
    with pytest.raises(PeerFault, match=r"^wrong-context: .*\[coordinator\]$"):
        answer(federation, replace(shown, context=bytes(32)))
    assert counted(federation) is None
