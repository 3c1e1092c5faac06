"""Rounds of studies without a federation: the content of their signed documents."""

from __future__ import annotations

from typing import Any

import numpy as np
import rfc8785

from tests.support.simulator import simulated_reasons
from veilsum.protocol.round_spec import RoundSpec
from veilsum.protocol.study import DAY_S, Content

NOW_S = 1_800_000_000.0
NOISE = {"epsilon": 10.0, "delta": 1e-7, "unit": "record", "recipe": "sum"}
RECORDS = {"least": 1, "most": 4_000, "least_per_class": 1, "rows_per_id": 1}


def whole(**question: Any) -> dict[str, Any]:
    """Make a valid study of 12 members; keywords replace fields of its question."""
    content: dict[str, Any] = {
        "format": "veilsum-study/2",
        "notes": {
            "name": "ct-2026",
            "version": 1,
            "purpose": "a better head",
            "display": [],
            "expires": int(NOW_S) + 60 * DAY_S,
        },
        "question": {
            "extractor": "ab" * 32,
            "dim": 16,
            "classes": ["benign", "malignant"],
            "columns": [],
            "constant": False,
            "listable": False,
            "statistics": [{"kind": "ffc"}],
            "ring_bits": 48,
            "records": {"least": 50, "most": 20_000, "least_per_class": 5, "rows_per_id": 1},
            "members_min": 11,
            "members_max": 12,
            "a": 3,
            "h_min": 3,
            "loss": 100,
            "withhold": {"margin": 3},
            "noise": None,
            "judge": None,
            "windows": {"enrol": 600, "upload": 600, "answer": 60},
        },
        "after": {"ridge": "gcv", "publish": [], "readers": "members", "ccvr": None},
        "rehearsal": None,
    }
    content["question"].update(question)
    content["notes"].update(simulated_reasons(content["question"]))
    return content


def fields_of(*statistics: dict[str, Any]) -> dict[str, Any]:
    """Return the question's fields for these statistics; an ffc with `"constant": True` sets the question's constant."""
    kept = [{name: value for name, value in each.items() if name != "constant"} for each in statistics]
    return {"statistics": kept, "constant": any(each.get("constant", False) for each in statistics)}


def content_of(values: dict[str, Any]) -> Content:
    return Content.from_bytes(rfc8785.dumps(values))


def spec_of(
    step: str = "sum",
    *,
    withheld: tuple[int, ...] = (),
    members: int = 12,
    survivors_min: int = 8,
    after: dict[str, Any] | None = None,
    **question: Any,
) -> RoundSpec:
    """Make one step of a study; keywords replace fields of its question."""
    values = whole(**question)
    if any(statistic["kind"] == "ccvr" for statistic in values["question"]["statistics"]):
        values["after"]["ccvr"] = {"samples_per_class": 100, "power": 0.5}
    values["after"].update(after or {})
    return RoundSpec(content_of(values), bytes(32), "2026", step, withheld, members, survivors_min, 1 << 20)


def noisy(recipe: str, step: str, statistic: dict[str, Any], **more: Any) -> RoundSpec:
    """Make a step of a noisy study of one statistic."""
    noise = {**NOISE, **more.pop("noise", {}), "recipe": recipe}
    more = {"records": RECORDS, **more}
    return spec_of(step, **fields_of(statistic), noise=noise, withhold=None, **more)


def clouds(rows: int, dim: int, classes: int, seed: int = 0, *, noise: float = 1.0) -> tuple[Any, Any]:
    """Make rows around class centres away from the origin, and their labels."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(99).standard_normal((classes, dim)) + 1.5
    labels = rng.integers(0, classes, rows)
    return (centres[labels] + noise * rng.standard_normal((rows, dim))).astype(np.float32), labels
