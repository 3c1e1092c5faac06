from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.support.simulator import Federation
from veilsum.protocol.coordinator import Checking
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.member import Checked, MemberPhase
from veilsum.protocol.messages import (
    Deliveries,
    Delivery,
    Message,
    Receipt,
    Survivor,
    Upload,
    deliveries_hash,
)
from veilsum.protocol.shamir import PRIME
from veilsum.protocol.shelf import MemoryShelf, Trees

Answer = Callable[[Federation, str, Message], tuple[MemberPhase, tuple[Message, ...]]]
OTHERS = ("member-1", "member-2", "member-3", "member-4")


def checking(federation: Federation) -> Deliveries:
    """Drive to the receipts and return what member-0 is shown."""
    federation.begin()
    phase = federation.run_until(Checking)
    assert isinstance(phase, Checking)
    deliveries = phase.request_for("member-0")
    assert isinstance(deliveries, Deliveries)
    return deliveries


@pytest.fixture
def federation() -> Federation:
    return Federation(5)


@pytest.fixture
def deliveries(federation: Federation) -> Deliveries:
    return checking(federation)


def changed(deliveries: Deliveries, index: int, **changes: Any) -> Deliveries:
    listed = list(deliveries.deliveries)
    listed[index] = replace(listed[index], **changes)
    return replace(deliveries, deliveries=tuple(listed))


def receipt(answer: Answer, federation: Federation, deliveries: Deliveries) -> Receipt:
    phase, replies = answer(federation, "member-0", deliveries)
    assert isinstance(phase, Checked)
    assert replies == phase.outbox() == (phase.receipt,)
    phase.receipt.verify(federation.keys["member-0"].public, "member-0")
    return phase.receipt


def test_a_decryptor_opens_every_box_and_says_so(
    federation: Federation, deliveries: Deliveries, answer: Answer
) -> None:
    assert tuple(delivery.member for delivery in deliveries.deliveries) == OTHERS
    said = receipt(answer, federation, deliveries)
    assert (said.dealers, said.complaints) == (OTHERS, ())


def test_what_is_kept_is_pinned_to_the_upload_it_came_from(
    federation: Federation, deliveries: Deliveries, answer: Answer
) -> None:
    phase, _ = answer(federation, "member-0", deliveries)
    assert isinstance(phase, Checked)
    assert [dealt.survivor for dealt in phase.opened] == [
        Survivor.of(delivery.header) for delivery in deliveries.deliveries
    ]
    assert {len(dealt.shares) for dealt in phase.opened} == {5 * 36}


def test_no_deliveries_give_an_empty_receipt(
    federation: Federation, deliveries: Deliveries, answer: Answer
) -> None:
    said = receipt(answer, federation, replace(deliveries, deliveries=()))
    assert (said.dealers, said.complaints) == ((), ())


def test_deliveries_of_another_context_are_refused(
    federation: Federation, deliveries: Deliveries, answer: Answer
) -> None:
    with pytest.raises(PeerFault, match=r"^wrong-context: .*\[coordinator\]$"):
        answer(federation, "member-0", replace(deliveries, context=bytes(32)))


def test_a_member_that_is_no_decryptor_opens_nothing(answer: Answer) -> None:
    federation = Federation(5, decryptors=(1, 2, 3, 4))
    federation.begin()
    federation.run_until(Checking)
    with pytest.raises(PeerFault, match=r"^not-a-decryptor: .*\[member-0\]$"):
        answer(federation, "member-0", Deliveries(federation.phase.attempt.context, ()))


def test_an_upload_of_another_context_is_refused(
    federation: Federation, deliveries: Deliveries, answer: Answer, resign: Callable[..., Upload]
) -> None:
    upload = uploads(federation)["member-1"]
    replayed = resign(federation, upload, context=bytes(32)).header
    with pytest.raises(PeerFault, match=r"^wrong-context: .*\[member-1\]$"):
        answer(federation, "member-0", changed(deliveries, 0, header=replayed))


def uploads(federation: Federation) -> dict[str, Upload]:
    held = {member: phase.outbox() for member, phase in federation.phases.items()}
    return {m: sent for m, outbox in held.items() for sent in outbox if isinstance(sent, Upload)}


