"""The wire of the helpers' mode, by literal bytes, and what a decoder refuses."""

import hashlib
import re
from dataclasses import replace
from pathlib import Path

import pytest

from protocol.causes import Cause
from protocol.errors import PeerFault
from protocol.helpers.client import Client, Spoken
from protocol.helpers.coordinator import Freezing, Recovered
from protocol.helpers.helper import HELPER_PHASES, load_helper
from protocol.helpers.messages import (
    HELPER_MESSAGES,
    ClientSet,
    Ended,
    HelperCard,
    HelperCertificate,
    HelperFreeze,
    HelperKind,
    HelperLost,
    HelperReceipt,
    HelperRefusal,
    HelperSums,
    HelperVoidRequest,
    HelperVote,
    parse,
    parse_shown,
    set_outcome,
)
from protocol.helpers.simulator import HelperFederation
from protocol.identity import SigningKey
from protocol.messages.base import Message
from protocol.messages.outcome import Survivor

CONTEXT, OUTCOME, KEY = b"\xc7" * 32, b"\x0a" * 32, SigningKey(b"\x01" * 32)
ANN = Survivor("ann", b"\x11" * 8, b"\x22" * 8, b"\xd6" * 32)
ANN_HEX = "03616e6e" + "11" * 8 + "22" * 8 + "d6" * 32  # id length and id, lineage, records, digest

WIRES: list[tuple[Message, str]] = [
    (
        HelperCard(cohort=b"\xc0" * 32, member="h-0", box_key=b"\x0b" * 32, expires_s=7, signature=bytes(64)),
        "0220" + "c0" * 32 + "03682d30" + "0b" * 32 + "0700000000000000" + "00" * 64,
    ),
    (
        HelperReceipt(
            context=CONTEXT, member="h-0", dealers=("ann",), complaints=("bob",), signature=bytes(64)
        ),
        "0224" + "c7" * 32 + "03682d30" + "0100000003616e6e" + "0100000003626f62" + "00" * 64,
    ),
    (HelperFreeze(CONTEXT, (ANN,)), "0225" + "c7" * 32 + "01000000" + ANN_HEX),
    (HelperVoidRequest(CONTEXT, "cancelled"), "0226" + "c7" * 32 + "0963616e63656c6c6564"),
    (
        HelperVote(context=CONTEXT, member="h-0", outcome=OUTCOME, signature=bytes(64)),
        "0227" + "c7" * 32 + "03682d30" + "0a" * 32 + "00" * 64,
    ),
    (
        HelperRefusal(context=CONTEXT, member="h-0", cause="x", signature=bytes(64)),
        "0228" + "c7" * 32 + "03682d30" + "0178" + "00" * 64,
    ),
    (
        HelperCertificate(CONTEXT, "exact", 7, (ANN,), "none", ()),
        "0229" + "c7" * 32 + "056578616374" + "07000000" + "01000000" + ANN_HEX + "046e6f6e65" + "00000000",
    ),
    (
        HelperSums(
            context=CONTEXT,
            member="h-0",
            outcome=OUTCOME,
            digests=((b"\x05" * 32,), ()),
            signature=bytes(64),
        ),
        "022a"
        + ("c7" * 32 + "03682d30" + "0a" * 32)
        + ("02000000" + "01000000" + "05" * 32 + "00000000")
        + "00" * 64,
    ),
    (
        HelperLost(context=CONTEXT, family="exact", floor=7, sets=(ClientSet((ANN,)),), signature=bytes(64)),
        "022b" + "c7" * 32 + "056578616374" + "07000000" + "01000000" + "01000000" + ANN_HEX + "00" * 64,
    ),
]


@pytest.mark.parametrize(("message", "wire"), WIRES, ids=[type(message).__name__ for message, _ in WIRES])
def test_known_answers(message: Message, wire: str) -> None:
    assert message.to_bytes().hex() == wire
    assert parse(bytes.fromhex(wire)) == message


def test_every_message_of_an_attempt_comes_back_as_it_was() -> None:
    seen: dict[int, Message] = {}

    def watch(_sender: str, message: Message) -> Message:
        seen.setdefault(message.kind, message)
        return message

    federation = HelperFederation(8, tamper=watch)
    outcome = federation.run(federation.terms(100))
    assert isinstance(outcome.phase, Recovered)
    seen[HelperKind.COUNTED] = outcome.phase.counted("client-0")
    assert set(seen) >= {kind for kind in HelperKind if kind not in {38, 40, 43}}
    for message in seen.values():
        assert parse(message.to_bytes()) == message
        assert message.version == 2


def test_kinds_stand_apart_from_the_main_mode_s() -> None:
    assert set(HELPER_MESSAGES) == set(HelperKind) == set(range(32, 45))
    stored = [*HELPER_PHASES, Client.kind, Spoken.kind]
    assert len(set(stored)) == len(stored)
    assert all(32 <= kind < 64 for kind in stored)


