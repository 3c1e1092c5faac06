"""An indicator round is recounted by every member; the main round then withholds what few hold (protocol §9)."""

from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from typing import Any

import numpy as np
import pytest

from protocol.causes import Cause
from protocol.coordinator import Failed, Freezing, Recovered, Voided
from protocol.errors import PeerFault
from protocol.member import Closed, History, MemberPhase
from protocol.messages import Disclosed, Disclosure, Freeze, Manifest, Message, Refusal, Upload, Vote
from protocol.parameters import Quorum
from protocol.proposal import check_survivors
from protocol.recount import class_floor, default_margin, rare_classes, recount
from protocol.simulator import After, Federation, Vector
from tests.protocol.forging import false_dealers, other_secrets, reupload

CLASSES = 6
HOLD = ((0, 1, 2, 3, 4), (0, 1, 2), (0, 1, 2), (0, 1, 2), (0, 1, 3), (0, 2, 3), (0, 2))
"""The classes that each of seven members holds: 7, 5, 6, 3, 1 and 0 members hold them."""


def indicators(federation: Federation) -> dict[str, Vector]:
    """1 for each class the member holds."""
    return {
        member: np.array([int(index in HOLD[place]) for index in range(CLASSES)], np.int64)
        for place, member in enumerate(federation.ids)
    }


def indicated(**changes: Any) -> Federation:
    """Seven members (a = 1, g = 4, so m = 5 with a margin of 1) after their indicator round, not yet disclosed."""
    federation = Federation(7, **{"withhold": True, "lineage": b"the same", **changes})
    federation.run_round(indicators(federation), federation.terms(CLASSES, statistic="indicator"))
    return federation


def counted(federation: Federation, member: str = "member-0") -> tuple[int, ...] | None:
    history: History = federation.phases[member].history  # type: ignore[attr-defined]  # after a round
    return history.counted[0].holders if history.counted else None


def main_terms(federation: Federation, **changes: Any) -> Any:
    context = federation.phase.attempt.context
    values = {"indicator": context, "margin": 1, "withheld": (3, 4, 5), **changes}
    return federation.terms(8, **values)


def closed(federation: Federation, member: str = "member-0") -> Closed:
    phase = federation.phases[member]
    assert isinstance(phase, Closed)
    return phase


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
    federation = Federation(7, withhold=True, lineage=b"the same")
    false_dealers(federation, {"member-0": other_secrets})
    federation.run_round(indicators(federation), federation.terms(CLASSES, statistic="indicator"))
    assert isinstance(federation.phase, Recovered)
    assert federation.phase.evicted == ("member-0",)
    federation.disclose()
    assert federation.faults == []
    for member in federation.ids:
        assert counted(federation, member) == (6, 4, 5, 2, 0, 0)
    (said,) = closed(federation).history.counted
    assert tuple(s.member for s in said.survivors) == federation.ids[1:]


def test_without_the_proof_nobody_may_be_left_out_of_the_count() -> None:
    federation = Federation(7, decryptors=(1, 2, 3, 4), lineage=b"the same")
    false_dealers(federation, {"member-0": other_secrets})
    federation.run_round(indicators(federation), federation.terms(CLASSES, statistic="indicator"))
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


def disclosure(federation: Federation) -> Disclosure:
    """As it goes over the wire."""
    shown: list[Disclosure] = []
    federation.tamper = lambda _to, message: (
        shown.append(message) if isinstance(message, Disclosure) else None
    )
    federation.disclose()
    federation.tamper = lambda _to, message: message
    return Disclosure.from_bytes(shown[0].to_bytes())


def answer(
    federation: Federation, message: Message, member: str = "member-0"
) -> tuple[MemberPhase, tuple[Message, ...]]:
    return federation.phases[member].receive(message, federation.keys[member], federation.now_s)


