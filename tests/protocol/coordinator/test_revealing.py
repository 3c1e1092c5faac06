from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from protocol.causes import Cause
from protocol.codec import SecretBytes
from protocol.coordinator import CoordinatorPhase, Lost, Recovered, Revealing
from protocol.errors import PeerFault
from protocol.identity import SigningKey
from protocol.messages import Message, Reveal, Upload
from protocol.shamir import PRIME, recover_secrets, share_secrets
from protocol.simulator import After, Federation, SeededRandom

Redeal = Callable[..., Upload]


def revealing(federation: Federation) -> Revealing:
    federation.begin(terms=federation.terms(8))
    phase = federation.run_until(Revealing)
    assert isinstance(phase, Revealing)
    return phase


@pytest.fixture
def federation() -> Federation:
    """Six members, t = 4, member-1 lost before its upload: the certificate stands and nothing is revealed."""
    federation = Federation(6, drop={1: After.OPENING})
    revealing(federation)
    return federation


def reveal(federation: Federation, member: str, key: SigningKey | None = None, /, **changes: Any) -> Reveal:
    """What the member answers to the certificate, changed and signed."""
    request = federation.phase.request_for(member)
    assert request is not None
    _, (answer,) = federation.phases[member].receive(request, federation.keys[member], federation.now_s)
    values = {name: getattr(answer, name) for name in vars(answer) if name != "signature"}
    return Reveal.make(key or federation.keys[member], **{**values, **changes})


def received(federation: Federation, *reveals: Reveal) -> CoordinatorPhase:
    phase: CoordinatorPhase = federation.phase
    for message in reveals:
        phase = phase.receive(message, federation.now_s)
    return phase


def test_what_is_due_are_the_survivors_own_seeds_and_their_edges_to_the_lost(federation: Federation) -> None:
    assert isinstance(federation.phase, Revealing)
    assert [(due.dealer, due.index, due.lost) for due in federation.phase.due] == [
        entry
        for index, survivor in enumerate(("member-0", "member-2", "member-3", "member-4", "member-5"))
        for entry in ((survivor, 0, None), (survivor, 1 if index == 0 else 2, "member-1"))
    ]


@pytest.mark.parametrize("order", [(0, 2, 3, 4), (5, 4, 3, 2), (3, 0, 5, 2)])
def test_any_threshold_of_reveals_rebuilds_every_seed(federation: Federation, order: tuple[int, ...]) -> None:
    three = received(federation, *(reveal(federation, federation.ids[i]) for i in order[:3]))
    assert isinstance(three, Revealing)
    assert federation.ids[order[0]] not in three.waiting_for()
    assert three.request_for(federation.ids[order[0]]) is None
    assert three.request_for("member-1") == three.certificate
    phase = three.receive(reveal(federation, federation.ids[order[3]]), federation.now_s)
    assert isinstance(phase, Recovered)
    inside = tuple(m for m in federation.ids if m != "member-1")
    assert set(phase.self_seeds) == set(inside)
    assert set(phase.edge_seeds) == {(m, "member-1") for m in inside}
    lost = federation.phases["member-1"]
    pairs = {pair.peer: pair for pair in lost.ready.pairs}  # type: ignore[attr-defined]  # it has opened
    for survivor in inside:
        seed = pairs[survivor].mask_seed("member-1", phase.attempt.context)
        assert phase.edge_seeds[survivor, "member-1"] == seed


