"""Changes to a log are found and named."""

import hashlib
from collections.abc import Callable

import pytest

from veilsum.protocol.audit import (
    EMPTY_LOG_END,
    AuditEntry,
    AuditHead,
    End,
    chain_entry,
    check_end,
    follow_entries,
)
from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.identity import SigningKey

KEY = SigningKey(bytes(range(32)))


def log(entries: int, what: str = "POST /v1/x") -> list[AuditEntry]:
    made, end = list[AuditEntry](), EMPTY_LOG_END
    for number in range(entries):
        made.append(chain_entry(end, 1000 + number, "member a", what, f"n={number}", "done"))
        end = End(made[-1].number, made[-1].head)
    return made


def broken(match: str, work: Callable[[], object]) -> None:
    with pytest.raises(PeerFault, match=match) as caught:
        work()
    assert caught.value.cause is Cause.AUDIT_BROKEN


def test_the_bytes_of_an_entry() -> None:
    [entry] = log(1)
    canonical = (
        '{"action":"POST /v1/x","at_ms":1000,"number":1,"on":"n=0","outcome":"done","previous":"'
        + "0" * 64
        + '","who":"member a"}'
    )
    assert entry.head == hashlib.sha256(b"veilsum/audit/1\0" + canonical.encode()).hexdigest()


def test_a_whole_log_holds_and_so_do_its_parts() -> None:
    entries = log(6)
    end = follow_entries(entries)
    assert end == End(6, entries[-1].head)
    assert follow_entries(entries[3:], End(3, entries[2].head)) == end
    assert follow_entries([]) == EMPTY_LOG_END
    check_end(end, end)


@pytest.mark.parametrize("field", ["at_ms", "who", "action", "on", "outcome", "head"])
def test_a_changed_entry_is_named(field: str) -> None:
    entries = log(6)
    value = 7 if field == "at_ms" else "ab" * 32
    entries[3] = entries[3].model_copy(update={field: value})
    broken("entry 4 is not what was written", lambda: follow_entries(entries))


def test_a_removed_a_repeated_and_a_moved_entry_are_named() -> None:
    entries = log(6)
    broken("entry 5 stands where entry 4 belongs", lambda: follow_entries([*entries[:3], *entries[4:]]))
    broken("entry 3 stands where entry 4 belongs", lambda: follow_entries([*entries[:3], *entries[2:]]))
    moved = [*entries[:2], entries[3], entries[2], *entries[4:]]
    broken("entry 4 stands where entry 3 belongs", lambda: follow_entries(moved))
    renumbered = [*entries[:3], entries[4].model_copy(update={"number": 4})]
    broken("entry 4 is not what was written", lambda: follow_entries(renumbered))


def test_a_cut_off_end_and_another_log_are_named() -> None:
    entries = log(6)
    known = follow_entries(entries)
    broken("ends at entry 4, and had 6", lambda: check_end(follow_entries(entries[:4]), known))
    broken("entry 6 has another head", lambda: check_end(follow_entries(log(6, "GET /v1/y")), known))
    broken("written anew", lambda: check_end(End(7, entries[5].head), known))


def test_a_head_is_the_coordinator_s() -> None:
    AuditHead.sign_end(KEY, EMPTY_LOG_END).verify(KEY.public)
    head = AuditHead.sign_end(KEY, End(6, "ab" * 32))
    head.verify(KEY.public)
    for changed in (head.model_copy(update={"number": 5}), head.model_copy(update={"head": "cd" * 32})):
        with pytest.raises(PeerFault, match="does not verify"):
            changed.verify(KEY.public)
    with pytest.raises(PeerFault, match="does not verify"):
        head.verify(SigningKey(bytes(32)).public)
