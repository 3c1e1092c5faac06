import re
import sys

import pytest

from research.report import cells, markdown, page
from tests.support.pages import Page
from training.results import Diverged

from .conftest import Make


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out a group's pictures, which take seconds, for tests of the tables."""
    monkeypatch.setattr(sys.modules[page.__module__], "pictures", lambda _: ())


def test_a_page_is_whole_and_needs_nothing_from_outside(make: Make) -> None:
    runs = [make(seed=0), make(seed=1), make(experiment="ccvr-moon", method="MOON <1>", ccvr=0.7)]
    text = page(cells(runs), title="A & B")
    attributes = Page(text).attributes
    links = [own[name] or "" for _, own in attributes for name in ("src", "href") if name in own]
    assert all(link.startswith("data:image/") for link in links)
    images = [own for tag, own in attributes if tag == "img"]
    assert len(images) == 10
    assert all(own["alt"] for own in images)
    assert "<h1>A &amp; B</h1>" in text
    assert "MOON &lt;1&gt;" in text
    assert "a &lt;fast&gt; one" in text
    assert "58.55 ± 0.98" in text
    assert "3 runs of 2 experiments on CIFAR-10." in text
    assert "$" not in re.sub(r"data:image/[^\"]+", "", text)


@pytest.mark.usefixtures("undrawn")
def test_stand_ins_are_said_first_and_in_their_rows(make: Make) -> None:
    run = make()
    data = run.data.model_copy(update={"name": "TinyImageNet-100", "stands_in_for": "CIFAR-10"})
    found = cells([run.model_copy(update={"data": data})])
    text = page(found)
    assert "1 of them on data that stand in for the paper's" in text
    assert text.count("TinyImageNet-100 stands in for CIFAR-10") == 3
    assert "within a point of the paper" not in text
    assert "TinyImageNet-100 stands in for CIFAR-10" in markdown(found)


def test_the_markdown_has_the_same_numbers(make: Make) -> None:
    text = markdown(
        cells([make(), make(seed=1, accuracy=0.62), make(experiment="own", method="a|b", calibrations=())])
    )
    assert (
        "| FedAvg | trained | 60.00 ± 2.83 | 58.55 ± 0.98 (Table 2 and Table 5) | +1.45 | – | – | 2 | nothing (paper: MOON CNN, K = 10, Dir(0.1), R = 100, E = 10) |"
        in text
    )
    assert (
        "| FedAvg | CCVR | 62.00 ± 0.00 | 62.68 ± 0.54 (Table 2 and Table 5) | −0.68 | +2.00 | +4.13 | 2 | ″ |"
        in text
    )
    assert "| a\\|b | 58.00 | – | – | cpu, 100 s of processor time | 1 |  |" in text
    assert "## CIFAR-10, 50,000 records, Dir(0.1)\n" in text
    assert "unequal seeds or partitions" in text
    assert "There are no result files yet." in markdown([])


def test_each_run_has_a_command_and_a_device(make: Make) -> None:
    run = make(experiment="ccvr-fedavg/alpha-005+jpeg")
    on_gpu = {
        kind: run.model_copy(
            update={"environment": run.environment.model_copy(update={"device": device}), "experiment": name}
        )
        for kind, device, name in (
            ("stacked", "NVIDIA H200, float32, torch 2.11", "ccvr-fedavg/jpeg"),
            ("alone", "cuda", "feduv-pacs-fedavg/pacs-32"),
            ("abreast", "NVIDIA H200, 11 runs side by side, torch 2.11", "fedetf-moon/moon-cnn"),
        )
    }
    text = markdown(cells([run, *on_gpu.values(), make(experiment="mine")]))
    file = "veilsum train research/experiments/ccvr-fedavg.toml"
    assert f"| `{file} --variant alpha-005 --variant jpeg --seed 0` | 1 | cpu |" in text
    assert "research.stacked train --alpha 0.1" in text
    assert "pacs-32 --device cuda --seed 0` | 1 | cuda |" in text
    assert "abreast fedetf-moon/moon-cnn --output runs/abreast --seed 0` | 1 | NVIDIA H200 |" in text
    assert "| `veilsum train mine.toml --seed 0` | 1 | cpu |" in text
    assert "NVIDIA H200, 120 s |" in text


def test_a_run_that_diverged_is_named_under_its_papers_table_with_its_command(make: Make) -> None:
    run = make()
    facts = run.model_dump(include={"experiment", "method", "recipe", "data", "deal", "environment"})
    lost = Diverged(**facts | {"experiment": "ccvr-moon"}, seed=1, round=3, lr=0.1)
    text = markdown(cells([run]), [lost, lost.model_copy(update={"experiment": "feduv-pacs-moon"})])
    assert text.count("Diverged, so without a figure: MOON in round 3 (paper: 57.36, Table 2") == 1
    assert "feduv-pacs-moon.toml --seed 1` | 1 | cpu |" in text


@pytest.mark.usefixtures("undrawn")
def test_methods_on_the_same_partitions_are_ranked_in_both_forms(make: Make) -> None:
    sphere = make(experiment="own", method="SphereFed", accuracy=0.6, ccvr=0.66)
    found = cells([make(), sphere])
    text, html = markdown(found), page(found)
    first = "| CIFAR-10, 50,000 records, Dir(0.1) | 2 | 2 | SphereFed, 60.00 | SphereFed, FFC, 67.00 |"
    assert f"{first} +6.00 (+5.00 … +7.00) | +5.00 (+4.00 … +6.00) |" in text
    assert (
        "| SphereFed | **60.00** | **67.00** (+7.00) | **66.00** (+6.00) | cpu, 100 s of processor time | 1 |"
        in text
    )
    assert f"| CIFAR-10, 50,000 records, Dir(0.1) | 0 | `{0:064d}` | 0 | 2 |" in text
    assert "unequal" not in text
    assert "other seeds" not in text
    assert '<td class="number best">67.00<small>+7.00</small></td>' in html
    assert html.count(f"{0:064d}") == 1
