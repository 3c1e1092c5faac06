"""docs/operations.md has a heading for everything that can be set, asked or measured, and for nothing else."""

import re
from pathlib import Path

from protocol import rest
from service.settings import Settings
from service.telemetry.metrics import REGISTRY
from service.telemetry.traces import ENDPOINTS

PAGE = (Path(__file__).parents[3] / "docs" / "operations.md").read_text()


def headings(section: str) -> set[str]:
    [body] = re.findall(rf"^## {section}$(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return set(re.findall(r"^### (.+)$", body, re.MULTILINE))


def metric_names() -> set[str]:
    return {family.name + ("_total" if family.type == "counter" else "") for family in REGISTRY.collect()}


def test_every_setting_has_its_heading() -> None:
    ours = {f"VEILSUM_{name.upper()}" for name in Settings.model_fields}
    assert headings("Settings") == ours | {ENDPOINTS[-1]}


def test_every_metric_has_its_heading() -> None:
    assert headings("Metrics") == metric_names()


def test_every_endpoint_for_machines_has_its_heading() -> None:
    assert headings("Endpoints") == {rest.HEALTH, rest.READY, rest.METRICS}
