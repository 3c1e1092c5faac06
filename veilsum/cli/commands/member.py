"""`veilsum member`: create an identity, take part in runs, and show the ledger of records."""

import itertools
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from veilsum.cli.commands.doctor import canaries, doctor
from veilsum.cli.console import JSON_OUTPUT, format_time, print_note, print_table, print_values
from veilsum.cli.membership import (
    APPROVALS_FILE,
    find_admin_key,
    newest_studies,
    pin_admin_key,
    read_approvals,
)
from veilsum.cli.names import approval_digest
from veilsum.cli.options import DEFAULT_URL, AdminKey, Ca, Folder, Url, add_table_options, report_errors
from veilsum.protocol.errors import Misuse
from veilsum.system.intervals import COMMAND_RETRY_S, RUNS_POLL_S, STUDIES_POLL_S

if TYPE_CHECKING:
    from client_sdk import Identity, Member, Policy, Result
    from client_sdk.progress import Progress
    from client_sdk.records import Marks
    from client_sdk.reservations import Run
    from client_sdk.store import Store
    from veilsum.cli.features import FileRecords
    from veilsum.cli.tables import TableFormat
    from veilsum.protocol.study import Content

app = typer.Typer(help="Contribute sums over your own records.", no_args_is_help=True)


@app.command()
@report_errors
def new(
    folder: Annotated[Path, typer.Argument(help="The identity's folder; created.")],
    member: Annotated[str, typer.Option(help="The member's id: a-z, 0-9 and '-'.")],
    admin_key: Annotated[
        str | None,
        typer.Option(help="Pin the admin's public key.", show_default="pin it at `veilsum member join`"),
    ] = None,
    held_out: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE",
            help="Share of your records to hold out of every count and sum, for life, to judge heads on. 0: none.",
            show_default="0.1",
        ),
    ] = None,
) -> None:
    """Create an identity, an Ed25519 key. Send its public key to the federation's admin.

    If the folder already holds this member's identity, show it again.
    """
    from client_sdk import Identity

    key = None if admin_key is None else find_admin_key(folder, admin_key)
    made = _find_identity(folder, member) or Identity.create(folder, member, held_out=held_out)
    if key is not None:
        pin_admin_key(made.folder, key)
    values = {
        "member": made.member,
        "public_key": made.public.hex(),
        "fingerprint": made.fingerprint,
        "folder": str(made.folder),
        "if_lost": "make a new identity, and run `veilsum member mark-summed`, so that no record is summed twice",
    }
    print_values(values, "Identity")


def _find_identity(folder: Path, member: str) -> "Identity | None":
    from client_sdk import Identity
    from veilsum.system.key_files import IDENTITY_KEY

    if not (folder / IDENTITY_KEY).exists():
        return None
    found = Identity.load(folder)
    if found.member != member:
        raise Misuse(f"{folder} holds the identity of {found.member}, not of {member}: choose another folder")
    return found


