"""Attacks meet the same causes in an implementation that shares no line with `protocol`; scripts are what the catalogue plays."""

import json
from pathlib import Path
from typing import Any

import pytest

from assurance.vectors import generate, stranger

FILE = Path(__file__).parent / "plays.json"
DOCUMENT: dict[str, Any] = json.loads(FILE.read_text("utf-8"))
PLAYS: list[dict[str, Any]] = DOCUMENT["plays"]
ATTACKS_FILE: dict[str, Any] = json.loads((FILE.parent / "attacks.json").read_text("utf-8"))
ATTACKED = [each for each in ATTACKS_FILE["attacks"] if "message" in each or "cuts" in each]
ROUNDS = {
    path.stem.removeprefix("round-"): json.loads(path.read_text("utf-8"))
    for path in FILE.parent.glob("round-*.json")
}
OTHERWISE = {
    # It keeps no phases.
    "disclosure of a round that is none of the indicator": "disclosure-invalid",
    # An opening that it has taken is answered as before.
    "the first round's opening again": None,
    # It looks at the latest end first, whatever its phase.
    **dict.fromkeys(
        ("VOID after the report", "survivors after the report", "boxes after the report"), "terms-expired"
    ),
    # It checks rosters when it hears them, and decodes them before.
    **dict.fromkeys(("a nominee whom the roster does not list", "a reader whom the roster does not list")),
}
"""What the second implementation finds where it differs from the first; None where it decodes."""


def test_the_committed_file_is_what_the_generator_writes() -> None:
    assert FILE.read_text("utf-8") == generate.text_of(generate.plays())
    assert len(FILE.read_bytes()) < 400_000


@pytest.mark.parametrize("play", PLAYS, ids=lambda play: play["name"])
def test_a_stranger_meets_the_same_cause(play: dict[str, Any]) -> None:
    assert stranger.heard(play, DOCUMENT["messages"]) == play["cause"]


@pytest.mark.parametrize("round_", [*ROUNDS, None])
def test_a_stranger_refuses_one_message_for_the_same_cause(round_: str | None) -> None:
    """In a member's place in a round, or by no more than decoding it."""
    tried = [each for each in ATTACKED if each.get("to") != "coordinator" and each.get("round") == round_]
    met = {
        each["name"]: stranger.shown(each, ROUNDS[round_]) if round_ else stranger.undecoded(each)
        for each in tried
    }
    assert met == {each["name"]: OTHERWISE.get(each["name"], each["cause"]) for each in tried}
