"""docs/operations.md has a heading for everything that can be set, asked or measured, and for nothing else."""

import ast
import re
from pathlib import Path

from protocol import rest
from service.settings import SECRETS_DIR, Settings
from service.telemetry.metrics import REGISTRY
from service.telemetry.traces import ENDPOINTS

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "operations.md").read_text()


def headings(section: str) -> set[str]:
    [body] = re.findall(rf"^## {section}$(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return set(re.findall(r"^### (.+)$", body, re.MULTILINE))


def metric_names() -> set[str]:
    return {family.name + ("_total" if family.type == "counter" else "") for family in REGISTRY.collect()}


def test_every_setting_has_its_heading() -> None:
    ours = {f"VEILSUM_{name.upper()}" for name in Settings.model_fields}
    assert headings("Settings") == ours | {ENDPOINTS[-1], SECRETS_DIR}


def test_every_metric_has_its_heading() -> None:
    assert headings("Metrics") == metric_names()


def test_every_endpoint_for_machines_has_its_heading() -> None:
    assert headings("Endpoints") == {rest.HEALTH, rest.READY, rest.METRICS}


def events_logged() -> set[str]:
    """What `log.info("…")` and its like name, wherever the coordinator logs."""
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
