"""deploy/grafana belongs to the metrics that there are."""

import json
import re
from pathlib import Path

import pytest
import yaml

from protocol.causes import Cause
from service.telemetry.metrics import REGISTRY, STATES, STORAGE

FOLDER = Path(__file__).parents[3] / "deploy" / "grafana"
FILES = ("dashboard.json", "alerts.yml")


def samples() -> set[str]:
    """Every series' name as Prometheus stores it."""
    return {sample.name for family in REGISTRY.collect() for sample in family.samples} | {
        f"veilsum_request_seconds_{part}" for part in ("bucket", "count", "sum")
    }


@pytest.mark.parametrize("name", FILES)
def test_every_metric_and_label_value_that_is_named_exists(name: str) -> None:
    text = (FOLDER / name).read_text().replace('\\"', '"')
    named = set(re.findall(r"\bveilsum_\w+", text))
    assert len(named) >= 6
    assert named <= samples()
    for matcher, known in (("cause", {cause.value for cause in Cause}), ("state", set(STATES))):
        for values in re.findall(rf'{matcher}=~?"([^"]+)"', text):
            assert set(values.split("|")) <= known
    assert set(re.findall(r'operation="(\w+)"', text)) <= {labels["operation"] for labels in labels_of()}


def labels_of() -> list[dict[str, str]]:
    [family] = STORAGE.collect()
    return [sample.labels for sample in family.samples]


def test_every_metric_has_a_panel() -> None:
    text = (FOLDER / "dashboard.json").read_text()
    shown = {re.sub(r"_(bucket|count|sum)$", "", name) for name in re.findall(r"\bveilsum_\w+", text)}
    families = {family.name + ("_total" if family.type == "counter" else "") for family in REGISTRY.collect()}
    assert shown == families


def test_what_operators_are_told_to_be_woken_for_has_a_rule() -> None:
    page = (FOLDER.parents[1] / "docs" / "operations.md").read_text()
    rules = yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"][0]["rules"]
    asked = " ".join(rule["expr"] for rule in rules)
    promised = re.findall(r"^### (veilsum_\w+)\n+(?:(?!^#).*\n)*?.*\*\*Alert\*\*([^.]*)", page, re.MULTILINE)
    assert len(promised) == 7
    for metric, words in promised:
        assert metric in asked
        for value in re.findall(r"`([a-z-]+)`", words):
            assert re.search(rf"{metric}\w*{{[^}}]*\b{value}\b", asked), value
    assert 'absent(up{job="veilsum"})' in asked


def test_the_dashboard_is_one_and_its_panels_do_not_overlap() -> None:
    dashboard = json.loads((FOLDER / "dashboard.json").read_text())
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in dashboard["panels"]]
    assert len(set(places)) == len(places) >= 10
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(places)