def test_a_strangers_upload_is_refused(
    federation: Federation, deliveries: Deliveries, answer: Answer
) -> None:
    header = replace(deliveries.deliveries[3].header, member="sybil")
    with pytest.raises(PeerFault, match=r"^unknown-member: .*\[sybil\]$"):
        answer(federation, "member-0", changed(deliveries, 3, header=header))


@pytest.mark.parametrize("field", ["salt", "chunk_root", "signature"])
def test_a_header_that_its_member_did_not_sign_is_refused_without_a_complaint(
    federation: Federation, deliveries: Deliveries, answer: Answer, field: str
) -> None:
    header = deliveries.deliveries[2].header
    change: dict[str, Any] = {field: b"\x01" * len(getattr(header, field))}
    forged = replace(header, **change)
    with pytest.raises(PeerFault, match=r"^bad-signature: .*\[member-3\]$"):
        answer(federation, "member-0", changed(deliveries, 2, header=forged))


def test_a_box_of_its_own_is_refused(federation: Federation, deliveries: Deliveries, answer: Answer) -> None:
    own = replace(deliveries.deliveries[0], header=uploads(federation)["member-0"].header)
    with pytest.raises(PeerFault, match=r"^malformed: a decryptor is sent a box of its own \[coordinator\]$"):
        answer(federation, "member-0", replace(deliveries, deliveries=(own,)))


def test_all_headers_are_looked_at_before_any_path(
    federation: Federation, deliveries: Deliveries, answer: Answer
) -> None:
    forged = replace(deliveries.deliveries[2].header, salt=bytes(32))
    both = changed(changed(deliveries, 0, box_path=()), 2, header=forged)
    with pytest.raises(PeerFault, match=r"^bad-signature: .*\[member-3\]$"):
        answer(federation, "member-0", both)


def flipped(data: bytes) -> bytes:
    return bytes([data[0] ^ 1]) + data[1:]


def another_place(federation: Federation, deliveries: Deliveries) -> dict[str, dict[str, Any]]:
    """How a coordinator may show a box or row that is not the one signed for this decryptor."""
    delivery = deliveries.deliveries[0]
    other = federation.phase.request_for("member-2")
    assert isinstance(other, Deliveries)
    theirs = next(d for d in other.deliveries if d.member == "member-1")
    return {
        "box changed": {"box": flipped(delivery.box)},
        "box cut": {"box": delivery.box[:-1]},
        "box empty": {"box": b""},
        "box for another decryptor": {"box": theirs.box},
        "box for another decryptor by its path": {"box": theirs.box, "box_path": theirs.box_path},
        "box path changed": {"box_path": (flipped(delivery.box_path[0]), *delivery.box_path[1:])},
        "box path cut": {"box_path": delivery.box_path[:-1]},
        "box path longer": {"box_path": (*delivery.box_path, bytes(32))},
        "no box path": {"box_path": ()},
        "row changed": {"row": flipped(delivery.row)},
        "row cut": {"row": delivery.row[:-16]},
        "row of another decryptor by its path": {"row": theirs.row, "row_path": theirs.row_path},
        "row path changed": {"row_path": (flipped(delivery.row_path[0]), *delivery.row_path[1:])},
        "row path longer": {"row_path": (*delivery.row_path, bytes(32))},
        "no row path": {"row_path": ()},
    }


@pytest.mark.parametrize("how", list(another_place(*(f := Federation(5), checking(f)))))
def test_a_tampered_box_is_the_coordinators_fault_and_no_complaint(
    federation: Federation, deliveries: Deliveries, answer: Answer, how: str
) -> None:
    shown = changed(deliveries, 0, **another_place(federation, deliveries)[how])
    with pytest.raises(PeerFault, match=r"^chunk-mismatch: the box shown for member-1 .*\[coordinator\]$"):
        answer(federation, "member-0", shown)


