import re
from collections import defaultdict

from training.experiments import Experiment, load_experiment, shipped
from training.report import paper_rows
from training.report.papers import row_of

# Rows of the papers' tables that no shipped experiment repeats, with the reason.
LEFT_OUT: dict[str, str] = {}
# Experiments of which the file's own choice is no row, for these reasons; their variants are.
WITHOUT = {
    "ccvr-spherefed": "no paper has it; it stands beside CCVR's FedAvg",
    "fedetf-feddyn": "the table has a dash for two classes a member",
    "spherefed-ablation": "each of the table's rows is a variant",
    "spherefed-personal": "the table's figures are means over members' own records, which no row holds",
}
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


def reached() -> dict[str, list[Experiment]]:
    found = defaultdict(list)
    for name, variants in shipped().items():
        for variant in (None, *variants):
            experiment = load_experiment(name, variant)
            row = row_of(experiment.name, experiment.paper_row, smaller=False)
            if row is not None:
                found[row.id].append(experiment)
    return found


REACHED = reached()


def test_every_row_is_repeated_by_exactly_one_experiment_or_left_out_with_a_reason() -> None:
    several = {row: [each.name for each in own] for row, own in REACHED.items() if len(own) > 1}
    assert several == {}
    assert paper_rows().keys() - REACHED.keys() == LEFT_OUT.keys()
    assert all(LEFT_OUT.values())


def test_every_experiment_of_the_papers_is_held_against_a_row_when_it_is_small() -> None:
    for name, variants in shipped().items():
        if "small" in variants and name not in WITHOUT:
            small = load_experiment(name, "small")
            assert row_of(small.name, small.paper_row, smaller=True) is not None, name


def test_an_experiment_has_the_settings_that_its_row_prints() -> None:
    checked = 0
    for id_, [experiment] in REACHED.items():
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
    assert checked > 3 * len(REACHED)
