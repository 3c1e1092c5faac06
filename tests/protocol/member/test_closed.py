import time
from dataclasses import replace

import pytest

from tests.protocol.questions import GRADIENTS
from tests.support.forging import false_dealers, other_secrets
from tests.support.refusals import refused
from tests.support.simulator import After, Federation, of
from veilsum.protocol.coordinator import Recovered
from veilsum.protocol.member import Closed, Opened
from veilsum.protocol.messages import Evictions, Survivor


def closed(federation: Federation, member: str = "member-0") -> Closed:
    return of(Closed, federation.phases[member])


@pytest.fixture
def federation() -> Federation:
    federation = Federation(5, drop={4: After.OPENING}, question=GRADIENTS)
    federation.run_round()
    return federation


def test_a_quarter_of_ten_thousand_is_evicted_at_once(federation: Federation) -> None:
    many = tuple(Survivor(f"member-{i:04}", bytes(32)) for i in range(10_000))
    again = tuple(replace(survivor) for survivor in many[::4])  # as they are read from proofs
    phase = closed(federation)
    crowded = replace(phase, certificate=replace(phase.certificate, survivors=many), evicted=again)
    started_s = time.process_time()
    assert len(crowded.staying_survivors) == 7_500
    assert time.process_time() - started_s < 1


def test_after_the_latest_end_nothing_is_revealed_again(federation: Federation) -> None:
    phase = closed(federation)
    federation.now_s = phase.opening.terms.latest_end_s
    after, replies = federation.ask("member-0", phase.certificate)
    assert replies == ()
    assert after == phase.erase_shares()


def test_the_next_opening_is_taken_from_here_and_erases_the_shares(federation: Federation) -> None:
    held = closed(federation).vouched_shares
    assert held
    phase, _ = federation.ask("member-0", federation.opening(federation.terms()), Opened)
    assert phase.opening.sequence_and_attempt == (1, 0)
    assert not any(dealt.shares in phase.to_bytes() for dealt in held)


# Evictions


@pytest.fixture
def evicting() -> tuple[Federation, Evictions]:
    """Eight members, a = 2: member-3 and member-6 dealt falsely, and are detected one after the other."""
    federation = Federation(8)
    false_dealers(
        federation,
        {
            # member-6 lies about one edge only, which is checked only after member-3 was evicted
            "member-3": other_secrets,
            "member-6": lambda attempt: other_secrets(
                attempt, 1 + attempt.neighbours_of("member-6").index("member-3")
            ),
        },
    )
    outcome = federation.run_round()
    assert isinstance(outcome.phase, Recovered)
    assert outcome.phase.evicted == ("member-3", "member-6")
    evictions = outcome.phase.evictions
    assert evictions is not None
    return federation, evictions


def before_evictions(federation: Federation, member: str) -> Closed:
    """Return the member's phase after its first reveal."""
    phase = closed(federation, member)
    first = replace(phase, evicted=(), reveals=()).with_reveal(federation.keys[member])
    federation.phases[member] = first
    return first


def test_the_same_evictions_again_are_answered_by_the_same_bytes(
    evicting: tuple[Federation, Evictions],
) -> None:
    federation, evictions = evicting
    phase = closed(federation)
    again, replies = federation.ask("member-0", evictions)
    assert again is phase
    assert [r.to_bytes() for r in replies] == [r.to_bytes() for r in phase.reveals]


def test_more_than_may_collude_are_not_evicted(
    evicting: tuple[Federation, Evictions], monkeypatch: pytest.MonkeyPatch
) -> None:
    federation, evictions = evicting
    before_evictions(federation, "member-0")
    attempt = closed(federation).attempt
    monkeypatch.setitem(vars(attempt), "quorum", replace(attempt.quorum, colluders=1))
    with refused("eviction-invalid", "coordinator"):
        federation.ask("member-0", evictions)
    federation.ask("member-0", replace(evictions, proofs=evictions.proofs[:1]))
