"""Attacks are refused for the same causes by an implementation that shares no line with `protocol`, and plays' scripts are up to date."""

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
OTHERWISE = dict.fromkeys(
    ("a nominee whom the roster does not list", "a reader whom the roster does not list")
)
"""Attacks that the second implementation decodes: it checks rosters when it receives them."""


def test_each_play_ends_as_it_says_and_the_committed_file_is_what_the_generator_writes() -> None:
    assert FILE.read_text("utf-8") == generate.text_of(generate.plays())
    assert len(FILE.read_bytes()) < 1_300_000


@pytest.mark.parametrize("play", [each for each in PLAYS if "cause" in each], ids=lambda play: play["name"])
def test_a_stranger_meets_the_same_cause(play: dict[str, Any]) -> None:
    assert stranger.heard(play, DOCUMENT["messages"]) == play["cause"]


@pytest.mark.parametrize("round_", [*ROUNDS, None])
def test_a_stranger_refuses_one_message_for_the_same_cause(round_: str | None) -> None:
    """As a member in a round, or by decoding alone."""
    tried = [each for each in ATTACKED if each.get("to") != "coordinator" and each.get("round") == round_]
    met = {
        each["name"]: stranger.shown(each, ROUNDS[round_]) if round_ else stranger.undecoded(each)
        for each in tried
    }
    assert met == {each["name"]: OTHERWISE.get(each["name"], each["cause"]) for each in tried}


def test_a_stranger_that_coordinates_refuses_one_message_while_its_cohort_forms() -> None:
    tried = [each for each in ATTACKED if each.get("to") == "coordinator" and each["attempt"] < 0]
    met = {each["name"]: stranger.shown_to_coordinator(each, ROUNDS[each["round"]]) for each in tried}
    assert len(met) == len(tried) > 30
    # It ignores pairings of other manifests: a member may have sent one before it saw the newest.
    assert met == {
        each["name"]: None if each["cause"] == "manifest-mismatch" else each["cause"] for each in tried
    }
