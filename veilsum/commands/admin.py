"""`veilsum admin`: the admin says who is a member and what is summed, and is not the operator."""

from pathlib import Path
from typing import Annotated, Any

import typer

from veilsum.commands import study
from veilsum.console import DEFAULT_URL, AsJson, Ca, Token, Url, note, reported, say

app = typer.Typer(
    help="For the admin, who signs who is a member of a federation and what it sums.", no_args_is_help=True
)
app.add_typer(study.app, name="study")
Folder = Annotated[Path, typer.Option("--folder", help="The admin's folder.")]
DraftFile = Annotated[Path, typer.Argument(help="The roster's draft, a JSON file.")]


@app.command()
def new(
    folder: Annotated[Path, typer.Argument(help="A folder for the admin's key.")], json_: AsJson = False
) -> None:
    """Make a federation: its admin's key. Its public key is the federation's name; members pin it."""
    with reported(as_json=json_):
        from protocol.identity import fingerprint
        from veilsum.admin import create_admin

        admin = create_admin(folder)
        say(
            {
                "federation": admin.public.hex(),
                "fingerprint": fingerprint(admin.public),
                "folder": str(folder),
            },
            as_json=json_,
            title="Federation",
        )


@app.command()
def roster(
    draft: DraftFile,
    member: Annotated[list[str] | None, typer.Option(help="ID=PUBLICKEY; repeat.")] = None,
    remove: Annotated[list[str] | None, typer.Option(help="The id of a member that leaves; repeat.")] = None,
    extractor: Annotated[
        list[str] | None, typer.Option(help="Digest of an approved feature extractor; repeat.")
    ] = None,
    decryptor: Annotated[
        list[str] | None,
        typer.Option(
            help="Id of a nominated decryptor; repeat, four times at least: fewer than a third of them may collude."
        ),
    ] = None,
    reader: Annotated[
        list[str] | None, typer.Option(help="Id of a member that may read the sums; repeat.")
    ] = None,
    publish: Annotated[
        bool | None,
        typer.Option(
            "--publish-rare-classes/--withhold",
            help="Sign that classes which few members hold may show in the sum; or keep them out of it.",
            show_default="withhold",
        ),
    ] = None,
    coordinator: Annotated[str | None, typer.Option(help="The coordinator's public key.")] = None,
    url: Annotated[
        str | None, typer.Option(envvar="VEILSUM_URL", help="Ask this coordinator for its key instead.")
    ] = None,
    ca: Ca = None,
    json_: AsJson = False,
) -> None:
    """Write or change the draft of a roster; a change raises its version."""
    with reported(as_json=json_):
        from veilsum import admin

        old = admin.Draft.load(draft) if draft.exists() else None
        if coordinator is None and old is None and url is not None:
            from veilsum.remote import operator

            with operator(url, ca=ca) as client:
                coordinator = client.coordinator().public_key
        changed = admin.revised(
            old,
            coordinator=coordinator,
            members=member or (),
            remove=remove or (),
            extractors=extractor or (),
            decryptors=decryptor or (),
            readers=reader or (),
            withhold=None if publish is None else not publish,
        )
        changed.save(draft)
        say(
            {
                "draft": str(draft),
                "version": changed.version,
                "members": sorted(changed.members),
                "rare_classes": "withheld" if changed.withhold else "published",
            },
            as_json=json_,
            title="Roster, not yet signed",
        )


@app.command()
def sign(
    draft: DraftFile,
    folder: Folder,
    output: Annotated[
        Path | None, typer.Option(help="Where the signed roster goes.", show_default="DRAFT with .bin")
    ] = None,
    publish: Annotated[bool, typer.Option("--publish", help="Send it to the coordinator too.")] = False,
    url: Url = DEFAULT_URL,
    token: Token = None,
    ca: Ca = None,
    json_: AsJson = False,
) -> None:
    """Sign a draft; with --publish also store it at the coordinator."""
    with reported(as_json=json_):
        from protocol.errors import Misuse
        from veilsum.admin import Draft, load_admin

        read = Draft.load(draft)
        admin = load_admin(folder)
        signed = read.sign(admin)
        target = output or draft.with_suffix(".bin")
        if target.resolve() == draft.resolve():
            raise Misuse(f"{target} is the draft itself: pass another --output")
        target.write_bytes(signed.to_bytes())
        if publish:
            from veilsum.remote import operator

            with operator(url, token, ca, admin=admin) as client:
                client.publish(signed)
        else:
            note(
                "Not published: run again with --publish, or hand the file to the operator, for `veilsum admin publish`."
            )
        say(
            {
                "roster": str(target),
                "version": signed.version_number,
                "members": len(signed.members),
                "federation": signed.federation.hex(),
                "rare_classes": "withheld" if signed.withhold else "published",
                "hash": signed.hash.hex(),
                "published": publish,
            },
            as_json=json_,
            title="Roster, signed",
        )


