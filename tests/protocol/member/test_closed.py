from collections.abc import Callable
from dataclasses import replace

import pytest

from protocol.errors import PeerFault
from protocol.member import Closed, MemberPhase, Opened, load_phase
from protocol.messages import Message, Reveal, Upload
from protocol.simulator import After, Federation, Tamper

Answer = Callable[[Federation, str, Message], tuple[MemberPhase, tuple[Message, ...]]]


def closed(federation: Federation, member: str = "member-0") -> Closed:
    phase = federation.phases[member]
    assert isinstance(phase, Closed)
    return phase


@pytest.fixture
def federation() -> Federation:
    federation = Federation(5, drop={4: After.OPENING})
    federation.run_round()
    return federation


def test_the_reveal_is_sent_again_as_it_is(federation: Federation, answer: Answer) -> None:
    phase = closed(federation)
    (reveal,) = phase.outbox()
    assert isinstance(reveal, Reveal)
    again, replies = answer(federation, "member-0", phase.certificate)
    assert again is phase
    assert [r.to_bytes() for r in replies] == [reveal.to_bytes()]
    assert load_phase(phase.to_bytes()).outbox() == (reveal,)


def test_a_certificate_of_another_context_is_refused(federation: Federation, answer: Answer) -> None:
    with pytest.raises(PeerFault, match=r"^wrong-context: .*\[coordinator\]$"):
        answer(federation, "member-0", replace(closed(federation).certificate, context=bytes(32)))


def test_the_next_opening_is_taken_from_here(federation: Federation, answer: Answer) -> None:
    phase, _ = answer(federation, "member-0", federation.opening(federation.terms(8)))
    assert isinstance(phase, Opened)
    assert phase.opening.place == (1, 0)


def swallowing_uploads_of(*members: str) -> Tamper:
    """They live, and their uploads never arrive."""
    return lambda sender, message: None if sender in members and isinstance(message, Upload) else message


def test_a_member_knows_whether_it_counted() -> None:
    federation = Federation(5, tamper=swallowing_uploads_of("member-4"))
    federation.run_round()
    assert closed(federation).attempt.members == federation.ids
    assert closed(federation, "member-3").counted
    assert not closed(federation, "member-4").counted


def test_after_void_the_keys_wait_for_a_retry_no_longer_than_the_terms_last() -> None:
    federation = Federation(5, tamper=swallowing_uploads_of("member-3", "member-4"))
    federation.run_round()
    phase = closed(federation)
    end = phase.opening.terms.latest_end_s
    assert phase.certificate.void
    assert phase.lapse(end - 1) is phase
    lapsed = phase.lapse(end)
    assert isinstance(lapsed, Closed)
    assert (lapsed.ready.sequence, lapsed.ready.attempt) == (1, 0)
    assert lapsed.ready.pairs == phase.ready.advanced(1, 0).pairs
    assert lapsed.lapse(end) is lapsed


def test_after_a_sum_nothing_is_left_to_lapse(federation: Federation) -> None:
    phase = closed(federation)
    end = phase.opening.terms.latest_end_s
    assert phase.lapse(end - 1) is phase
    lapsed = phase.lapse(end)
    assert lapsed == replace(phase, reveals=())
    assert lapsed.lapse(end) is lapsed
