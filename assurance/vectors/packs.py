"""Canary packs, true and false, and what a member's canaries differ in (member: Canaries)."""

import hashlib
import io
import zipfile
from collections.abc import Iterator
from typing import Any

import numpy as np
import rfc8785

from assurance.vectors.ledgers import EXPIRES_S, QUESTION, data
from tests.support.simulator import simulated_content

Json = dict[str, Any]
IDS = ("canary-1", "canary-0", "canary-2")
ROWS = [[3.0, 1.0, 0.5], [1.0, 4.0, 0.0], [2.0, 3.0, 1.0]]
TWO = [row[:2] for row in ROWS]
COLUMNS = ("age", "size", "grade")
HEADER: Json = {
    "format": "veilsum-canaries/1",
    "dim": 3,
    "ids": [*IDS],
    "labels": ["left", "right", "right"],
    "columns": [],
    "slips": ["bgr"],
    "inputs": ["one.txt"],
}
ENTRIES = {"features": ROWS, "slips/bgr": [row[::-1] for row in ROWS], "inputs/one.txt": b"public"}
OWN: Json = {"rows": ROWS, "labels": [0, 1, 1], "ids": [*IDS]}
"""A member's canaries as the pack has them."""


def packed(entries: Json | None = None, *, compressed: bool = False, header: Json | None = None) -> bytes:
    """Make a pack with other entries, or other fields of its header; None leaves an entry out."""
    given = {"canaries.json": rfc8785.dumps(HEADER | (header or {})), **ENTRIES, **(entries or {})}
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in given.items():
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
            if content is not None:
                rows = isinstance(content, list)
                archive.writestr(entry, np.array(content, "<f4").tobytes() if rows else content)
    return file.getvalue()


def study(pack: bytes, **question: Any) -> str:
    """Return the content of a study that names a pack."""
    rehearsal = {"pack": hashlib.sha256(pack).hexdigest(), "tolerance": 0.01}
    given = {**QUESTION, "dim": 3, **question}
    return simulated_content(given, EXPIRES_S, {"name": "rehearsed"}, rehearsal=rehearsal).to_bytes().decode()


def case(name: str, rule: str, pack: bytes, content: str, own: Json) -> Json:
    given = {"content": content, "pack": pack.hex(), **own}
    return {"name": name, **({"rule": rule} if rule else {}), "function": "canaries", "input": given}


def cases() -> Iterator[Json]:
    """Yield all cases without their outputs."""
    good = packed()
    for name, rule, own in members():
        yield case(name, rule, good, study(good), {**OWN, **own})
    named = packed({"features": [row[::-1] for row in ROWS]}, header={"columns": [*COLUMNS[::-1]]})
    yield case("columns by name, in another order", "", named, study(named, columns=[*COLUMNS]), OWN)
    yield case("another pack than the study names", "CANARY-2", good + b"\0", study(good), OWN)
    for name, pack in {
        "no archive": good[:-30],
        "compressed entries": packed(compressed=True),
        "no header": packed({"canaries.json": None}),
        "another format": packed(header={"format": "veilsum-canaries/2"}),
        "an id of no canary": packed(header={"ids": ["patient-1", *IDS[1:]]}),
        "an id twice": packed(header={"ids": [IDS[0], *IDS[:2]]}),
        "a label less": packed(header={"labels": ["left", "right"]}),
        "a class that the study lacks": packed(header={"labels": ["left", "right", "middle"]}),
        "another dim": packed({"features": TWO, "slips/bgr": TWO}, header={"dim": 2}),
        "features too short": packed({"features": ROWS[:2]}),
        "a slip without features": packed({"slips/bgr": None}),
        "an input that is not listed": packed({"inputs/two.txt": b"more"}),
        "an input that is not there": packed({"inputs/one.txt": None}),
        "features that are no numbers": packed({"features": [[float("nan")] * 3, *ROWS[1:]]}),
        "a row of zeros": packed({"features": [[0.0] * 3, *ROWS[1:]]}),
    }.items():  # fmt: skip
        yield case(name, "CANARY-3", pack, study(pack), OWN)
    other = packed(header={"columns": [*COLUMNS[:2], "weight"]})
    yield case("a column that the study lacks", "CANARY-3", other, study(other, columns=[*COLUMNS]), OWN)


def members() -> Iterator[tuple[str, str, Json]]:
    """Yield what a member has in its file, with the rule that it breaks."""
    beside = data("a", 4)
    yield "canaries as the pack has them", "", {}
    yield "rows of another length", "", {"rows": [[2 * each for each in row] for row in ROWS]}
    yield "another order", "", {name: each[::-1] for name, each in OWN.items()}
    yield "within the tolerance", "", {"rows": [[3.01, 1.0, 0.5], *ROWS[1:]]}
    yield (
        "beside records",
        "",
        {
            "rows": [*ROWS, *([*row, 0.0] for row in beside["rows"])],
            "labels": [*OWN["labels"], 0, 1, 0, 1],
            "ids": [*IDS, *beside["ids"]],
        },
    )
    yield "none", "CANARY-4", {"rows": [[1.0, 1.0, 1.0]], "labels": [0], "ids": ["patient"]}
    yield "a canary less", "CANARY-4", {name: each[1:] for name, each in OWN.items()}
    yield "a canary twice", "CANARY-4", {name: [*each, each[0]] for name, each in OWN.items()}
    more = {"rows": [*ROWS, ROWS[0]], "labels": [0, 1, 1, 0], "ids": [*IDS, "canary-9"]}
    yield "a canary of another pack", "CANARY-4", more
    yield "a row of zeros", "CANARY-4", {"rows": [[0.0] * 3, *ROWS[1:]]}
    yield "another label", "CANARY-5", {"labels": [1, 1, 1]}
    yield "a label that is no class", "CANARY-5", {"labels": [-1, 1, 1]}
    yield "columns in another order", "CANARY-5", {"rows": [row[::-1] for row in ROWS]}
    yield "beyond the tolerance", "CANARY-5", {"rows": [[3.1, 1.0, 0.5], *ROWS[1:]]}
    yield "features of another canary", "CANARY-5", {"rows": [ROWS[1], ROWS[0], ROWS[2]]}
