"""Run the commands of docs/tutorials/five-parties.md, each in its party's folder, and write what they print into the page.

    .venv/bin/python -m tests.docs.transcript

Commands of one block run at the same time, one after another otherwise. What `hospital-a` does the other hospitals do too.
"""

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import IO

PAGE = Path(__file__).parents[2] / "docs" / "tutorials" / "five-parties.md"
HOSPITALS = tuple(f"hospital-{letter}" for letter in "abcde")
FIRST = HOSPITALS[0]
LIMIT_S = 300.0
"""Time limit of a block on a slow, shared machine."""
LINES_MAX = 24
"""Longer output is shortened in the middle."""

_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_COMMAND = re.compile(r"^([a-z-]+)\$ (veilsum .*)$", re.MULTILINE)
_ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+")
_HEX64 = re.compile(r"\b[0-9a-f]{64}\b")


@dataclass(frozen=True)
class Printed:
    """A command of the page, and what it printed."""

    party: str
    command: str
    text: str


@contextmanager
def _started(
    party: str, command: str, folder: Path, url: str
) -> Iterator[tuple[subprocess.Popen[bytes], IO[bytes]]]:
    words = f"{sys.executable} -m {command}" if url else _serve_words(command)
    home = folder / party
    environment = {
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": ":".join(sys.path),
        "HOME": str(home),
        "VEILSUM_URL": url,
        "COLUMNS": "100",
        "OMP_NUM_THREADS": "1",
    }
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(
            ["/bin/bash", "-c", f"exec {words}"], cwd=home, env=environment, stdout=out, stderr=out
        )
        try:
            yield process, out
        finally:
            process.kill()
            process.wait()


def _serve_words(command: str) -> str:
    """Return how to start the coordinator at any free port, in the foreground of a process of its own."""
    return f"{sys.executable} -m {command.removesuffix(' &').replace(' serve ', ' serve --port 0 ')}"


def _read(out: IO[bytes]) -> str:
    out.seek(0)
    return out.read().decode()


def _digest_in(text: str, label: str) -> str:
    """The 64 digits behind a label of a command's output."""
    found = re.search(rf"^{label} +([0-9a-f]{{64}})$", text, re.MULTILINE)
    assert found is not None, text
    return found[1]


def play(folder: Path) -> list[Printed]:
    """Run the page in a folder. Raises AssertionError if a command fails."""
    url, page = "", PAGE.read_text("utf-8")
    [drawn] = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    run = subprocess.run(
        [sys.executable, "-c", drawn], cwd=folder, check=True, timeout=LIMIT_S, capture_output=True, text=True
    )
    values, printed = dict([run.stdout.split()]), list[Printed]()
    with ExitStack() as lasting:
        for block in _BLOCK.findall(page):
            commands = _COMMAND.findall(block)
            if commands[0][1].startswith("veilsum serve"):
                [(party, command)] = commands
                process, out = lasting.enter_context(_started(party, command, folder, ""))
                url = _wait_for_address(process, out)
                printed.append(Printed(party, command, _read(out)))
            else:
                for party, command, text in _run_together(commands, folder, url, values):
                    _learn(party, command, text, values)
                    if party not in HOSPITALS[1:]:
                        printed.append(Printed(party, command, text))
    return [replace(each, text=_tidy(each, folder, url)) for each in printed]


def _tidy(each: Printed, folder: Path, url: str) -> str:
    """Leave out what only this run has: its folder and its port."""
    return each.text.replace(url, "http://127.0.0.1:8000").replace(f"{folder / each.party}/", "")


def _wait_for_address(process: subprocess.Popen[bytes], out: IO[bytes]) -> str:
    end_s = time.monotonic() + LIMIT_S
    while (found := _ADDRESS.search(_read(out))) is None:
        assert process.poll() is None, _read(out)
        assert time.monotonic() < end_s
        time.sleep(0.1)
    return found[0]


def _run_together(
    commands: Sequence[tuple[str, str]], folder: Path, url: str, values: Mapping[str, str]
) -> Iterator[tuple[str, str, str]]:
    all_of = [
        (each, command.replace(FIRST, each) if party == FIRST else command, command)
        for party, command in commands
        for each in (HOSPITALS if party == FIRST else (party,))
    ]
    with ExitStack() as running:
        begun = []
        for party, command, shown in all_of:
            filled = re.sub(r"\b[A-Z]+(-[A-E])?\b", lambda name: values.get(name[0], name[0]), command)
            begun.append((party, shown, *running.enter_context(_started(party, filled, folder, url))))
        for party, shown, process, out in begun:
            code = process.wait(LIMIT_S)
            text = _read(out)
            assert code == 0, f"{party}$ {shown}\n{text}"
            yield party, shown, text


def _learn(party: str, command: str, text: str, values: dict[str, str]) -> None:
    """Keep what later commands need of an output."""
    if command.startswith("veilsum admin new"):
        values["ADMIN"] = _digest_in(text, "federation")
    elif command.startswith("veilsum member new"):
        values[f"KEY-{party[-1].upper()}"] = _digest_in(text, "public key")
    elif command.startswith("veilsum admin study sign"):
        values["APPROVAL"] = _digest_in(text, "approval")


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
