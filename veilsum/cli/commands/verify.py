"""`veilsum verify`: check a saved result, or replay a transcript, offline."""

from pathlib import Path
from typing import Annotated, Any

import typer

from veilsum.cli import names
from veilsum.cli.console import JSON_OUTPUT, end_with_error, print_note, print_table, print_values
from veilsum.cli.membership import PIN_FILE, find_admin_key
from veilsum.cli.options import report_errors
from veilsum.protocol.errors import Misuse, PeerFault

_LABELS = {"upload": "your_upload", "not_checked": "unsigned_files"}
BROKEN_EXIT, NO_TRANSCRIPT_EXIT, UNPINNED_EXIT = 1, 2, 3


@report_errors
def verify(
    path: Annotated[
        Path,
        typer.Argument(help="A result's folder, as `veilsum member join` saved it; or a transcript's file."),
    ],
    admin_key: Annotated[
        str | None, typer.Option(envvar="VEILSUM_ADMIN_KEY", help="The admin's public key that you pinned.")
    ] = None,
    member: Annotated[
        str | None, typer.Option(help="Say whether this member's upload was counted (transcripts).")
    ] = None,
    identity: Annotated[
        Path | None,
        typer.Option(
            help="Your identity: take the admin key that it pins, and say whether the upload that you sent was counted (transcripts)."
        ),
    ] = None,
) -> None:
    """Check a saved result, or replay a transcript and name the parties that broke a rule. Needs no network.

    Exits with 0 if everything holds under the admin key that you pinned, and no party is at fault except in a dispute.

    Exits with 1 if something does not hold, or a party broke a rule.

    Exits with 2 if the file is not a transcript, or the command is wrong.

    Exits with 3 if everything holds, but no admin key is pinned: anyone can make a federation of their own, with its members and results.
    """
    pinned = _find_pinned_key(admin_key, identity)
    if not path.exists():
        end_with_error(
            f"{path} does not exist: pass the folder of a result, as `veilsum member join` saved it, or a transcript's file",
            code=NO_TRANSCRIPT_EXIT,
        )
    if path.is_dir():
        if member is not None:
            raise Misuse("--member goes with a transcript: pass FOLDER/transcript.json")
        kept = _verify_result(path, pinned)
    else:
        kept = _verify_transcript(path, pinned, member, identity)
    if not kept:
        raise typer.Exit(BROKEN_EXIT)
    if pinned is None:
        print_note("Consistent, but by whom? Pass --admin-key with the key that the admin gave you.")
        raise typer.Exit(UNPINNED_EXIT)


def _find_pinned_key(admin_key: str | None, identity: Path | None) -> bytes | None:
    if identity is not None and (identity / PIN_FILE).exists():
        admin_key = find_admin_key(identity, admin_key)
    return None if admin_key is None else bytes.fromhex(names.public_key(admin_key))


def _verify_result(folder: Path, pinned: bytes | None) -> bool:
    from client_sdk import Result
    from veilsum.cli.round_view import record_values

    result = Result.load(folder)
    try:
        result.verify(pinned)
    except PeerFault as fault:
        detail = f"{fault.detail}, or a file in {folder} was changed since"
        raise PeerFault(fault.cause, detail, fault.parties) from fault
    unchecked = result.check_folder(folder)
    verdict = result.verdict
    values: dict[str, Any] = {
        **_verified_against(pinned),
        "upload": result.standing,
        "transcript": f"not in this folder; fetch it with `veilsum operator round transcript {result.record.round} -o transcript.json`"
        if verdict is None
        else "replayed: " + ("no rule was broken" if verdict.is_faultless else "a rule was broken"),
        "not_checked": unchecked,
    }
    scripts = {**values, "counted": result.counted, "record": result.record.model_dump(mode="json")}
    shown = {_LABELS.get(name, name): value for name, value in values.items() if value}
    title = "Verified" if pinned else "Consistent, but by whom?"
    print_values(
        {**shown, **record_values(result.record, result.content.class_names)}, title, scripts=scripts
    )
    return verdict is None or verdict.is_faultless


def _verify_transcript(path: Path, pinned: bytes | None, member: str | None, identity: Path | None) -> bool:
    from veilsum.cli import replaying

    if identity is not None and member is not None:
        raise Misuse("--identity names the member: leave out --member")
    try:
        verdict = replaying.verdict_on(path, pinned)
    except replaying.NotATranscript as error:
        end_with_error(str(error), code=NO_TRANSCRIPT_EXIT)
    asked: dict[str, Any] = {}
    if identity is not None:
        asked = replaying.own_upload(verdict, identity)
    elif member is not None:
        asked = replaying.upload_of(verdict, member)
    values = {**_verified_against(pinned), **replaying.verdict_lines(verdict, path), **asked}
    scripts = {**_verified_against(pinned), **replaying.values_of(verdict), **asked}
    print_values(values, "Replayed transcript", scripts=scripts)
    for title, rows in replaying.verdict_rows(verdict).items() if not JSON_OUTPUT.get() else ():
        if rows:
            print_table(title, rows)
    return verdict.is_faultless


def _verified_against(pinned: bytes | None) -> dict[str, str]:
    known = "the pinned admin key" if pinned else "no pinned key: anyone can make such a federation"
    return {"verified_against": known}