def test_a_vector_of_many_chunks_is_counted_chunk_by_chunk() -> None:
    federation = Federation(4, drop={})
    rng = np.random.default_rng(0)
    vectors = {member: rng.integers(0, 2, 43) for member in federation.ids}
    federation.run_round(vectors, federation.terms(43, statistic="indicator", chunk_elements=8, ring_bits=8))
    federation.disclose()
    assert counted(federation) == tuple(np.sum(list(vectors.values()), axis=0))


@pytest.mark.parametrize("wrong", [-1, 7, 8, 1 << 20])
def test_no_class_has_fewer_holders_than_none_or_more_than_all(wrong: int) -> None:
    federation = Federation(7)
    vectors = {member: np.zeros(CLASSES, np.int64) for member in federation.ids}
    vectors["member-3"][2] = wrong
    federation.run_round(vectors, federation.terms(CLASSES, statistic="indicator"))
    federation.disclose()
    if wrong == 7:
        assert counted(federation) == (0, 0, 7, 0, 0, 0)
    else:
        assert {fault.cause for _, fault in federation.faults} == {Cause.DISCLOSURE_INVALID}
        assert counted(federation) is None


def test_only_a_sum_is_recounted() -> None:
    federation = Federation(5)
    federation.tamper = lambda who, m: (
        None if who in {"member-3", "member-4"} and isinstance(m, Upload) else m
    )
    outcome = federation.run_round(terms=federation.terms(8, statistic="indicator"))
    assert isinstance(outcome.phase, Voided)
    with pytest.raises(PeerFault, match=r"^wrong-phase: only the sum of an indicator round is recounted"):
        answer(federation, Disclosure(outcome.phase.attempt.context, ()))


# Each tampering of a disclosure


@pytest.fixture(scope="module")
def round_() -> tuple[Federation, Disclosure]:
    """An indicator round in two chunks, without member-6; r_u6 is due of every survivor."""
    federation = Federation(7, drop={6: After.OPENING})
    vectors = {member: np.ones(12, np.int64) for member in federation.ids}
    federation.run_round(vectors, federation.terms(12, statistic="indicator", chunk_elements=8))
    return federation, disclosure(federation)


def test_an_honest_disclosure_passes(round_: tuple[Federation, Disclosure]) -> None:
    federation, shown = round_
    phase = closed(federation)
    assert recount(phase.attempt, phase.staying, shown).tolist() == [6] * 12


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
        replace(entries[0], header=replace(entries[0].header, records=b"R" * 8)),
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


# The main round


def test_the_floor_and_what_lies_below_it() -> None:
    manifest = indicated().manifest
    assert [class_floor(manifest, margin) for margin in (0, 1, 5)] == [4, 5, 9]
    assert rare_classes((7, 5, 4, 1, 0, 5), 5) == (2, 3, 4)
    assert rare_classes((), 5) == rare_classes((5, 9), 5) == ()


def test_a_main_round_withholds_exactly_the_rare_classes() -> None:
    federation = indicated()
    federation.disclose()
    outcome = federation.run_round(terms=main_terms(federation))
    assert isinstance(outcome.phase, Recovered)
    assert outcome.faults == ()
    # the counts are kept, and serve the next round as well
    indicator = outcome.phase.attempt.opening.terms.indicator
    another = federation.run_round(terms=main_terms(federation, indicator=indicator))
    assert isinstance(another.phase, Recovered)


@pytest.mark.parametrize("withheld", [(), (3,), (4, 5), (3, 4), (1, 3, 4, 5), (2, 4, 5)], ids=str)
def test_any_other_list_is_refused_by_everybody(withheld: tuple[int, ...]) -> None:
    federation = indicated()
    federation.disclose()
    outcome = federation.run_round(terms=main_terms(federation, withheld=withheld))
    assert outcome.total is None
    refused = {who for who, fault in outcome.faults if "by the counts it is [3, 4, 5]" in fault.detail}
    assert refused == set(federation.ids)
    assert federation.spool == {}


