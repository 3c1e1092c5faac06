"""What hostile reviews broke, each as it was done, and how it ends now."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from protocol.causes import Cause
from protocol.coordinator import Checking, Freezing, Recovered, Revealing, Voided, Voiding
from protocol.errors import PeerFault
from protocol.ledger import ForkFault, Group, LedgerFault, Opened, check_forks
from protocol.messages import (
    Entry,
    KeyCard,
    Link,
    Lost,
    Message,
    Past,
    Receipt,
    Refusal,
    Roster,
    Survivor,
    SurvivorSet,
    Vote,
)
from protocol.simulator import After, Federation, untampered
from tests.protocol.forging import receipts_of

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


def shrunk(federation: Federation, few: tuple[str, ...]) -> None:
    """The admin's next roster names no others, and a cohort of them is enrolled."""
    values = {name: getattr(federation.roster, name) for name in vars(federation.roster) if name in FIELDS}
    values["members"] = tuple(Entry(member, federation.keys[member].public) for member in few)
    federation.roster = Roster.make(federation.admin, **{**values, "version_number": 2})
    federation.ids, federation.keys = few, {member: federation.keys[member] for member in few}
    federation.phases = {member: federation.phases[member] for member in few}
    federation.enrol(0)


def invented(federation: Federation, names: tuple[str, ...]) -> None:
    """An attempt that never was, of members who can't say so."""
    context = b"\x77" * 32
    past = Past(
        context, "none", (SurvivorSet(tuple(Survivor(m, LINEAGE, bytes(8), bytes(32)) for m in names)),)
    )
    federation.links = (*federation.links, Link(b"\x55" * 32, 0, 0, "exact", 0, context, past.closing))
    federation.history = (*federation.history, past)


@pytest.mark.parametrize("invents", [False, True])
def test_a_smaller_roster_splits_no_older_sum(*, invents: bool) -> None:
    federation = Federation(26, lineage=LINEAGE)
    vectors, everyone = federation.vectors(4), federation.ids
    federation.run_round(vectors)
    few = everyone[15:]
    shrunk(federation, few)
    if invents:
        # It splits the older group: of what is left, those who take part would be a majority. The difference of the three sums, one
        # shown to each half, would be the vector of who stays away.
        invented(federation, (*everyone[:15], few[-1]))
        federation.drop = {25: After.CARD}
    outcome = federation.run_round({member: vectors[member] for member in few})
    assert isinstance(outcome.phase, Voided)
    assert isinstance(outcome.fault, ForkFault)
    assert outcome.fault.group.members == everyone


@pytest.mark.parametrize("given_s", [0, 100])
def test_complaints_within_the_grace_void_nothing_while_others_may_come(given_s: int) -> None:
    federation = Federation(12)
    federation.begin(terms=federation.terms(8))
    phase = federation.run_until(Checking)
    assert isinstance(phase, Checking)
    assert phase.deadline_s is not None
    receipts = receipts_of(federation, phase)
    liar, *prompt = federation.ids[: phase.attempt.quorum.threshold]
    told = receipts[liar]
    false = Receipt.make(
        federation.keys[liar],
        context=told.context,
        member=liar,
        uploads=told.uploads,
        dealers=(),
        complaints=told.dealers,
    )
    waiting: Any = replace(phase, deadline_s=phase.deadline_s + given_s)  # the operator gave it more time
    waiting = waiting.receive(false, federation.now_s)
    for member in prompt:
        waiting = waiting.receive(receipts[member], federation.now_s + 1)
    assert waiting.deadline_s == federation.now_s + 1 + waiting.setting.windows.grace_s
    waiting = waiting.expire(waiting.deadline_s)
    # nobody has t + a_D clean receipts yet: those who are late decide, as long as their time runs
    assert isinstance(waiting, Checking)
    assert waiting.deadline_s == phase.deadline_s + given_s
    assert isinstance(waiting.expire(waiting.latest_s), Voiding)
    for member in federation.ids[phase.attempt.quorum.threshold :]:
        waiting = waiting.receive(receipts[member], federation.now_s + 20)
    assert isinstance(waiting, Freezing)
    assert len(waiting.survivors) == 12


FIELDS = ("federation", "coordinator", "decryptors", "extractors", "readers", "withhold")