@app.command()
@add_table_options
def join(
    form: "TableFormat",
    folder: Folder,
    data: Annotated[Path, typer.Argument(help="Features and labels: .npz, .safetensors, .parquet or .csv.")],
    approve: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DIGEST",
            help="Approve a study by its approval digest, 64 hex digits. Repeat.",
            show_default="ask",
        ),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Stop after one run.")] = False,
    admin_key: AdminKey = None,
    standardise: Annotated[
        Path | None,
        typer.Option(
            help="Standardise tabular features by the moments in this file, whose SHA-256 is the study's extractor."
        ),
    ] = None,
    test_set: Annotated[
        Path | None,
        typer.Option(
            help="Judge heads on this file of records that you did not contribute.",
            show_default="your records that were not summed",
        ),
    ] = None,
    mu_budget: Annotated[
        float, typer.Option(help="Noise budget of a record for life, as μ of Gaussian differential privacy.")
    ] = 2.0,
    epsilon_max: Annotated[
        float | None,
        typer.Option(help="Refuse studies with a larger ε, and all exact ones.", show_default="the study's"),
    ] = None,
    site_report: Annotated[
        bool,
        typer.Option(
            help="In a rehearsal, tell the operator this site's release, clock, free disk space, upload time, and how its canaries compare."
        ),
    ] = True,
    output: Annotated[
        Path | None,
        typer.Option(
            help="Where results go, by study and period; a second one of a period gets a number.",
            show_default="FOLDER/results",
        ),
    ] = None,
    url: Url = DEFAULT_URL,
    ca: Ca = None,
) -> None:
    """Take part in runs of approved studies until stopped: enrol, contribute, help to decrypt, verify, and save each result.

    The first time, it explains the study and asks for your approval. After an interruption, run it again: it continues where it stopped.
    """
    from client_sdk import Identity, Policy
    from client_sdk.store import Store
    from veilsum.calibration import CalibrationError
    from veilsum.cli.features import read_records
    from veilsum.cli.read_report import ReadReport, report_files
    from veilsum.cli.remote import open_member
    from veilsum.system.files import make_folder

    identity = Identity.load(folder)
    key, store = find_admin_key(folder, admin_key), Store(identity.folder)
    results = output or identity.folder / "results"
    make_folder(results)
    if not os.access(
        results, os.W_OK | os.X_OK
    ):  # before any record is reserved for a result that can't be saved
        raise Misuse(
            f"results can't be saved in {results}: no permission to write there; choose another --output"
        )

    opened = partial(open_member, url, ca, identity, progress=make_progress_printer())
    records = read_records(data, form, standardise)
    if records.ids is None:
        print_note(
            f"{data} has no ids, so all of it counts as one record. Once a run takes it, no later run takes any of your records, with ids or without. "
            "To contribute in later periods, add ids now."
        )
    given_files, judges = {data: records}, None
    if test_set is not None:
        given_files[test_set] = judges = read_records(test_set, form, standardise)
    report_files([*given_files], [*given_files.values()])
    given = Policy(
        admin_key=key,
        approved=tuple(map(approval_digest, approve or ())),
        mu_budget=mu_budget,
        epsilon_max=epsilon_max,
        reports_site=site_report,
    )
    with opened(given) as member:
        agreed = _await_approvals(member, given, records, store, once=once)
        if standardise is not None:
            _check_extractor(member, agreed, standardise, records)
        pin_admin_key(identity.folder, key)
    with opened(replace(given, approved=agreed)) as member:
        missed = load_unexported(store)
        joined = () if missed and once else member.join(records, once=once)
        for result in itertools.chain(missed, joined):
            judged = result
            try:
                judged = member.judge(result, records, held_out=judges)
            except (CalibrationError, Misuse) as error:  # the data are not those of the run
                print_note(f"The head was not judged: {error}")
            classes = result.spec.question.classes
            read = [
                ReadReport.of_records(str(path), each, classes).values for path, each in given_files.items()
            ]
            _save_result(store, judged, results, read)
            store.mark_exported(result.record.round)


def _check_extractor(
    member: "Member", agreed: "frozenset[bytes | str]", moments: Path, records: "FileRecords"
) -> None:
    """Refuse moments that no approved study names as its extractor, or whose order of columns is not the study's (Misuse)."""
    from veilsum.cli.moments import Moments

    published = [member.study(view.study) for view in newest_studies(member.studies())]
    approved = [content for content in published if content.approval.hex() in agreed]
    named = [content for content in approved if content.question.extractor == records.moments_digest]
    if approved and not named:
        extractors = "; ".join(f"{each.notes.name}: {each.question.extractor}" for each in approved)
        raise Misuse(
            f"{moments} has SHA-256 {records.moments_digest}, which is the extractor of no approved study ({extractors}): ask "
            "the admin for the study's moments, or leave out --standardise if the study sums the features of a network"
        )
    unnamed = not Moments.load_moments(moments).columns
    for content in named:
        if unnamed and records.check_columns(content.question):
            raise Misuse(
                f"{moments} names no columns, so yours must be in the order of study {content.notes.name}: "
                f"{', '.join(content.question.columns)}"
            )