def test_the_margin_raises_the_floor() -> None:
    federation = indicated()
    federation.disclose()
    for margin, withheld in (
        (0, (3, 4, 5)),
        (1, (3, 4, 5)),
        (2, (1, 3, 4, 5)),
        (3, (1, 2, 3, 4, 5)),
        (4, (0, 1, 2, 3, 4, 5)),
    ):
        terms = main_terms(federation, margin=margin, withheld=withheld)
        phase, _ = answer(federation, federation.opening(terms))
        assert isinstance(phase, MemberPhase)
        for other in range(5):
            wrong = main_terms(federation, margin=other, withheld=withheld)
            if {other, margin} <= {0, 1} or other == margin:
                continue
            with pytest.raises(PeerFault, match=r"^indicator-mismatch: the terms withhold"):
                answer(federation, federation.opening(wrong))


def test_an_indicator_that_was_not_seen_is_refused() -> None:
    federation = indicated()
    federation.tamper = lambda to, m: (
        None if isinstance(m, Disclosure) and to == "coordinator>member-2" else m
    )
    federation.disclose()
    outcome = federation.run_round(terms=main_terms(federation))
    assert isinstance(outcome.phase, Recovered)
    assert outcome.survivors == tuple(m for m in federation.ids if m != "member-2")
    who, fault = outcome.faults[0]
    assert (who, fault.cause) == ("member-2", Cause.INDICATOR_MISMATCH)
    assert fault.detail == "this member has not recounted the indicator round"
    with pytest.raises(PeerFault, match=r"^indicator-mismatch: this member has not recounted"):
        answer(federation, federation.opening(main_terms(federation, indicator=b"\x01" * 32)))


def proposal(federation: Federation, terms: Any) -> Freeze:
    federation.begin(terms=terms)
    federation.run_until(Freezing)
    request = federation.phase.request_for("member-0")
    assert isinstance(request, Freeze)
    return request


def without_rare(federation: Federation, margin: int, floor: int) -> Any:
    """Terms that withhold what the counts say."""
    holders = closed(federation).history.counted[0].holders
    return main_terms(federation, margin=margin, withheld=rare_classes(holders, floor))


@pytest.mark.parametrize("margin", [0, 1, 2])
def test_as_many_may_miss_as_the_margin_says(margin: int) -> None:
    federation = indicated(colluders=0)
    federation.disclose()
    request = proposal(federation, without_rare(federation, margin, 3 + margin))
    for gone in range(4):
        _, (reply,) = answer(federation, replace(request, headers=request.headers[gone:]), "member-6")
        if gone <= margin:
            assert isinstance(reply, Vote)
        else:
            assert isinstance(reply, Refusal)
            assert reply.cause == "indicator-mismatch"


def test_more_missing_than_the_margin_void_the_round() -> None:
    federation = indicated(colluders=0)
    federation.disclose()
    federation.drop = {6: After.CARD}
    outcome = federation.run_round(terms=without_rare(federation, 0, 3))
    assert isinstance(outcome.phase, Voided)
    # nobody was asked to sign it: who is missing is named, and not who would have refused
    assert outcome.phase.fault.cause is Cause.INDICATOR_MISMATCH
    assert outcome.phase.fault.parties == ("member-6",)
    assert outcome.phase.fault.detail == "1 of the indicator round are missing, at most 0 may be"


