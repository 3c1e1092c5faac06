"""What people are told, scene by scene, in `texts.md`: one file to review as prose whenever a wording changes.

    .venv/bin/python -m tests.texts.scenes

A test that needs a text asserts its cause, its parties or a number in it; the words stand here alone.
"""

import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from client_sdk.progress import Progress, Step
from tests.study.specs import NOISE, content_of, whole
from tests.support.cli import COMMAND, EXTRACTOR, Cli
from tests.texts.backups import explain_backups
from tests.texts.calls import explain_calls
from tests.texts.experiments import explain_experiments
from tests.texts.tables import explain_tables
from veilsum.cli.commands.member import make_progress_printer
from veilsum.cli.moments import Moments
from veilsum.cli.round_view import progress_line, show_view
from veilsum.protocol.counting import CountOutcome
from veilsum.protocol.messages import NO_CONTEXT, NO_REASON, Link
from veilsum.protocol.messages.opening import LOST_REASON
from veilsum.protocol.opening_rules import step_fault
from veilsum.protocol.rest import CohortView, RoundView, SiteReport, SitesView, SiteView, SpecView
from veilsum.protocol.study import Content, Question
from veilsum.study.explain import Quotation, explain_study
from veilsum.study.forecast import explain_forecast, forecast_study
from veilsum.study.progress import RunEnd, run_over
from veilsum.study.sites import judge_sites

FILE = Path(__file__).with_name("texts.md")
Scene = Iterator[str]
Scenes = Mapping[str, Callable[[], Scene]]

# Studies

KERNEL = {"kind": "random-features", "size": 16, "bandwidth": 1.0}
JUDGE = {"epsilon": 1.0, "delta": 1e-7, "heads": 2, "positive": None, "bins": {"confidence": 5, "score": 8}}
RECORDS = {"least": 50, "most": 20_000, "least_per_class": 5, "rows_per_id": 1}
CCVR = {"ccvr": {"samples_per_class": 100, "power": 0.5}, "publish": ["lda", "pooled"], "readers": "anyone"}
STUDIES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "every class published": ({"withhold": None}, {}),
    "two statistics, named columns": ({"constant": True, "columns": [f"column {place}" for place in range(16)]}, {}),
    "a kernel": ({"statistics": [KERNEL], "records": {**RECORDS, "least": 100}}, {}),
    "CCVR that publishes its sums": ({"statistics": [{"kind": "ccvr"}], "records": {**RECORDS, "least_per_class": 50}}, CCVR),
    "several rows of a record": ({"records": {**RECORDS, "rows_per_id": 4}}, {}),
    "rows from which a test for a known record is weak": ({"records": {**RECORDS, "least": 136}, "withhold": None}, {}),
    "one row fewer": ({"records": {**RECORDS, "least": 135}, "withhold": None}, {}),
    "a posterior and a given λ": ({"constant": True}, {"publish": ["posterior"], "ridge": 0.5}),
    "a judge": ({"judge": JUDGE}, {}),
    "noise for a record": ({"noise": {**NOISE, "recipe": "mean+sum+16-gradients"}, "withhold": None}, {}),
    "noise, and documents that it rules out": ({"noise": NOISE, "withhold": None}, {"publish": ["lda", "pooled"]}),
    "noise that no cohort can run": ({"noise": {**NOISE, "unit": "member"}, "withhold": None}, {}),
}  # fmt: skip
"""Changes to the question and to `after`, beside a study that withholds rare classes."""


def study_of(question: dict[str, Any], after: dict[str, Any]) -> Content:
    values = whole(**question)
    values["after"] |= after
    return content_of(values)


def lines_of(content: Content) -> Scene:
    """Yield a study's explanation and forecast, with its author's words as quotations."""
    sections = [*explain_study(content), explain_forecast(content, forecast_study(content))]
    for section in sections:
        yield f"**{section.heading}**"
        yield from (f"> {each}" if isinstance(each, Quotation) else f"- {each}" for each in section.sentences)


def explain_first() -> Scene:
    values = whole()
    values["notes"]["display"] = ["Benign", "Malignant"]
    values["rehearsal"] = {"pack": "cd" * 32, "tolerance": 0.01}
    yield from lines_of(content_of(values))


def explain_others() -> Scene:
    """Yield of each other study what the one before doesn't say, without simulated runs."""
    first = {*explain_first()}
    for name, change in STUDIES.items():
        yield f"**{name}**"
        lines = (line for line in lines_of(study_of(*change)) if not line.startswith("- Dirichlet"))
        yield from (line for line in lines if line not in first)


# Ends of runs


def explain_ends() -> Scene:
    view = RoundView.model_construct(
        round="0123456789abcdef",
        state="erasing",
        spec=SpecView.model_construct(noise=None, step="sum"),
        waiting_for=("hospital-a", "hospital-b"),
        survivors=("hospital-c",),
        reported=("hospital-c",),
        reports_min=3,
        fault=None,
    )
    for end in RunEnd:
        yield f"- {end.value} (to a member): The round {end.explain_end('quorum-lost: 2 votes [hospital-a]', end.member)}"
        if end.operator:
            yield f"- {end.value} (to the operator): {end.next_for_operator(view)}"