@app.command()
def publish(
    roster: Annotated[Path, typer.Argument(help="The roster as its admin signed it, a .bin file.")],
    url: Url = DEFAULT_URL,
    token: Token = None,
    ca: Ca = None,
    json_: AsJson = False,
) -> None:
    """Store a signed roster at the coordinator: for an operator whom the admin handed the file."""
    with reported(as_json=json_):
        from protocol.errors import Misuse, PeerFault
        from protocol.messages import Roster
        from veilsum.remote import operator

        try:
            signed = Roster.from_bytes(roster.read_bytes())
        except PeerFault as fault:
            raise Misuse(f"{roster} is no signed roster: {fault.detail}") from fault
        with operator(url, token, ca) as client:
            client.publish(signed)
        say(
            {
                "federation": signed.federation.hex(),
                "version": signed.version_number,
                "members": len(signed.members),
                "hash": signed.hash.hex(),
            },
            as_json=json_,
            title="Roster, published",
        )


@app.command()
def close(
    round_id: Annotated[str, typer.Argument(metavar="ROUND", help="The round's id.")],
    folder: Annotated[
        Path | None,
        typer.Option(help="The admin's folder: sign and close it.", show_default="only show who reported"),
    ] = None,
    roster: Annotated[
        Path | None,
        typer.Option(help="The signed roster of the round's cohort.", show_default="the newest published"),
    ] = None,
    url: Url = DEFAULT_URL,
    ca: Ca = None,
    json_: AsJson = False,
) -> None:
    """Show who reported on a round past its latest end; as its admin, close it where too few can, so that the federation goes on."""
    with reported(as_json=json_):
        from protocol.messages import Roster
        from veilsum import names
        from veilsum.admin import load_admin
        from veilsum.lost import Papers
        from veilsum.remote import operator

        name = names.round_id(round_id)
        known = Roster.from_bytes(roster.read_bytes()) if roster else None
        admin = load_admin(folder) if folder is not None else None
        with operator(url, ca=ca, admin=admin) as client:
            papers = Papers.fetch(client, name, known)
            values: dict[str, Any] = {"round": name, **papers.values()}
            if folder is None:
                values["state"] = client.round(name).state
                note("Not signed: the admin closes it with --folder ADMIN.")
            else:
                values["state"] = client.close_lost(name, papers.sign(folder)).state
        say(values, as_json=json_, title="Round past its latest end")


@app.command()
def exception(
    cohort: Annotated[str, typer.Argument(help="The cohort's id.")],
    member: Annotated[
        list[str],
        typer.Option(help="A member of the group; repeat for all of them, as the refusal names them."),
    ],
    reason: Annotated[str, typer.Option(help="What becomes readable, and why; every member sees it.")],
    folder: Annotated[Path, typer.Option(help="The admin's folder.")],
    output: Annotated[Path, typer.Option(help="Where the signed exception goes.")],
    sequence: Annotated[
        int | None, typer.Option(help="The round's sequence number.", min=0, show_default="the cohort's next")
    ] = None,
    url: Url = DEFAULT_URL,
    ca: Ca = None,
    json_: AsJson = False,
) -> None:
    """As the admin, sign that one round may expose the group of exactly these members; who is named may still refuse it."""
    with reported(as_json=json_):
        from protocol.messages import LedgerException
        from veilsum.admin import load_admin
        from veilsum.names import cohort_id
        from veilsum.remote import operator

        admin, cohort = load_admin(folder), cohort_id(cohort)
        if sequence is None:
            with operator(url, ca=ca) as client:
                sequence = client.cohort(cohort).next_sequence
        signed = LedgerException.make(
            admin,
            federation=admin.public,
            cohort=bytes.fromhex(cohort),
            sequence=sequence,
            members=tuple(sorted(set(member))),
            reason=reason,
        )
        # What could not be read back is refused here, not by everybody else.
        output.write_bytes(LedgerException.from_bytes(signed.to_bytes()).to_bytes())
        say(
            {
                "exception": str(output),
                "cohort": cohort,
                "sequence": sequence,
                "members": list(signed.members),
                "reason": signed.reason,
            },
            as_json=json_,
            title="Exception, signed",
        )
