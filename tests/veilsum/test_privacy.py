"""What noise costs, by one command."""

import pytest

from tests.veilsum.cli import Cli
from veilsum.protocol.study import RECIPES

WORDS = ("privacy", "--dim", 64, "--classes", 10, "--members", 20)


def test_a_plan_says_what_a_study_costs_and_loses(cli: Cli) -> None:
    good = cli.json(*WORDS, "--records", 100_000, "--epsilon", 4)
    assert good["verdict_on_the_sum"] == "good"
    assert not good["what_would_help"]
    hopeless = cli.json(*WORDS, "--records", 500, "--epsilon", 0.5)
    assert hopeless["verdict_on_the_sum"] == "hopeless"
    assert hopeless["what_would_help"]
    assert hopeless["expected_points_lost"] > good["expected_points_lost"]
    assert hopeless["sigma"] > good["sigma"]


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_shares_one_budget(recipe: str, cli: Cli) -> None:
    said = cli.json(*WORDS, "--records", 50_000, "--epsilon", 2, "--recipe", recipe)
    assert list(said["steps"]) == [step for step, _ in RECIPES[recipe]]
    assert said["epsilon"] == 2
    assert said["upload_bytes"] > 0


def test_a_unit_of_more_rows_takes_more_noise(cli: Cli) -> None:
    one = cli.json(*WORDS, "--records", 50_000, "--epsilon", 2)
    many = cli.json(*WORDS, "--records", 50_000, "--epsilon", 2, "--rows", 3)
    assert many["sigma"] > one["sigma"]


def test_numbers_that_cannot_be_are_refused(cli: Cli) -> None:
    for more in (("--epsilon", 0), ("--epsilon", 1, "--delta", 1), ("--epsilon", 1, "--recipe", "all")):
        assert cli(*WORDS, "--records", 1000, *more).code == 1
    assert cli(*WORDS, "--records", 1000, "--epsilon", 1, "--colluders", 19).code == 1
    assert cli(*WORDS, "--records", 1000, "--epsilon", 1, "--delta", 0.001).code == 0
    refused = cli(*WORDS, "--records", 1000, "--epsilon", 1, "--delta", 0.2).error
    assert refused.startswith("δ = 0.2 is above 1/1000: ")
    assert "at most 0.001" in refused
