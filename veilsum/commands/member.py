"""`veilsum member`: an identity, taking part in rounds, and what was opened so far."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veilsum.commands.options import (
    AdminKey,
    Labels,
    Lineage,
    MemberLimits,
    Normalise,
    Output,
    gathered,
)
from veilsum.console import DEFAULT_URL, AsJson, Ca, Url, reported, say, table

if TYPE_CHECKING:
    from client_sdk import Identity

app = typer.Typer(help="For a member, who contributes sums over its own records.", no_args_is_help=True)
Folder = Annotated[Path, typer.Argument(help="The member's identity (`veilsum member new`).")]


@app.command()
def new(
    folder: Annotated[Path, typer.Argument(help="The identity's folder, which is made.")],
    member: Annotated[str, typer.Option(help="The member's id: a-z, 0-9 and '-'.")],
    admin_key: Annotated[
        str | None,
        typer.Option(
            help="Pin the admin's public key for `veilsum member join`.", show_default="pass it there"
        ),
    ] = None,
    json_: AsJson = False,
) -> None:
    """Make an identity, an Ed25519 key in its own folder; give its public key to the federation's admin."""
    with reported(as_json=json_):
        from client_sdk import Identity
        from veilsum.names import admin_key as checked
        from veilsum.pinning import pin

        key = None if admin_key is None else checked(admin_key)
        made = Identity.create(folder, member)
        if key is not None:
            pin(made.folder, key)
        _show(made, as_json=json_)


@app.command()
def show(folder: Folder, json_: AsJson = False) -> None:
    """Show an identity's id and public key."""
    with reported(as_json=json_):
        from client_sdk import Identity

        _show(Identity.load(folder), as_json=json_)


def _show(identity: "Identity", *, as_json: bool) -> None:
    values = {
        "member": identity.member,
        "public_key": identity.public.hex(),
        "fingerprint": identity.fingerprint,
        "folder": str(identity.folder),
    }
    say(values, as_json=as_json, title="Identity")


@app.command()
@gathered
def join(
    folder: Folder,
    features: Annotated[
        Path | None,
        typer.Option(
            help="Features and labels: .npz, .npy, .safetensors, .parquet or .csv.",
            show_default="what was made",
        ),
    ] = None,
    cohort: Annotated[
        str | None,
        typer.Option(
            help="The cohort to enrol in.", show_default="the one it stopped in, or the federation's newest"
        ),
    ] = None,
    admin_key: AdminKey = None,
    lineage: Lineage = "main",
    labels: Labels = None,
    round_: Annotated[
        str | None, typer.Option("--round", help="A round's id.", show_default="the next one")
    ] = None,
    output: Output = None,
    transcript: Annotated[
        bool,
        typer.Option(
            "--transcript", help="Fetch and replay the transcript also where more than 200 members take part."
        ),
    ] = False,
    normalise: Normalise = False,
    url: Url = DEFAULT_URL,
    ca: Ca = None,
    json_: AsJson = False,
    *,
    limits: MemberLimits,
) -> None:
    """Enrol, contribute to a round through every phase, and save the verified result.

    Run it again after any interruption: it goes on where it stopped.
    """
    with reported(as_json=json_):
        from veilsum.contribute import Errand, cohort_of, run
        from veilsum.pinning import pinned

        policy = limits.policy(pinned(folder, admin_key))
        errand = Errand(
            folder=folder,
            url=url,
            policy=policy,
            cohort=cohort or cohort_of(folder, url, policy, round_, ca),
            features=features,
            labels=labels,
            lineage=lineage,
            normalise=normalise,
            round_id=round_,
            transcript=transcript,
            ca=ca,
        )
        _, values = run(errand, output or folder / "result")
        say(values, as_json=json_, title="Result, verified")


@app.command()
def ledger(
    folder: Folder,
    url: Annotated[
        str | None,
        typer.Option(
            envvar="VEILSUM_URL",
            help="The coordinator's address, for everybody's rounds.",
            show_default="only what is stored here",
        ),
    ] = None,
    ca: Ca = None,
    json_: AsJson = False,
) -> None:
    """Show which rounds were opened over which members, this member's lineages, and what would be refused next."""
    with reported(as_json=json_):
        from veilsum.accounts import account_of, as_values

        account = account_of(folder, url, ca)
        values = as_values(account)
        if json_:
            say(values, as_json=True)
            return
        _show_ledger(values)


def _show_ledger(values: dict[str, Any]) -> None:
    for title, name in (("Rounds", "rounds"), ("Your lineages", "lineages"), ("Groups", "groups")):
        if values[name]:
            table(title, values[name])
    say(
        {"a_group_holds_at_least": f"{values['floor']} members"}
        | {str(number): text for number, text in enumerate(values["refused_next"], start=1)},
        as_json=False,
        title="What would be refused next",
    )
