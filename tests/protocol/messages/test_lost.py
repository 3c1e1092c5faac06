from collections.abc import Callable
from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest

from protocol.errors import PeerFault
from protocol.identity import SigningKey
from protocol.messages import (
    Ledger,
    Lost,
    Message,
    Past,
    Report,
    ReportRequest,
    SurvivorSet,
    closing_hash,
    survivors_hash,
)
from tests.protocol.messages.wire import CONTEXT, SURVIVOR, SURVIVOR_HEX, h

KEY = SigningKey(b"\xad" * 32)

REQUEST = ReportRequest(context=CONTEXT)
REQUEST_WIRE = bytes.fromhex("02" + "10" + "c7" * 32)  # version, kind: report request, context

SET = SurvivorSet((SURVIVOR,))
REPORT = Report(context=CONTEXT, member="bob", sets=(SET,), signature=b"\x5e" * 64)
REPORT_HEX = "".join(
    (
        "c7" * 32,  # context
        "03626f62",  # member: "bob"
        "01000000",  # sets: one
        "01000000" + SURVIVOR_HEX,  # its survivors: one
        "5e" * 64,  # signature
    )
)
REPORT_WIRE = bytes.fromhex("02" + "11" + REPORT_HEX)  # version, kind: report, fields

NOTHING = Report(context=CONTEXT, member="cat", sets=(), signature=b"\x5f" * 64)
NOTHING_HEX = "".join(
    (
        "c7" * 32,  # context
        "03636174",  # member: "cat"
        "00000000",  # sets: it signed none
        "5f" * 64,  # signature
    )
)
NOTHING_WIRE = bytes.fromhex("02" + "11" + NOTHING_HEX)  # version, kind: report, fields

LOST = Lost(context=CONTEXT, reports=(REPORT, NOTHING), signature=b"\x60" * 64)
LOST_WIRE = bytes.fromhex(
    "".join(
        (
            "02",  # version
            "12",  # kind: lost
            "c7" * 32,  # context
            "02000000" + REPORT_HEX + NOTHING_HEX,  # reports: two
            "60" * 64,  # signature
        )
    )
)


@pytest.mark.parametrize(
    ("message", "wire"),
    [(REQUEST, REQUEST_WIRE), (REPORT, REPORT_WIRE), (NOTHING, NOTHING_WIRE), (LOST, LOST_WIRE)],
    ids=["report-request", "report", "report-of-nothing", "lost"],
)
def test_on_the_wire(message: Message, wire: bytes, strict: Callable[[Message, bytes], None]) -> None:
    strict(message, wire)


def test_a_decryptor_reports_one_set_at_most_and_none_of_nobody() -> None:
    at = REPORT_WIRE.index(b"\x03bob") + 4
    with pytest.raises(PeerFault, match=r"^oversized: a list of 2 items, at most 1"):
        Report.from_bytes(REPORT_WIRE[:at] + b"\x02" + REPORT_WIRE[at + 1 :])
    with pytest.raises(PeerFault, match=r"^malformed: a set of survivors has none"):
        Report.from_bytes(replace(REPORT, sets=(SurvivorSet(()),)).to_bytes())


def test_a_decryptor_that_reports_twice_is_refused() -> None:
    with pytest.raises(PeerFault, match=r"^malformed: a list is not in ascending order"):
        Lost.from_bytes(LOST_WIRE.replace(b"\x03cat", b"\x03bob"))


def test_report_and_loss_are_signed_in_every_field() -> None:
    assert REPORT.digest == h(b"report", REPORT_WIRE[:-64])
    assert LOST.digest == h(b"lost", LOST_WIRE[:-64])
    made = Lost.make(KEY, context=CONTEXT, reports=(REPORT,))
    made.verify(KEY.public, "admin")
    changes: list[dict[str, Any]] = [{"context": bytes(32)}, {"reports": ()}, {"reports": (REPORT, NOTHING)}]
    for change in changes:
        with pytest.raises(PeerFault, match=r"^bad-signature: .*\[admin\]$"):
            replace(made, **change).verify(KEY.public, "admin")


def reported(*sets: SurvivorSet, reports_min: int = 1) -> Past:
    """What is left of an attempt whose decryptors report these sets, one each."""
    reports = tuple(replace(REPORT, member=f"m{place}", sets=(each,)) for place, each in enumerate(sets))
    return replace(LOST, reports=(*reports, replace(NOTHING, member="none"))).past(reports_min)


def test_every_set_reported_counts_once_in_the_order_of_its_hash() -> None:
    sets = [SurvivorSet((replace(SURVIVOR, member=name),)) for name in ("ann", "bob", "cat")]
    hashes = sorted(survivors_hash(CONTEXT, each.survivors) for each in sets)
    pasts = {reported(*order, sets[0]).closing for order in permutations(sets)}
    assert pasts == {closing_hash(CONTEXT, "lost", hashes)}
    past = reported(*sets)
    assert past.reason == "lost"
    assert sorted(past.sets, key=sets.index) == sets
    wire = Ledger(b"\xf0" * 32, (), (past,)).to_bytes()
    assert Ledger.from_bytes(wire).history == (past,)


def test_sets_that_too_few_report_do_not_count() -> None:
    ann, bob, cat = (SurvivorSet((replace(SURVIVOR, member=name),)) for name in ("ann", "bob", "cat"))
    assert reported(ann, bob, ann, cat, bob, ann, reports_min=3).sets == (ann,)
    assert reported(ann, bob, ann, cat, bob, ann, reports_min=4).sets == ()


def test_where_nobody_signed_nothing_was_opened() -> None:
    assert reported() == Past(CONTEXT, "lost", ())
    assert reported().closing == h(b"closing", CONTEXT, b"lost")
