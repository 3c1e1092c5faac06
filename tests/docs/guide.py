"""A page read by hand: its commands and its Python, run one after the other, until nothing is left."""

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

from tests.veilsum.cli import Cli, Outcome

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```(console|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CAPITALS = re.compile(r"(?<![\w./-])[A-Z]{2,}\w*")


class Guide:
    """A page, and whoever follows it.

    Args:
        page: below docs/.
        cli: runs `veilsum`, in the present folder.

    Attributes:
        meaning: what the page's placeholders stand for: `KEY`, and `hospital-a=KEY` where that is more exact.
        names: what its Python knows.
    """

    def __init__(self, page: str, cli: Cli) -> None:
        self.cli = cli
        self.meaning: dict[str, object] = {}
        self.names: dict[str, Any] = {}
        self._left: list[tuple[str, str]] = []
        for language, code in FENCE.findall((ROOT / "docs" / page).read_text("utf-8")):
            if language == "python":
                self._left.append((language, code))
                continue
            for line in code.replace("\\\n", " ").splitlines():
                assert line.startswith("$ "), line
                self._left.append((language, line.removeprefix("$ ")))

    def words(self, start: str) -> list[str]:
        """The next command, which begins so, in words that mean something."""
        line = self._next("console")
        assert line.startswith(start), f"{line!r} comes next"
        if not self.meaning:
            return shlex.split(line)
        known = "|".join(re.escape(each) for each in sorted(self.meaning, key=len, reverse=True))
        pattern = re.compile(rf"(?<![\w-])(?:{known})(?!\w)")
        assert not CAPITALS.findall(pattern.sub("", line)), f"what is meant in {line!r}?"
        return shlex.split(pattern.sub(lambda match: str(self.meaning[match[0]]), line))

    def veilsum(self, command: str, *more: object) -> Outcome:
        """Run the next command; it must succeed."""
        outcome = self.cli(*self.words(f"veilsum {command}")[1:], *more)
        assert outcome.code == 0, outcome
        return outcome

    def json(self, command: str, *more: object) -> dict[str, Any]:
        """The same, and what it answers to a script."""
        return self.veilsum(command, *more, "--json").values

    def shell(self, start: str) -> str:
        """What the next command prints that is not ours."""
        line = shlex.join(self.words(start)).replace("'|'", "|")
        return subprocess.check_output(["bash", "-c", line], text=True)

    def python(self) -> None:
        """Run the next block of Python."""
        exec(compile(self._next("python"), "a page", "exec"), self.names)

    def passed(self, start: str) -> None:
        """Leave out the next command, which another test runs or the fixtures stand for."""
        assert self._next("console").startswith(start)

    def done(self) -> None:
        assert self._left == []

    def _next(self, language: str) -> str:
        found, text = self._left.pop(0)
        assert found == language, text
        return text
