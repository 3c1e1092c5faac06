"""A short part of `make model-check`: the smallest search, the removal of two rules, and a check that the page names every rule."""

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
def test_the_smallest_search_holds() -> None:
    found = check.check(check.SMALLEST, None)
    assert found.states > 10_000


@pytest.mark.slow
@pytest.mark.usefixtures("tools")
@pytest.mark.parametrize("rule", ["VOTE_ONCE", "PROOF_MISSES"])
def test_a_removed_rule_is_noticed(rule: str) -> None:
    expected = check.RULES[rule][1]
    assert check.check(check.SMALLEST.without(rule), expected).violated == expected


def test_every_rule_is_a_switch_is_removed_and_stands_on_the_page() -> None:
    switches = set(re.findall(r"^#ifndef RULE_(\w+)", (check.HERE / "rules.h").read_text(), re.MULTILINE))
    assert switches == {*check.RULES, *check.IN_DEPTH}
    models = "".join((check.HERE / name).read_text() for name in ("secrecy.pml", "progress.pml"))
    assert {rule for rule in switches if f"RULE_{rule}" not in models} == set()
    page = PAGE.read_text()
    assert {rule for rule in switches if f"`{rule}`" not in page} == set()
