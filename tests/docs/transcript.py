"""Run a page's commands, each in its party's folder; write what those of docs/tutorials/five-parties.md print into the page.

    .venv/bin/python -m tests.docs.transcript

Commands run one after another. `operator run` and `member join` wait for each other: they run beside the commands that follow in their block.
What `hospital-a` does the other hospitals of the page's roster do too.
"""

import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from veilsum.cli.demo.processes import Children

PAGE = Path(__file__).parents[2] / "docs" / "tutorials" / "five-parties.md"
FIRST = "hospital-a"
LIMIT_S = 300.0
"""Time limit of a block on a slow, shared machine."""
LINES_MAX = 24
"""Longer output is shortened in the middle."""

_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_COMMAND = re.compile(r"^([a-z-]+)\$ (veilsum .*)$", re.MULTILINE)
_TAKES_PART = re.compile(r"\b(operator run|member join)\b")
_HOSPITAL = re.compile(r"--member (hospital-[a-z])=")
_ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+")
_HEX64 = re.compile(r"\b[0-9a-f]{64}\b")


@dataclass(frozen=True)
class Printed:
    """A command of the page, and what it printed."""

    party: str
    command: str
    text: str


def _environment(home: Path, url: str = "") -> dict[str, str]:
    return {
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": ":".join(sys.path),
        "HOME": str(home),
        "VEILSUM_URL": url,
        "COLUMNS": "100",
        "OMP_NUM_THREADS": "1",
    }


@contextmanager
def _serving(command: str, home: Path) -> Iterator[tuple[str, str]]:
    """Start the coordinator at any free port, in the foreground of a process of its own; yield its address and what it printed."""
    words = f"{sys.executable} -m {command.removesuffix(' &').replace(' serve ', ' serve --port 0 ')}"
    printed = home / "printed.log"
    with printed.open("wb") as out:
        process = subprocess.Popen(
            ["/bin/bash", "-c", f"exec {words}"], cwd=home, env=_environment(home), stdout=out, stderr=out
        )
    try:
        end_s = time.monotonic() + LIMIT_S
        while (found := _ADDRESS.search(text := printed.read_text("utf-8"))) is None:
            assert process.poll() is None, text
            assert time.monotonic() < end_s
            time.sleep(0.1)
        yield found[0], text
    finally:
        process.kill()
        process.wait()


def _digest_in(text: str, label: str) -> str:
    """The 64 digits behind a label of a command's output."""
    found = re.search(rf"^{label} +([0-9a-f]{{64}})$", text, re.MULTILINE)
    assert found is not None, text
    return found[1]


@dataclass(frozen=True)
class _Running:
    party: str
    command: str
    """As the page shows it."""
    name: str
    """Of its process."""
    log: Path

    def finish(self, children: Children) -> Printed:
        """Wait for its end. Raises DemoError if it failed."""
        children.join_children([self.name], LIMIT_S)
        return Printed(self.party, self.command, self.log.read_text("utf-8"))


def play(folder: Path, page: Path = PAGE) -> list[Printed]:
    """Run a page in a folder, over the features that `PAGE` draws. Raises DemoError if a command fails.

    Commands are forks of a process that has loaded what they need.
    """
    url, text = "", page.read_text("utf-8")
    hospitals = tuple(dict.fromkeys(_HOSPITAL.findall(text)))
    [drawn] = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    run = subprocess.run(
        [sys.executable, "-c", drawn], cwd=folder, check=True, timeout=LIMIT_S, capture_output=True, text=True
    )
    values, printed = dict([run.stdout.split()]), list[Printed]()
    with ExitStack() as lasting, Children() as children:
        for block in _BLOCK.findall(text):
            running = list[_Running]()
            for party, command in _COMMAND.findall(block):
                if command.startswith("veilsum serve"):
                    url, told = lasting.enter_context(_serving(command, folder / party))
                    printed.append(Printed(party, command, told))
                    continue
                begun = list[_Running]()
                for each in hospitals if party == FIRST else (party,):
                    name = f"{len(printed)} {command} of {each}"
                    log = folder / "logs" / f"{len(printed)}-{len(running)}-{each}.log"
                    module, *words = shlex.split(_fill_in(command, each, values))
                    home = folder / each
                    children.start_child(
                        name, module, *words, log=log, environment=_environment(home, url), folder=home
                    )
                    begun.append(_Running(each, command, name, log))
                running += begun
                if not _TAKES_PART.search(command):
                    for one in begun:
                        _learn(one.finish(children), values)
            ended = [one.finish(children) for one in running]
            printed += [each for each in ended if each.party not in hospitals[1:]]
    return [replace(each, text=_tidy(each, folder, url)) for each in printed]


def _fill_in(command: str, party: str, values: Mapping[str, str]) -> str:
    """Put a hospital's own name, and what earlier commands printed, into a command."""
    own = command.replace(FIRST, party) if party.startswith("hospital") else command
    return re.sub(r"\b[A-Z]+([-_][A-Z]+)?\b", lambda name: values.get(name[0], name[0]), own)


def _tidy(each: Printed, folder: Path, url: str) -> str:
    """Leave out what only this run has: its folder and its port."""
    return each.text.replace(url, "http://127.0.0.1:8000").replace(f"{folder / each.party}/", "")


def _learn(printed: Printed, values: dict[str, str]) -> None:
    """Keep what later commands need of an output."""
    if printed.command.startswith("veilsum admin new"):
        values["ADMIN_KEY"] = _digest_in(printed.text, "federation")
    elif printed.command.startswith("veilsum member new"):
        values[f"KEY-{printed.party[-1].upper()}"] = _digest_in(printed.text, "public key")
    elif printed.command.startswith("veilsum admin study sign"):
        values["APPROVAL"] = _digest_in(printed.text, "approval")


def write(printed: Sequence[Printed]) -> None:
    """Write outputs into the page."""
    left = iter(printed)

    def renew(block: re.Match[str]) -> str:
        count = len(_COMMAND.findall(block[1]))
        shown = (f"{each.party}$ {each.command}\n{shorten(each.text)}" for each in islice(left, count))
        return "```console\n" + "".join(shown) + "```"

    PAGE.write_text(_BLOCK.sub(renew, PAGE.read_text("utf-8")), "utf-8")


def split_page(page: str) -> list[Printed]:
    """The page's commands, with the output that it shows."""
    found = list[Printed]()
    for block in _BLOCK.findall(page):
        begun = [*_COMMAND.finditer(block)]
        ends = [each.start() for each in begun[1:]] + [len(block)]
        found += [
            Printed(each[1], each[2], block[each.end() + 1 : end])
            for each, end in zip(begun, ends, strict=True)
        ]
    return found


def hide_digests(text: str) -> str:
    """Shorten digests to their first digits."""
    return _HEX64.sub(lambda digits: digits[0][:8] + "…", text)


def shorten(text: str) -> str:
    """Shorten digests, and long output in its middle."""
    lines = [line.rstrip() for line in hide_digests(text).splitlines()]
    if len(lines) > LINES_MAX:
        lines = [*lines[: LINES_MAX // 2], "…", *lines[-LINES_MAX // 2 :]]
    return "".join(f"{line}\n" for line in lines)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as own:
        write(play(Path(own)))
