"""The quick part of `make model-check`: the smallest search, two rules removed, and that the page names every rule."""

import os
import re
from contextlib import nullcontext
from pathlib import Path

import pytest

from assurance.model import check

PAGE = Path(__file__).parents[2] / "docs" / "model.md"


@pytest.fixture(scope="module")
def tools() -> None:
    if missing := check.missing_tools():
        reason = f"{' and '.join(missing)} not found: the models can't be checked"
        if os.environ.get("CI_MUST_RUN") == "1":
            pytest.fail(reason)
        pytest.skip(reason)


@pytest.mark.usefixtures("tools")
def test_the_smallest_search_holds() -> None:
    found = check.check(check.SMALLEST, None)
    assert found.states > 10_000


@pytest.mark.usefixtures("tools")
@pytest.mark.parametrize("rule", ["VOTE_ONCE", "PROOF_MISSES"])
def test_a_removed_rule_is_noticed(rule: str) -> None:
    expected = check.RULES[rule][1]
    assert check.check(check.SMALLEST.without(rule), expected).violated == expected


def test_a_removal_that_goes_unnoticed_fails_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    holds = check.Found(states=1, transitions=1, depth=1, memory_mib=1.0, seconds=0.0, violated=None)
    monkeypatch.setattr(check, "searched", lambda _search: nullcontext((Path(), holds)))
    with pytest.raises(check.CheckError, match="nothing is violated, not P3_one_certificate"):
        check.check(check.SMALLEST.without("VOTE_ONCE"), "P3_one_certificate")


def test_a_search_that_stops_short_is_no_proof() -> None:
    report = "max search depth too small\nerrors: 0\n"
    with pytest.raises(check.CheckError, match="did not see every state"):
        check.read_report(check.SMALLEST, report, 0.0)


def test_every_rule_is_a_switch_is_removed_and_stands_on_the_page() -> None:
    switches = set(re.findall(r"^#ifndef RULE_(\w+)", (check.HERE / "rules.h").read_text(), re.MULTILINE))
    assert switches == {*check.RULES, *check.IN_DEPTH}
    models = "".join((check.HERE / name).read_text() for name in ("secrecy.pml", "progress.pml"))
    assert {rule for rule in switches if f"RULE_{rule}" not in models} == set()
    page = PAGE.read_text()
    assert {rule for rule in switches if f"`{rule}`" not in page} == set()
