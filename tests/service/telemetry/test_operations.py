"""docs/operations.md and deploy/grafana name every setting, endpoint, metric and log event, and no others."""

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from service.settings import SECRETS_DIR, Settings
from service.telemetry.logs import ENDPOINTS
from service.telemetry.metrics import REGISTRY, STATES, STORAGE_SECONDS
from veilsum.protocol import rest
from veilsum.protocol.causes import Cause

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "operations.md").read_text()
GRAFANA = ROOT / "deploy" / "grafana"
METRICS = {family.name + ("_total" if family.type == "counter" else "") for family in REGISTRY.collect()}


@pytest.mark.parametrize(
    ("section", "named"),
    [
        (
            "Settings",
            {f"VEILSUM_{name.upper()}" for name in Settings.model_fields} | {ENDPOINTS[-1], SECRETS_DIR},
        ),
        ("Metrics", METRICS),
        ("Endpoints", {rest.HEALTH_PATH, rest.READY_PATH, rest.METRICS_PATH}),
    ],
)
def test_everything_has_its_heading(section: str, named: set[str]) -> None:
    [body] = re.findall(rf"^## {section}$(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert set(re.findall(r"^### (.+)$", body, re.MULTILINE)) == named


def events_logged() -> set[str]:
    """Return the names of all events that the coordinator logs, by `log.info("…")` and similar calls."""
    calls = [
        node
        for path in (ROOT / "service").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in {"debug", "info", "warning", "error", "exception", "critical"}
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "log"
    ]
    assert all(isinstance(call.args[0], ast.Constant) for call in calls)
    return {str(ast.literal_eval(call.args[0])) for call in calls}


def test_every_event_has_its_row() -> None:
    [table] = re.findall(r"^\| event \| what to do \|\n\|.*?\n(.*?)\n\n", PAGE, re.MULTILINE | re.DOTALL)
    rows = [row.split("|")[1] for row in table.splitlines()]
    named = [event for row in rows for event in re.findall(r"`(.+?)`", row)]
    assert sorted(named) == sorted(events_logged())


@pytest.mark.parametrize("name", ["dashboard.json", "alerts.yml"])
def test_every_metric_and_label_value_that_is_named_exists(name: str) -> None:
    text = (GRAFANA / name).read_text().replace('\\"', '"')
    samples = {sample.name for family in REGISTRY.collect() for sample in family.samples}
    samples |= {f"veilsum_request_seconds_{part}" for part in ("bucket", "count", "sum")}
    named = set(re.findall(r"\bveilsum_\w+", text))
    assert len(named) >= 6
    assert named <= samples
    [storage] = STORAGE_SECONDS.collect()
    for label, known in (
        ("cause", {cause.value for cause in Cause}),
        ("state", set(STATES)),
        ("operation", {sample.labels["operation"] for sample in storage.samples}),
    ):
        for values in re.findall(rf'{label}=~?"([^"]+)"', text):
            assert set(values.split("|")) <= known


@pytest.mark.parametrize("name", ["dashboard.json", "alerts.yml"])
def test_what_waits_on_purpose_counts_as_slow_nowhere(name: str, document: dict[str, Any]) -> None:
    waiting = {rest.ROUND_EVENTS_PATH} | {
        path
        for path, methods in document["paths"].items()
        for operation in methods.values()
        if any(parameter["name"] == "wait_s" for parameter in operation.get("parameters", ()))
    }
    text = (GRAFANA / name).read_text().replace('\\"', '"')
    [left_out] = re.findall(r'route!~"([^"]+)"', text)
    paths = {value for value in vars(rest).values() if str(value).startswith("/v1/")}
    assert {path for path in paths if re.fullmatch(left_out, path)} == waiting


def test_every_metric_has_a_panel_and_panels_do_not_overlap() -> None:
    text = (GRAFANA / "dashboard.json").read_text()
    shown = {re.sub(r"_(bucket|count|sum)$", "", name) for name in re.findall(r"\bveilsum_\w+", text)}
    assert shown == METRICS
    panels = json.loads(text)["panels"]
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}
    assert len(places) == len({panel["id"] for panel in panels}) == len(panels) >= 10


def test_what_operators_are_told_to_be_woken_for_has_a_rule() -> None:
    rules = yaml.safe_load((GRAFANA / "alerts.yml").read_text())["groups"][0]["rules"]
    asked = " ".join(rule["expr"] for rule in rules)
    promised = re.findall(r"^### (veilsum_\w+)\n+(?:(?!^#).*\n)*?.*\*\*Alert\*\*([^.]*)", PAGE, re.MULTILINE)
    assert len(promised) >= 8
    for metric, words in promised:
        assert metric in asked
        for value in re.findall(r"`([a-z-]+)`", words):
            assert re.search(rf"{metric}\w*{{[^}}]*\b{value}\b", asked), value
    assert 'absent(up{job="veilsum"})' in asked
