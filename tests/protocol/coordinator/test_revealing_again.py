"""Evictions reach decryptors late, or some of them (protocol §4.7)."""

import pytest

from tests.protocol.coordinator.test_revealing import exact, revealing
from tests.support.forging import again, false_dealers, other_secrets
from tests.support.simulator import After, Federation
from veilsum.protocol.coordinator import CoordinatorPhase, Failed, Recovered, Revealing
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.messages import Evictions, Reveal


@pytest.fixture
def evicting() -> tuple[Federation, Revealing]:
    """Eight members, t = 6: member-3 has proved false, and nobody has seen the proof yet; two have revealed nothing."""
    federation = Federation(8, drop={6: After.VOTE, 7: After.VOTE})
    false_dealers(federation, {"member-3": other_secrets})
    phase = revealing(federation)
    federation.drop = {}
    for member in federation.ids[:6]:
        federation.phases[member], (sent,) = federation.ask(member, phase.certificate)
        after = phase.receive(sent, federation.now_s + 7)
        assert isinstance(after, Revealing)
        phase = after
    federation.phase = phase
    return federation, phase


def test_decryptors_are_asked_again_with_the_proof(evicting: tuple[Federation, Revealing]) -> None:
    federation, phase = evicting
    assert phase.evicted == ("member-3",)
    assert phase.staying == tuple(m for m in federation.ids if m != "member-3")
    assert phase.deadline_s == phase.attempt.terms.latest_end_s
    assert phase.waiting_for() == federation.ids
    assert phase.heard == set(federation.ids[:6])
    for member in federation.ids:
        # who has not heard of the certificate is shown that first
        assert phase.request_for(member) == (phase.evictions if member in phase.heard else phase.certificate)


def test_a_reveal_without_the_evictions_is_heard_and_not_counted(
    evicting: tuple[Federation, Revealing],
) -> None:
    federation, phase = evicting
    federation.phases["member-6"], (first,) = federation.ask("member-6", phase.certificate)
    assert isinstance(first, Reveal)
    after = phase.receive(first, federation.now_s)
    assert isinstance(after, Revealing)
    assert after.reveals == {}
    assert after.request_for("member-6") == phase.evictions
    second = reveal_of(federation, after, "member-6")
    assert second.evicted == ("member-3",)
    counted = after.receive(second, federation.now_s)
    assert isinstance(counted, Revealing)
    assert set(counted.reveals) == {"member-6"}
    # and the first again changes nothing that counts
    assert counted.receive(first, federation.now_s) is counted
    with pytest.raises(PeerFault, match=r"^reveal-misshapen:"):
        phase.receive(again(second, federation.keys["member-6"], evicted=("member-4",)), federation.now_s)


def test_reveals_without_the_evictions_fill_no_disk(evicting: tuple[Federation, Revealing]) -> None:
    """Once a dealer was evicted, a reveal as if nobody was took any bytes, any number of times, and each was an event."""
    federation, phase = evicting
    key = federation.keys["member-6"]
    federation.phases["member-6"], (first,) = federation.phases["member-6"].receive(
        phase.certificate, key, federation.now_s
    )
    assert isinstance(first, Reveal)
    for runs in ((bytes(360_000),) * 8, first.runs[1:], ()):
        with pytest.raises(PeerFault, match=r"^reveal-misshapen: .*\[member-6\]$"):
            phase.receive(again(first, key, runs=runs), federation.now_s)
    after = phase.receive(first, federation.now_s)
    other = again(first, key, runs=tuple(bytes(len(run)) for run in first.runs))
    for said in (first, other, again(first, key, runs=(bytes(360_000),) * 8)):
        assert after.receive(said, federation.now_s) is after


def reveal_of(federation: Federation, phase: Revealing, member: str) -> Reveal:
    request = phase.request_for(member)
    assert request is not None
    _, (sent,) = federation.ask(member, request)
    assert isinstance(sent, Reveal)
    return sent


def test_evictions_that_reach_too_few_fail_the_sum_and_open_no_more(
    evicting: tuple[Federation, Revealing],
) -> None:
    federation, phase = evicting
    after: CoordinatorPhase = phase
    for member in federation.ids[:5]:
        assert isinstance(after, Revealing)
        after = after.receive(reveal_of(federation, after, member), federation.now_s)
    assert isinstance(after, Revealing)
    failed = after.expire(after.attempt.terms.latest_end_s)
    assert isinstance(failed, Failed)
    assert (failed.certificate, failed.proofs) == (phase.certificate, phase.proofs)
    assert failed.fault.parties == ("member-5", "member-6", "member-7")


def test_with_the_evictions_shown_to_a_threshold_the_sum_is_exact(
    evicting: tuple[Federation, Revealing],
) -> None:
    federation, _ = evicting
    silent = {"member-0", "member-1"}
    federation.tamper = lambda sender, message: (
        None if isinstance(message, Evictions) and sender.split(">")[1] in silent else message
    )
    federation.run_until(Recovered)
    exact(federation, federation.finish())


def test_where_nothing_changed_the_second_reveal_is_the_first(evicting: tuple[Federation, Revealing]) -> None:
    federation, phase = evicting
    member = "member-0"
    held = federation.phases[member]
    (first,), second = held.outbox(), reveal_of(federation, phase, member)
    assert isinstance(first, Reveal)
    staying = [run for run, dealer in zip(first.runs, federation.ids, strict=True) if dealer != "member-3"]
    # b_u again, and beside it one share more: of the edge to the evicted dealer
    assert [run[:36] for run in second.runs] == staying
    assert {len(run) for run in second.runs} == {72}
    _, (third,) = held.receive(phase.certificate, federation.keys[member], federation.now_s)
    assert third.to_bytes() == first.to_bytes()