def manifest_of(members: int, roster: int) -> Manifest:
    quorum = Quorum.derive(members, members, colluders=roster // 4, roster=roster)
    ids = tuple(f"m-{index:03}" for index in range(members))
    return replace(
        indicated().manifest,
        members=ids,
        colluders=quorum.colluders,
        survivors_min=quorum.survivors_min,
    )


@pytest.mark.parametrize(
    ("members", "roster", "margin", "floor"),
    [
        (3, 3, 0, 3),
        (4, 4, 0, 4),
        (5, 5, 1, 5),
        (7, 7, 1, 5),
        (8, 8, 2, 7),
        (12, 12, 3, 9),
        (12, 16, 1, 8),
        (50, 50, 12, 27),
    ],
)
def test_by_default_all_colluders_may_stay_away_where_the_sum_can_spare_them(
    members: int, roster: int, margin: int, floor: int
) -> None:
    manifest = manifest_of(members, roster)
    assert default_margin(manifest) == margin
    assert class_floor(manifest, margin) == floor


def test_a_sixth_may_be_missing_where_fewer_are_assumed_to_collude() -> None:
    assert default_margin(replace(manifest_of(18, 18), colluders=2)) == 3


def test_colluders_who_were_counted_and_stay_away_do_not_void_the_round() -> None:
    federation = Federation(8, withhold=True, lineage=b"the same")
    ones = {member: np.ones(CLASSES, np.int64) for member in federation.ids}
    federation.run_round(ones, federation.terms(CLASSES, statistic="indicator"))
    federation.disclose()
    margin = default_margin(federation.manifest)
    assert (federation.manifest.colluders, margin) == (2, 2)
    federation.drop = {2: After.CARD, 5: After.OPENING}
    outcome = federation.run_round(terms=main_terms(federation, margin=margin, withheld=()))
    assert isinstance(outcome.phase, Recovered)
    assert len(outcome.survivors) == 6


@pytest.mark.parametrize("change", [{"records": b"changed!"}, {"lineage": b"another!"}], ids=str)
def test_who_changed_its_records_since_is_left_out(change: dict[str, bytes]) -> None:
    federation = indicated()
    federation.disclose()
    federation.tamper = lambda who, m: (
        reupload(federation, m, **change) if who == "member-4" and isinstance(m, Upload) else m
    )
    outcome = federation.run_round(terms=main_terms(federation))
    assert isinstance(outcome.phase, Recovered)
    assert outcome.survivors == tuple(m for m in federation.ids if m != "member-4")


@pytest.mark.parametrize("change", [{"records": b"changed!"}, {"lineage": b"another!"}], ids=str)
def test_nor_does_a_decryptor_sign_other_records(
    change: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    # a coordinator that leaves nobody out
    monkeypatch.setattr("protocol.proposal._as_counted", lambda _attempt, staying, _history: staying)
    monkeypatch.setattr("protocol.coordinator.checking.check_proposal", check_survivors)
    federation = indicated()
    federation.disclose()
    federation.tamper = lambda who, m: (
        reupload(federation, m, **change) if who == "member-4" and isinstance(m, Upload) else m
    )
    outcome = federation.run_round(terms=main_terms(federation))
    assert isinstance(outcome.phase, Voided)
    assert outcome.fault is not None
    assert outcome.fault.cause is Cause.INDICATOR_MISMATCH


def test_who_was_not_in_the_indicator_round_is_left_out() -> None:
    federation = indicated(drop={6: After.OPENING})
    federation.drop = {}
    assert federation.ending is not None
    federation._tell("member-6", federation.ending)
    federation.disclose()
    outcome = federation.run_round(terms=without_rare(federation, 1, 5))
    assert isinstance(outcome.phase, Recovered)
    assert outcome.survivors == federation.ids[:6]


def test_a_later_indicator_round_takes_the_place_of_the_first() -> None:
    federation = indicated()
    federation.disclose()
    first = federation.phase.attempt.context
    federation.run_round(indicators(federation), federation.terms(CLASSES, statistic="indicator"))
    federation.disclose()
    with pytest.raises(PeerFault, match=r"^indicator-mismatch: this member has not recounted"):
        answer(federation, federation.opening(main_terms(federation, indicator=first)))
    outcome = federation.run_round(terms=main_terms(federation))
    assert isinstance(outcome.phase, Recovered)


def test_an_indicator_round_without_a_sum_counts_nothing() -> None:
    federation = Federation(7, drop={0: After.VOTE, 1: After.VOTE, 2: After.VOTE}, withhold=True)
    outcome = federation.run_round(indicators(federation), federation.terms(CLASSES, statistic="indicator"))
    assert isinstance(outcome.phase, Failed)
    federation.drop = {}
    outcome = federation.run_round(terms=main_terms(federation))
    assert {fault.cause for _, fault in outcome.faults} >= {Cause.INDICATOR_MISMATCH}
    assert outcome.total is None
