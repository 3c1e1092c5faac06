import re
from collections import defaultdict
from functools import cache
from typing import Any

import pytest

from research.papers import EXPERIMENTS, paper_experiment, row_of
from research.report import paper_rows
from training.experiments.config import Experiment

# Rows of the papers' tables that no shipped experiment repeats, with the reason.
LEFT_OUT: dict[str, str] = {}
# Experiments whose own settings are in no row of a table, with the reason; their variants are.
WITHOUT = {
    "ccvr-spherefed": "no paper has it; it stands beside CCVR's FedAvg",
    "fedetf-feddyn": "the table has a dash for two classes a member",
    "spherefed-ablation": "each of the table's rows is a variant",
    "spherefed-personal": "the table's figures are means over members' own records, which no row holds",
}
# What appendices print of each row and column: Dong et al. 2022, Table 16; Luo et al. 2021, Table 8; Huang et al. 2023, Table 3.
COLUMNS = ("iid", "alpha-05", None, "tinyimagenet")
SPHEREFED: dict[str, dict[str, tuple[float, ...]]] = {
    "fedavg-mobilenetv2": {"lr": (0.1,) * 4},
    "fedavg-mobilenetv2-babu": {"lr": (0.1, 0.1, 0.1, 0.01)},
    "fedavg-mobilenetv2-ours": {"lr": (0.5, 0.5, 1.0, 0.5)},
    "fedprox-resnet18": {"lr": (0.1,) * 4, "mu": (0.001,) * 4},
    "fedprox-resnet18-babu": {"lr": (0.1,) * 4, "mu": (0.001,) * 4},
    "fedprox-resnet18-ours": {"lr": (0.5,) * 4, "mu": (0.0001, 0.0001, 0.0001, 0.001)},
    "fednova-vgg13": {"lr": (0.01,) * 4},
    "fednova-vgg13-babu": {"lr": (0.01, 0.01, 0.01, 0.001)},
    "fednova-vgg13-ours": {"lr": (0.1,) * 4},
    "fedopt-senet18": {"lr": (0.01,) * 4, "server": (1.0,) * 4, "momentum": (0.3,) * 4},
    "fedopt-senet18-babu": {"lr": (0.01,) * 4, "server": (1.0,) * 4, "momentum": (0.3,) * 4},
    "fedopt-senet18-ours": {"lr": (0.5,) * 4, "server": (1.0,) * 4, "momentum": (0.3,) * 4},
}
DEGREES = ("alpha-005", None, "alpha-05")
CCVR: dict[str, dict[str, tuple[float, ...]]] = {
    "fedavg": {"epochs": (10, 10, 30)},
    "fedavgm": {"epochs": (10, 10, 50)},
    "fedprox": {"epochs": (10, 10, 30), "mu": (0.01, 0.001, 0.001)},
    "moon": {"epochs": (10, 10, 30), "mu": (5.0, 1.0, 1.0), "temperature": (0.5,) * 3},
    "clsprox": {"mu": (0.01, 0.001, 0.001)},
    "clsnorm-clsprox": {"mu": (0.01, 0.001, 0.001)},
}
FEDETF = {None: (1.0, 900), "c10-5": (0.5, 900), "c100-20": (0.5, 700), "epochs-5": (0.5, 900)}
DATA = {
    "CIFAR-10": "cifar-10",
    "CIFAR-100": "cifar-100",
    "FEMNIST": "femnist",
    "PACS": "pacs",
    "STL-10": "stl-10",
    "TinyImageNet": "tinyimagenet",
}
MODELS = {
    "MOON CNN": "moon_cnn",
    "MobileNetV2": "mobilenetv2",
    "ResNet-18": "resnet18",
    "SENet-18": "senet18",
    "VGG-11": "vgg11",
    "VGG-13": "vgg13",
}


@cache
def reached() -> dict[str, list[Experiment]]:
    found = defaultdict(list)
    for name, variants in EXPERIMENTS.items():
        for variant in (None, *variants):
            experiment = paper_experiment(name, variant)
            row = row_of(experiment.name, experiment.paper_row, smaller=False)
            if row is not None:
                found[row.id].append(experiment)
    return found


def test_every_row_is_repeated_by_exactly_one_experiment_or_left_out_with_a_reason() -> None:
    several = {row: [each.name for each in own] for row, own in reached().items() if len(own) > 1}
    assert several == {}
    assert paper_rows().keys() - reached().keys() == LEFT_OUT.keys()
    assert all(LEFT_OUT.values())


def test_every_experiment_of_the_papers_is_held_against_a_row_when_it_is_small() -> None:
    for name, variants in EXPERIMENTS.items():
        if "small" in variants and name not in WITHOUT:
            small = paper_experiment(name, "small")
            assert row_of(small.name, small.paper_row, smaller=True) is not None, name


