from dataclasses import replace
from typing import Any

import pytest

from protocol.causes import Cause
from protocol.coordinator import Checking, CoordinatorPhase, Freezing, Voiding
from protocol.errors import PeerFault
from protocol.identity import SigningKey
from protocol.merkle import verify
from protocol.messages import Deliveries, Receipt
from protocol.simulator import After, Federation


@pytest.fixture
def federation() -> Federation:
    """Six members, of whom member-5 has not uploaded, wait for their boxes."""
    federation = Federation(6, drop={5: After.OPENING})
    federation.begin(terms=federation.terms(8))
    federation.run_until(Checking)
    return federation


def receipt(federation: Federation, member: str, key: SigningKey | None = None, **changes: Any) -> Receipt:
    others = tuple(m for m in federation.ids[:5] if m != member)
    values = {
        "context": federation.phase.attempt.context,
        "member": member,
        "dealers": others,
        "complaints": (),
        **changes,
    }
    return Receipt.make(key or federation.keys[member], **values)


def received(federation: Federation, *receipts: Receipt) -> CoordinatorPhase:
    phase = federation.phase
    for message in receipts:
        phase = phase.receive(message, federation.now_s)
    return phase


def test_every_decryptor_is_shown_the_others_boxes_with_paths_to_what_was_signed(
    federation: Federation,
) -> None:
    for place, member in enumerate(federation.ids):
        shown = federation.phase.request_for(member)
        assert isinstance(shown, Deliveries)
        assert [d.member for d in shown.deliveries] == [m for m in federation.ids[:5] if m != member]
        for d in shown.deliveries:
            assert verify(d.header.box_root, d.box, place, 6, d.box_path)
            assert verify(d.header.commitment_root, d.row, 1 + place, 7, d.row_path)
    assert federation.phase.request_for("eve") is None


def test_all_receipts_lead_to_the_proposal(federation: Federation) -> None:
    phase = received(federation, *(receipt(federation, m) for m in federation.ids[:5]))
    assert isinstance(phase, Checking)
    assert phase.waiting_for() == ("member-5",)
    assert phase.request_for("member-0") is None
    freezing = phase.receive(receipt(federation, "member-5"), federation.now_s)
    assert isinstance(freezing, Freezing)
    assert freezing.checkers == federation.ids
    assert tuple(s.member for s in freezing.survivors) == federation.ids[:5]


def test_at_the_deadline_a_threshold_of_receipts_is_enough(federation: Federation) -> None:
    phase = received(federation, *(receipt(federation, m) for m in federation.ids[:4]))
    freezing = phase.expire(federation.now_s)
    assert isinstance(freezing, Freezing)
    assert freezing.checkers == federation.ids[:4]


def test_at_the_deadline_fewer_void_the_attempt_and_name_the_missing(federation: Federation) -> None:
    phase = received(federation, *(receipt(federation, m) for m in federation.ids[:3]))
    voiding = phase.expire(federation.now_s)
    assert isinstance(voiding, Voiding)
    assert voiding.fault.cause is Cause.QUORUM_LOST
    assert voiding.fault.parties == ("member-3", "member-4", "member-5")
    assert voiding.fault.detail == "3 receipts, the threshold is 4"


def test_a_complaint_voids_the_attempt_and_names_both_ends(federation: Federation) -> None:
    honest = [receipt(federation, m) for m in federation.ids if m != "member-2"]
    dealers = ("member-0", "member-1", "member-4")
    phase = received(
        federation, *honest, receipt(federation, "member-2", dealers=dealers, complaints=("member-3",))
    )
    assert isinstance(phase, Voiding)
    assert phase.fault.cause is Cause.BOX_REFUSED
    assert phase.fault.parties == ("member-3", "member-2")


@pytest.mark.parametrize(
    ("dealers", "complaints"),
    [
        ((), ()),
        (("member-1", "member-2", "member-3"), ()),
        (("member-0", "member-1", "member-2", "member-3", "member-4"), ()),
        (("member-1", "member-2", "member-3", "member-4", "member-5"), ()),
        (("member-1", "member-2", "member-3", "member-4"), ("member-4",)),
        (("member-1", "member-2", "member-3", "member-4"), ("sybil",)),
        (("member-1", "member-2", "member-3", "member-4", "sybil"), ("sybil",)),
        (("member-0", "member-1", "member-2", "member-3", "member-4"), ("member-0",)),
        (("member-1", "member-2", "member-3", "member-4", "member-5"), ("member-5",)),
    ],
)
def test_a_receipt_is_about_the_boxes_that_were_sent_each_once(
    federation: Federation, dealers: tuple[str, ...], complaints: tuple[str, ...]
) -> None:
    # the last three name one dealer on both lists: a decryptor could frame somebody it was sent nothing of
    with pytest.raises(PeerFault, match=r"^malformed: member-0's receipt does not cover .*\[member-0\]$"):
        received(federation, receipt(federation, "member-0", dealers=dealers, complaints=complaints))


def test_a_receipt_of_another_context_is_refused(federation: Federation) -> None:
    with pytest.raises(PeerFault, match=r"^wrong-context: .*\[member-0\]$"):
        received(federation, receipt(federation, "member-0", context=bytes(32)))


def test_a_receipt_in_anothers_name_is_refused(federation: Federation) -> None:
    with pytest.raises(PeerFault, match=r"^bad-signature: .*\[member-0\]$"):
        received(federation, receipt(federation, "member-0", federation.keys["member-1"]))
    changed = replace(receipt(federation, "member-0"), complaints=("member-1",))
    with pytest.raises(PeerFault, match=r"^bad-signature: .*\[member-0\]$"):
        received(federation, changed)


def test_a_strangers_receipt_is_refused(federation: Federation) -> None:
    with pytest.raises(PeerFault, match=r"^not-a-decryptor: .*\[sybil\]$"):
        received(federation, receipt(federation, "sybil", SigningKey(bytes(32))))


def test_a_member_who_is_no_decryptor_sends_no_receipt() -> None:
    federation = Federation(6, decryptors=(0, 1, 2, 3))
    federation.begin(terms=federation.terms(8))
    phase = federation.run_until(Checking)
    assert phase.request_for("member-5") is None
    with pytest.raises(PeerFault, match=r"^not-a-decryptor: .*\[member-5\]$"):
        received(federation, receipt(federation, "member-5"))


def test_the_same_receipt_again_changes_nothing(federation: Federation) -> None:
    phase = received(federation, receipt(federation, "member-0"))
    assert phase.receive(receipt(federation, "member-0"), federation.now_s) is phase


def test_a_second_receipt_is_a_conflict(federation: Federation) -> None:
    first = receipt(federation, "member-0")
    second = receipt(
        federation, "member-0", dealers=("member-1", "member-2", "member-3"), complaints=("member-4",)
    )
    with pytest.raises(PeerFault, match=r"^conflict: member-0 has sent another receipt before \[member-0\]$"):
        received(federation, first, second)


def test_trees_are_made_once_whatever_receipts_come(federation: Federation) -> None:
    federation.phase.request_for("member-5")
    after = received(federation, receipt(federation, "member-0"))
    assert isinstance(federation.phase, Checking)
    assert isinstance(after, Checking)
    made = dict(federation.phase.trees)
    assert len(made) == 5
    after.request_for("member-1")
    assert all(after.trees[digest] is trees for digest, trees in made.items())
    assert len(after.trees) == 5