@pytest.mark.parametrize(
    ("wire", "cause"),
    [
        ("02", Cause.TRUNCATED),
        ("0120", Cause.UNKNOWN_VERSION),
        ("0201", Cause.UNKNOWN_MESSAGE),
        ("0220", Cause.TRUNCATED),
        (WIRES[4][1] + "00", Cause.LEFT_OVER_BYTES),
        ("0225" + "c7" * 32 + "02000000" + ANN_HEX * 2, Cause.MALFORMED),
        ("0225" + "c7" * 32 + "ffffffff", Cause.OVERSIZED),
        ("0226" + "c7" * 32 + "046e6f6e65", Cause.MALFORMED),
        ("0226" + "c7" * 32 + "046c6f7374", Cause.MALFORMED),
        (
            "0229" + "c7" * 32 + "056578616374" + "07000000" + "00000000" + "046e6f6e65" + "00000000",
            Cause.MALFORMED,
        ),
        (
            "0229" + "c7" * 32 + "056578616374" + "07000000" + "00000000" + "046c6f7374" + "00000000",
            Cause.MALFORMED,
        ),
        (
            "0229" + "c7" * 32 + "056578616374" + "07000000" + "01000000" + ANN_HEX + "0163" + "00000000",
            Cause.MALFORMED,
        ),
    ],
    ids=[
        "shorter than a header",
        "other version",
        "kind of the main mode",
        "truncated",
        "left over",
        "repeated survivor",
        "oversized",
        "void for no reason",
        "void as lost",
        "certificate of nothing",
        "certificate of lost",
        "certificate of both",
    ],
)
def test_a_decoder_refuses(wire: str, cause: Cause) -> None:
    with pytest.raises(PeerFault) as refused:
        parse(bytes.fromhex(wire))
    assert refused.value.cause == cause


def _h(name: str, *fields: bytes) -> bytes:
    text = b"veilsum/2/" + name.encode() + b"\0"
    return hashlib.sha256(text + b"".join(len(f).to_bytes(8, "little") + f for f in fields)).digest()


def test_no_more_is_read_than_a_roster_fills() -> None:
    longest = Survivor("m" * 64, b"\x11" * 8, b"\x22" * 8, b"\xd6" * 32)
    names = [f"{number:064}" for number in range(1_000)]
    freeze = HelperFreeze(CONTEXT, tuple(replace(longest, member=name) for name in names))
    assert parse_shown(freeze.to_bytes(), 1_000) == freeze

    beyond = bytes((2, HelperKind.DELIVERIES)) + bytes((1 << 18) + (1 << 10) * 6 - 1)
    with pytest.raises(PeerFault) as refused:
        parse_shown(beyond, 6)
    assert (refused.value.cause, refused.value.parties) == (Cause.OVERSIZED, ("coordinator",))
    with pytest.raises(PeerFault) as read:
        parse_shown(beyond[:-1], 6)
    assert read.value.cause is Cause.LEFT_OVER_BYTES


def test_an_outcome_binds_the_set_by_its_root() -> None:
    leaf = _h("merkle-leaf", bytes.fromhex(ANN_HEX))
    root = _h("merkle-root", (1).to_bytes(8, "little"), leaf)
    assert set_outcome(CONTEXT, "exact", 7, (ANN,)) == _h(
        "survivors", CONTEXT, b"exact", bytes((7, 0, 0, 0)), root
    )


def test_the_chain_binds_family_floor_reason_and_sets() -> None:
    outcome = set_outcome(CONTEXT, "exact", 7, (ANN,))
    ended = Ended(CONTEXT, "exact", 7, "none", (ClientSet((ANN,)),))
    assert ended.closing == _h("closing", CONTEXT, b"none", outcome)
    assert ended.extend(bytes(32)) == _h("link", bytes(32), ended.closing)
    others = [
        replace(ended, family="noisy"),
        replace(ended, floor=8),
        replace(ended, reason="lost"),
        replace(ended, sets=()),
        replace(ended, context=bytes(32)),
    ]
    assert len({other.extend(bytes(32)) for other in [ended, *others]}) == 6


def test_a_certificate_s_outcome_is_the_set_s_or_void_s() -> None:
    of_set = HelperCertificate(CONTEXT, "exact", 7, (ANN,), "none", ())
    void = HelperCertificate(CONTEXT, "exact", 7, (), "cancelled", ())
    assert (of_set.void, of_set.outcome) == (False, set_outcome(CONTEXT, "exact", 7, (ANN,)))
    assert (void.void, void.outcome) == (True, _h("void", CONTEXT, b"cancelled"))
    assert of_set.ended.sets == (ClientSet((ANN,)),)
    assert void.ended == Ended(CONTEXT, "exact", 7, "cancelled", ())


def test_stored_phases_come_back_as_they_were() -> None:
    federation = HelperFederation(8)
    federation.begin(federation.terms(100))
    federation.collect()
    federation.run_until(Freezing)
    for phase in federation.phases.values():
        assert load_helper(phase.to_bytes()) == phase
    spoken = federation.states["client-0"]
    assert isinstance(spoken, Spoken)
    assert Spoken.from_bytes(spoken.to_bytes()) == spoken
    assert Client.from_bytes(spoken.client.to_bytes()) == spoken.client


def test_the_page_has_the_kind_of_every_message_and_of_every_stored_phase() -> None:
    page = (Path(__file__).parents[3] / "docs/helpers.md").read_text("utf-8")
    listed = {
        name: int(kind) for kind, name in re.findall(r"^\| (\d+) \| (Helper\w+) \|", page, re.MULTILINE)
    }
    assert {form.__name__: form.kind for form in HELPER_MESSAGES.values()} == listed
    assert sorted(listed.values()) == sorted(HelperKind)
    assert "stored phases have kinds 32–37, clients 48–49" in page
    assert sorted(phase.kind for phase in HELPER_PHASES.values()) == list(range(32, 38))
    assert [Client.kind, Spoken.kind] == [48, 49]
