"""`veilsum privacy`: the plan of a noisy round."""

import pytest

from tests.veilsum.cli import Cli

TERMS = ("--dim", 64, "--classes", 10, "--members", 12)


def test_a_plan_says_what_a_round_promises_costs_and_loses(cli: Cli) -> None:
    outcome = cli("privacy", "plan", "--records", 100_000, *TERMS, "--epsilon", 1, "--json")
    values = outcome.values
    assert values["verdict"] == "good"
    assert values["what_would_help"] == []
    assert values["epsilon"] == pytest.approx(1)
    assert 1 < values["epsilon_by_published_bounds"] < 1.15
    assert (values["survivors_min"], values["colluders"]) == (8, 3)
    assert values["sigma_when_all_are_summed"] == pytest.approx(values["sigma"] * (12 / 5) ** 0.5)
    assert values["upload_bytes"] == -(-(64 * 65 // 2 + 640) * values["ring_bits"] // 8)
    assert 0 < values["expected_points_lost"] <= values["worst_points_measured"]


def test_a_hopeless_round_says_what_would_help(cli: Cli) -> None:
    outcome = cli("privacy", "plan", "--records", 3_000, *TERMS, "--epsilon", 0.2, "--colluders", 0)
    assert outcome.code == 0
    assert "hopeless" in outcome.out
    assert "records, ε = " in outcome.out


def test_a_plan_of_one_sum_says_what_gradients_would_gain(cli: Cli) -> None:
    one = cli("privacy", "plan", "--records", 20_000, *TERMS, "--epsilon", 1, "--json").values
    asked = ("--epsilon", 1, "--statistic", "refine", "--json")
    four = cli("privacy", "plan", "--records", 20_000, *TERMS, *asked).values
    assert one["points_gained_by_4_rounds_of_refine"] == four["expected_points_gained_over_one_sum"] > 0
    assert four["expected_points_lost"] == pytest.approx(
        one["expected_points_lost"] - four["expected_points_gained_over_one_sum"]
    )
    assert four["mu_of_all_rounds"] == pytest.approx(one["mu"], rel=1e-6)
    assert four["epsilon_of_each_refine_round"] < four["epsilon_of_the_ffc_round"] < 1
    assert four["upload_bytes"] == (
        four["upload_bytes_of_the_ffc_round"] + 4 * four["upload_bytes_of_each_refine_round"]
    )
    single = cli("privacy", "plan", "--records", 20_000, *TERMS, *asked, "--rounds", 1).values
    assert {single[name] for name in ("verdict", "expected_points_lost", "points_gained_at_worst")} == {
        "not known"
    }
    hopeless = cli("privacy", "plan", "--records", 3_000, *TERMS, "--epsilon", 0.5, "--json").values
    assert hopeless["what_would_help"][-1].startswith("4 rounds of refine at the same budget")


def test_a_plan_of_a_mean(cli: Cli) -> None:
    asked = ("--statistic", "mean", "--epsilon", 0.5, "--json")
    values = cli("privacy", "plan", "--records", 20_000, *TERMS, *asked).values
    assert values["expected_points_lost"] == "not known"
    assert 0 < values["expected_error_of_the_mean"] < 0.02
    assert values["upload_bytes"] == -(-65 * values["ring_bits"] // 8)


@pytest.mark.parametrize(
    ("statistic", "elements", "delta"),
    [
        ("ffc --parameter publish=lda,ncm", 64 * 65 // 2 + 650, 2.25),
        ("ffc --bias --parameter publish=lda", 65 * 66 // 2 + 650, 2),
        ("rff --parameter size=128", 128 * 129 // 2 + 1280, 2),
        ("ccvr --parameter per_class=40", 10 + 640 + 10 * (64 * 65 // 2), 2.25),
    ],
)
def test_a_plan_of_any_question(cli: Cli, statistic: str, elements: int, delta: float) -> None:
    asked = ("--epsilon", 2, "--statistic", *statistic.split(), "--json")
    values = cli("privacy", "plan", "--records", 20_000, *TERMS, *asked).values
    assert values["upload_bytes"] == -(-elements * values["ring_bits"] // 8)
    assert values["sigma"] * values["mu"] == pytest.approx(delta**0.5, rel=1e-6)
    assert values["epsilon"] == pytest.approx(2)
    assert values["expected_points_lost"] == "not known"


def test_plans_that_are_not_saved(cli: Cli) -> None:
    saved = ("--statistic", "refine", "--output", "plan.json")
    terms = ("privacy", "plan", "--records", 500, *TERMS, "--epsilon", 1)
    assert cli(*terms, *saved).error.startswith("--output saves one round")
    assert "no parameter changes" in cli(*terms, "--statistic", "mean", "--parameter", "a=1").error
    assert "no round asks 'fedcof'" in cli(*terms, "--statistic", "fedcof").error


def test_the_neighbours_are_a_choice(cli: Cli) -> None:
    sigmas = [
        cli("privacy", "plan", "--records", 9_999, *TERMS, "--epsilon", 1, *more, "--json").values["sigma"]
        for more in ((), ("--replace", "--nonnegative"), ("--replace",), ("--replace", "--bias"))
    ]
    assert [sigma / sigmas[0] for sigma in sigmas] == pytest.approx([1, 2**0.5, 1.5, 2**0.5], rel=2e-4)


def test_terms_that_cannot_be_are_refused(cli: Cli) -> None:
    refused = cli("privacy", "plan", "--records", 500, *TERMS, "--epsilon", 0)
    assert "a positive ε, not 500 and 0" in refused.error
    few = cli("privacy", "plan", "--records", 500, *TERMS, "--epsilon", 1, "--colluders", 11)
    assert "enrol more members or assume fewer colluders" in few.error
