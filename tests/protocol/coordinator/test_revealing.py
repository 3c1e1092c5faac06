import gc
import re
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.protocol.questions import GRADIENTS
from tests.support.calls import record_calls
from tests.support.forging import Edit, again, false_dealers, other_secrets, signed_otherwise, swallowing
from tests.support.refusals import refused
from tests.support.simulator import After, Federation, Outcome, of
from veilsum.protocol.attempt import Attempt
from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator import Failed, Recovered, Revealing, disclose_vectors
from veilsum.protocol.coordinator import revealing as revealing_module
from veilsum.protocol.errors import Misuse
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.messages import Evictions, Reveal
from veilsum.protocol.shamir import LIMB_PRIME


def revealing(federation: Federation) -> Revealing:
    return federation.reach(Revealing)


@pytest.fixture
def federation() -> Federation:
    """Six members, t = 4, of which member-1 dropped out before its upload: certified, and nothing is revealed yet."""
    federation = Federation(6, drop={1: After.OPENING})
    revealing(federation)
    return federation


def reveal(federation: Federation, member: str, key: SigningKey | None = None, /, **changes: Any) -> Reveal:
    """Return the member's answer to the certificate, changed and signed."""
    request = federation.phase.request_for(member)
    assert request is not None
    answer = federation.answered(member, request, Reveal)
    return again(answer, key or federation.keys[member], **changes)


def test_the_same_reveal_signed_anew_changes_nothing(federation: Federation) -> None:
    # its shares can only be the same: they are what the dealers committed to
    said = reveal(federation, "member-0")
    phase = federation.after(said)
    assert phase.receive(signed_otherwise(said, federation.keys["member-0"]), federation.now_s) is phase


def test_a_reveal_without_a_receipt_is_not_read(federation: Federation) -> None:
    phase = of(Revealing, federation.phase)
    without = replace(phase, receipts={m: r for m, r in phase.receipts.items() if m != "member-0"})
    assert "member-0" in without.waiting_for()
    assert without.receive(reveal(federation, "member-0"), federation.now_s) is without


def test_too_few_reveals_by_the_latest_end_name_the_missing(federation: Federation) -> None:
    phase = federation.after(*(reveal(federation, m) for m in ("member-0", "member-2", "member-3")))
    lost = of(Failed, phase.pass_deadline(phase.attempt.terms.latest_end_s))
    assert lost.fault.cause is Cause.QUORUM_LOST
    assert re.match(r"3 .*\b4$", lost.fault.detail)
    assert lost.fault.parties == ("member-1", "member-4", "member-5")
    assert lost.certificate == phase.certificate  # type: ignore[attr-defined]  # it is Revealing


# Dealers that lie in what they share


def out_of_range(_attempt: Attempt, index: int = 0) -> Edit:
    """Every share is canonical and matches its commitment, but their value exceeds a 30-bit limb."""
    start = 36 * index
    return lambda _who, shares: shares[:start] + (LIMB_PRIME - 1).to_bytes(4, "little") + shares[start + 4 :]


LIES: dict[str, Callable[[Attempt], Edit]] = {
    "limbs out of range": out_of_range,
    "an edge's limbs out of range": lambda attempt: out_of_range(
        attempt, 1 + attempt.neighbours_of("member-3").index("member-7")
    ),
    "another secret of the right shape": other_secrets,
    "another b_u alone": lambda attempt: other_secrets(attempt, 0),
    "another edge to a lost member": lambda attempt: other_secrets(
        attempt, 1 + attempt.neighbours_of("member-3").index("member-7")
    ),
}


def exact(federation: Federation, outcome: Outcome) -> None:
    """Check that the sum is that of the certified survivors without the evicted."""
    phase = of(Recovered, outcome.phase)
    assert set(phase.summed_members) == set(outcome.survivors) - set(phase.evicted)
    assert outcome.total is not None
    expected = np.sum([federation.vectors_now[member] for member in phase.summed_members], axis=0)
    assert np.array_equal(outcome.total, expected)


@pytest.mark.parametrize("how", LIES)
def test_a_false_dealer_is_evicted_and_the_sum_is_exact_without_it(how: str) -> None:
    federation = Federation(8, drop={7: After.OPENING}, restart=True)
    false_dealers(federation, {"member-3": LIES[how]})
    outcome = federation.run_round()
    exact(federation, outcome)
    assert isinstance(outcome.phase, Recovered)
    assert outcome.phase.evicted == ("member-3",)
    assert "member-3" in outcome.survivors
    assert set(outcome.phase.edge_seeds) == {
        (m, w) for m in outcome.phase.summed_members for w in ("member-3", "member-7")
    }
    assert outcome.faults == ()


