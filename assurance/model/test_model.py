"""A short part of `make model-check`: the smallest searches, the removal of a few rules, and a check that the page names every rule."""

import os
import re
from pathlib import Path

import pytest

from assurance.model import check

PAGE = Path(__file__).with_name("README.md")


@pytest.fixture(scope="module")
def tools() -> None:
    if missing := check.missing_tools():
        reason = f"{' and '.join(missing)} not found: the models can't be checked"
        if os.environ.get("CI_MUST_RUN") == "1":
            pytest.fail(reason)
        pytest.skip(reason)


@pytest.mark.slow
@pytest.mark.usefixtures("tools")
@pytest.mark.parametrize(
    ("search", "states"),
    [
        (check.SMALLEST, 10_000),
        (check.SMALLEST_SPENDING, 1_000),
        (check.SMALLEST_PAIRING, 1_000),
        (check.SMALLEST_WINDOWS, 1_000),
    ],
)
def test_the_smallest_search_holds(search: check.Search, states: int) -> None:
    assert check.check(search, None).states > states


@pytest.mark.slow
@pytest.mark.usefixtures("tools")
@pytest.mark.parametrize(
    ("search", "rule"),
    [
        (check.SMALLEST, "VOTE_ONCE"),
        (check.SMALLEST, "PROOF_MISSES"),
        (check.SMALLEST_SPENDING, "EVERY_CONTEXT"),
        (check.SMALLEST_SPENDING, "COUNTS_HOLD_NOTHING"),
        (check.SMALLEST_PAIRING, "CIPHERTEXT_OF_ITS_MANIFEST"),
        (check.SMALLEST_PAIRING, "KEY_OF_ITS_CARD"),
        (check.SMALLEST_WINDOWS, "LEFT_OUT"),
    ],
)
def test_a_removed_rule_is_noticed(search: check.Search, rule: str) -> None:
    expected = check.RULES[rule][1]
    assert check.check(search.without(rule), expected).violated == expected


def test_every_rule_is_a_switch_is_removed_and_stands_on_the_page() -> None:
    switches = set(re.findall(r"^#ifndef RULE_(\w+)", (check.HERE / "rules.h").read_text(), re.MULTILINE))
    assert switches == {*check.RULES, *check.IN_DEPTH}
    assert {rule for both in check.PAIRS for rule in both} <= switches
    models = "".join(path.read_text() for path in check.HERE.glob("*.pml"))
    assert {rule for rule in switches if f"RULE_{rule}" not in models} == set()
    page = PAGE.read_text()
    assert {rule for rule in switches if f"`{rule}`" not in page} == set()
