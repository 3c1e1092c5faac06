"""deploy/grafana belongs to the metrics that there are."""

import json
import re
from pathlib import Path

import pytest

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


def test_the_dashboard_is_one_and_its_panels_do_not_overlap() -> None:
    dashboard = json.loads((FOLDER / "dashboard.json").read_text())
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in dashboard["panels"]]
    assert len(set(places)) == len(places) >= 10
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(places)