def test_a_share_that_misses_its_dealers_commitment_names_the_decryptor(federation: Federation) -> None:
    true = reveal(federation, "member-0").shares
    for number in (0, 4, 9):
        word = int.from_bytes(true[36 * number : 36 * number + 4], "little")
        changed = (word + 1) % PRIME
        shares = true[: 36 * number] + changed.to_bytes(4, "little") + true[36 * number + 4 :]
        dealer = ("member-0", "member-2", "member-3", "member-4", "member-5")[number // 2]
        with pytest.raises(
            PeerFault, match=rf"^share-invalid: member-0's share of {dealer}'s.*\[member-0\]$"
        ):
            received(federation, reveal(federation, "member-0", shares=SecretBytes(shares)))


def test_shares_in_another_order_are_refused(federation: Federation) -> None:
    true = reveal(federation, "member-0").shares
    with pytest.raises(PeerFault, match=r"^share-invalid: .*\[member-0\]$"):
        received(federation, reveal(federation, "member-0", shares=true[36:] + true[:36]))


def test_another_decryptors_shares_are_refused(federation: Federation) -> None:
    theirs = reveal(federation, "member-2").shares
    with pytest.raises(PeerFault, match=r"^share-invalid: .*\[member-0\]$"):
        received(federation, reveal(federation, "member-0", shares=theirs))


@pytest.mark.parametrize(
    "changes",
    [
        {"shares": b""},
        {"shares": bytes(35)},
        {"shares": bytes(36 * 9)},
        {"shares": bytes(36 * 11)},
        {"outcome": bytes(32)},
    ],
    ids=["none", "half", "one too few", "one too many", "another certificate"],
)
def test_a_reveal_of_another_shape_or_for_another_certificate_is_refused(
    federation: Federation, changes: dict[str, Any]
) -> None:
    with pytest.raises(PeerFault, match=r"^reveal-misshapen: .*\[member-0\]$"):
        received(federation, reveal(federation, "member-0", **changes))


@pytest.mark.parametrize(
    ("member", "signer", "changes", "cause"),
    [
        ("member-0", "member-2", {}, "bad-signature"),
        ("member-0", "member-0", {"context": bytes(32)}, "wrong-context"),
    ],
)
def test_other_peoples_reveals_are_refused(
    federation: Federation, member: str, signer: str, changes: dict[str, Any], cause: str
) -> None:
    with pytest.raises(PeerFault, match=rf"^{cause}: .*\[{member}\]$"):
        received(federation, reveal(federation, member, federation.keys[signer], **changes))


def test_a_strangers_reveal_is_refused(federation: Federation) -> None:
    stranger = reveal(federation, "member-0", SigningKey(bytes(32)), member="sybil")
    with pytest.raises(PeerFault, match=r"^not-a-decryptor: .*\[sybil\]$"):
        received(federation, stranger)


def test_the_same_reveal_again_counts_once(federation: Federation) -> None:
    phase = received(federation, reveal(federation, "member-0"))
    assert phase.receive(reveal(federation, "member-0"), federation.now_s) is phase


def test_a_second_reveal_is_a_conflict(federation: Federation) -> None:
    # its shares can only be the same: they are what the dealers committed to
    phase = received(federation, reveal(federation, "member-0"))
    assert isinstance(phase, Revealing)
    other = replace(phase, reveals={"member-0": replace(phase.reveals["member-0"], signature=bytes(64))})
    with pytest.raises(PeerFault, match=r"^conflict: member-0 has sent another reveal before \[member-0\]$"):
        other.receive(reveal(federation, "member-0"), federation.now_s)


def test_too_few_reveals_lose_the_attempt_and_name_the_missing(federation: Federation) -> None:
    phase = received(federation, *(reveal(federation, m) for m in ("member-0", "member-2", "member-3")))
    lost = phase.expire(federation.now_s)
    assert isinstance(lost, Lost)
    assert lost.fault.cause is Cause.QUORUM_LOST
    assert lost.fault.detail == "3 reveals, the threshold is 4"
    assert lost.fault.parties == ("member-4", "member-5")


def test_a_certified_attempt_that_is_cancelled_is_lost(federation: Federation) -> None:
    lost = federation.phase.cancel(federation.now_s, "enough")
    assert isinstance(lost, Lost)
    assert str(lost.fault) == "cancelled: enough [operator]"


# Dealers that lie in what they share


def cheated(redeal: Redeal, edit: Callable[[int, bytes], bytes], members: int = 5) -> Federation:
    """A federation in which member-3 deals what `edit(place, shares)` says, with commitments to that."""
    federation = Federation(members)

    def tamper(sender: str, message: Message) -> Message:
        if sender == federation.ids[3] and isinstance(message, Upload):
            return redeal(federation, message, lambda who, shares: edit(federation.ids.index(who), shares))
        return message

    federation.tamper = tamper
    return federation


def test_a_dealer_whose_shares_recover_another_seed_is_named_and_the_attempt_lost(redeal: Redeal) -> None:
    other = share_secrets([b"\x01" * 32] * 5, 4, 5, SeededRandom(7))
    federation = cheated(redeal, lambda place, _shares: other[place].tobytes())
    outcome = federation.run_round()
    assert isinstance(outcome.phase, Lost)
    assert outcome.fault is not None
    assert outcome.fault.cause is Cause.DEALER_INCONSISTENT
    assert outcome.fault.parties == ("member-3",)
    assert outcome.total is None


def test_a_dealer_whose_shares_recover_no_seed_is_named_and_the_attempt_lost(redeal: Redeal) -> None:
    # every share canonical and true to its commitment, of a value that is no 30-bit limb
    federation = cheated(redeal, lambda _place, shares: (PRIME - 1).to_bytes(4, "little") + shares[4:])
    outcome = federation.run_round()
    assert isinstance(outcome.phase, Lost)
    assert outcome.fault is not None
    assert outcome.fault.cause is Cause.DEALER_INCONSISTENT
    assert outcome.fault.parties == ("member-3",)


def test_two_lying_dealers_are_both_named(redeal: Redeal) -> None:
    federation = Federation(5)

    def tamper(sender: str, message: Message) -> Message:
        if sender in {"member-1", "member-3"} and isinstance(message, Upload):
            return redeal(
                federation, message, lambda _who, shares: (PRIME - 1).to_bytes(4, "little") + shares[4:]
            )
        return message

    federation.tamper = tamper
    outcome = federation.run_round()
    assert outcome.fault is not None
    assert outcome.fault.cause is Cause.DEALER_INCONSISTENT
    assert outcome.fault.parties == ("member-1", "member-3")


def test_a_dealer_and_a_decryptor_that_share_a_word_outside_the_field_stall_nothing(redeal: Redeal) -> None:
    # the dealer commits to a word that is not below p, and its accomplice does not complain
    federation = cheated(
        redeal, lambda place, shares: PRIME.to_bytes(4, "little") + shares[4:] if place == 3 else shares
    )
    federation.drop = {0: After.VOTE}
    outcome = federation.run_round()
    assert isinstance(outcome.phase, Lost)
    assert outcome.fault is not None
    assert outcome.fault.cause is Cause.DEALER_INCONSISTENT
    assert outcome.fault.parties == ("member-3",)


def test_a_false_dealer_is_found_by_halves(redeal: Redeal, monkeypatch: pytest.MonkeyPatch) -> None:
    # 12 survivors of 16 with 5 secrets each: one by one these were 60 recoveries, hours among 1,000 members.
    federation = cheated(
        redeal, lambda _place, shares: (PRIME - 1).to_bytes(4, "little") + shares[4:], members=16
    )
    federation.drop = dict.fromkeys(range(12, 16), After.OPENING)
    calls = []

    def counted(positions: Sequence[int], shares: Sequence[bytes]) -> list[bytes]:
        calls.append(len(shares[0]))
        return recover_secrets(positions, shares)

    monkeypatch.setattr("protocol.coordinator.revealing.recover_secrets", counted)
    outcome = federation.run_round()
    assert outcome.fault is not None
    assert outcome.fault.parties == ("member-03",)
    assert len(calls) <= 2 + 2 * 4