def _await_approvals(
    member: "Member", given: "Policy", records: "FileRecords", store: "Store", *, once: bool
) -> "frozenset[bytes | str]":
    """Return the digests of the approved studies. If this identity has approved a study before, wait for the coordinator as an agent does."""
    from client_sdk.errors import UnexpectedAnswer, Unreachable

    while True:
        try:
            return _approve_studies(member, given, records, store)
        except (Unreachable, UnexpectedAnswer) as error:
            if once or not (store.folder / APPROVALS_FILE).exists():  # the address may be wrong
                raise
            print_note(f"waiting for the coordinator, still trying: {error}")
        time.sleep(RUNS_POLL_S)


def _approve_studies(
    member: "Member", given: "Policy", records: "FileRecords", store: "Store"
) -> "frozenset[bytes | str]":
    """Return the digests of the studies that this member approves: given, approved before, or approved now.

    Names and digests come from the signed study. The coordinator's listing only tells which study to fetch.
    """
    from client_sdk.policy import bytes_of
    from veilsum.system.files import write_durably

    kept, covered = read_approvals(store.folder), False
    marks = store.ledger.marks_in(given.federation)
    while True:
        published = dict[str, str]()
        for view in newest_studies(member.studies()):
            content = member.study(view.study)
            published[content.approval.hex()] = content.notes.name
            digest, wanted = content.approval.hex(), given.approves(content)
            if digest not in kept:
                if not wanted and given.approved:
                    continue
                _print_explanation(content, records, marks)
                if not wanted and not ask_approval(content):
                    continue
                kept[digest] = content.notes.name
                write_durably(store.folder / APPROVALS_FILE, json.dumps(kept, indent=2).encode())
            else:
                _say_usable(content, records, marks)
            covered = True
        for each in {bytes_of(approval, "approved").hex() for approval in given.approved} - {*published}:
            shown = (
                ", ".join(f"{name} ({digest})" for digest, name in published.items())
                or "none in force by this machine's clock"
            )
            print_note(
                f"No published study has the approval digest {each}. Published: {shown}. Waiting for one."
            )
        if kept and not (covered or given.approved):
            # A round of an expired study may still wait for this member to erase its keys, or to fetch the result.
            print_note(
                "No study that you can join is published yet. Once one is, run the same command again to approve it."
            )
        if kept or given.approved:
            return frozenset({*kept, *given.approved})
        if JSON_OUTPUT.get() or not sys.stdin.isatty():
            raise Misuse("no study is approved: pass --approve with the digest that the admin gave you")
        print_note("No study that you can join is published yet. Waiting for one.")
        time.sleep(STUDIES_POLL_S)


def _print_explanation(content: "Content", records: "FileRecords", marks: "Marks") -> None:
    from veilsum import study
    from veilsum.cli.explanation import print_explanation

    print_explanation(study.explain.explain_study(content), sys.stderr)
    _say_usable(content, records, marks)
    print_note(f"Approval digest: {content.approval.hex()}")


def _say_usable(content: "Content", records: "FileRecords", marks: "Marks") -> None:
    """Report which records a study can use, why it can't use others, and how many are held out of its sums."""
    from veilsum.calibration import CalibrationError
    from veilsum.cli.read_report import ReadReport

    try:
        records.check_columns(content.question)
    except (CalibrationError, Misuse) as error:
        print_note(f"{content.notes.name}: your records can't be used: {error}")
        return
    report = ReadReport.of_records("", records, content.question.classes)
    why = "".join(f"; skipped {count:,}: {reason}" for reason, count in report.skipped.items())
    usable = report.rows - sum(report.skipped.values())
    held = marks.count_held_out(records, content.question)
    out = f"; {held:,} of these are held out of every sum" if held else ""
    print_note(f"{content.notes.name}: of your {report.rows:,} rows {usable:,} can be used{out}{why}")
    if report.classes:
        print_note(f"{content.notes.name}: {report.list_classes()}")
    for hint in report.hints:
        print_note(f"Hint: {content.notes.name}: {hint}")
    if usable:
        _warn_of_table(content, records)


