"""The audit log from the operator's side: fetched whole, kept in a file, checked."""

import re
from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from client_sdk.operator import Operator
from protocol.audit import START, AuditEntry, AuditPage, End, check_end, follow
from protocol.errors import Misuse


def fetch(client: Operator) -> AuditPage:
    """The whole log; PeerFault(audit-broken) where its pages do not follow each other."""
    entries, end = list[AuditEntry](), START
    while True:
        page = client.audit(end.number)
        end = follow(page.entries, end)
        entries.extend(page.entries)
        if not page.entries or end.number >= page.head.number:
            return AuditPage(entries=tuple(entries), head=page.head)


def load(path: Path) -> AuditPage:
    """A log that `export` wrote; Misuse for another file."""
    try:
        return AuditPage.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise Misuse(f"{path} is no audit log: `veilsum operator audit export` writes one") from error


def check(page: AuditPage, coordinator: bytes, known: Iterator[End] | tuple[End, ...] = ()) -> End:
    """Check a whole log against its own head and those noted before.

    Raises:
        PeerFault: audit-broken, naming what does not fit; bad-signature, where the head is not the coordinator's.
    """
    page.head.verify(coordinator)
    end = follow(page.entries)
    check_end(end, page.head.end)
    for each in known:
        shown = page.entries[each.number - 1] if 0 < each.number <= end.number else None
        check_end(End(shown.number, shown.head) if shown else end, each)
    return end


def noted(text: str) -> End:
    """A head as `veilsum operator audit verify` prints it, NUMBER:HASH; Misuse for anything else."""
    match = re.fullmatch(r"([0-9]{1,15}):([0-9a-f]{64})", text)
    if not match:
        raise Misuse("--head is NUMBER:HASH, as `veilsum operator audit verify` printed it")
    return End(int(match[1]), match[2])
