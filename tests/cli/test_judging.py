"""`veilsum operator judge`: a head over all members' held-out records."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from client_sdk import Identity, Member, Policy, Result
from client_sdk.comparison import Judgement
from tests.client_sdk.test_comparison import rare
from tests.support.cli import CLASSES, PATIENCE_S, PERIOD, TOKEN, Cli, CliConsortium, later, records, threaded
from veilsum.cli.features import read_records
from veilsum.cli.judged_report import print_comparison
from veilsum.cli.judging import read_heads
from veilsum.cli.remote import open_operator
from veilsum.protocol.errors import Misuse

__all__ = ["rare"]

JUDGE_EDITS = {
    "# [question.judge]": "[question.judge]",
    "# epsilon = 1.0": "epsilon = 9.0",
    "# delta = 1e-7": "delta = 1e-7",
    "# positive = ": "positive = ",
    'readers = "members"': 'readers = "anyone"',
    "publish = []": 'publish = ["lda"]',
}
"""The judge that a draft proposes, with less noise; its page is public."""


@pytest.fixture
def judged(consortium: Callable[..., CliConsortium]) -> CliConsortium:
    """Three members with a result, and held-out records enough to judge it."""
    c = consortium(held_out=0.5, edits=JUDGE_EDITS)
    rng = np.random.default_rng(3)
    for place, member in enumerate(c.members):
        features, labels = records(rng, 600)
        c.files[place] = c.write(
            member, features, (labels + (rng.random(600) < 0.1)) % CLASSES, np.arange(600)
        )
    c.held()
    return c


def take_part(c: CliConsortium, member: str, period: str) -> list[Result]:
    policy = Policy(admin_key=c.admin, approved={c.approval})
    data = read_records(c.files[c.members.index(member)])
    with Member(c.cli.url, Identity.load(c.folder / member), policy) as joined:
        return [*joined.join(data, once=True, period=period)]


def judge(c: CliConsortium, period: str, *more: object) -> tuple[dict[str, Any], list[Result]]:
    """Hold a judgement; return what the operator's command printed, and the members' results."""
    words = c.cli.at("operator", "judge", c.study, "--period", period, "--token", TOKEN, "--json", *more)
    run, joins = (
        later(c.cli, *words),
        [threaded(partial(take_part, c, member, period)) for member in c.members],
    )
    results = [result for each in joins for result in each.result(PATIENCE_S)]
    outcome = run.result(PATIENCE_S)
    assert outcome.code == 0, outcome
    return outcome.values, results


def test_an_operator_judges_the_newest_head_and_later_another(judged: CliConsortium) -> None:
    c = judged
    said, results = judge(c, "judge-1")
    head = Result.load(c.result("m0"))
    truth = np.mean([*_accuracies(c, head)])
    accuracy = said["figures"]["accuracy"]
    names = f"the head of {PERIOD}", f"lda of {PERIOD}"
    assert said["chosen"] in names
    assert {f"accuracy of {name}" for name in names} <= said["figures"].keys()
    assert accuracy["low"] <= truth <= accuracy["high"]
    assert accuracy["high"] - accuracy["low"] < 0.2
    assert said["bins"]
    assert all(0 <= each["accuracy"]["low"] < each["accuracy"]["high"] <= 1 for each in said["bins"])
    for result in results:
        result.verify(c.admin)
        assert result.judge_figures.accuracy.value == pytest.approx(accuracy["value"])
        result.save(c.folder / "judged")
        assert "| accuracy |" in (c.folder / "judged" / "model-card.md").read_text()

    weights = c.result("m0") / "weights.safetensors"
    again, _ = judge(c, "judge-2", "--head", weights, "--head", weights)
    assert again["chosen"] == "weights.safetensors"
    assert again["figures"]["accuracy of weights.safetensors"]
    words = "operator", "judge", c.study, "--token", TOKEN, "--period", "judge-2"
    assert c.cli(*c.cli.at(*words, "--head", weights)).code == 1  # it has judged two heads
    page = httpx.get(f"{c.cli.url}/rounds/{results[0].record.round}/result")
    assert page.status_code == 200
    assert page.text.count('<svg class="plot"') == 4


def test_run_and_judge_open_nothing_in_a_period_of_the_other(
    consortium: Callable[..., CliConsortium],
) -> None:
    c = consortium(edits=JUDGE_EDITS)
    for command, period in (("judge", "2026-12"), ("judge", "rehearsal-1"), ("run", "judge-1")):
        words = ("operator", command, c.study, "--period", period, "--token", TOKEN)
        assert period in c.cli(*c.cli.at(*words)).error
    with open_operator(c.cli.url) as client:
        assert client.runs(c.admin).runs == ()


def test_join_and_card_show_what_finds_rare_positives(
    held: CliConsortium, rare: Judgement, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = Result.load(held.result("m0"))
    replace(result, judged=rare).save(tmp_path / "judged")
    print_comparison(rare, result.content.class_names)
    assert rare.detection is not None
    for text in ((tmp_path / "judged" / "model-card.md").read_text(), capsys.readouterr().err):
        assert f"{rare.detection.auroc:.3f}" in text
        assert f"{rare.detection.threshold:+.4g}" in text


def _accuracies(c: CliConsortium, head: Result) -> Iterator[float]:
    for path in c.files:
        data = read_records(path)
        yield head.evaluate(data.features, data.labels)


def test_a_file_that_holds_no_head_is_named_and_nobody_is_accused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no head")
    with pytest.raises(Misuse, match=r"notes\.txt") as refused:
        read_heads([tmp_path / "notes.txt"])
    assert "coordinator" not in str(refused.value)


def test_a_study_without_a_judge_or_a_head_is_told_so(
    consortium: Callable[..., CliConsortium], remote: Cli
) -> None:
    c = consortium()
    outcome = remote(*c.cli.at("operator", "judge", c.study, "--token", TOKEN))
    assert outcome.code == 1
    assert "question.judge" in outcome.err
