"""The forecast of a study's runs agrees with what members do, and drafts that can't end in a head are refused."""

from __future__ import annotations

import math
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.study.specs import NOISE, NOW_S, content_of, spec_of, whole
from tests.study.test_drafts import drafted
from veilsum.protocol.errors import Misuse, PeerFault
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.study import RECIPES, Content
from veilsum.study.forecast import CONCENTRATIONS, explain_forecast, forecast_study
from veilsum.study.promise import study_mu
from veilsum.study.signed import check_signable, sign_study
from veilsum.study.vectors import compute_vector, rows_bear_sum

ADMIN_PAGE = Path(__file__).parents[2] / "docs" / "howto" / "admin.md"
CCVR = {"statistics": [{"kind": "ccvr"}]}


def study(**question: Any) -> Content:
    values = whole(**question)
    if any(each["kind"] == "ccvr" for each in values["question"]["statistics"]):
        values["after"]["ccvr"] = {"samples_per_class": 100, "power": 0.5}
    return content_of(values)


def records(least: int, most: int = 20_000, least_per_class: int = 5, rows_per_id: int = 1) -> dict[str, int]:
    return {"least": least, "most": most, "least_per_class": least_per_class, "rows_per_id": rows_per_id}


def rows_with(features: int, rows: int, dim: int) -> Any:
    """Rows of equal numbers, `features` of them not zero, that every feature has about as often."""
    places = (np.arange(rows)[:, None] * features + np.arange(features)) % dim
    matrix = np.zeros((rows, dim))
    matrix[np.arange(rows)[:, None], places] = 1
    return matrix


@pytest.mark.parametrize(
    "question",
    [
        {},
        {"records": records(50, least_per_class=3)},
        {"records": records(50, rows_per_id=5)},
        {
            **CCVR,
            "dim": 64,
            "records": records(200, least_per_class=32),
            "members_min": 8,
            "withhold": {"margin": 1},
        },
    ],
    ids=["ffc", "fewer rows than a feature needs", "several rows of an id", "ccvr"],
)
def test_a_member_holds_a_class_from_so_many_rows_and_features_on(question: dict[str, Any]) -> None:
    content, spec = study(**question), spec_of("count", **question)
    needs, dim = forecast_study(content).classes, content.question.dim
    assert needs is not None
    features = math.ceil(needs.features_of_holder)

    def holds(features: int, rows: int) -> bool:
        return bool(compute_vector(spec, rows_with(features, rows, dim), np.zeros(rows, np.int64))[0])

    assert holds(dim, needs.rows_of_holder)
    assert not holds(dim, needs.rows_of_holder - 1)
    rows = dim * needs.rows_of_holder  # as many rows of each feature, so that none is cleared
    assert holds(features, rows)
    assert needs.rows <= needs.honest_holders * needs.rows_of_holder


def test_a_member_takes_part_from_that_density_on() -> None:
    content = study(dim=64, records=records(104))
    density, question = forecast_study(content).density, content.question
    assert density is not None
    assert density.rows_at_half is not None

    def suffices(features: int, rows: int) -> bool:
        return rows_bear_sum(question, rows_with(features, rows, 64), np.zeros(rows, np.int64))

    assert suffices(math.ceil(density.features), question.records.least)
    assert not suffices(math.ceil(density.features) - 1, question.records.least)
    half = math.ceil(density.features) // 2
    assert suffices(half + 1, density.rows_at_half)
    assert not suffices(half - 1, density.rows_at_half)


@pytest.mark.parametrize("question", [{}, {"withhold": None}, {**CCVR, "records": records(500, 500, 50)}])
def test_the_largest_dim_is_valid_and_the_next_is_not(question: dict[str, Any]) -> None:
    dim = forecast_study(study(**question)).dim_max
    assert dim is not None
    check_signable(study(**question, dim=dim), NOW_S)
    with pytest.raises((PeerFault, Misuse)):
        check_signable(study(**question, dim=dim + 1), NOW_S)


def test_rows_of_random_features_allow_any_dim() -> None:
    kernel = {"kind": "random-features", "size": 16, "bandwidth": 1.0}
    assert forecast_study(study(statistics=[kernel])).dim_max == 65_536


def test_splits_are_the_same_in_each_forecast_and_even_ones_end_in_more_sums() -> None:
    splits = forecast_study(drafted(50, 64, 9)).splits
    assert splits == forecast_study(drafted(50, 64, 9)).splits
    assert [split.concentration for split in splits] == [*CONCENTRATIONS, *CONCENTRATIONS]
    assert [split.members for split in splits] == 3 * [34] + 3 * [50]
    for part in (splits[:3], splits[3:]):
        assert [split.sums for split in part] == sorted(split.sums for split in part)
        assert [split.published for split in part] == sorted(split.published for split in part)
    assert splits[-1].sums == splits[-1].runs == 100
    assert splits[0].published < splits[-1].published == 9


