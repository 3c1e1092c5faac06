"""The command line in this process, in any thread. Each thread captures its own command's output."""

import io
import json
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import pytest
from typer.main import get_command

from client_sdk import Identity, Member, Policy
from veilsum.cli.app import app
from veilsum.cli.features import read_records
from veilsum.cli.remote import open_operator
from veilsum.protocol.rest import CohortView, RoundView

EXTRACTOR = "ab" * 32
TOKEN = "token-of-the-operator"
DIM, CLASSES = 6, 3
PERIOD = "2026-11"
PATIENCE_S = 180.0
"""Time limit of a whole run on a slow, shared machine."""
COMMAND = get_command(app)
T = TypeVar("T")


class PerThread(io.TextIOBase):
    """A stream that captures each thread's output separately; typer's CliRunner has one stream for all threads."""

    encoding = "utf-8"

    def __init__(self) -> None:
        self._texts: dict[int, io.StringIO] = {}

    def begin(self) -> io.StringIO:
        return self._texts.setdefault(threading.get_ident(), io.StringIO())

    def end(self) -> str:
        return self._texts.pop(threading.get_ident()).getvalue()

    def write(self, text: str) -> int:
        stream = self._texts.get(threading.get_ident())
        return len(text) if stream is None else stream.write(text)


OUT, ERR = PerThread(), PerThread()


@dataclass(frozen=True)
class Outcome:
    """How a command ended and what it printed."""

    code: int
    out: str
    err: str

    @property
    def values(self) -> dict[str, Any]:
        return cast("dict[str, Any]", json.loads(self.out))

    @property
    def error(self) -> str:
        """The error line of a failed command, which printed no traceback."""
        assert self.code == 1, self
        last = self.err.rstrip().splitlines()[-1]
        assert last.startswith("veilsum: "), self
        assert "Traceback" not in self.err
        return last.removeprefix("veilsum: ")


def split_words(words: Iterable[object]) -> Iterator[str]:
    """Yield a command's words. Its name, and options with their values, may stand in one string."""
    for place, word in enumerate(words):
        whole = isinstance(word, str) and (place == 0 or word.startswith("--"))
        yield from str(word).split() if whole else [str(word)]


def run(*words: object) -> Outcome:
    """Run a command inside `streams`."""
    OUT.begin()
    ERR.begin()
    code: object = None
    try:
        COMMAND([*split_words(words)], prog_name="veilsum")
    except SystemExit as end:
        code = end.code
    finally:
        out, err = OUT.end(), ERR.end()
    return Outcome(0 if code is None else cast("int", code), out, err)


_LOCK = threading.Lock()
_COMMANDS, _BEFORE = [0], pytest.MonkeyPatch()


@contextmanager
def streams() -> Iterator[None]:
    """Replace the process's streams while any command runs; pytest replaces them between commands."""
    with _LOCK:
        _COMMANDS[0] += 1
        if sys.stdout is not OUT:  # a command that an earlier test left behind may still run
            _BEFORE.setattr(sys, "stdout", OUT)
            _BEFORE.setattr(sys, "stderr", ERR)
    try:
        yield
    finally:
        with _LOCK:
            _COMMANDS[0] -= 1
            if not _COMMANDS[0]:
                _BEFORE.undo()


class Cli:
    """Run `veilsum` with the coordinator's address and the operator's token."""

    def __init__(self, folder: Path, url: str = "") -> None:
        self.folder, self.url = folder, url
        self.said: list[Outcome] = []

    def __call__(self, *words: object) -> Outcome:
        with streams():
            outcome = run(*words)
        self.said.append(outcome)
        return outcome

    def json(self, *words: object) -> dict[str, Any]:
        """Run a command that must succeed, and return its JSON."""
        outcome = self(*words, "--json")
        assert outcome.code == 0, outcome
        return outcome.values

    def at(self, *words: object) -> tuple[object, ...]:
        return (*words, "--url", self.url)

    def operate(self, *words: object) -> dict[str, Any]:
        return self.json(*self.at(*words), "--token", TOKEN)


