"""The command line in this process, in any thread: each sees what its own command printed."""

import io
import json
import sys
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from typer.main import get_command

from protocol.rest import CohortView
from tests.threads import later
from veilsum.cli import app
from veilsum.remote import changes, operator

EXTRACTOR = "ab" * 32
TOKEN = "token-of-the-operator"
DIM, CLASSES = 6, 3
COMMAND = get_command(app)


class PerThread(io.TextIOBase):
    """A stream that keeps what each thread wrote apart; typer's CliRunner has one stream for all."""

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
        """The one line of a command that failed, without a traceback."""
        assert self.code == 1, self
        last = self.err.rstrip().splitlines()[-1]
        assert last.startswith("veilsum: "), self
        assert "Traceback" not in self.err
        return last.removeprefix("veilsum: ")


def run(*words: object) -> Outcome:
    """One command, where `streams` are in place."""
    OUT.begin()
    ERR.begin()
    code: object = None
    try:
        COMMAND([str(word) for word in words], prog_name="veilsum")
    except SystemExit as end:
        code = end.code
    finally:
        out, err = OUT.end(), ERR.end()
    return Outcome(0 if code is None else cast("int", code), out, err)


_LOCK = threading.Lock()
_COMMANDS, _BEFORE = [0], pytest.MonkeyPatch()


@contextmanager
def streams() -> Iterator[None]:
    """Our streams in place of the process's while any command runs; pytest has its own between."""
    with _LOCK:
        _COMMANDS[0] += 1
        if (
            sys.stdout is not OUT
        ):  # after a test that failed, pytest puts its own there although a command goes on
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
    """`veilsum`, told in words; knows the coordinator's address and the operator's token."""

    def __init__(self, folder: Path, url: str = "") -> None:
        self.folder, self.url = folder, url
        self.said: list[Outcome] = []

    def __call__(self, *words: object) -> Outcome:
        with streams():
            outcome = run(*words)
        self.said.append(outcome)
        return outcome

    def json(self, *words: object) -> dict[str, Any]:
        """What a command that must succeed answers."""
        outcome = self(*words, "--json")
        assert outcome.code == 0, outcome
        return outcome.values

    def at(self, *words: object) -> tuple[object, ...]:
        return (*words, "--url", self.url)

    def operate(self, *words: object) -> dict[str, Any]:
        return self.json(*self.at(*words), "--token", TOKEN)


class Consortium:
    """A federation with a cohort that enrols, made by commands alone."""

    def __init__(
        self, cli: Cli, members: int = 3, *, seed: int = 0, withhold: bool = False, **cohort: object
    ) -> None:
        self.cli, self.folder = cli, cli.folder
        self.members = tuple(f"m{index}" for index in range(members))
        self.admin = cli.json("admin", "new", self.folder / "admin")["federation"]
        keys: list[str] = []
        for member in self.members:
            shown = cli.json("member", "new", self.folder / member, "--member", member)
            keys += ["--member", f"{member}={shown['public_key']}"]
        self.draft = self.folder / "roster.json"
        rare = "--withhold" if withhold else "--publish-rare-classes"
        cli.json(*cli.at("admin", "roster", self.draft, *keys, "--extractor", EXTRACTOR, rare))
        cli.operate("admin", "sign", self.draft, "--folder", self.folder / "admin", "--publish")
        options = [word for name, value in cohort.items() for word in (f"--{name.replace('_', '-')}", value)]
        self.cohort = str(cli.operate("operator", "cohort", "open", self.admin, *options)["cohort"])
        self._commands: list[Future[Outcome]] = []
        rng = np.random.default_rng(seed)
        self.files = [self.write(member, *records(rng, 40)) for member in self.members]
        self.test = self.write("test", *records(rng, 30))

    def write(self, name: str, features: Any, labels: Any) -> Path:
        path = self.folder / f"{name}.npz"
        np.savez(path, features=features, labels=labels)
        return path

    def words(self, member: str, *more: object) -> tuple[object, ...]:
        features = self.files[self.members.index(member)]
        words = ("member", "join", self.folder / member, "--cohort", self.cohort, "--admin-key", self.admin)
        return self.cli.at(*words, "--features", features, "--lineage", "x", *more)

    def join(self, member: str, *more: object) -> Future[Outcome]:
        return self.later(*self.words(member, *more))

    def later(self, *words: object) -> Future[Outcome]:
        """Run a command beside the test."""
        self._commands.append(later(self.cli, *words))
        return self._commands[-1]

    def formed(self) -> None:
        """Return when every card is in; fail if a command has failed, whose card may never come."""
        enrolled(self.cli.url, self.cohort, len(self.members), commands=self._commands)

    def open(self, *more: object) -> str:
        terms = ("--dim", DIM, "--classes", CLASSES, "--extractor", EXTRACTOR, "--grace-s", 0.05)
        return str(self.cli.operate("operator", "round", "open", self.cohort, *terms, *more)["round"])

    def secrets(self) -> Iterator[str]:
        """What no command may print, as text and as hexadecimal."""
        yield TOKEN
        yield (self.folder / "admin" / "admin.key").read_bytes().hex()
        for member in self.members:
            yield (self.folder / member / "identity.key").read_text().strip()


def enrolled(
    url: str, cohort: str, cards: int, ca: Path | None = None, commands: Iterable[Future[Any]] = ()
) -> None:
    """Return when so many cards are in; fail if one of the commands fails before."""

    def look(after: int | None) -> CohortView:
        for ended in [command.result() for command in commands if command.done()]:
            assert not isinstance(ended, Outcome) or ended.code == 0, ended
        return client.cohort(cohort, after)

    with operator(url, ca=ca) as client:
        views = changes(look)
        while len((view := next(views)).cards) < cards:
            assert view.state == "enrolling", view


def uploaded(url: str, round_id: str, uploads: int) -> None:
    """Return when so many members have uploaded: those are in the round, whatever becomes of it."""
    with operator(url) as client:
        views = changes(lambda after: client.round(round_id, after))
        while len((view := next(views)).uploaded) < uploads:
            assert not view.ended, view


def records(rng: np.random.Generator, count: int) -> tuple[Any, Any]:
    """Features of length 1 that cluster by label."""
    labels = np.arange(count) % CLASSES
    features = rng.normal(size=(count, DIM)) + 3 * np.eye(CLASSES, DIM)[labels]
    return features / np.linalg.norm(features, axis=1, keepdims=True), labels