def test_a_forecast_of_the_largest_federations_is_quick() -> None:
    content = drafted(10_000, 64, 4_096)
    before_s = time.process_time()
    splits = forecast_study(content).splits
    assert time.process_time() - before_s < 10
    assert all(0 <= split.published <= 4_096 and split.sums <= split.runs for split in splits)
    assert splits[-1].published > splits[0].published


def test_only_a_study_that_withholds_has_splits() -> None:
    forecast = forecast_study(study(withhold=None))
    assert (forecast.splits, forecast.classes) == ((), None)
    assert [(cost.step, cost.spends) for cost in forecast.steps] == [("sum", "records")]


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_steps_of_a_noisy_study_charge_its_whole_budget(recipe: str) -> None:
    content = study(withhold=None, noise={**NOISE, "recipe": recipe})
    forecast = forecast_study(content)
    assert {cost.spends for cost in forecast.steps} == {"noise"}
    assert content.question.noise is not None
    assert math.fsum(cost.mu**2 for cost in forecast.steps) == pytest.approx(
        study_mu(content.question.noise) ** 2
    )
    assert (forecast.dim_max, forecast.density) == (None, None)
    assert len(explain_forecast(content, forecast).sentences) < 5  # all gradients are one sentence


@pytest.mark.parametrize(
    ("question", "least"),
    [
        # A feature that fewer than 5 rows of a member have is cleared.
        ({"records": records(10, 4, 1), "members_min": 50, "members_max": 50, "a": 12}, 5),
        ({"records": records(4, 4, 1), "members_min": 50, "members_max": 50, "a": 12, "withhold": None}, 5),
        # 2,145 numbers of a class, three honest holders: 2 · 2,145 / (3 · 63) = 22.7 rows of a member
        (
            {**CCVR, "dim": 64, "records": records(22, 22, 16), "members_min": 23, "members_max": 23, "a": 5},
            46,
        ),
        # 9 of 12 members must hold a class, so most must hold both.
        ({"records": records(50, 60, 31)}, 62),
    ],
    ids=["count", "all classes", "ccvr", "two classes"],
)
def test_a_study_that_can_not_end_in_a_head_is_not_signed(question: dict[str, Any], least: int) -> None:
    given = question["records"]
    question = {**question, "records": {**given, "least": min(given["least"], given["most"])}}
    content = study(**question)
    with pytest.raises(Misuse, match=f"take at least {least}$"):
        check_signable(content, NOW_S)
    with pytest.raises(Misuse, match=re.escape("question.records.most")):
        sign_study(content, bytes(32), SigningKey(bytes(32)), NOW_S)
    check_signable(study(**{**question, "records": {**question["records"], "most": least}}), NOW_S)


@pytest.mark.parametrize("kinds", [("ffc",), ("random-features",), ("ffc", "random-features")], ids="+".join)
@pytest.mark.parametrize("ring_bits", [32, 48])
def test_a_ridge_that_rounding_outweighs_is_not_signed(ring_bits: int, kinds: tuple[str, ...]) -> None:
    statistics = [
        {"kind": kind, "size": 64, "bandwidth": 1.0} if kind == "random-features" else {"kind": kind}
        for kind in kinds
    ]
    values = whole(statistics=statistics, ring_bits=ring_bits, records=records(400, 4_000))
    bits = content_of(values).question.scale
    errors = np.random.default_rng(0).uniform(-0.5, 0.5, (20, 12, 16, 16)).sum(axis=1) * 2.0**-bits
    mirrored = np.tril(errors) + np.swapaxes(np.tril(errors, -1), 1, 2)
    scale = 4.0 if "random-features" in kinds else 1.0  # of a quarter of the random features
    norm = scale * np.linalg.norm(mirrored, 2, axis=(1, 2)).max()
    with pytest.raises(Misuse, match=r"after\.ridge is .*, rounding outweighs"):
        check_signable(content_of({**values, "after": {**values["after"], "ridge": float(norm)}}), NOW_S)
    check_signable(content_of({**values, "after": {**values["after"], "ridge": float(4 * norm)}}), NOW_S)


def test_the_admin_s_page_shows_what_is_printed() -> None:
    content = drafted(4, 512, 2)
    section = explain_forecast(content, forecast_study(content))
    assert "\n  ".join([section.heading, *section.sentences]) in ADMIN_PAGE.read_text("utf-8")


def test_runs_are_simulated_with_the_rows_that_the_author_expects() -> None:
    content = study(records=records(50), withhold={"margin": 0})
    few, many = forecast_study(content), forecast_study(content, rows=2000)
    assert {split.rows for split in few.splits} == {50, 100}
    assert {split.rows for split in many.splits} == {2000}
    assert sum(split.sums for split in many.splits) > sum(split.sums for split in few.splits)
    with pytest.raises(Misuse, match=r"records\.least"):
        forecast_study(content, rows=49)
    with pytest.raises(Misuse, match="simulated"):
        forecast_study(study(records=records(50), withhold=None), rows=2000)