def explain_over() -> Scene:
    """Yield why a run is over, and why a member refuses its last step again."""
    question: Question = content_of(whole()).question
    counts = {b"a" * 32: (12, 12), b"b" * 32: (12, 0), b"c" * 32: (12,) * 8, b"d" * 32: (0,) * 8}
    chains: dict[str, tuple[tuple[str, bytes, str], ...]] = {
        "a sum": (("count", b"a" * 32, NO_REASON), ("sum", b"e" * 32, NO_REASON)),
        "a lost sum": (("count", b"a" * 32, NO_REASON), ("sum", b"e" * 32, LOST_REASON)),
        "a lost count": (("count", b"a" * 32, LOST_REASON),),
        "one class left": (("count", b"b" * 32, NO_REASON),),
        "a count without a result": (("count", b"f" * 32, NO_REASON),),
    }

    def outcome(context: bytes) -> CountOutcome | None:
        names = [f"hospital-{place:02}" for place in range(12)]
        return CountOutcome(counts[context], names, (), 9) if context in counts else None

    for name, chain in chains.items():
        links = [
            Link(bytes(32), place, 0, question.digest, "2026", step, NO_CONTEXT, context, reason, bytes(32) if reason else b"")
            for place, (step, context, reason) in enumerate(chain)
        ]  # fmt: skip
        yield f"- {name}: {run_over(question, '2026', links, outcome, NO_CONTEXT)}"
        yield f"- {name}, opened again: {step_fault(question, '2026', chain[-1][0], links)}"


# Cohorts

MEMBERS = tuple(f"m{place:02}" for place in range(12))
COHORT: dict[str, Any] = {
    "cohort": "ab" * 32,
    "federation": "ab" * 32,
    "study": "ab" * 32,
    "name": "digits",
    "study_version": 1,
    "period": "2026-11",
    "counter": "0",
    "repeats": None,
    "version": 1,
    "members": MEMBERS,
    "quorum": None,
    "fault": None,
}
FORMING: list[dict[str, Any]] = [
    {"state": "enrolling", "cards": MEMBERS[:11], "deadline_s": 0.0},
    {"state": "pairing", "cards": MEMBERS, "paired": MEMBERS[1:], "deadline_s": 0.0},
    {"state": "pairing", "cards": MEMBERS, "left_out": MEMBERS[:1], "paired": MEMBERS[2:], "deadline_s": 0.0},
    {"state": "formed", "cards": MEMBERS[:11], "deadline_s": None},
    {"state": "formed", "cards": MEMBERS[:11], "left_out": MEMBERS[:2], "deadline_s": None},
]


def watch_cohorts() -> Scene:
    """Yield a cohort's progress line by line, without times of day, and what is shown of it at the end."""
    for changes in FORMING:
        line, until, _ = progress_line(CohortView.model_validate(COHORT | changes)).partition(" until ")
        yield f"- {line}{until and ' until …'}"
    formed = CohortView.model_validate(COHORT | FORMING[-1] | {"paired": MEMBERS[2:11], "step": "sum"})
    with redirect_stdout(StringIO()) as shown:
        show_view(formed)
    yield from (f"    {shorten(line)}" for line in shown.getvalue().splitlines())


# Sites of a rehearsal

WELL: dict[str, Any] = {
    "release": "1",
    "sent_s": 0.0,
    "free_bytes": 1 << 40,
    "slips": (),
    "difference": 0.001,
    "detail": "",
    "upload_bytes": 25_000_000,
    "upload_s": 4.0,
}
SITES: dict[str, dict[str, Any]] = {
    "canaries": {"slips": ("bgr",), "detail": "Blue comes first."},
    "clock": {"clock_ahead_s": -300.0},
    "disk": {"free_bytes": 0},
    "release": {"release": "2"},
    "upload": {"upload_s": 6.0},
}


def judge_each_site() -> Scene:
    def verdict(*cards: str, dropped: tuple[str, ...] = (), report: dict[str, Any] | None = None) -> str:
        changes = dict(report or {})
        view = SiteView(
            member="a", clock_ahead_s=changes.pop("clock_ahead_s", 0.0), report=SiteReport(**WELL | changes)
        )
        shown = SitesView(sites=() if report is None else (view,))
        return " ".join(judge_sites(["a"], cards, dropped, shown, 10.0, "1")[0].verdict)

    for name, change in SITES.items():
        yield f"- {name}: {verdict('a', report=change)}"
    yield f"- it dropped out: {verdict('a', dropped=('a',), report={})}"
    refused_on_the_way = {"upload_s": None, "detail": "HTTP 413 at 25 MB"}
    yield f"- a proxy refused its upload: {verdict('a', dropped=('a',), report=refused_on_the_way)}"
    yield f"- no report: {verdict('a')}"
    yield f"- no card: {verdict()}"


# Commands


