"""The commands of README and of the page on five parties run, in a folder for each party, and print what the page shows."""

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.docs.transcript import PAGE, Printed, hide_digests, play, split_page

README = Path(__file__).parents[2] / "README.md"

STEPS = 5
COMMANDS_MAX = 15
SETUP_COMMANDS = 3
"""The page's commands before any party has one: two to set up, and one that draws the features."""

NEXT_STEP = re.compile(r"\b[Nn]ext:? +(veilsum [^(\n]+)")
NUMBER = re.compile(r"\b[0-9a-f]{4}(?: [0-9a-f]{4}){3,}|\b[0-9a-f]{8,}…?|\d[\d.,:-]*")


def lines_of(text: str) -> set[str]:
    """The lines without their numbers, dates, digests and column widths; progress depends on who comes first."""
    lines = (NUMBER.sub("#", " ".join(line.split())) for line in hide_digests(text).splitlines())
    return {line for line in lines if not line.startswith(("ct-#", "…"))}


def test_a_verified_head_takes_few_commands() -> None:
    assert SETUP_COMMANDS + len(split_page(PAGE.read_text("utf-8"))) <= COMMANDS_MAX


def test_the_five_steps_of_readme_end_with_a_result(tmp_path: Path) -> None:
    assert re.findall(r"^# (\d)\. ", README.read_text("utf-8"), re.MULTILINE) == [
        *map(str, range(1, STEPS + 1))
    ]
    printed = play(tmp_path, README)
    assert_next_steps_follow(printed)
    assert [each.party for each in printed if "Result, signed by the coordinator" in each.text] == [
        "operator"
    ]
    for hospital in "abc":
        [result] = tmp_path.glob(f"hospital-{hospital}/identity/results/ct-2026/*/record.json")
        assert result.stat().st_size


@pytest.mark.slow
def test_each_party_sees_what_the_page_shows(tmp_path: Path) -> None:
    shown, printed = split_page(PAGE.read_text("utf-8")), play(tmp_path)
    for page, found in zip(shown, printed, strict=True):
        assert (page.party, page.command) == (found.party, found.command)
        assert lines_of(page.text) <= lines_of(found.text), found
    assert_next_steps_follow(printed)


def assert_next_steps_follow(printed: Sequence[Printed]) -> None:
    """Check that each command which an output recommends is a later command of the page, but for paths and the operator's token."""
    steps = 0
    for place, each in enumerate(printed):
        for step in NEXT_STEP.findall(each.text):
            later = [words_of(one.command) for one in printed[place + 1 :]]
            assert any(is_within(words_of(step), words) for words in later), (each.command, step)
            steps += 1
    assert steps


def words_of(command: str) -> list[str]:
    """Return a command's words; of paths the name alone."""
    return [Path(word).name.lower() for word in shlex.split(command)]


def is_within(step: Sequence[str], command: Sequence[str]) -> bool:
    """Return whether all words of a step are in a command, in this order."""
    words = iter(command)
    return all(word in words for word in step)
