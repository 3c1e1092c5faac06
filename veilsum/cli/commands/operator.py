"""`veilsum operator`: run studies at a coordinator, and look after its data."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from veilsum.cli.commands import audit, cohort, rounds, token
from veilsum.cli.commands.cohort import Federation, Period, StudyName, wanted_study
from veilsum.cli.console import JSON_OUTPUT, cut_line, print_note, print_table, print_values, require_extras
from veilsum.cli.names import public_key
from veilsum.cli.options import Connect, at_coordinator, report_errors
from veilsum.protocol.errors import Misuse
from veilsum.system.intervals import MEMBER_RETRY_S

app = typer.Typer(help="Run studies at a coordinator, and look after its data.", no_args_is_help=True)
backups = typer.Typer(
    help="Back up the data folder of a stopped coordinator, and restore it.", no_args_is_help=True
)
database = typer.Typer(
    help="Check the coordinator's database; show and upgrade its format.", no_args_is_help=True
)


@app.command()
@at_coordinator(token=True)
def run(connect: Connect, study: StudyName, federation: Federation = None, period: Period = None) -> None:
    """Run a study: open enrolment, then each step in turn, and follow it to the result. Failed attempts are retried or repeated.

    For a period that was summed under another extractor, by a study that differs in nothing else, its records are summed again by exactly its members.

    You can interrupt the command: started again, it finds the run and continues. Exits with 1 unless there is a result.
    """
    from veilsum.cli.round_view import progress_printer, show_result, show_view
    from veilsum.cli.running import Following, check_period, this_month
    from veilsum.protocol.periods import PeriodKind

    wanted = check_period(period or this_month(), PeriodKind.DATA)
    with connect(patience_s=MEMBER_RETRY_S) as client:
        found, of = wanted_study(client, study, federation)
        following = Following(client, progress_printer())
        try:
            view = following.run_study(of, found, wanted)
        except KeyboardInterrupt:
            print_note("The run is interrupted. The same command continues it.")
            raise
        if view.state == "done":
            show_result(client, view.round)
            return
    show_view(view)
    raise typer.Exit(1)


@app.command()
@at_coordinator(token=True)
def rehearse(
    connect: Connect,
    study: StudyName,
    federation: Federation = None,
    period: Annotated[
        str | None, typer.Option(help="The rehearsal's name, rehearsal-…", show_default="a fresh one")
    ] = None,
) -> None:
    """Rehearse a study: every step at full size, over the canaries of its pack. Nothing is reserved, counted or spent; repeat it as you like.

    Shows for each site what it reported and what is wrong. Exits with 1 unless the sum is right and every site is ready.
    """
    from veilsum.cli import rehearsing
    from veilsum.cli.round_view import progress_printer

    with connect(patience_s=MEMBER_RETRY_S) as client:
        found, of = wanted_study(client, study, federation)
        done = rehearsing.rehearse(
            client, progress_printer(), of, found, period or rehearsing.new_rehearsal()
        )
    if not JSON_OUTPUT.get():
        rows = [
            {
                "site": each.member,
                "": "ok" if each.ok else "NOT READY",
                "canaries": each.canaries or None,
                "upload": each.upload or None,
                "clock": each.clock or None,
                "disk": each.disk or None,
                "release": each.release or None,
                "decryptor": {True: "yes", False: "no", None: None}[each.decryptor],
            }
            for each in done.rows
        ]
        print_table("Rehearsal", rows)
        for sentence in done.list_sentences():
            print_note(sentence)
    else:
        print_values(
            {
                "ok": done.ok,
                "sites": [asdict(each) for each in done.rows],
                "round": None if done.view is None else done.view.round,
                "failure": done.failure,
                "check": done.check,
            }
        )
    if not done.ok:
        raise typer.Exit(1)


@app.command()
@at_coordinator(token=True)
def judge(
    connect: Connect,
    study: StudyName,
    head: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="A head's file, weights.safetensors of a saved result; repeat to compare heads. Details are given for the first.",
            show_default="the heads of the study's newest result",
        ),
    ] = None,
    federation: Federation = None,
    period: Annotated[
        str | None,
        typer.Option(
            help="The judgement's period, judge-NAME.", show_default="this month, e.g. judge-2026-11"
        ),
    ] = None,
) -> None:
    """Judge heads over all members: noisy counts of right and wrong answers on held-out records, each of which is judged once in its life.

    Repeat it in a later period to see whether a head drifts. Exits with 1 unless there is a result.
    """
    from veilsum.cli.judged_report import print_figures
    from veilsum.cli.judging import (
        check_shown,
        encode_heads,
        find_heads,
        print_drift,
        read_figures,
        read_heads,
        read_study_content,
    )
    from veilsum.cli.round_view import progress_printer, show_view
    from veilsum.cli.running import Following, check_period, this_month
    from veilsum.protocol.periods import PeriodKind

    wanted = check_period(period or f"judge-{this_month()}", PeriodKind.JUDGE)
    with connect(patience_s=MEMBER_RETRY_S) as client:
        found, of = wanted_study(client, study, federation)
        content = read_study_content(client, of, found)
        heads = read_heads(head) if head else find_heads(client, of, found, content.question)
        shown = encode_heads(content.question, heads)
        following = Following(client, progress_printer(), shown=shown)
        view = following.run_study(of, found, wanted)
        if view.state == "done":
            check_shown(client, view.round, shown)
            figures = read_figures(client, view.round, content)
            names = content.class_names
            print_figures(figures, names, [each.name for each in heads])
            print_drift(client, of, found, content)
            return
    show_view(view)
    raise typer.Exit(1)


app.add_typer(cohort.app, name="cohort")
app.add_typer(rounds.app, name="round")
app.add_typer(token.app, name="token")
app.add_typer(audit.app, name="audit")
app.add_typer(backups, name="backup")
app.add_typer(database, name="db")
DataDir = Annotated[
    Path,
    typer.Option(
        envvar="VEILSUM_DATA_DIR", help="The coordinator's data folder.", show_default="veilsum-data"
    ),
]


@backups.command()
@report_errors
def create(
    archive: Annotated[Path, typer.Argument(help="The file to write; it must not exist.")],
    data_dir: DataDir = Path("veilsum-data"),
) -> None:
    """Check a stopped coordinator's data folder, and write it to one file; exits with 1 if there is damage, which the file then holds too.

    The file contains the coordinator's key: keep it secret.

    PostgreSQL and a bucket are not in the folder: use their own backups.
    """
    require_extras("the coordinator", "service")
    import asyncio

    from service.coordination import checking
    from service.settings import Settings
    from veilsum.cli import backup

    inside = Settings(data_dir=data_dir, database_url=None, blobs_url=None, blobs_endpoint=None)
    found = asyncio.run(checking.find_damage(inside))
    made = {**backup.create_backup(data_dir, archive), **found}
    if not made["blobs"]:
        print_note("The folder holds no uploads or results: if they are in a bucket, back that up too.")
    _report_findings(made, "Backup")


@backups.command()
@report_errors
def restore(
    archive: Annotated[Path, typer.Argument(help="A file that `veilsum operator backup create` wrote.")],
    data_dir: DataDir = Path("veilsum-data"),
    coordinator_key: Annotated[
        str | None, typer.Option(help="The coordinator's public key, which must have signed the backup.")
    ] = None,
    unauthenticated: Annotated[
        bool,
        typer.Option(
            "--unauthenticated",
            help="Skip the signature check. Only for an archive from a place that you trust.",
        ),
    ] = False,
) -> None:
    """Restore a backup into a new data folder, and check its signature and each file. Cancel the rounds that were open when it was made.

    `veilsum serve`, rosters and `backup create` show the coordinator's public key. Do not take it from the backup. Members that know a longer history than the backup hand it back, and refuse anything that contradicts it.
    """
    require_extras("the coordinator", "service")
    from veilsum.cli import backup
    from veilsum.study.progress import RESTORED_ADVICE

    if unauthenticated is (coordinator_key is not None):
        raise Misuse("pass the key that signed the backup as --coordinator-key, or pass --unauthenticated")
    key = None if coordinator_key is None else bytes.fromhex(public_key(coordinator_key))
    restored = backup.restore_backup(archive, data_dir, key)
    restored["next"] = f"VEILSUM_DATA_DIR={data_dir} veilsum operator db check"
    print_note(RESTORED_ADVICE)
    print_values(restored, "Restored")


def _report_findings(found: Mapping[str, Any], title: str) -> None:
    """Print what a check of the stores found, each damaged part on a line of its own. Exits with 1 if there is any."""
    damaged = found["damaged"]
    print_values({**found, "damaged": len(damaged)}, title, scripts=found)
    if not damaged:
        return
    if not JSON_OUTPUT.get():
        for part in damaged:
            typer.echo(f"  {cut_line(part)}")
    raise typer.Exit(1)


@database.command()
@report_errors
def current() -> None:
    """Show the database's format, and the format that this release needs."""
    _show_format(upgrade=False)


@database.command()
@report_errors
def upgrade() -> None:
    """Upgrade the database to this release's format, as every start does."""
    _show_format(upgrade=True)


def _show_format(*, upgrade: bool) -> None:
    require_extras("the coordinator", "service")
    import asyncio

    from service.settings import Settings
    from service.storage import stores

    print_values(asyncio.run(stores.database_formats(Settings(), upgrade=upgrade)), "Database")


@database.command()
@report_errors
def check() -> None:
    """Check the database's file and rows, and list any damage. Changes nothing; exits with 1 if there is damage."""
    _check_database(repair=False)


@database.command()
@report_errors
def repair() -> None:
    """Make damaged chains, rounds' ids, the audit log's numbers and end, and the coordinator's public key again from other rows, and check the database; exits with 1 if there is still damage."""
    _check_database(repair=True)


def _check_database(*, repair: bool) -> None:
    require_extras("the coordinator", "service")
    import asyncio

    from service.coordination import checking, repairing
    from service.settings import Settings

    work = repairing.repair_database if repair else checking.find_damage
    _report_findings(asyncio.run(work(Settings())), "Database")
