"""The commands of the page on five parties run, and print what it shows."""

import re
from pathlib import Path

import pytest

from tests.docs.transcript import PAGE, hide_digests, play, split_page

COMMANDS_MAX = 15
SETUP_COMMANDS = 2
"""The page's commands before any party has one: setting up, and drawing the features."""

NUMBER = re.compile(r"\b[0-9a-f]{4}(?: [0-9a-f]{4}){3,}|\b[0-9a-f]{8,}…?|\d[\d.,:-]*")


def lines_of(text: str) -> set[str]:
    """The lines without their numbers, dates, digests and column widths; progress depends on who comes first."""
    lines = (NUMBER.sub("#", " ".join(line.split())) for line in hide_digests(text).splitlines())
    return {line for line in lines if not line.startswith(("ct-#", "…"))}


def test_a_verified_head_takes_few_commands() -> None:
    assert SETUP_COMMANDS + len(split_page(PAGE.read_text("utf-8"))) <= COMMANDS_MAX


@pytest.mark.slow
def test_each_party_sees_what_the_page_shows(tmp_path: Path) -> None:
    shown = split_page(PAGE.read_text("utf-8"))
    for page, found in zip(shown, play(tmp_path), strict=True):
        assert (page.party, page.command) == (found.party, found.command)
        assert lines_of(page.text) <= lines_of(found.text), found
