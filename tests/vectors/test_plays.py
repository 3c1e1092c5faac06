"""Scripts of attacks are what the catalogue plays, and meet the same causes in an implementation that shares no line with `protocol`."""

import ast
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.attacks.catalogue import ATTACKS
from tests.vectors import generate, stranger

FILE = Path(__file__).parent / "plays.json"
DOCUMENT: dict[str, Any] = json.loads(FILE.read_text("utf-8"))
PLAYS: list[dict[str, Any]] = DOCUMENT["plays"]


def test_the_committed_file_is_what_the_generator_writes() -> None:
    assert FILE.read_text("utf-8") == generate.text_of(generate.plays())
    assert len(FILE.read_bytes()) < 400_000


def test_each_is_an_attack_of_the_catalogue() -> None:
    known = {attack.name: (attack.clause, attack.cause, list(attack.parties)) for attack in ATTACKS}
    for play in PLAYS:
        assert known[play["name"]] == (play["clause"], play["cause"], play["parties"])
    assert len({play["name"] for play in PLAYS}) == len(PLAYS) >= 30
    assert Counter(play["ends"] for play in PLAYS).keys() == {"refused", "refusal", "void"}
    assert sum(len(play["steps"]) > 1 for play in PLAYS) >= 25


@pytest.mark.parametrize("play", PLAYS, ids=lambda play: play["name"])
def test_a_stranger_meets_the_same_cause(play: dict[str, Any]) -> None:
    met = stranger.heard(play, DOCUMENT["messages"])
    assert met == play["cause"] or play["cause"] == "wrong-phase"


def test_an_attack_that_nobody_stops_is_seen() -> None:
    """Without its last step a script ends in nothing that was foretold."""
    play = next(each for each in PLAYS if each["cause"] == "upload-conflict")
    with pytest.raises(AssertionError, match="is taken"):
        stranger.heard({**play, "steps": play["steps"][:-1]}, DOCUMENT["messages"])


def test_a_stranger_runs_no_line_of_protocol() -> None:
    parsed = ast.parse(Path(stranger.__file__).read_text("utf-8"))
    modules = {node.module for node in ast.walk(parsed) if isinstance(node, ast.ImportFrom)}
    assert {each for each in modules if each and each.split(".")[0] in {"protocol", "tests"}} == {
        "tests.reference.coordinator",
        "tests.reference.reference",
        "tests.reference.wire",
    }
