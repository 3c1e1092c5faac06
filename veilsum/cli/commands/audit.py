"""`veilsum operator audit`: export the audit log, and check that it is complete."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from veilsum.cli.console import print_values
from veilsum.cli.names import public_key
from veilsum.cli.options import Connect, at_coordinator
from veilsum.protocol.errors import Misuse

if TYPE_CHECKING:
    from client_sdk.operator import Operator
    from veilsum.protocol.audit import AuditPage, End

app = typer.Typer(
    help="Export and verify the audit log; takes a token with the scope 'audit'.", no_args_is_help=True
)


@app.command()
@at_coordinator(token=True)
def export(
    connect: Connect, output: Annotated[Path, typer.Argument(help="Where the log goes, a JSON file.")]
) -> None:
    """Fetch the whole log into a file, with its signed head."""
    with connect() as client:
        page = _fetch_log(client)
    output.write_text(page.model_dump_json(indent=1) + "\n", "utf-8")
    head = f"{page.head.number}:{page.head.head}"
    print_values(
        {"log": str(output), "entries": len(page.entries), "head": head}, "Audit log, not yet verified"
    )


@app.command()
@at_coordinator(token=True)
def verify(
    connect: Connect,
    log: Annotated[
        Path | None, typer.Argument(help="An exported log.", show_default="ask the coordinator")
    ] = None,
    head: Annotated[
        list[str] | None, typer.Option(help="A head from an earlier verification, NUMBER:HASH; repeat.")
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            "--coordinator-key", help="The coordinator's public key.", show_default="as the coordinator says"
        ),
    ] = None,
) -> None:
    """Check the hash chain from its first entry, or the signed position to which it was pruned, and that it contains each given head. Keep the head that this prints."""
    known = tuple(map(_parse_head, head or ()))
    if log is not None:
        if key is None:
            raise Misuse("a file is checked with --coordinator-key: rosters name it")
        page, signer = _load_log(log), key
    else:
        with connect() as client:
            page, signer = _fetch_log(client), key or client.coordinator().public_key
    end = check_log(page, bytes.fromhex(public_key(signer)), known)
    values = {
        "entries": len(page.entries),
        "begins_after": page.first_end.number,
        "complete": True,
        "noted_heads_found": len(known),
        "head": f"{end.number}:{end.head}",
    }
    print_values(values, "Audit log")


def check_log(page: "AuditPage", coordinator: bytes, known: "Iterable[End]" = ()) -> "End":
    """Check a whole log against its own head, the signed position at which it begins if it was pruned, and earlier heads.

    Raises:
        Misuse: an earlier head was pruned.
        PeerFault: audit-broken, naming what does not fit; bad-signature if the head is not the coordinator's.
    """
    from veilsum.protocol.audit import End, check_end, follow_entries

    page.head.verify(coordinator)
    if page.start is not None:
        page.start.verify(coordinator)
    first = page.first_end
    end = follow_entries(page.entries, first)
    check_end(end, page.head.end)
    for each in known:
        if each.number < first.number:
            raise Misuse(
                f"entry {each.number} is pruned, and the log begins after {first.number}: check that head with a log exported before the deletion"
            )
        if each == first:
            continue
        shown = page.entries[each.number - first.number - 1] if 0 < each.number <= end.number else None
        check_end(End(shown.number, shown.head) if shown else end, each)
    return end


def _fetch_log(client: "Operator") -> "AuditPage":
    """Fetch the whole log. Raises PeerFault(audit-broken) if its pages do not follow each other."""
    from veilsum.protocol.audit import EMPTY_LOG_END, AuditEntry, AuditPage, follow_entries

    entries, end, start = list[AuditEntry](), EMPTY_LOG_END, None
    while True:
        page = client.audit(end.number)
        if end.number < page.first_end.number:  # it was pruned, perhaps while it was fetched
            entries, end, start = [], page.first_end, page.start
        end = follow_entries(page.entries, end)
        entries.extend(page.entries)
        if not page.entries or end.number >= page.head.number:
            return AuditPage(entries=tuple(entries), head=page.head, start=start)


def _load_log(path: Path) -> "AuditPage":
    from pydantic import ValidationError

    from veilsum.protocol.audit import AuditPage

    try:
        return AuditPage.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise Misuse(f"{path} is not an audit log: `veilsum operator audit export` writes one") from error


def _parse_head(text: str) -> "End":
    from veilsum.protocol.audit import End

    match = re.fullmatch(r"([0-9]{1,15}):([0-9a-f]{64})", text)
    if not match:
        raise Misuse(
            f"invalid --head {text!r}: expected NUMBER:HASH, as `veilsum operator audit verify` prints it"
        )
    return End(int(match[1]), match[2])
