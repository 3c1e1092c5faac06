"""What hostile reviews broke, each as it was done, and how it ends now."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.support.forging import receipts_of
from tests.support.simulator import Federation, untampered
from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator import Checking, Freezing, Recovered, Voiding
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.messages import (
    KeyCard,
    Message,
    Receipt,
    Refusal,
    Vote,
)


def only(names: set[str]) -> Any:
    """Let the cards of these members through."""

    def tamper(sender: str, message: Message) -> Message | None:
        return None if isinstance(message, KeyCard) and sender not in names else message

    return tamper


def test_two_cohorts_without_a_common_member_cannot_each_hide_the_other() -> None:
    federation = Federation(11)
    vectors = federation.vectors()
    assert federation.run_round(vectors).total is not None
    federation.tamper = only({*federation.ids[:5]})
    with pytest.raises(PeerFault, match=r"^cohort-too-small: .*n_min=7"):
        federation.enrol("other-1")


@pytest.mark.parametrize("given_s", [0, 100])
def test_complaints_within_the_grace_void_nothing_while_others_may_come(given_s: int) -> None:
    federation = Federation(12)
    phase = federation.reach(Checking)
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


@pytest.fixture
def two_cohorts() -> Iterator[tuple[Federation, Federation]]:
    """One federation with two cohorts, both ready at the same history."""
    first = Federation(8)
    second = Federation(8)
    second.enrol("other-1")
    return (yield first, second)


def test_of_two_cohorts_open_at_once_the_second_gets_no_upload(
    two_cohorts: tuple[Federation, Federation],
) -> None:
    first, second = two_cohorts
    vectors = first.vectors()
    second.begin(vectors)
    for member in second.ids:
        second._tell(member, second.phase.attempt.opening)
    assert isinstance(first.run_round(vectors).phase, Recovered)
    for member in second.ids:
        second.phases[member] = second.phases[member].knowing(first.phases[member].history)  # type: ignore[attr-defined]  # in the attempt
    for member in second.ids:
        second._serve(second.phase, member)
    assert {fault.cause for _, fault in second.faults} == {Cause.OUTCOME_MISSING}


def refusing(federation: Federation, **said: Any) -> Any:
    """Have three members refuse whatever is proposed, in these words."""

    def tamper(sender: str, message: Message) -> Message:
        if isinstance(message, Vote) and sender in federation.ids[:3]:
            words = {"cause": "malformed", **said}
            return Refusal.make(federation.keys[sender], context=message.context, member=sender, **words)
        return message

    return tamper


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ({"cause": "share-invalid"}, Cause.POLICY_REFUSED),
        ({"cause": "made-up"}, Cause.POLICY_REFUSED),
        ({"cause": "window-exceeded"}, Cause.WINDOW_EXCEEDED),
    ],
)
def test_a_refusal_names_nobody_but_its_sender(said: dict[str, Any], cause: Cause) -> None:
    federation = Federation(6)
    federation.tamper = refusing(federation, **said)
    outcome = federation.run_round(federation.vectors())
    assert outcome.fault is not None
    assert outcome.fault.cause is cause
    assert set(outcome.fault.parties) <= {*federation.ids[:3]}
    federation.tamper = untampered