def test_shares_are_joined_a_slice_at_a_time(federation: Federation, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = federation.after(
        *(reveal(federation, m) for m in ("member-0", "member-2", "member-3", "member-4"))
    )
    sizes = record_calls(monkeypatch, revealing_module, "recover_secrets", lambda _, shares: len(shares[0]))
    for limit, expected in ((1, [72] * 5), (2 * 4 * 72, [144, 144, 72])):
        sizes.clear()
        monkeypatch.setattr(revealing_module, "SLICE_BYTES", limit)
        again_ = federation.after(
            *(reveal(federation, m) for m in ("member-0", "member-2", "member-3", "member-4"))
        )
        assert sizes == expected
        assert isinstance(again_, Recovered)
        assert isinstance(whole, Recovered)
        assert (again_.self_seeds, again_.edge_seeds) == (whole.self_seeds, whole.edge_seeds)


# Evictions reach decryptors late, or some of them (wire: Reveals).


@pytest.fixture
def evicting() -> tuple[Federation, Revealing]:
    """Eight members, t = 6: member-3 is proved false, but the proof was not shown yet; two members have revealed nothing."""
    federation = Federation(8, drop={6: After.VOTE, 7: After.VOTE})
    false_dealers(federation, {"member-3": other_secrets})
    phase = revealing(federation)
    federation.drop = {}
    for member in federation.ids[:6]:
        federation.phases[member], (sent,) = federation.ask(member, phase.certificate)
        after = of(Revealing, phase.receive(sent, federation.now_s + 7))
        phase = after
    federation.phase = phase
    return federation, phase


def test_a_reveal_without_the_evictions_is_heard_and_not_counted(
    evicting: tuple[Federation, Revealing],
) -> None:
    federation, phase = evicting
    federation.phases["member-6"], (first,) = federation.ask("member-6", phase.certificate)
    assert isinstance(first, Reveal)
    after = of(Revealing, phase.receive(first, federation.now_s))
    assert after.reveals == {}
    assert after.request_for("member-6") == phase.evictions
    second = reveal_of(federation, after, "member-6")
    assert second.evicted == ("member-3",)
    counted = of(Revealing, after.receive(second, federation.now_s))
    assert set(counted.reveals) == {"member-6"}
    # and the first again changes nothing that counts
    assert counted.receive(first, federation.now_s) is counted
    with refused("reveal-misshapen", "member-6"):
        phase.receive(again(second, federation.keys["member-6"], evicted=("member-4",)), federation.now_s)


def test_reveals_without_the_evictions_fill_no_disk(evicting: tuple[Federation, Revealing]) -> None:
    """After an eviction, a reveal that ignores it could contain any bytes, any number of times, and each was stored as an event."""
    federation, phase = evicting
    key = federation.keys["member-6"]
    federation.phases["member-6"], (first,) = federation.phases["member-6"].receive(
        phase.certificate, key, federation.now_s
    )
    assert isinstance(first, Reveal)
    for runs in ((bytes(360_000),) * 8, first.runs[1:], ()):
        with refused("reveal-misshapen", "member-6"):
            phase.receive(again(first, key, runs=runs), federation.now_s)
    after = phase.receive(first, federation.now_s)
    other = again(first, key, runs=tuple(bytes(len(run)) for run in first.runs))
    for said in (first, other, again(first, key, runs=(bytes(360_000),) * 8)):
        assert after.receive(said, federation.now_s) is after


def reveal_of(federation: Federation, phase: Revealing, member: str) -> Reveal:
    request = phase.request_for(member)
    assert request is not None
    return federation.answered(member, request, Reveal)


def test_with_the_evictions_shown_to_a_threshold_the_sum_is_exact(
    evicting: tuple[Federation, Revealing],
) -> None:
    federation, _ = evicting
    silent = {"member-0", "member-1"}
    federation.tamper = swallowing(Evictions, *(f"coordinator>{member}" for member in silent))
    federation.run_until(Recovered)
    exact(federation, federation.finish())


# What the coordinator shows of a count round, and of no other (wire: Counts).


def recovered(federation: Federation) -> Recovered:
    return of(Recovered, federation.run_round().phase)


@pytest.mark.parametrize("question", [{}, GRADIENTS], ids=["exact", "noisy"])
def test_no_other_round_is_disclosed(question: dict[str, object]) -> None:
    phase = recovered(Federation(4, question=question))

    def never(_member: str, _index: int) -> bytes:
        raise AssertionError

    with pytest.raises(Misuse):
        disclose_vectors(phase, never)


@pytest.mark.parametrize("margin", [None, 0])
def test_announcements_are_kept_for_a_disclosure_alone(margin: int | None) -> None:
    federation = Federation(4, margin=margin)
    federation.begin()
    shelf = weakref.ref(federation.run_until(Revealing).setting.shelf)
    phase = of(Recovered, federation.run_until(Recovered))
    gc.collect()
    assert (shelf() is None) is (margin is None)
    assert set(phase.uploads) == set(phase.summed_members)