def list_commands() -> Scene:
    """Yield each command as `--help` introduces it; the groups' names are the roles."""
    yield from (f"    {line.rstrip()}" for line in describe_group(COMMAND))


def describe_group(group: Any, path: str = "veilsum") -> Scene:
    for name, command in group.commands.items():
        panel = f" ({command.rich_help_panel})" if path == "veilsum" else ""
        summary = command.help.split("\n")[0]
        yield f"{path} {name}{panel}: {summary}"
        if hasattr(command, "commands"):
            yield from describe_group(command, f"{path} {name}")


def watch_progress() -> Scene:
    """Yield what a member sees while it waits; times of day are left out."""
    waiting: dict[str, Any] = {"phase": "collecting", "total": 3, "until_s": 0.0}
    with redirect_stderr(StringIO()) as shown:
        tell = make_progress_printer()
        for event in (
            Progress(Step.MASKING, done=1, total=2),
            Progress(Step.MASKING, done=2, total=2),
            Progress(Step.WAITING, done=1, waiting_for=("a", "b"), **waiting),
            Progress(Step.WAITING, done=1, waiting_for=("a", "b"), **waiting),
            Progress(Step.WAITING, done=2, waiting_for=("b",), **waiting),
            Progress(Step.ANSWERING, detail="vote"),
        ):
            tell(event)
    yield from (f"    {line.partition(' until ')[0]}" for line in shown.getvalue().splitlines())


KEY = f"{7:02x}" * 32
NEW = f"--coordinator {KEY} --member a={'01' * 32} --member b={'02' * 32}"
STUDY = f"admin study new s.toml --dim 64 --class cat --class dog --members 12 --extractor {EXTRACTOR}"
COMMANDS = f"""
admin roster r.json {NEW} --folder admin
admin new admin
admin new admin
admin roster r.json {NEW} --folder admin
admin roster r.json --member c
admin roster r.json --member c=zz
admin roster r.json --member C={"03" * 32}
admin roster r.json --member c={"03" * 32} --member c={"04" * 32}
admin roster r.json --remove z
admin roster r.json --revoke abc
admin roster r.json --decryptor z --folder admin
admin roster missing/r.json {NEW}
admin study check s.toml
{STUDY} --class bär
{STUDY.replace(EXTRACTOR, "ab")}
{STUDY}
{STUDY}
admin study sign s.toml --folder nowhere
admin study sign s.toml --folder admin --output s.toml
admin publish nowhere.bin --url http://127.0.0.1:9
member new a --member hospital-a --admin-key 12
member new a --member hospital-a
member new a --member hospital-b
member new b --member Hospital
member join b rows.npz --url http://127.0.0.1:9
member join a rows.npz --url http://127.0.0.1:9 --admin-key {KEY} --approve {KEY}
member ledger b
verify a --admin-key {KEY}
calibrate rows.npz
""".strip()
DIGITS = re.compile(r"\b[0-9a-f]{64}\b")


@contextmanager
def shell() -> Iterator[Cli]:
    """Yield the commands in a folder of their own, without a coordinator."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        for name in [name for name in os.environ if name.startswith("VEILSUM_")]:
            patched.delenv(name)
        yield Cli(Path(folder))


def run_commands() -> Scene:
    """Yield each command, and what it says if it fails."""
    with shell() as cli:
        for line in COMMANDS.splitlines():
            outcome = cli(*line.split())
            yield f"    $ veilsum {shorten(line)}"
            if outcome.code:
                yield f"    veilsum: {shorten(outcome.error)}"


def read_tables() -> Scene:
    with shell() as cli:
        Moments(np.zeros(2), np.ones(2)).save_moments(Path("moments.safetensors"))
        yield from explain_tables(cli)


def shorten(text: str) -> str:
    """Shorten digests to their first digits."""
    return DIGITS.sub(lambda digits: f"{digits[0][:4]}…", text)


def make_wrong_calls() -> Scene:
    with shell():
        yield from explain_calls()


def restore_backups() -> Scene:
    with shell() as cli:
        yield from map(shorten, explain_backups(cli))


SCENES: Scenes = {
    "A study": explain_first,
    "What other studies say beside that": explain_others,
    "How a round ends": explain_ends,
    "Why a run is over": explain_over,
    "How a cohort forms": watch_cohorts,
    "Sites of a rehearsal": judge_each_site,
    "Commands": list_commands,
    "What a member sees while it waits": watch_progress,
    "Commands that fail": run_commands,
    "Wrong calls in Python": make_wrong_calls,
    "Tables that cannot be read": read_tables,
    "Backups that are not restored": restore_backups,
    "Experiments that cannot run": explain_experiments,
}


def render() -> str:
    """Return the whole file."""
    parts = [
        "# What people are told\n\nWritten by `python -m tests.texts.scenes`. Read a change of it as prose."
    ]
    for name, scene in SCENES.items():
        parts.append(f"## {name}\n")
        parts.append("\n".join(scene()))
    return "\n\n".join(parts).replace("\n\n\n", "\n\n") + "\n"


if __name__ == "__main__":
    FILE.write_text(render(), "utf-8")