def test_boxes_swapped_between_dealers_are_refused(
    federation: Federation, deliveries: Deliveries, answer: Answer
) -> None:
    one, two, *rest = deliveries.deliveries

    def swap(to: Delivery, by: Delivery) -> Delivery:
        return replace(by, header=to.header)

    with pytest.raises(PeerFault, match=r"^chunk-mismatch: .*\[coordinator\]$"):
        answer(
            federation,
            "member-0",
            replace(deliveries, deliveries=(swap(one, two), swap(two, one), *rest)),
        )


# What a cheating dealer signs: a complaint


def shifted(shares: bytes) -> bytes:
    """Other shares, each in the field."""
    word = int.from_bytes(shares[:4], "little")
    return ((word + 1) % PRIME).to_bytes(4, "little") + shares[4:]


def unreduced(shares: bytes) -> bytes:
    """The same field element as a word that is not below p, or p for zero."""
    return PRIME.to_bytes(4, "little") + shares[4:]


CHEATS: dict[str, tuple[Callable[[bytes], bytes], bool]] = {
    "shares that miss their commitments": (shifted, False),
    "shares in another order": (lambda shares: shares[36:] + shares[:36], False),
    "shares that are not canonical": (unreduced, True),
    "a share too few": (lambda shares: shares[:-36], True),
    "a share too many": (lambda shares: shares + bytes(36), True),
    "half a share": (lambda shares: shares[:-1], True),
    "no shares": (lambda shares: b"", True),
}


@pytest.mark.parametrize("how", CHEATS)
def test_a_bad_box_is_a_complaint_and_the_others_stand(
    federation: Federation, answer: Answer, redeal: Callable[..., Upload], how: str
) -> None:
    edit, commit = CHEATS[how]
    deliveries = checking(federation)
    true = uploads(federation)["member-3"]
    cheat = redeal(
        federation, true, lambda who, shares: edit(shares) if who == "member-0" else shares, commit=commit
    )
    shelf = MemoryShelf()
    for upload in (*uploads(federation).values(), cheat):
        shelf.put(upload, Trees.of(upload))
    setting = replace(federation.phase.setting, shelf=shelf)
    shown = replace(federation.phase, setting=setting).request_for("member-0")
    assert isinstance(shown, Deliveries)
    assert shown.context == deliveries.context
    said = receipt(answer, federation, shown)
    assert said.complaints == ("member-3",)
    assert said.dealers == ("member-1", "member-2", "member-4")


def test_a_box_sealed_under_another_salt_is_a_complaint(
    federation: Federation, deliveries: Deliveries, answer: Answer, resign: Callable[..., Upload]
) -> None:
    header = resign(federation, uploads(federation)["member-4"], salt=bytes(32)).header
    assert receipt(answer, federation, changed(deliveries, 3, header=header)).complaints == ("member-4",)


def test_a_complaint_discloses_nothing(
    federation: Federation, deliveries: Deliveries, answer: Answer, resign: Callable[..., Upload]
) -> None:
    header = resign(federation, uploads(federation)["member-4"], salt=bytes(32)).header
    phase, _ = answer(federation, "member-0", changed(deliveries, 3, header=header))
    assert isinstance(phase, Checked)
    body = phase.receipt.encode_fields(without="signature")
    names = b"".join(bytes((len(m),)) + m.encode() for m in ("member-1", "member-2", "member-3"))
    assert body == (
        deliveries.context
        + b"\x08member-0"
        + phase.receipt.uploads
        + b"\x03\0\0\0"
        + names
        + b"\x01\0\0\0"
        + b"\x08member-4"
    )


def test_a_receipt_binds_the_uploads_that_were_delivered(
    federation: Federation, deliveries: Deliveries, answer: Answer, resign: Callable[..., Upload]
) -> None:
    first = receipt(answer, federation, deliveries)
    digests = [delivery.header.digest for delivery in deliveries.deliveries]
    assert first.uploads == deliveries_hash(deliveries.context, digests)
    # the same dealer's other upload, of the same shares
    header = resign(federation, uploads(federation)["member-4"], chunk_root=b"R" * 32).header
    other = receipt(answer, federation, changed(deliveries, 3, header=header))
    assert (other.dealers, other.complaints) == (first.dealers, first.complaints)
    assert other.uploads != first.uploads
