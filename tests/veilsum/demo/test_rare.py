"""The demo that withholds a digit: on the page, in the table, and once with real processes."""

import io
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from safetensors.numpy import load_file

from client_sdk import Result
from protocol.published import RareView
from tests.veilsum.demo.test_command import demo, demo_verify, two_rounds
from tests.veilsum.demo.test_report import Page
from veilsum.demo.comparison import Heads
from veilsum.demo.facts import Facts
from veilsum.demo.folder import Folder
from veilsum.demo.plan import Plan
from veilsum.demo.report import render
from veilsum.demo.table import print_table
from veilsum.features import read_features

RARE = RareView(indicator="1d" * 32, margin=1, floor=5, holders=(5, 2))
NAN = float("nan")


@pytest.fixture
def facts(make_facts: Callable[..., Facts]) -> Facts:
    per_class = Heads(*(np.array([value, NAN]) for value in (0.6, 0.85, 0.85, 0.7, 0.8)))
    return make_facts(withheld=(1,), rare=RARE, per_class=per_class)


def test_the_page_says_what_was_withheld_and_why(facts: Facts) -> None:
    page = Page(render(facts))
    for sentence in (
        "Withheld: 1. Before the round another one counted how many members hold each digit",
        "What fewer than m = 5 members hold was left out",
        "g = 4, the fewest members that a sum may hide among, and r = 1 that might have been missing",
        "The counts were seen by all members, who holds what by none.",
        "class members that hold it statistics 0 5 in the sum 1 2 withheld",
        "1 of 2 digits stay out of the round that follows",
        "how many members hold each digit, the rare ones too: not which members",
        "how many records each of the 1 classes has",
        "one of them rare, and share a frozen feature extractor",
        "dealt evenly, but for the last one, which two members share",
        "veilsum demo --seed 7 --withhold",
        "0 70.0 % 80.0 % 60.0 % 85.0 % 85.0 % 1 withheld all 20",
    ):
        assert sentence in page.text, sentence
    assert "are published" not in page.text


def test_the_page_says_that_the_admin_published(make_facts: Callable[..., Facts]) -> None:
    page = Page(render(make_facts()))
    assert "Rare classes are published. The admin signed that they may be (m = 0)" in page.text
    assert "members that hold it" not in page.text
    assert "--withhold" not in page.text


def test_where_every_class_has_holders_enough_none_is_withheld(make_facts: Callable[..., Facts]) -> None:
    page = Page(render(make_facts(rare=RARE.model_copy(update={"holders": (5, 5)}))))
    assert "No class was withheld. Before the round" in page.text


def test_the_table_says_it_too(facts: Facts, make_facts: Callable[..., Facts]) -> None:
    for shown, words in ((facts, "1 (held by 2)"), (make_facts(), "(m = 0)")):
        stream = io.StringIO()
        print_table(shown, Folder(Path("/out")), Console(file=stream, width=400))
        assert words in stream.getvalue()
    assert facts.summary()["withheld"] == [1]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = partial(Plan, recipe=two_rounds, upload_min_s=2.0, grace_s=0.5)
    monkeypatch.setattr("veilsum.demo.plan.Plan", plan)


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_a_digit_that_two_members_hold_is_kept_out_of_the_sum(tmp_path: Path) -> None:
    code, printed, told = demo("--output", str(tmp_path), "--seed", "3", "--withhold", "--keep", "--json")
    assert code == 0, told
    summary: dict[str, Any] = json.loads(printed)
    assert summary["withheld"] == [9]
    assert summary["weights_max_rel_diff"] < 1e-6
    assert summary["accuracy_masked"] == summary["accuracy_plain"]
    assert demo_verify(tmp_path)[0] == 0
    result = Result.load(tmp_path / "result")
    rare = result.record.rare
    assert rare is not None
    held = [set(read_features(path)[1].tolist()) for path in sorted(tmp_path.glob("members/*/features.*"))]
    counted = dict(zip(result.evidence.manifest.members, held, strict=True))
    there = [counted[member] for member in result.survivors]
    assert rare.holders == tuple(sum(digit in labels for labels in there) for digit in range(10))
    assert (rare.margin, rare.floor) == (3, 9)
    assert rare.holders[9] <= 2
    assert not load_file(tmp_path / "result" / "weights.safetensors")["weights"][:, 9].any()
    features, _ = read_features(next(iter(sorted(tmp_path.glob("members/*/features.*")))))
    assert 9 not in result.predict(features)
    page = Page((tmp_path / "report.html").read_text())
    assert "Withheld: 9. Before the round another one counted" in page.text
    assert f"9 {rare.holders[9]} withheld" in page.text