def _warn_of_table(content: "Content", records: "FileRecords") -> None:
    """Warn before an exact sum if the records look like a table that could be listed. Only this member sees it."""
    from client_sdk.records import COARSE_VALUES

    question = content.question
    if question.noise is None and (coarse := records.count_coarse_columns(question)):
        print_note(
            f"WARNING: {coarse:,} of your {question.dim:,} features {'has' if coarse == 1 else 'have'} fewer than {COARSE_VALUES} distinct values. If every input that a patient could have fits "
            f"into a list of 10^12 rows, the exact sum of {content.notes.name} gives your patients' records back. "
            "The study's author says why no such list is possible. If you doubt it, don't take part: ask the admin for a study with noise."
        )


def ask_approval(content: "Content") -> bool:
    """Ask whoever is at the terminal to approve a study. Raises `Misuse` if there is no terminal."""
    from veilsum import study
    from veilsum.cli.explanation import check_terminal

    if JSON_OUTPUT.get() or not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Misuse(
            f"study {content.notes.name} is not approved, and there is no terminal to ask on: check it, then pass "
            f"--approve {content.approval.hex()}"
        )
    check_terminal()
    noise = study.explain.name_noise(content.question)
    once = "be summed only once" if content.question.noise is None else "enter this study only once"
    return typer.confirm(f"Each record can {once}. Approve study {content.notes.name} ({noise})?", err=True)


def _save_result(store: "Store", result: "Result", folder: Path, read: list[dict[str, Any]]) -> None:
    """Save a result, and report what was read and what happened to the records."""
    from veilsum.cli.judged_report import describe_figures, print_comparison, print_figures
    from veilsum.cli.round_view import record_values

    record, content = result.record, result.content
    names = content.class_names
    target = _result_folder(result, folder / record.name)
    result.save(target)
    run = store.ledger.find_run(result.spec.question.digest, record.period)
    if JSON_OUTPUT.get():
        records = None if run is None else _spent_values(run)
        judged = None if result.judged is None else result.judged.model_dump(mode="json")
        if result.spec.judges:
            judged = describe_figures(result.judge_figures, names)
        facts = {"read": read, "record": record.model_dump(mode="json"), "counted": result.counted}
        outcome = {"upload": result.standing, "saved": str(target)}
        print_values({**facts, **outcome, "records": records, "judged": judged})
        return
    outcome = {"your_upload": result.standing, "saved": str(target)}
    print_values({**record_values(record, names), **outcome}, "Verified result")
    if run is not None:
        print_values(_spent_values(run), "Your records")
        if result.counted and not result.spec.judges:
            print_note(
                "These records are spent: no other sum of this extractor can include them."
                if record.noise is None
                else "This can't be repeated: the noise budget that these records spent is gone for life."
            )
    if result.head is not None:
        print_comparison(result.judged, names)
    if result.spec.judges:
        print_figures(result.judge_figures, names)


def load_unexported(store: "Store") -> "list[Result]":
    """Load results that were verified but not saved, because this command was killed.

    Rehearsals and earlier steps have no result to keep. They are not loaded: the steps of many noisy runs may take gigabytes.
    """
    from client_sdk import Result
    from client_sdk.evidence import Evidence
    from veilsum.protocol.periods import PeriodKind

    folders = [path for path in store.unexported_folders() if Result.saved_in(path)]
    found = ((path, Evidence.load(path)) for path in folders)
    return [
        Result.load(path)
        for path, evidence in found
        if evidence.ends_run and evidence.attempt.spec.kind is not PeriodKind.REHEARSAL
    ]


def _result_folder(result: "Result", folder: Path) -> Path:
    """Return the result's own folder, or the next free one: `2026-11`, then `2026-11.2` for a repeat or a later version of the study."""
    from client_sdk import Result

    period = result.record.period  # has no dot
    names = itertools.chain([period], (f"{period}.{number}" for number in itertools.count(2)))
    places = (folder / name for name in names)
    return next(
        place
        for place in places
        if not Result.saved_in(place) or Result.load(place).record.round == result.record.round
    )


def _spent_values(run: "Run") -> dict[str, Any]:
    return {
        "rows_used": run.rows,
        "records_spent" if run.state == "spent" else "records_reserved": run.records,
        "rows_held_out": run.held_out,
        "rows_skipped_unusable": run.unusable,
        "rows_skipped_not_free": run.taken,
        "rows_beyond_the_limit": run.beyond,
    }


