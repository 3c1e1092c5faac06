"""What hostile reviews broke, each as it was done, and how it ends now."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from protocol.causes import Cause
from protocol.coordinator import Abandoned, Recovered, Revealing, Voided
from protocol.errors import PeerFault
from protocol.ledger import ForkFault, Opened, check_forks
from protocol.messages import (
    Entry,
    KeyCard,
    Lost,
    Message,
    Refusal,
    Report,
    Roster,
    Survivor,
    SurvivorSet,
    Vote,
)
from protocol.simulator import After, Federation, untampered

LINEAGE = b"the-same"
SET = SurvivorSet(())


def only(names: set[str]) -> Any:
    """Let the cards of these members through."""

    def tamper(sender: str, message: Message) -> Message | None:
        return None if isinstance(message, KeyCard) and sender not in names else message

    return tamper


def test_two_cohorts_without_a_common_member_cannot_each_hide_the_other() -> None:
    federation = Federation(11, lineage=LINEAGE)
    vectors = federation.vectors(8)
    assert federation.run_round(vectors).total is not None
    federation.tamper = only({*federation.ids[:5]})
    with pytest.raises(PeerFault, match=r"^cohort-too-small: .*n_min=7"):
        federation.enrol(1)


def test_a_smaller_roster_splits_no_older_group() -> None:
    federation = Federation(26, lineage=LINEAGE)
    vectors, everyone = federation.vectors(4), federation.ids
    federation.run_round(vectors)
    few = everyone[17:]
    values = {name: getattr(federation.roster, name) for name in vars(federation.roster) if name in FIELDS}
    values["members"] = tuple(Entry(member, federation.keys[member].public) for member in few)
    federation.roster = Roster.make(federation.admin, **{**values, "version_number": 2})
    federation.ids, federation.keys = few, {member: federation.keys[member] for member in few}
    federation.phases = {member: federation.phases[member] for member in few}
    federation.enrol(0)
    outcome = federation.run_round({member: vectors[member] for member in few})
    assert isinstance(outcome.phase, Voided)
    assert isinstance(outcome.fault, ForkFault)
    assert outcome.fault.group.members == everyone


FIELDS = ("federation", "coordinator", "decryptors", "helpers", "extractors", "readers", "withhold")


def opened(names: str, number: int) -> Opened:
    context = bytes([number]) * 32
    return Opened(context, "exact", tuple(Survivor(name, LINEAGE, bytes(8), context) for name in names))


@pytest.mark.parametrize(
    ("proposal", "split"),
    [
        ("abcdefghijkl", None),
        ("abcdefgh", None),
        ("abcdefg", "abcdefghijkl"),
        ("mnopqr", None),
        ("abcdefghmn", None),
    ],
)
def test_a_sum_takes_a_majority_of_each_group_that_it_touches(proposal: str, split: str | None) -> None:
    history = [opened("abcdefghijkl", 1)]
    if split is None:
        check_forks(history, opened(proposal, 2), 3, 6)
    else:
        with pytest.raises(
            ForkFault, match=r"12 members stood together in 1 rounds; .* no majority"
        ) as refused:
            check_forks(history, opened(proposal, 2), 3, 6)
        assert refused.value.group.members == tuple(split)


def test_groups_are_split_one_by_one() -> None:
    history = [opened("abcdefghijkl", 1), opened("ghijklmnopqr", 2)]
    check_forks(history, opened("abcdefghijklmnopqr", 3), 3, 6)
    with pytest.raises(ForkFault):
        check_forks(history, opened("abcdefghijklmn", 3), 3, 6)


@pytest.fixture
def two_cohorts() -> Iterator[tuple[Federation, Federation]]:
    """One federation with two cohorts, both ready at the same history."""
    first = Federation(8, lineage=LINEAGE)
    second = Federation(8, lineage=LINEAGE)
    second.enrol(1)
    return (yield first, second)


def test_of_two_cohorts_open_at_once_the_second_gets_no_upload(
    two_cohorts: tuple[Federation, Federation],
) -> None:
    first, second = two_cohorts
    vectors = first.vectors(8)
    second.begin(vectors)
    for member in second.ids:
        second._tell(member, second.phase.attempt.opening)
    assert isinstance(first.run_round(vectors).phase, Recovered)
    for member in second.ids:
        second.phases[member] = second.phases[member].knowing(first.phases[member].history)  # type: ignore[attr-defined]  # in the attempt
    for member in second.ids:
        second._serve(second.phase, member)
    assert {fault.cause for _, fault in second.faults} == {Cause.CHAIN_BROKEN}


@pytest.mark.parametrize("statistic", ["test", "indicator"])
def test_a_lineage_that_may_have_been_opened_is_spent_for_every_exact_sum(statistic: str) -> None:
    federation = Federation(8, lineage=LINEAGE)
    federation.begin(federation.vectors(4), federation.terms(4, statistic="indicator"))
    federation.run_until(Revealing)
    attempt, victim = federation.phase.attempt, federation.ids[7]
    report = Report.make(
        federation.keys[federation.ids[0]], context=attempt.context, member=federation.ids[0], sets=()
    )
    lost = Lost.make(federation.admin, context=attempt.context, reports=(report,))
    federation._tell(victim, lost)
    federation.links = (attempt.link(attempt.past(lost)),)
    federation.place = (1, 0)
    federation.phase = Abandoned(federation.phase.setting, None, lost, PeerFault(Cause.QUORUM_LOST))
    federation.begin(federation.vectors(4), federation.terms(4, statistic=statistic))
    federation._serve(federation.phase, victim)
    assert [fault.cause for member, fault in federation.faults if member == victim] == [Cause.LINEAGE_SPENT]


def test_who_brings_an_old_lineage_to_new_records_is_dropped_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    federation = Federation(12)
    stubborn, theirs, upload = federation.ids[0], federation._lineage, federation._upload
    uploading: list[str] = []

    def uploads(member: str, opened: Any) -> tuple[Message, ...]:
        uploading[:] = [member]
        return upload(member, opened)

    monkeypatch.setattr(federation, "_upload", uploads)
    monkeypatch.setattr(federation, "_lineage", lambda: LINEAGE if uploading == [stubborn] else theirs())
    assert len(federation.run_round(federation.vectors(4)).survivors) == 12
    for _ in range(3):
        outcome = federation.run_round(federation.vectors(4))
        assert outcome.survivors == federation.ids[1:]


def test_who_missed_the_indicator_round_is_dropped_from_the_main_one() -> None:
    federation = Federation(12, lineage=LINEAGE, withhold=True, drop={3: After.OPENING})
    ones = {member: np.ones(4, np.int64) for member in federation.ids}
    indicator = federation.run_round(ones, federation.terms(4, statistic="indicator"))
    assert isinstance(indicator.phase, Recovered)
    federation.drop = {}
    late = federation.ids[3]
    federation._tell(late, indicator.phase.certificate)
    federation.disclose()
    main = federation.run_round(
        ones, federation.terms(4, indicator=indicator.phase.attempt.context, margin=2)
    )
    assert main.survivors == tuple(member for member in federation.ids if member != late)


def test_a_report_of_a_set_that_nobody_honest_signs_is_refused() -> None:
    federation = Federation(8, drop=dict.fromkeys((3, 4, 5), After.RECEIPT))
    federation.begin(federation.vectors(4))
    federation.run_until()
    attempt, liar = federation.phase.attempt, federation.ids[0]
    one = Survivor(federation.ids[7], LINEAGE, bytes(8), bytes(32))
    poison = Report.make(
        federation.keys[liar], context=attempt.context, member=liar, sets=(replace(SET, survivors=(one,)),)
    )
    with pytest.raises(PeerFault, match="survivors-too-few"):
        federation.phase.receive(poison, federation.now_s)
    with pytest.raises(PeerFault, match="survivors-too-few"):
        attempt.check_lost(Lost.make(federation.admin, context=attempt.context, reports=(poison,)))


def refusing(federation: Federation, **said: Any) -> Any:
    """Have three members refuse whatever is proposed, in these words."""

    def tamper(sender: str, message: Message) -> Message:
        if isinstance(message, Vote) and sender in federation.ids[:3]:
            words = {"cause": "ledger-refused", "group": (), "rounds": (), **said}
            return Refusal.make(federation.keys[sender], context=message.context, member=sender, **words)
        return message

    return tamper


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ({"group": ("member-5", "nobody-at-all")}, Cause.LEDGER_REFUSED),
        ({"cause": "share-invalid"}, Cause.POLICY_REFUSED),
        ({"cause": "made-up"}, Cause.POLICY_REFUSED),
        ({"cause": "window-exceeded"}, Cause.WINDOW_EXCEEDED),
    ],
)
def test_a_refusal_names_nobody_but_its_sender(said: dict[str, Any], cause: Cause) -> None:
    federation = Federation(6)
    federation.tamper = refusing(federation, **said)
    outcome = federation.run_round(federation.vectors(4))
    assert outcome.fault is not None
    assert outcome.fault.cause is cause
    assert set(outcome.fault.parties) <= {*federation.ids[:3]}
    federation.tamper = untampered


def test_a_decryptor_whose_attempt_has_run_out_still_reports() -> None:
    federation = Federation(6)
    federation.tamper = lambda _, message: None if isinstance(message, Vote) else message
    federation.begin(federation.vectors(4))
    federation.run_until()
    attempt = federation.phase.attempt
    federation.now_s = attempt.opening.terms.latest_end_s + 1
    late = federation.ids[1]
    federation.phases[late] = federation.phases[late].lapse(federation.now_s)
    (report,) = federation._tell(late, federation.phase.request_for(late) or attempt.opening)
    assert isinstance(report, Report)
    attempt.check_report(report)
    assert [len(each.survivors) for each in report.sets] == [6]