def opened(names: str, number: int) -> Opened:
    context = bytes([number]) * 32
    return Opened(context, "exact", 6, tuple(Survivor(name, LINEAGE, bytes(8), context) for name in names))


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
def test_a_sum_takes_a_majority_of_each_older_one_that_it_touches(proposal: str, split: str | None) -> None:
    history = [opened("abcdefghijkl", 1)]
    if split is None:
        check_forks(history, opened(proposal, 2), 3)
    else:
        with pytest.raises(ForkFault, match=r"12 members stood in an older sum; .* no majority") as refused:
            check_forks(history, opened(proposal, 2), 3)
        assert refused.value.group.members == tuple(split)


def test_each_older_sum_counts_by_itself() -> None:
    history = [opened("abcdefghijkl", 1), opened("ghijklmnopqr", 2)]
    check_forks(history, opened("abcdefghijklmnopqr", 3), 3)
    check_forks(history, opened("abcdefghijklmn", 3), 3)
    with pytest.raises(ForkFault) as refused:
        check_forks(history, opened("abcdefghijk", 3), 3)
    assert refused.value.group.rounds == (bytes([2]) * 32,)
    # all of a group, but too little of a sum that it stood in: another half may be shown to others
    with pytest.raises(ForkFault) as refused:
        check_forks(history, opened("abcdef", 3), 3)
    assert refused.value.group.rounds == (bytes([1]) * 32,)


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
def test_a_lineage_of_a_lost_attempt_is_spent_for_every_exact_sum(statistic: str) -> None:
    federation = Federation(8, lineage=LINEAGE)
    federation.begin(federation.vectors(4), federation.terms(4, statistic="indicator"))
    federation.run_until(Revealing)
    attempt, victim = federation.phase.attempt, federation.ids[7]
    lost = Lost.make(federation.admin, context=attempt.context)
    federation.now_s = attempt.terms.latest_end_s
    federation._tell(victim, lost)
    federation.links = (attempt.link(lost.past),)
    federation.place = (1, 0)
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


def test_who_leaves_a_large_roster_hides_among_as_many_as_it_asked_for() -> None:
    """Four colluders leave with one member: under the next roster's smaller g the two sums gave that member's vector."""
    federation = Federation(16, lineage=LINEAGE)
    vectors, everyone = federation.vectors(4), federation.ids
    assert federation.run_round(vectors).total is not None
    staying, leaving = everyone[:11], everyone[11:]
    shrunk(federation, staying)
    outcome = federation.run_round({member: vectors[member] for member in staying})
    assert isinstance(outcome.phase, Voided)
    assert isinstance(outcome.fault, LedgerFault)
    assert outcome.fault.group == Group(leaving, (federation.links[0].context,), 7)
    assert federation.links[0].floor == 7


def test_no_member_takes_part_where_a_round_it_was_in_is_given_another_floor() -> None:
    federation = Federation(16, lineage=LINEAGE)
    vectors, everyone = federation.vectors(4), federation.ids
    federation.run_round(vectors)
    federation.links = tuple(replace(link, floor=5) for link in federation.links)
    shrunk(federation, everyone[:11])
    federation.begin({member: vectors[member] for member in federation.ids})
    for member in federation.ids:
        federation._tell(member, federation.phase.attempt.opening)
    assert [fault.cause for _, fault in federation.faults] == [Cause.CHAIN_BROKEN] * 11


@pytest.mark.parametrize("absent", [1, 3])
def test_an_exception_for_several_excuses_no_part_of_them(absent: int) -> None:
    """Four may leave together; the coordinator keeps the opening from fewer."""
    federation = Federation(12, lineage=LINEAGE)
    vectors, named = federation.vectors(4), federation.ids[:4]
    federation.run_round(vectors)
    exceptions = (federation.excepting(named),)
    federation.drop = dict.fromkeys(range(absent), After.CARD)
    outcome = federation.run_round(vectors, exceptions=exceptions)
    assert isinstance(outcome.fault, LedgerFault)
    assert outcome.fault.group.members == named[:absent]
    federation.drop = dict.fromkeys(range(4), After.CARD)
    assert federation.run_round(vectors, exceptions=(federation.excepting(named),)).total is not None
