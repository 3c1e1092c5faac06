from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from protocol.errors import Misuse, PeerFault
from protocol.identity import SigningKey
from protocol.messages import Entry, Message, Roster, cohort_id

ADMIN = SigningKey(b"\xad" * 32)

ROSTER = Roster(
    version_number=7,
    federation=b"\xf0" * 32,
    coordinator=b"\xc0" * 32,
    members=(Entry("ann", b"\xa1" * 32), Entry("bob", b"\xb2" * 32)),
    decryptors=("bob",),
    extractors=(b"\xe1" * 32,),
    readers=("ann",),
    withhold=1,
    signature=b"\x5e" * 64,
)
WIRE = bytes.fromhex(
    "".join(
        (
            "03",  # version
            "01",  # kind: roster
            "0700000000000000",  # version_number
            "f0" * 32,  # federation
            "c0" * 32,  # coordinator
            "02000000",  # members: two
            "03616e6e" + "a1" * 32,  # "ann", her key
            "03626f62" + "b2" * 32,  # "bob", his key
            "01000000" + "03626f62",  # decryptors: "bob"
            "01000000" + "e1" * 32,  # extractors
            "01000000" + "03616e6e",  # readers: "ann"
            "01",  # withhold
            "5e" * 64,  # signature
        )
    )
)


def signed(key: SigningKey = ADMIN, **changes: Any) -> Roster:
    values = {name: getattr(ROSTER, name) for name, _ in Roster.codecs() if name != "signature"}
    return Roster.make(key, **{**values, "federation": ADMIN.public, **changes})


def test_on_the_wire(strict: Callable[[Message, bytes], None]) -> None:
    strict(ROSTER, WIRE)


def test_known_hash_and_cohort_id() -> None:
    assert ROSTER.hash.hex() == "8fd2bb3125f3edaebb3fb63991a42c582b475c71aa15f8d6097da5622279f689"
    assert (
        cohort_id(ROSTER.hash, 3).hex() == "c9f5084359a374cda7931284063dae651037f123da4f535c7f99ecda7cc79acf"
    )


def test_known_signature() -> None:
    assert signed().signature.hex() == (
        "13bac6be4d5995ea012cfcafb93e410f9c740d808a08d0251fa6441857465db8"
        "4d34e7c2b6f5f19d5e62627bfb0fa83a0586a8895937caed755de8ecb771ce0d"
    )


@pytest.mark.parametrize(
    "change",
    [
        {"version_number": 8},
        {"coordinator": bytes(32)},
        {"members": (*ROSTER.members, Entry("eve", bytes(32)))},
        {"decryptors": ("ann",)},
        {"extractors": (bytes(32),)},
        {"readers": ("bob",)},
        {"withhold": 0},
    ],
    ids=lambda change: next(iter(change)),
)
def test_every_field_is_signed(change: dict[str, Any]) -> None:
    signed().verify_admin(ADMIN.public)
    with pytest.raises(PeerFault, match=r"^bad-signature: .*\[admin\]$"):
        replace(signed(), **change).verify_admin(ADMIN.public)


def test_a_roster_that_names_another_admin_is_of_another_federation() -> None:
    with pytest.raises(PeerFault, match=r"^wrong-federation:"):
        signed().verify_admin(bytes(32))


def test_a_roster_that_another_key_signed_is_refused() -> None:
    with pytest.raises(PeerFault, match=r"^bad-signature: .*\[admin\]$"):
        signed(SigningKey(bytes(32))).verify_admin(ADMIN.public)


def test_a_roster_rolled_back_is_refused_and_the_same_version_is_not() -> None:
    signed().verify_admin(ADMIN.public, version_seen=7)
    with pytest.raises(PeerFault, match=r"^roster-rollback: .*version 7, version 8"):
        signed().verify_admin(ADMIN.public, version_seen=8)


def test_two_members_with_one_key_are_refused() -> None:
    twice = replace(ROSTER, members=(Entry("ann", bytes(32)), Entry("bob", bytes(32))))
    with pytest.raises(PeerFault, match=r"^duplicate: .*\[admin\]$"):
        Roster.from_bytes(twice.to_bytes())


@pytest.mark.parametrize("field", ["decryptors", "readers"])
def test_a_stranger_with_a_role_is_refused(field: str) -> None:
    wrong = replace(ROSTER, **{field: ("eve",)})  # type: ignore[arg-type]  # the names are its own
    with pytest.raises(PeerFault, match=r"^unknown-member: .*\[eve\]$"):
        Roster.from_bytes(wrong.to_bytes())


def test_withholding_is_on_or_off() -> None:
    waived = replace(ROSTER, withhold=0)
    assert Roster.from_bytes(waived.to_bytes()) == waived
    for other in (2, 255):
        with pytest.raises(PeerFault, match=rf"^malformed: withhold is {other}: 0 or 1 \[admin\]$"):
            Roster.from_bytes(replace(ROSTER, withhold=other).to_bytes())


def test_members_out_of_order_are_refused() -> None:
    wire = WIRE.replace(b"\x03ann" + b"\xa1" * 32, b"\x03cat" + b"\xa1" * 32)
    with pytest.raises(PeerFault, match=r"^malformed: a list is not in ascending order"):
        Roster.from_bytes(wire)
    with pytest.raises(Misuse, match="ascending"):
        replace(ROSTER, members=ROSTER.members[::-1]).to_bytes()


def test_a_claim_of_too_many_members_is_refused_before_they_are_read() -> None:
    at = 2 + 8 + 64
    wire = WIRE[:at] + (100_001).to_bytes(4, "little") + WIRE[at + 4 :]
    with pytest.raises(PeerFault, match=r"^oversized: a list of 100001 items"):
        Roster.from_bytes(wire)


def test_a_members_key_is_found_and_a_strangers_is_not() -> None:
    assert ROSTER.key_of("bob") == b"\xb2" * 32
    with pytest.raises(PeerFault, match=r"^unknown-member: eve is not in roster version 7 \[eve\]$"):
        ROSTER.key_of("eve")


@pytest.mark.parametrize("name", ["admin", "coordinator", "operator"])
def test_no_member_is_called_like_another_party(name: str) -> None:
    entries = tuple(sorted((*ROSTER.members, Entry(name, b"\x99" * 32)), key=lambda entry: entry.member))
    with pytest.raises(PeerFault, match=rf"^malformed: no member can be called {name} \[admin\]$"):
        Roster.from_bytes(replace(ROSTER, members=entries).to_bytes())
