"""`veilsum federation`: the admin's side. The admin says who is a member, and is not the operator."""

from pathlib import Path
from typing import Annotated

import typer

from veilsum.console import DEFAULT_URL, AsJson, Ca, Token, Url, note, reported, say

app = typer.Typer(help="The admin's side: who is a member, by signature.", no_args_is_help=True)
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
    helper: Annotated[
        list[str] | None,
        typer.Option(
            help="Id of a mask helper, which is a --member too; four of them, for rounds with helpers."
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
            helpers=helper or (),
            readers=reader or (),
            withhold=None if publish is None else not publish,
        )
        changed.save(draft)
        say(
            {
                "draft": str(draft),
                "version": changed.version,
                "members": sorted(changed.members),
                "helpers": sorted(changed.helpers),
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
                "Not published: run again with --publish, or hand the file to the operator, for `veilsum federation publish`."
            )
        say(
            {
                "roster": str(target),
                "version": signed.version_number,
                "members": len(signed.members),
                "helpers": list(signed.helpers),
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
