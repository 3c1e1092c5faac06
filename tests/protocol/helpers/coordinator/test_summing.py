"""The helpers' sums, and who is outvoted."""

from dataclasses import replace
from typing import Any

from protocol.causes import Cause
from protocol.helpers.coordinator import Lost, Recovered, Summing
from protocol.helpers.messages import HelperSums
from protocol.helpers.simulator import HelperFederation
from tests.protocol.helpers.coordinator.answers import after, cause, refusal


def lying(federation: HelperFederation, sums: HelperSums, *seeds: int) -> HelperSums:
    """The helper's sums with another digest of each of these seeds' first chunk."""
    digests = [list(of_seed) for of_seed in sums.digests]
    for seed in seeds:
        digests[federation.attempt.seeds_of(sums.member).index(seed)][0] = sums.member.encode().ljust(32)
    values = {"context": sums.context, "member": sums.member, "outcome": sums.outcome}
    return HelperSums.make(federation.keys[sums.member], **values, digests=tuple(map(tuple, digests)))


def test_sums_fit_the_certificate(
    federation: HelperFederation, summing: tuple[Summing, dict[str, HelperSums]]
) -> None:
    phase, made = summing
    good = made["helper-0"]

    def signed(**changes: Any) -> HelperSums:
        values = {
            "context": good.context,
            "member": "helper-0",
            "outcome": good.outcome,
            "digests": good.digests,
        }
        values |= changes
        return HelperSums.make(federation.keys[changes.get("member", "helper-0")], **values)

    for changed, expected in (
        (signed(context=bytes(32)), Cause.WRONG_CONTEXT),
        (signed(member="client-0"), Cause.NOT_A_DECRYPTOR),
        (replace(good, signature=bytes(64)), Cause.BAD_SIGNATURE),
        (signed(outcome=bytes(32)), Cause.REVEAL_MISSHAPEN),
        (signed(digests=good.digests[:2]), Cause.REVEAL_MISSHAPEN),
        (signed(digests=(*good.digests[:2], good.digests[2][:1])), Cause.REVEAL_MISSHAPEN),
    ):
        assert cause(phase.receive, changed, 0.0) == expected
    once = after(phase, good, good)
    assert cause(once.receive, lying(federation, good, 1), 0.0) == Cause.CONFLICT
    assert once.request_for("helper-0") is None
    assert once.request_for("helper-1") == phase.certificate
    assert after(once, refusal(federation, "helper-3")) is once


def test_three_who_agree_are_enough_at_once(
    summing: tuple[Summing, dict[str, HelperSums]],
) -> None:
    phase, made = summing
    two = after(phase, made["helper-0"], made["helper-3"])
    assert isinstance(two, Summing)
    ended = after(two, made["helper-1"])
    assert isinstance(ended, Recovered)
    assert [source.holders for source in ended.sources] == [
        ("helper-3", "helper-1"),
        ("helper-0", "helper-3"),
        ("helper-0", "helper-3", "helper-1"),
        ("helper-0", "helper-1"),
    ]
    assert ended.outvoted == ()
    assert after(ended, made["helper-2"]) is ended


def test_two_holders_outvote_a_third(
    federation: HelperFederation, summing: tuple[Summing, dict[str, HelperSums]]
) -> None:
    phase, made = summing
    false = lying(federation, made["helper-1"], 0, 3)
    three = after(phase, false, made["helper-0"], made["helper-2"])
    assert isinstance(three, Summing)
    assert three.waiting_for() == ("helper-3",)
    ended = after(three, made["helper-3"])
    assert isinstance(ended, Recovered)
    assert ended.outvoted == ("helper-1",)
    assert all("helper-1" not in ended.sources[seed].holders for seed in (0, 3))


def test_two_holders_who_disagree_end_the_attempt(
    federation: HelperFederation, summing: tuple[Summing, dict[str, HelperSums]]
) -> None:
    phase, made = summing
    false = lying(federation, made["helper-1"], 3)
    ended = after(phase, false, made["helper-0"], made["helper-3"]).expire(0.0)
    assert isinstance(ended, Lost)
    assert ended.fault.cause == Cause.HELPER_DISAGREEMENT
    assert ended.fault.parties == ("helper-0", "helper-1")
    assert ended.closing == phase.certificate


def test_two_helpers_outvoted_end_the_attempt(
    federation: HelperFederation, summing: tuple[Summing, dict[str, HelperSums]]
) -> None:
    phase, made = summing
    ended = after(
        phase,
        lying(federation, made["helper-1"], 0),
        lying(federation, made["helper-2"], 3),
        made["helper-0"],
        made["helper-3"],
    )
    assert isinstance(ended, Lost)
    assert ended.fault.cause == Cause.HELPER_DISAGREEMENT
    assert ended.fault.parties == ("helper-1", "helper-2")


def test_too_few_sums_or_a_cancel_lose_the_sum(summing: tuple[Summing, dict[str, HelperSums]]) -> None:
    phase, made = summing
    ended = after(phase, made["helper-0"], made["helper-1"]).expire(0.0)
    assert isinstance(ended, Lost)
    assert (ended.fault.cause, ended.fault.parties) == (Cause.QUORUM_LOST, ("helper-2", "helper-3"))
    cancelled = phase.cancel(0.0, "enough")
    assert isinstance(cancelled, Lost)
    assert cancelled.fault.cause == Cause.CANCELLED
