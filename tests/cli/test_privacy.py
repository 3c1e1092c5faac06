"""`veilsum privacy`: what noise costs."""

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.support.cli import Cli
from veilsum.protocol.study import RECIPES

GUIDE = Path(__file__).parents[2] / "docs/tutorials/tables.md"
WORDS = ("privacy", "--dim", 64, "--classes", 10, "--members", 20)


def test_a_plan_says_what_a_study_costs_and_loses(cli: Cli) -> None:
    good = cli.json(*WORDS, "--records", 100_000, "--epsilon", 4)
    assert (good["recipe"], good["verdict"], good["what_would_help"]) == ("mean+sum+16-gradients", "good", [])
    weak = cli.json(*WORDS, "--records", 500, "--epsilon", 0.5, "--recipe", "sum")
    assert weak["verdict"] == "hopeless"
    assert weak["what_would_help"][0].startswith("the recipe mean+sum+16-gradients")
    assert weak["expected_points_lost"] > good["expected_points_lost"]
    least, most = weak["points_lost_in_95_percent"]
    assert least <= weak["expected_points_lost"] <= most


@pytest.mark.parametrize(
    ("records", "epsilon", "end"),
    [(100, 0.1, "first"), (5_000, 0.5, ""), (100_000, 4, "last"), (1_000_000, 8, "last")],
)
def test_an_estimate_at_an_end_of_its_table_is_named(
    cli: Cli, records: int, epsilon: float, end: str
) -> None:
    said = cli(*WORDS, "--records", records, "--epsilon", epsilon).err
    assert re.findall("(first|last) row", said) == [end] * bool(end)


def test_the_guide_to_tables_shows_what_the_command_prints(cli: Cli) -> None:
    _, _, after = GUIDE.read_text("utf-8").partition("$ veilsum privacy ")
    options, _, rest = after.partition("\n")
    shown = rest.split("```text\n")[1].split("```")[0].splitlines()
    printed = cli("privacy", *options.split()).out.splitlines()
    assert len(shown) == 4
    assert [line for line in shown if line not in printed] == []


def test_features_of_one_s_own_narrow_it_down(cli: Cli, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, 600)
    features = rng.standard_normal((600, 64)) + 8 * np.eye(10, 64)[labels]
    names, ids = np.array([*"abcdefghij"]), np.arange(600)
    columns = {f"f{index}": column for index, column in enumerate(features.T)}
    table = pa.table({**columns, "label": names[labels], "patient": ids})
    parquet.write_table(table, tmp_path / "own.parquet")
    file = ("--features", tmp_path / "own.parquet", "--id-column", "patient")
    words = ("--records", 50_000, "--epsilon", 2, *file)
    low, lost, high = cli.json(*WORDS, *words)["points_lost_on_these_features"]
    assert low < lost < high
    assert abs(lost) < 3
    other = cli("privacy", "--dim", 32, *WORDS[3:], *words)
    assert other.code == 1
    assert re.search(r"\b500 .*\b32\b", other.error)
    fewer = cli(*WORDS[:3], "--classes", 9, *WORDS[5:], *words)
    assert re.search(r"\b9\b", fewer.error)


def test_a_table_is_tried_as_its_study_standardises_it(cli: Cli, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(800) % 2
    small = labels + 0.3 * rng.standard_normal(800)
    features = np.column_stack([small, 1000 * rng.standard_normal(800), rng.standard_normal(800)])
    np.savez(tmp_path / "table.npz", features=features, labels=labels)
    words = ("privacy", "--dim", 3, "--classes", 2, "--members", 5, "--records", 9000, "--epsilon", 4)
    tried, moments = ("--features", tmp_path / "table.npz"), ("--standardise", tmp_path / "m.safetensors")
    raw, standardised = (cli.json(*words, *tried, *more) for more in ((), moments))
    assert raw["accuracy_on_these_features"] < 0.6
    assert standardised["accuracy_on_these_features"] > 0.75
    assert (tmp_path / "m.safetensors").exists()
    assert "--features" in cli(*words, *moments).error


@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_shares_one_budget(recipe: str, cli: Cli) -> None:
    said = cli.json(*WORDS, "--records", 50_000, "--epsilon", 2, "--recipe", recipe)
    assert list(said["steps"]) == [step for step, _ in RECIPES[recipe]]
    assert all(0 < epsilon <= 2 for epsilon in said["steps"].values())
    assert said["epsilon"] == 2
    width = 64 + 1  # with the constant
    numbers = {"mean": 64 + 1, "sum": width * (width + 1) // 2 + width * 10}  # member: Noise, of 48 bits each
    assert said["upload_bytes"] == sum(6 * numbers.get(step, width * 10) for step in said["steps"])


def test_the_share_of_the_largest_class_is_part_of_the_plan(cli: Cli, tmp_path: Path) -> None:
    words = ("privacy", "--dim", 8, "--classes", 2, "--members", 20, "--records", 2_000, "--epsilon", 1)
    even = cli.json(*words)
    assert (even["largest_class"], even["verdict"]) == (0.5, "good")
    assert cli.json(*words, "--largest", 0.99)["verdict"] != "good"
    rng = np.random.default_rng(0)
    labels = (np.arange(900) % 30 == 0).astype(int)
    np.savez(tmp_path / "noise.npz", features=rng.standard_normal((900, 8)), labels=labels)
    found = cli.json(*words, "--features", tmp_path / "noise.npz")
    assert found["largest_class"] == pytest.approx(29 / 30)
    assert (
        found["verdict"] == "hopeless"
    )  # features say nothing of the labels: the head always answers class 0
    assert found["balanced_accuracy_on_these_features"] == pytest.approx(0.5, abs=0.05)
    for more in ((), ("--features", tmp_path / "noise.npz")):
        for share in (0, 0.3):
            assert "0.5" in cli(*words, *more, "--largest", share).error


def test_a_unit_of_more_rows_takes_more_noise(cli: Cli) -> None:
    one = cli.json(*WORDS, "--records", 50_000, "--epsilon", 2)
    many = cli.json(*WORDS, "--records", 50_000, "--epsilon", 2, "--rows", 3)
    assert many["sigma_of_the_sum"] > one["sigma_of_the_sum"]


@pytest.mark.parametrize(
    "more",
    [
        ("--epsilon", 0),
        ("--epsilon", 11),
        ("--epsilon", 1, "--delta", 0.2),
        ("--epsilon", 1, "--delta", 0.001),
        ("--epsilon", 1, "--recipe", "all"),
        ("--epsilon", 1, "--colluders", 19),
        ("--epsilon", 1, "--records", 1 << 22),
    ],
)
def test_numbers_that_no_study_can_have_are_refused(cli: Cli, more: tuple[object, ...]) -> None:
    assert cli(*WORDS, "--records", 1000, *more).error
    assert cli(*WORDS, "--records", 100_000, "--epsilon", 1, "--delta", 1e-5).code == 0