class CliConsortium:
    """A federation with a published study, set up by commands alone.

    Args:
        cli: with the coordinator's address.
        members: how many; each has 40 rows.
        withhold: count the classes' holders first; otherwise every class is published.
        edits: text to replace in the study's draft.
    """

    def __init__(
        self,
        cli: Cli,
        members: int = 3,
        *,
        seed: int = 0,
        withhold: bool = False,
        edits: Mapping[str, str] = {},
        held_out: float = 0,
    ) -> None:
        self.cli, self.folder = cli, cli.folder
        self.members = tuple(f"m{index}" for index in range(members))
        self.admin = cli.json("admin", "new", self.folder / "admin")["federation"]
        keys: list[str] = []
        for member in self.members:
            words = ("member", "new", self.folder / member, "--member", member, "--held-out", held_out)
            shown = cli.json(*words)
            keys += ["--member", f"{member}={shown['public_key']}"]
        self.draft = self.folder / "roster.json"
        cli.json(*cli.at("admin", "roster", self.draft, "--folder", self.folder / "admin", *keys))
        self.roster = self.draft.with_suffix(".bin")
        self.study, self.approval = self.signed_study("digits", withhold=withhold, edits=edits)
        cli.operate("admin", "publish", self.roster, self.study)
        rng = np.random.default_rng(seed)
        self.files = [self.write(member, *records(rng, 40)) for member in self.members]
        self.test = self.write("test", *records(rng, 30))

    def signed_study(
        self, name: str, *, withhold: bool = False, edits: Mapping[str, str] = {}
    ) -> tuple[Path, str]:
        """Make and sign a study; return its file and its approval digest."""
        path = self.folder / f"{name}.toml"
        keys = [word for index in range(CLASSES) for word in ("--class", f"class-{index}")]
        words = ("--extractor", EXTRACTOR, "--dim", DIM, "--members", len(self.members), "--name", name)
        keys += ["--why-not-listable", "simulated features"]
        self.cli.json("admin", "study", "new", path, *words, *keys)
        text = path.read_text()
        if not withhold:
            text = text.replace("[question.withhold]", "#").replace("margin = ", "# margin = ")
            text = text.replace('# why_not_withheld = ""', 'why_not_withheld = "simulated classes"')
        for old, new in edits.items():
            assert old in text, old
            text = text.replace(old, new)
        path.write_text(text)
        signed = self.cli.json("admin", "study", "sign", path, "--folder", self.folder / "admin")
        return Path(signed["study"]), str(signed["approval"])

    def write(self, name: str, features: Any, labels: Any, ids: Any = None) -> Path:
        path = self.folder / f"{name}.npz"
        np.savez(path, features=features, labels=labels, **({} if ids is None else {"ids": ids}))
        return path

    def words(self, member: str, *more: object) -> tuple[object, ...]:
        data = self.files[self.members.index(member)]
        words = ("member", "join", self.folder / member, data, "--admin-key", self.admin)
        return self.cli.at(*words, "--approve", self.approval, "--once", *more)

    def join(self, member: str, *more: object) -> "Future[Outcome]":
        """Run `veilsum member join` in a thread."""
        return later(self.cli, *self.words(member, *more))

    def enrolled(self) -> str:
        """Form a cohort whose members then go offline; return its id."""
        cohort: str = self.cli.operate("operator", "cohort", "open", self.study, "--period", PERIOD)["cohort"]

        def one(member: str) -> None:
            policy = Policy(admin_key=self.admin, approved={self.approval})
            with Member(self.cli.url, Identity.load(self.folder / member), policy) as joined:
                joined.enrol(cohort, read_records(self.files[self.members.index(member)]))

        for each in [threaded(partial(one, member)) for member in self.members]:
            each.result(PATIENCE_S)
        return cohort

    def run(self, *more: object) -> "Future[Outcome]":
        """Run `veilsum operator run` in a thread."""
        words = ("operator", "run", self.study, "--period", PERIOD, "--token", TOKEN, *more)
        return later(self.cli, *self.cli.at(*words))

    def held(self, *more: object) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        """Hold a whole run; return its signed record, and each member's printed output."""
        run, joins = self.run("--json"), {member: self.join(member, "--json") for member in self.members}
        printed = {}
        for member, each in joins.items():
            outcome = each.result(PATIENCE_S)
            assert outcome.code == 0, outcome
            printed[member] = outcome.values
        done = run.result(PATIENCE_S)
        assert done.code == 0, done
        return done.values, printed

    def result(self, member: str) -> Path:
        """Return the folder of a member's result."""
        return self.folder / member / "results" / "digits" / PERIOD

    def secrets(self) -> Iterator[str]:
        """Yield what no command may print, as text and as hexadecimal."""
        yield TOKEN
        yield (self.folder / "admin" / "admin.key").read_bytes().hex()
        for member in self.members:
            yield (self.folder / member / "identity.key").read_text().strip()


def later(cli: Cli, *words: object) -> "Future[Outcome]":
    """Run a command in a daemon thread."""
    return threaded(lambda: cli(*words))


def threaded(work: Callable[[], T]) -> "Future[T]":
    """Run work in a daemon thread, so that a failing test doesn't keep pytest from ending."""
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # noqa: BLE001 - `result` raises it in the caller
            done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return done


def until(url: str, federation: str, met: Callable[[CohortView, list[RoundView]], bool]) -> CohortView:
    """Wait until a condition on the federation's newest cohort and its rounds is met; return the cohort."""
    with open_operator(url) as client:
        end_s = time.monotonic() + PATIENCE_S
        while time.monotonic() < end_s:
            for run in client.runs(federation).runs[-1:]:
                view = client.cohort(run.cohort)
                if met(view, [client.round(each) for each in view.rounds]):
                    return view
            time.sleep(0.1)
    raise AssertionError("the cohort did not come so far")


def records(rng: np.random.Generator, count: int) -> tuple[Any, Any]:
    """Make features of unit length that cluster by label."""
    labels = np.arange(count) % CLASSES
    features = rng.normal(size=(count, DIM)) + 3 * np.eye(CLASSES, DIM)[labels]
    return features / np.linalg.norm(features, axis=1, keepdims=True), labels
