"""`veilsum verify`: check a saved result, or replay a transcript, offline."""

from pathlib import Path
from typing import Annotated, Any

import typer

from veilsum.cli import names
from veilsum.cli.console import JSON, fail, say, table
from veilsum.cli.options import reporting
from veilsum.protocol.errors import Misuse

BROKEN, NO_TRANSCRIPT = 1, 2


@reporting
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
        typer.Option(help="Your identity: say whether the upload that you sent was counted (transcripts)."),
    ] = None,
) -> None:
    """Check a saved result, or replay a transcript and name the parties that broke a rule. Needs no network.

    Exits with 0 if everything holds, and no party is at fault except in a dispute.

    Exits with 1 if something does not hold, or a party broke a rule.

    Exits with 2 if the file is not a transcript, or the command is wrong.
    """
    pinned = None if admin_key is None else bytes.fromhex(names.public_key(admin_key))
    if not path.exists():
        fail(
            f"{path} does not exist: pass the folder of a result, as `veilsum member join` saved it, or a transcript's file",
            code=NO_TRANSCRIPT,
        )
    if path.is_dir():
        if member is not None or identity is not None:
            raise Misuse("--member and --identity go with a transcript: pass FOLDER/transcript.json")
        kept = _result(path, pinned)
    else:
        kept = _transcript(path, pinned, member, identity)
    if not kept:
        raise typer.Exit(BROKEN)


def _result(folder: Path, pinned: bytes | None) -> bool:
    from client_sdk import Result
    from veilsum.cli.round_view import summary

    result = Result.load(folder)
    result.verify(pinned)
    verdict = result.verdict
    values: dict[str, Any] = {
        **_against(pinned),
        "upload": result.standing,
        "transcript": "not fetched: `veilsum operator round transcript` does, and this command replays it"
        if verdict is None
        else "replayed: " + ("no rule was broken" if verdict.kept else "a rule was broken"),
    }
    scripts = {**values, "counted": result.counted, "record": result.record.model_dump(mode="json")}
    say({**values, **summary(result.record)}, "Verified", scripts=scripts)
    return verdict is None or verdict.kept


def _transcript(path: Path, pinned: bytes | None, member: str | None, identity: Path | None) -> bool:
    from veilsum.cli import replaying

    if identity is not None and member is not None:
        raise Misuse("--identity names the member: leave out --member")
    try:
        verdict = replaying.verdict_on(path, pinned)
    except replaying.NotATranscript as error:
        fail(str(error), code=NO_TRANSCRIPT)
    asked: dict[str, Any] = {}
    if identity is not None:
        asked = replaying.own_upload(verdict, identity)
    elif member is not None:
        asked = replaying.upload_of(verdict, member)
    values = {**_against(pinned), **replaying.lines(verdict, path), **asked}
    scripts = {**_against(pinned), **replaying.values_of(verdict), **asked}
    say(values, "Transcript, replayed", scripts=scripts)
    for title, rows in replaying.rows(verdict).items() if not JSON.get() else ():
        if rows:
            table(title, rows)
    return verdict.kept


def _against(pinned: bytes | None) -> dict[str, str]:
    known = "the pinned admin key" if pinned else "the roster's own admin key; pass --admin-key to pin it"
    return {"verified_against": known}
