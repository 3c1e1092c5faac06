import re

from research.report import cells, markdown, page
from tests.support.pages import Page
from training.results import Diverged

from .conftest import Make


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
