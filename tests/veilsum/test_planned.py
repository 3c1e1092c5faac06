"""A plan that `veilsum privacy plan` saved opens the round that it was made for, and no other."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.veilsum.cli import CLASSES, DIM, EXTRACTOR, TOKEN, Cli, Consortium
from veilsum.planned import SavedPlan

Make = Callable[..., Consortium]


def plan(cli: Cli, members: int, *more: object) -> Path:
    size = ("--records", 9_000, "--dim", DIM, "--classes", CLASSES, "--members", members)
    made = cli.json("privacy", "plan", *size, "--epsilon", 2, "--output", "made/plan.json", *more)
    return Path(made["saved"])


def test_a_saved_plan_opens_its_round(consortium: Make, remote: Cli) -> None:
    c = consortium(4)
    path = plan(remote, 4, "--bias", "--replace", "--nonnegative", "--delta", 1e-6)
    joining = [c.join(member, "--json") for member in c.members]
    c.formed()
    words = remote.at(
        "operator", "round", "open", c.cohort, "--plan", path, "--extractor", EXTRACTOR, "--grace-s", 0.05
    )
    refused = remote(*words, "--token", TOKEN, "--epsilon", 1).error
    assert refused.startswith("--plan fixes dim, classes, bias and noise")
    other = plan(remote, 5)
    assert "the plan is for members = 5, the cohort has 4" in remote(*words, "--token", TOKEN).error
    assert plan(remote, 4, "--bias", "--replace", "--nonnegative", "--delta", 1e-6) == other
    foreseen = remote(*words, "--dry-run", "--insist", "--token", TOKEN)
    assert re.search("noise +ε = ", foreseen.out)
    assert re.search(
        r"outlook +(good|weak|hopeless): a head of it is expected to lose [\d.]+ points", foreseen.out
    )
    assert re.search("verdict +it would be opened\n", foreseen.out)
    narrow = remote(*words, "--dry-run", "--token", TOKEN, "--ring-bits", 8)
    assert "no scale of the features lattice" in narrow.error
    assert remote.json(*remote.at("operator", "cohort", "status", c.cohort))["rounds"] == []
    opened = remote.operate(*words[:-2])
    terms = opened["terms"]
    assert (terms["statistic"], terms["dim"], terms["classes"]) == ("ffc-bias", DIM, CLASSES)
    promised = remote.json("privacy", "plan", *promise())
    assert terms["noise"]["mu"] == pytest.approx(promised["mu"], rel=1e-3)
    assert (terms["noise"]["neighbours"], terms["noise"]["nonnegative"]) == ("replace", True)
    assert terms["noise"]["delta"] == 1e-6
    ended = [future.result(120) for future in joining]
    assert [each.code for each in ended] == [0] * 4, ended


def promise() -> tuple[object, ...]:
    size = ("--records", 9_000, "--dim", DIM, "--classes", CLASSES, "--members", 4, "--epsilon", 2)
    return (*size, "--bias", "--replace", "--nonnegative", "--delta", 1e-6)


def test_a_plan_of_another_question_says_which_it_is(cli: Cli) -> None:
    saved = SavedPlan.load(plan(cli, 6, "--statistic", "ccvr", "--parameter", "per_class=9")).request
    assert (saved["statistic"], saved["parameters"], "bias" in saved) == ("ccvr", {"per_class": 9}, False)
    assert SavedPlan.load(plan(cli, 6, "--statistic", "mean")).request["statistic"] == "mean"


def test_what_is_no_plan_is_refused(cli: Cli) -> None:
    path = plan(cli, 6)
    assert SavedPlan.load(path).survivors_min == 4
    words = ("operator", "round", "open", "00" * 32, "--extractor", EXTRACTOR)
    assert cli(*words).error == "a round takes --dim and --classes, or --plan with both in it"
    exact = cli(*words, "--dim", DIM, "--classes", CLASSES, "--insist").error
    assert exact == "--insist goes with --epsilon or --plan: an exact sum has no noise"
    assert cli(*words, "--delta", 1e-6).error.startswith(
        "--delta, --replace, --nonnegative and --member-records say what noise"
    )
    assert "say what noise hides" in cli(*words, "--plan", path, "--delta", 1e-6).error
    path.write_text('{"format": "veilsum-plan/2"}')
    error = cli(*words, "--plan", path).error
    assert "is no plan (format: " in error
    assert error.endswith("make one with `veilsum privacy plan --output`")
