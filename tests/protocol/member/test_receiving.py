from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.support.forging import redeal
from tests.support.refusals import refused
from tests.support.simulator import Federation, of
from veilsum.protocol.coordinator import Checking
from veilsum.protocol.member import Checked
from veilsum.protocol.messages import Deliveries, Receipt, Upload
from veilsum.protocol.shamir import LIMB_PRIME
from veilsum.protocol.shelf import MemoryShelf, Trees


def checking(federation: Federation) -> Deliveries:
    """Drive the attempt to the receipts; return what member-0 is shown."""
    phase = federation.reach(Checking)
    return of(Deliveries, phase.request_for("member-0"))


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


def receipt(federation: Federation, deliveries: Deliveries) -> Receipt:
    phase, replies = federation.ask("member-0", deliveries, Checked)
    assert replies == phase.messages_to_resend() == (phase.receipt,)
    phase.receipt.verify(federation.keys["member-0"].public, "member-0")
    return phase.receipt


def uploads(federation: Federation) -> dict[str, Upload]:
    held = {member: phase.messages_to_resend() for member, phase in federation.phases.items()}
    return {m: sent for m, outbox in held.items() for sent in outbox if isinstance(sent, Upload)}


def test_all_headers_are_looked_at_before_any_path(federation: Federation, deliveries: Deliveries) -> None:
    forged = replace(deliveries.deliveries[2].header, salt=bytes(32))
    both = changed(changed(deliveries, 0, box_path=()), 2, header=forged)
    with refused("bad-signature", "member-3"):
        federation.ask("member-0", both)


# What a cheating dealer signs: a complaint


def shifted(shares: bytes) -> bytes:
    """Return other shares, each in the field."""
    word = int.from_bytes(shares[:4], "little")
    return ((word + 1) % LIMB_PRIME).to_bytes(4, "little") + shares[4:]


def unreduced(shares: bytes) -> bytes:
    """Return shares whose first word is p, which is not below p."""
    return LIMB_PRIME.to_bytes(4, "little") + shares[4:]


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
def test_a_bad_box_is_a_complaint_and_the_others_stand(federation: Federation, how: str) -> None:
    edit, commit = CHEATS[how]
    deliveries = checking(federation)
    true = uploads(federation)["member-3"]
    cheat = redeal(
        federation, true, lambda who, shares: edit(shares) if who == "member-0" else shares, commit=commit
    )
    shelf = MemoryShelf()
    for upload in (*uploads(federation).values(), cheat):
        shelf.store_announcement(upload, Trees.from_upload(upload))
    setting = replace(federation.phase.setting, shelf=shelf)
    shown = of(Deliveries, replace(federation.phase, setting=setting).request_for("member-0"))
    assert shown.context == deliveries.context
    said = receipt(federation, shown)
    assert said.complaints == ("member-3",)
    assert said.dealers == ("member-1", "member-2", "member-4")
