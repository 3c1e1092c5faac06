"""`veilsum admin`: sign the roster and the studies. The admin and the operator are different roles."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from veilsum.cli import names
from veilsum.cli.commands import study
from veilsum.cli.console import JSON_OUTPUT, format_time, print_note, print_values
from veilsum.cli.options import Ca, Connect, at_coordinator, report_errors
from veilsum.protocol.errors import Misuse

_CLOSING_COST = "members that uploaded to it spend those records, and so their noise budget"

app = typer.Typer(help="Sign a federation's list of members and its studies.", no_args_is_help=True)
app.add_typer(study.app, name="study")


@app.command()
@report_errors
def new(folder: Annotated[Path, typer.Argument(help="Folder for the key; created.")]) -> None:
    """Create a federation: the admin's key. Its public key is the federation's id, and members pin it.

    To use a separate study key, create it in the same way, and pass its public key to `veilsum admin roster --study-key`.
    """
    from veilsum.cli.admin import create_admin
    from veilsum.protocol.identity import fingerprint

    admin = create_admin(folder)
    key = admin.public
    print_values(
        {"federation": key.hex(), "fingerprint": fingerprint(key), "folder": str(folder)}, "Federation"
    )


@app.command()
@report_errors
def roster(
    draft: Annotated[Path, typer.Argument(help="The roster's draft, a JSON file; created or changed.")],
    folder: Annotated[
        Path | None,
        typer.Option(help="The admin's folder: sign the draft too.", show_default="only write the draft"),
    ] = None,
    name: Annotated[str | None, typer.Option(help="The federation's name, for people.")] = None,
    member: Annotated[list[str] | None, typer.Option(help="Add a member, ID=PUBLICKEY; repeat.")] = None,
    remove: Annotated[list[str] | None, typer.Option(help="Remove a member, by id; repeat.")] = None,
    decryptor: Annotated[
        list[str] | None,
        typer.Option(help="Nominate a decryptor, by member id; repeat, at least four.", show_default="all"),
    ] = None,
    reader: Annotated[
        list[str] | None, typer.Option(help="A member that may read the sums, by id; repeat.")
    ] = None,
    revoke: Annotated[list[str] | None, typer.Option(help="Revoke a study, by its hash; repeat.")] = None,
    study_key: Annotated[
        str | None, typer.Option(help="Public key that signs studies.", show_default="the admin's")
    ] = None,
    coordinator: Annotated[str | None, typer.Option(help="The coordinator's public key.")] = None,
    url: Annotated[
        str | None, typer.Option(envvar="VEILSUM_URL", help="Or ask this coordinator for its key.")
    ] = None,
    ca: Ca = None,
) -> None:
    """Write or change the roster, the list of members. With --folder, sign it too, as DRAFT with the suffix .bin.

    Each change increases the roster's number.
    """
    from veilsum.cli import admin

    old = admin.Draft.load_draft(draft) if draft.exists() else None
    if coordinator is None and old is None and url is not None:
        from veilsum.cli.remote import open_operator

        with open_operator(url, ca=ca) as client:
            coordinator = client.coordinator().public_key
    changed = admin.revise_draft(
        old,
        name=name,
        coordinator=coordinator,
        study_key=study_key,
        members=member or (),
        remove=remove or (),
        decryptors=decryptor or (),
        readers=reader or (),
        revoked=revoke or (),
    )
    target = None if folder is None else admin.signed_path(draft)
    signed = None if folder is None else changed.sign_roster(admin.load_admin(folder))
    changed.save_draft(draft)
    values: dict[str, Any] = {
        "draft": str(draft),
        "number": changed.number,
        "members": sorted(changed.members),
    }
    if signed is not None and target is not None:
        target.write_bytes(signed.to_bytes())
        values |= {
            "roster": str(target),
            "federation": signed.federation.hex(),
            "hash": signed.hash.hex(),
            "next": f"veilsum admin publish {target} --folder {folder}"
            if signed.number > 1
            else f"veilsum admin publish {target}, with an operator's token in VEILSUM_OPERATOR_TOKEN",
        }
    print_values(values, "Roster, not signed" if signed is None else "Roster, signed")


@app.command()
@at_coordinator(token=True)
def publish(
    connect: Connect,
    signed: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Signed rosters and studies, .bin files.")
    ],
    folder: Annotated[
        Path | None,
        typer.Option(
            help="The admin's folder: publish a later roster, or studies, without an operator's token."
        ),
    ] = None,
) -> None:
    """Send signed rosters and studies to the coordinator, in the given order."""
    from veilsum.cli.admin import load_admin, read_signed
    from veilsum.protocol.messages import Roster

    read = sorted(map(read_signed, signed), key=lambda each: not isinstance(each, Roster))
    admin = load_admin(folder) if folder is not None else None
    published: list[dict[str, Any]] = []
    with connect(admin=admin) as client:
        for each in read:
            if isinstance(each, Roster):
                client.publish_roster(each)
                published.append(
                    {"roster": each.number, "members": len(each.members), "hash": each.hash.hex()}
                )
            else:
                view = client.publish_study(each)
                published.append({"study": view.name, "version": view.version, "hash": view.study})
    if JSON_OUTPUT.get():
        print_values({"federation": read[0].federation.hex(), "published": published})
        return
    for values in published:
        print_values(values, "Published")


@app.command()
@at_coordinator(token=False)
def close(
    connect: Connect,
    attempt_id: Annotated[
        str,
        typer.Argument(
            metavar="ROUND",
            help="The round's id. If the coordinator does not know the round, or can't read it: its whole context, which members' messages show.",
        ),
    ],
    folder: Annotated[
        Path | None,
        typer.Option(help="The admin's folder: sign and close it.", show_default="only show the reports"),
    ] = None,
    roster: Annotated[
        Path | None,
        typer.Option(help="The signed roster of the round's cohort.", show_default="the newest published"),
    ] = None,
) -> None:
    """Show which decryptors reported on a round past its latest end. With --folder, close it, so that the federation can continue.

    Records that were uploaded to a sum are spent. A count spends nothing.
    """
    from veilsum.cli.admin import load_admin
    from veilsum.protocol.attempt import Attempt
    from veilsum.protocol.causes import Cause
    from veilsum.protocol.errors import PeerFault
    from veilsum.protocol.messages import Lost, Roster
    from veilsum.protocol.study import DISCLOSED_STEPS
    from veilsum.study.progress import RunEnd

    name, context = names.round_or_context(attempt_id)
    known = Roster.from_bytes(roster.read_bytes()) if roster else None
    admin = load_admin(folder) if folder is not None else None
    with connect(admin=admin) as client:
        try:
            view = client.round(name)
        except PeerFault as fault:
            if context is None or fault.cause not in {Cause.NOT_FOUND, Cause.STORAGE_DAMAGED}:
                raise
            print_values(
                _close_unknown(client, context, admin),
                "Round that the coordinator does not know, or can't read",
            )
            return
        known = known or client.roster(view.federation)
        attempt = Attempt(
            known,
            client.study(view.federation, view.spec.study),
            client.manifest(view.cohort),
            client.opening(name),
        )
        _check_attempt(attempt, context or view.context)
        latest_end_s = attempt.opening.terms.latest_end_s
        values: dict[str, Any] = {
            "round": name,
            "study": attempt.spec.name,
            "step": attempt.spec.step,
            "latest_end": format_time(latest_end_s),
            "reported": list(view.reported),
            "silent": list(view.waiting_for),
            "reports": f"{len(view.reported)} of {view.reports_min} needed to end it without the admin",
            "cost": "nothing: a count spends no records"
            if attempt.spec.step in DISCLOSED_STEPS
            else _CLOSING_COST,
        }
        if admin is None:
            values["state"] = view.state
            print_note("Not signed: the admin closes it with --folder ADMIN.")
        else:
            if admin.public != known.federation:
                raise Misuse(f"{folder} holds another federation's admin key")
            if time.time() < latest_end_s:
                raise Misuse(f"the round can be closed after its latest end, {format_time(latest_end_s)}")
            if (end := RunEnd.of_round(view)) is not None and end.repeatable:
                raise Misuse(
                    f"closing round {name} would spend its records. Instead: {end.next_for_operator(view)}"
                )
            values["state"] = client.close_lost(name, Lost.make_signed(admin, context=attempt.context)).state
    print_values(values, "Round past its latest end")


def _close_unknown(client: Any, context: str, admin: Any) -> dict[str, Any]:
    """Close a round that the coordinator does not know or can't read, if the admin signs it. Return what to show."""
    from veilsum.protocol.messages import Lost

    values = {
        "context": context,
        "latest_end": "can't be checked here: only members know it, and they accept this end only after it",
        "cost": f"if it was a sum, {_CLOSING_COST}",
        "state": "unknown to the coordinator",
    }
    if admin is None:
        print_note("Not signed: the admin closes it with --folder ADMIN.")
    else:
        client.close_unknown(admin.public.hex(), Lost.make_signed(admin, context=bytes.fromhex(context)))
        values["state"] = "lost"
    return values


def _check_attempt(attempt: Any, context: str) -> None:
    """Check that roster, study, manifest and opening belong together. Raises Misuse or PeerFault."""
    from veilsum.protocol.attempt import check_manifest, check_study

    roster, manifest = attempt.roster, attempt.manifest
    if roster.hash != manifest.roster_hash:
        raise Misuse(
            f"the cohort was formed under another roster than number {roster.number}: pass that roster's signed file by --roster"
        )
    roster.verify_admin(roster.federation)
    check_study(roster, attempt.study)
    check_manifest(roster, attempt.study, manifest)
    attempt.opening.verify(roster.coordinator, "coordinator")
    attempt.check_context(bytes.fromhex(context), "coordinator")
