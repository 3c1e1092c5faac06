import operator
from collections.abc import Callable

from protocol.messages import Ledger, Link, Message, Opening, Past
from protocol.simulator import Federation
from tests.protocol.messages.wire import CONTEXT

LEDGER = Ledger(
    federation=b"\xf0" * 32,
    links=(
        Link(
            cohort=b"\xcc" * 32,
            sequence=1,
            attempt=2,
            family="noisy",
            floor=7,
            context=CONTEXT,
            closing=b"\x0c" * 32,
        ),
    ),
    history=(Past(context=CONTEXT, reason="cancelled", sets=()),),
)
WIRE = bytes.fromhex(
    "".join(
        (
            "03",  # version
            "17",  # kind: ledger
            "f0" * 32,  # federation
            "01000000",  # links: one
            "cc" * 32,  # its cohort
            "0100000000000000",  # sequence
            "02",  # attempt
            "05" + "6e6f697379",  # family: "noisy"
            "07000000",  # floor
            "c7" * 32,  # context
            "0c" * 32,  # closing
            "01000000",  # history: one
            "c7" * 32,  # its context
            "09" + "63616e63656c6c6564",  # reason: "cancelled"
            "00000000",  # sets: none, it is VOID
        )
    )
)


def test_on_the_wire(strict: Callable[[Message, bytes], None]) -> None:
    strict(LEDGER, WIRE)


def test_attempts_that_many_messages_name_are_one_object_each() -> None:
    federation = Federation(4)
    federation.run_round()
    federation.run_round()
    first, second = (
        Ledger.from_bytes(
            Ledger(federation.roster.federation, federation.links, federation.history).to_bytes()
        )
        for _ in range(2)
    )
    assert first == second
    assert all(map(operator.is_, first.links + first.history, second.links + second.history))
    opening = Opening.from_bytes(federation.opening(federation.terms(8)).to_bytes())
    assert all(map(operator.is_, opening.links, first.links))
    assert first.links[0] is not first.links[1]
    assert first.links[0] is not federation.links[0]  # made, not decoded
