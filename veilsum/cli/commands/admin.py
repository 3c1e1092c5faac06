"""`veilsum admin`: sign the roster and the studies. The admin and the operator are different roles."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veilsum.cli import names
from veilsum.cli.commands import study
from veilsum.cli.console import JSON_OUTPUT, format_time, print_note, print_values
from veilsum.cli.options import DEFAULT_URL, Ca, Connect, add_table_options, at_coordinator, report_errors
from veilsum.protocol.errors import Misuse

if TYPE_CHECKING:
    from veilsum.cli.tables import TableFormat

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
        str, typer.Option(envvar="VEILSUM_URL", help="For a new draft: ask this coordinator for its key.")
    ] = DEFAULT_URL,
    ca: Ca = None,
) -> None:
    """Write or change the roster, the list of members. With --folder, sign it too, as DRAFT with the suffix .bin.

    Each change increases the roster's number.
    """
    from veilsum.cli import admin

    old = admin.Draft.load_draft(draft) if draft.exists() else None
    if coordinator is None and old is None:
        from client_sdk.errors import Unreachable
        from veilsum.cli.remote import open_operator

        try:
            with open_operator(url, ca=ca) as client:
                coordinator = client.coordinator().public_key
        except Unreachable as error:
            raise Misuse(f"{error}; or pass the coordinator's public key as --coordinator") from error
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
            else f"veilsum admin publish {target} (by the operator: a first roster needs its token)",
        }
    print_values(values, "Unsigned roster" if signed is None else "Signed roster")


@app.command()
@add_table_options
def canaries(
    form: "TableFormat",
    pack: Annotated[Path, typer.Argument(help="Where the pack goes, a .zip file.")],
    features: Annotated[
        Path | None,
        typer.Option(
            help="Reference features of the public inputs, with labels and ids, in a file such as members use. Ids are the inputs' names."
        ),
    ] = None,
    inputs: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the public inputs. With --extractor it has a folder of images for each class.",
            show_default="the table of --features",
        ),
    ] = None,
    slip: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=FILE",
            help="Features of the same inputs under a known slip, such as bgr; repeat. Beside --extractor NAME=MODULE:FUNCTION, a function of "
            "its kind that leaves a step out, such as not-normalised.",
        ),
    ] = None,
    extractor: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="Compute the features of images, and of known slips: the function takes a list of uint8 images and returns (n, dim).",
        ),
    ] = None,
    size: Annotated[
        str | None,
        typer.Option(
            metavar="HEIGHTxWIDTH",
            help="The size to which the extractor resizes images: tries other ways to resize.",
        ),
    ] = None,
    standardise: Annotated[
        Path | None, typer.Option(help="Standardise a table by the moments in this file.")
    ] = None,
) -> None:
    """Make a pack of canaries: public inputs with the features that the extractor gives them.

    A study names the pack's SHA-256. Members run the inputs through their own pipeline, and compare before they take part.
    """
    from veilsum.cli.canaries import describe_pack, pack_of_features, pack_of_images
    from veilsum.system.files import write_durably

    if extractor is not None and inputs is not None and features is None and standardise is None:
        made = pack_of_images(inputs, extractor, _parse_size(size), slip or ())
    elif features is not None and extractor is None and size is None:
        made = pack_of_features(features, form, inputs=inputs, slips=slip or (), standardise=standardise)
    else:
        raise Misuse("pass --features FILE, with --inputs unless it is a table; or --extractor with --inputs")
    write_durably(pack, made.to_bytes())
    values = {
        "pack": str(pack),
        "sha256": made.digest,
        **describe_pack(made),
        "next": f"veilsum admin study new DRAFT.toml … --canaries {pack}",
    }
    print_values(values, "Canary pack")


def _parse_size(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    height, _, width = text.partition("x")
    if not (height.isdecimal() and width.isdecimal() and int(height) and int(width)):
        raise Misuse(f"--size {text}: expected HEIGHTxWIDTH, such as 224x224")
    return int(height), int(width)


@app.command()
@at_coordinator(token=True)
def publish(
    connect: Connect,
    signed: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...", help="Signed rosters and studies, .bin files, and the studies' canary packs."
        ),
    ],
    folder: Annotated[
        Path | None,
        typer.Option(
            help="The admin's folder: publish a later roster, or studies, without an operator's token."
        ),
    ] = None,
) -> None:
    """Send signed rosters and studies to the coordinator, in the given order, then the canary packs that studies name."""
    from veilsum.cli.admin import find_size_faults, load_admin, read_signed
    from veilsum.cli.canaries import is_archive, read_pack
    from veilsum.protocol.messages import Roster

    packs = [read_pack(each) for each in signed if is_archive(each)]
    read = sorted(
        (read_signed(each) for each in signed if not is_archive(each)),
        key=lambda each: not isinstance(each, Roster),
    )
    admin = load_admin(folder) if folder is not None else None
    if not read and admin is None:
        raise Misuse("pass a canary pack together with its study, or with the admin's --folder")
    federation = (read[0].federation if admin is None or read else admin.public).hex()
    if admin is not None and admin.public.hex() != federation:
        raise Misuse(
            f"{folder} holds another key than the admin of federation {federation}: pass the admin's folder, or leave --folder out and "
            "pass an operator's token with the scope 'federations'"
        )
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
        published += [
            {"canaries": len(pack.ids), "pack": client.publish_canaries(federation, pack)} for pack in packs
        ]
        warnings = find_size_faults(client, federation) if read else []
    if JSON_OUTPUT.get():
        print_values({"federation": federation, "published": published, "warnings": warnings})
        return
    for values in published:
        print_values(values, "Published")
    for warning in warnings:
        print_note(f"WARNING: {warning}")


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
    from veilsum.cli.admin import load_admin, read_signed
    from veilsum.protocol.attempt import Attempt
    from veilsum.protocol.causes import Cause
    from veilsum.protocol.errors import PeerFault
    from veilsum.protocol.messages import Lost, Study
    from veilsum.protocol.rest import ROUND_ENDINGS
    from veilsum.protocol.study import DISCLOSED_STEPS
    from veilsum.study.progress import RunEnd

    name, context = names.round_or_context(attempt_id)
    known = read_signed(roster) if roster else None
    if isinstance(known, Study):
        raise Misuse(f"{roster} is a study, expected a signed roster")
    admin = load_admin(folder) if folder is not None else None
    with connect(admin=admin) as client:
        try:
            view = client.round(name)
        except PeerFault as fault:
            if context is None or fault.cause not in {Cause.NOT_FOUND, Cause.STORAGE_DAMAGED}:
                raise
            print_values(
                _close_unknown(client, context, admin), "Round unknown to the coordinator, or unreadable"
            )
            return
        end = RunEnd.of_round(view)
        if admin is not None and view.state in ROUND_ENDINGS - {"lost"} and not (end and end.repeatable):
            raise Misuse(f"round {name} has ended ({view.state}): there is nothing to close")
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
            if end is not None and end.repeatable:
                raise Misuse(
                    f"closing round {name} would spend its records. Instead: {end.next_for_operator(view)}"
                )
            values["state"] = client.close_lost(name, Lost.make_signed(admin, context=attempt.context)).state
    print_values(values, "Round past its latest end")


def _close_unknown(client: Any, context: str, admin: Any) -> dict[str, Any]:
    """Close a round that the coordinator does not know or can't read, if the admin signs it. Return what to show."""
    from veilsum.protocol.messages import Lost
    from veilsum.study.progress import CLOSED_EARLY_ADVICE

    values = {
        "context": context,
        "latest_end": "can't be checked here: only members know it, and their messages name it",
        "cost": f"if it was a sum, {_CLOSING_COST}",
        "state": "unknown to the coordinator",
    }
    if admin is None:
        print_note("Not signed: the admin closes it with --folder ADMIN.")
    else:
        client.close_unknown(admin.public.hex(), Lost.make_signed(admin, context=bytes.fromhex(context)))
        print_note(CLOSED_EARLY_ADVICE)
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
