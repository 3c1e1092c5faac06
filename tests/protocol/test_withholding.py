"""A main round withholds the classes that its indicator round found rare, over those who were counted."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from protocol.causes import Cause
from protocol.coordinator import Failed, Freezing, Recovered, Voided
from protocol.errors import PeerFault
from protocol.member import MemberPhase
from protocol.messages import Disclosure, Freeze, Manifest, Refusal, Upload, Vote
from protocol.parameters import Quorum
from protocol.proposal import check_survivors
from protocol.recount import class_floor, default_margin, rare_classes
from protocol.simulator import After, Federation
from tests.protocol.forging import reupload
from tests.protocol.indicating import CLASSES, answer, closed, indicated, indicators, main_terms


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


def with_another_upload(change: dict[str, bytes]) -> tuple[Federation, Any]:
    """A main round to which member-4 brings other records, or another lineage, than were counted."""
    federation = indicated()
    federation.disclose()
    federation.tamper = lambda who, m: (
        reupload(federation, m, **change) if who == "member-4" and isinstance(m, Upload) else m
    )
    outcome = federation.run_round(terms=main_terms(federation))
    return federation, outcome


@pytest.mark.parametrize("change", [{"records": b"changed!"}, {"lineage": b"another!"}], ids=str)
def test_who_changed_its_records_since_is_left_out(change: dict[str, bytes]) -> None:
    federation, outcome = with_another_upload(change)
    assert isinstance(outcome.phase, Recovered)
    assert outcome.survivors == tuple(m for m in federation.ids if m != "member-4")


@pytest.mark.parametrize("change", [{"records": b"changed!"}, {"lineage": b"another!"}], ids=str)
def test_nor_does_a_decryptor_sign_other_records(
    change: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    # a coordinator that leaves nobody out
    monkeypatch.setattr("protocol.proposal._as_counted", lambda _attempt, staying, _history: staying)
    monkeypatch.setattr("protocol.coordinator.checking.check_proposal", check_survivors)
    _, outcome = with_another_upload(change)
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
    federation.begin(indicators(federation), federation.terms(CLASSES, statistic="indicator"))
    federation.phase = federation.run_until().cancel(federation.now_s)
    assert isinstance(federation.finish().phase, Failed)
    federation.drop = {}
    outcome = federation.run_round(terms=main_terms(federation))
    assert {fault.cause for _, fault in outcome.faults} >= {Cause.INDICATOR_MISMATCH}
    assert outcome.total is None
