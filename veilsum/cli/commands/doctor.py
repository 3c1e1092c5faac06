"""`veilsum member doctor` and `canaries`: see before a run whether this machine, its network and its features are fit for it."""

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from veilsum.cli.console import JSON_OUTPUT, print_note, print_table, print_values
from veilsum.cli.membership import find_admin_key, newest_studies, read_approvals
from veilsum.cli.options import DEFAULT_URL, AdminKey, Ca, Folder, Url, add_table_options, report_errors
from veilsum.protocol.errors import Misuse
from veilsum.system.intervals import COMMAND_RETRY_S

if TYPE_CHECKING:
    from veilsum.cli.tables import TableFormat

_WORD_OF_OUTCOME = {True: "ok", False: "FAILED", None: "not yet"}


@add_table_options
def doctor(
    form: "TableFormat",
    folder: Folder,
    data: Annotated[
        Path | None,
        typer.Argument(help="Features and labels, as `join` takes them, for the canaries among them."),
    ] = None,
    standardise: Annotated[
        Path | None, typer.Option(help="Standardise tabular features by the moments in this file.")
    ] = None,
    admin_key: AdminKey = None,
    url: Url = DEFAULT_URL,
    ca: Ca = None,
) -> None:
    """Check whether this member can take part: coordinator, proxy, clock, roster, approvals, disk, upload rate, and canaries.

    It answers and approves nothing. Exits with 1 if a check fails.
    """
    from client_sdk.doctor import Doctor
    from client_sdk.identity import Identity
    from client_sdk.policy import Policy
    from client_sdk.transport import BlockingDriver
    from veilsum.cli.features import read_records
    from veilsum.cli.remote import client_certificate, name_address, shown_address, verify_argument

    identity = Identity.load(folder)
    approved = frozenset(read_approvals(identity.folder))
    policy = Policy(admin_key=find_admin_key(folder, admin_key), approved=approved)
    records = None if data is None else read_records(data, form, standardise)
    with (
        name_address(url),
        closing(BlockingDriver(url, verify=verify_argument(ca), cert=client_certificate())) as driver,
    ):
        checks = [*Doctor(identity, policy, driver, url, records).run_checks()]
    failed = any(each.ok is False for each in checks)
    if JSON_OUTPUT.get():
        print_values({"ok": not failed, "checks": [vars(each) for each in checks]})
    else:
        rows = [{"check": each.name, "": _WORD_OF_OUTCOME[each.ok], "found": each.detail} for each in checks]
        print_table(f"{identity.member} at {shown_address(url)}", rows)
    if failed:
        raise typer.Exit(1)


@report_errors
def canaries(
    folder: Folder,
    output: Annotated[Path, typer.Argument(help="Folder for the public inputs; created.")],
    study: Annotated[
        str | None, typer.Option(help="The study's name.", show_default="the only one with canaries")
    ] = None,
    admin_key: AdminKey = None,
    url: Url = DEFAULT_URL,
    ca: Ca = None,
) -> None:
    """Fetch a study's canaries: public inputs to run through your own pipeline, together with your data and under their ids.

    It writes the inputs, and their ids and labels as `labels.csv`.
    """
    from client_sdk import Identity, Policy
    from veilsum.cli.canaries import LIST_FILE, write_inputs
    from veilsum.cli.remote import open_member

    identity = Identity.load(folder)
    policy = Policy(admin_key=find_admin_key(folder, admin_key))
    with open_member(url, ca, identity, policy, patience_s=COMMAND_RETRY_S) as member:
        named = [
            view
            for view in newest_studies(member.studies())
            if study in {None, view.name} and member.study(view.study).rehearsal is not None
        ]
        if len(named) != 1:
            names = ", ".join(view.name for view in named) or "none"
            raise Misuse(f"studies with canaries: {names}. Name one by --study")
        pack = member.canaries(named[0].study)
    write_inputs(pack, output)
    print_values(
        {
            "study": named[0].name,
            "canaries": len(pack.ids),
            "inputs": len(pack.inputs),
            "folder": str(output),
            "labels": str(output / LIST_FILE),
        },
        "Canaries",
    )
    print_note(
        "Run the inputs through your pipeline together with your data, and add their rows to your file under their ids."
    )