def test_an_experiment_has_the_settings_that_its_row_prints() -> None:
    checked = 0
    for id_, [experiment] in reached().items():
        row, choice = paper_rows()[id_], experiment.training
        assert experiment.data.name == DATA[row.data], id_
        deal = experiment.deal if isinstance(experiment.deal, dict) else {"name": experiment.deal}
        facts = {
            r"R = (\d+)": choice.rounds,
            r"E = (\d+)": choice.local_epochs,
            r"K = (\d+)": deal.get("members"),
            r"(\d+) % a round": 100 * choice.participation,
            r"([\d.]+) take part": choice.participation,
            r"Dir\(([\d.]+)\)": deal.get("alpha"),
            r"(\d+) classes a member": deal.get("classes"),
        }
        for pattern, ours in facts.items():
            if stated := re.search(pattern, row.setting):
                assert float(stated[1]) == ours, (id_, row.setting)
                checked += 1
        if "IID" in row.setting:
            assert deal["name"] == "iid", id_
        for printed, architecture in MODELS.items():
            if printed in row.setting:
                assert experiment.model.architecture == architecture, id_
    assert checked > 3 * len(reached())


def options_of(experiment: Experiment) -> dict[str, Any]:
    algorithm = experiment.training.algorithm
    return dict(algorithm) if isinstance(algorithm, dict) else {"name": algorithm}


@pytest.mark.parametrize("base", SPHEREFED)
def test_spherefed_s_rows_have_the_rates_of_its_appendix(base: str) -> None:
    for place, column in enumerate(COLUMNS):
        experiment = paper_experiment(f"spherefed-{base}", column)
        options = options_of(experiment)
        found = {"lr": experiment.training.lr, "mu": options.get("mu"), "server": options.get("lr")}
        found["momentum"] = options.get("momentum")
        printed = {name: values[place] for name, values in SPHEREFED[base].items()}
        assert {name: found[name] for name in printed} == printed, column
        batch = "mobilenetv2" in base and column != "tinyimagenet"
        assert experiment.model.options["norm"] == ("batch" if batch else "group"), column
        assert experiment.model.architecture in base
        assert experiment.calibrate["ccvr"]["lr"] == 1e-5
        assert experiment.calibrate["ccvr"]["per_class"] == (1000 if column == "tinyimagenet" else 500)


@pytest.mark.parametrize("base", CCVR)
def test_ccvr_s_rows_have_its_hyper_parameters(base: str) -> None:
    for place, degree in enumerate(DEGREES):
        experiment = paper_experiment(f"ccvr-{base}", degree)
        found = options_of(experiment) | {"epochs": experiment.calibrate["ccvr"].get("epochs", 10)}
        printed = {name: values[place] for name, values in CCVR[base].items()}
        assert {name: found[name] for name in printed} == printed, degree
        assert (experiment.training.lr, experiment.training.weight_decay) == (0.01, 1e-5)
        assert experiment.calibrate["ccvr"]["per_class"] == (100 if degree == "alpha-05" else 2000)


def test_fedetf_s_rows_have_its_best_weights_and_warm_ups() -> None:
    for variant, printed in FEDETF.items():
        options = options_of(paper_experiment("fedetf-etf-gmv", variant))
        assert (options["alpha"], options["warmup"]) == printed, variant


@pytest.mark.parametrize(
    ("data", "records"), [("stl10", 0.9 * 5000), ("cifar100", 0.9 * 50_000), ("pacs", 9991 - 4 * 7 * 40)]
)
def test_feduv_s_rows_of_label_shift_leave_a_tenth_to_validate_by(data: str, records: float) -> None:
    for name in (f"feduv-{data}-{method}" for method in ("fedavg", "fedprox", "feduv", "freeze", "moon")):
        for variant in (None, *(each for each in EXPERIMENTS[name] if each != "small")):
            assert paper_experiment(name, variant).data.train_records == records, (name, variant)


def test_feduv_s_baselines_have_the_weights_that_the_paper_prints() -> None:
    for data in ("stl10", "cifar100", "pacs"):
        assert options_of(paper_experiment(f"feduv-{data}-fedprox"))["mu"] == 0.01
        assert options_of(paper_experiment(f"feduv-{data}-moon"))["mu"] == 1.0


def test_gmv_s_rows_divide_as_the_paper_prints() -> None:
    for name in ("fedetf-gmv", "fedetf-etf-gmv", "fedetf-femnist-fedetf"):
        for variant in (None, *EXPERIMENTS[name]):
            algorithm = paper_experiment(name, variant).training.algorithm
            assert isinstance(algorithm, dict)
            assert (algorithm.get("over") == "participants") == (variant != "small"), (name, variant)


def test_fedetf_s_rows_follow_the_published_code_of_its_protocol() -> None:
    checked = 0
    for id_, [experiment] in reached().items():
        if not id_.startswith("fedetf-") or "femnist" in id_:
            continue
        checked += 1
        assert isinstance(experiment.deal, dict)
        assert set(experiment.deal) == {"name", "members", "classes"}, f"{id_}: even, disjoint shards"
        assert experiment.model.options == {"norm": "none"}, id_
        assert experiment.training.augment, id_
        head = experiment.training.head
        assert head == {"name": "learned", "bias": False} or "simplex" in str(head), id_
        assert experiment.training.loss == "cross-entropy", id_
    assert checked == 51


def test_papers_whose_figures_need_augmentation_have_it() -> None:
    for id_, [experiment] in reached().items():
        if id_.startswith(("spherefed-", "ccvr-")):
            assert experiment.training.augment, id_
            assert not paper_experiment(experiment.name.partition("/")[0]).data.stands_in_for