def make_progress_printer() -> "Callable[[Progress], None]":
    """Return a function that reports progress on stderr, one line for each change."""
    from client_sdk.progress import Step

    last: list[object] = [None]

    def tell(event: "Progress") -> None:
        of_chunks = event.step in {Step.MASKING, Step.UPLOADING}
        if of_chunks and event.done != event.total:
            return
        if (event.step, event.phase, event.waiting_for, event.detail) == last[0]:
            return
        last[0] = (event.step, event.phase, event.waiting_for, event.detail)
        print_note(event.detail or _describe_wait(event, "chunks" if of_chunks else "members"))

    return tell


def _describe_wait(event: "Progress", counted: str) -> str:
    from veilsum.protocol.rest import join_names
    from veilsum.study.progress import STAGE_TITLES

    line = STAGE_TITLES.get(event.phase, event.phase or event.step.value)
    if event.total:
        line += f": {event.done} of {event.total} {counted}"
    if event.waiting_for:
        line += f", waiting for {join_names(event.waiting_for)}"
        if event.until_s is not None:
            line += f" until {format_time(event.until_s)}"
    return line


@app.command()
@add_table_options
def mark_summed(
    form: "TableFormat",
    folder: Folder,
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Files of records, as `join` takes them.")
    ],
    admin_key: AdminKey = None,
) -> None:
    """Mark all records of these files as summed, for life: no run takes them any more.

    For a new identity in place of one whose folder was lost, or restored from an older copy: mark all records that you have today.
    """
    from client_sdk import Identity, Member, Policy
    from veilsum.cli.features import read_records
    from veilsum.cli.read_report import report_files

    identity = Identity.load(folder)
    key = find_admin_key(folder, admin_key)
    records = [read_records(path, form) for path in files]
    read = report_files(files, records)
    with Member(DEFAULT_URL, identity, Policy(admin_key=key)) as member:
        marked = sum(map(member.mark_summed, records))
    pin_admin_key(identity.folder, key)
    values = {"records_marked": marked, "folder": str(identity.folder)}
    print_values(values, "Marked as summed", scripts={"read": read, **values})


@app.command()
@report_errors
def ledger(
    folder: Folder,
    give_up: Annotated[
        str | None,
        typer.Option(
            metavar="STUDY",
            help="Give up a run for good. Its records are free once all its attempts have ended without spending them.",
        ),
    ] = None,
    period: Annotated[str | None, typer.Option(help="The period of the run to give up.")] = None,
    url: Url = DEFAULT_URL,
    ca: Ca = None,
) -> None:
    """Show the runs that this member answered, and what happened to its records.

    Giving up a run asks the coordinator how its attempts ended. If it is out of reach, `veilsum member join` asks later.
    """
    from client_sdk import Identity, Policy
    from client_sdk.store import Store
    from veilsum.cli.remote import open_member
    from veilsum.protocol.forms import count_noun
    from veilsum.protocol.periods import PeriodKind

    identity = Identity.load(folder)
    if (give_up is None) != (period is None):
        raise Misuse("--give-up and --period go together")
    if give_up is not None and period is not None:
        policy = Policy(admin_key=find_admin_key(folder, None))
        with open_member(url, ca, identity, policy, patience_s=COMMAND_RETRY_S) as member:
            member.give_up(give_up, period)
    own = Store(identity.folder).ledger
    rows = [
        {
            "study": each.study,
            "period": each.period,
            "state": f"{each.state}, given up" if each.given_up else each.state,
            "counted": "yes" if each.counted else "no",
            "records": each.records,
            "rows": each.rows,
            "noise": f"μ = {each.mu:.3g}" if each.noisy else "none",
        }
        for each in own.list_runs()
        if each.kind is not PeriodKind.REHEARSAL
    ]
    print_table("Runs", rows, empty="No runs yet.")
    if marked := own.count_marked():
        print_note(f"Marked as summed, for life: {count_noun(marked, 'record')}.")


app.command()(doctor)
app.command()(canaries)
