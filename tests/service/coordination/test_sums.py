"""Masked sums over REST equal, to the last integer, the sums of members' rows that docs/protocol/member.md defines."""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from safetensors.numpy import load

from tests.support.party import SIX, Party
from tests.support.serving import Process, Server
from tests.support.simulator import After

Rows = npt.NDArray[np.float64]


def moments(rows: Rows, labels: npt.NDArray[np.int64], classes: int, scale: int) -> Any:
    """Return V's upper triangle, U and counts."""
    upper = np.triu_indices(rows.shape[1])
    V = rows.T @ rows
    U = np.stack([rows[labels == label].sum(axis=0) for label in range(classes)], axis=1)
    counts = np.bincount(labels, minlength=classes)
    return np.rint(np.ldexp(np.concatenate([V[upper], U.ravel(), counts]), scale)).astype(np.int64)


def ccvr(rows: Rows, labels: npt.NDArray[np.int64], classes: int, scale: int) -> Any:
    """Return counts, sums and second moments by class."""
    upper = np.triu_indices(rows.shape[1])
    own = [rows[labels == label] for label in range(classes)]
    sums = np.stack([each.sum(axis=0) for each in own])
    squares = np.concatenate([(each.T @ each)[upper] for each in own])
    counts = np.bincount(labels, minlength=classes)
    return np.rint(np.ldexp(np.concatenate([counts, sums.ravel(), squares]), scale)).astype(np.int64)


PLAINLY: dict[str, tuple[dict[str, Any], Any]] = {
    "ffc": ({"kind": "ffc"}, moments),
    "ccvr": ({"kind": "ccvr"}, ccvr),
}


@pytest.mark.parametrize(
    ("kind", "ring_bits", "drop"),
    [
        ("ffc", 32, (After.OPENING, After.RECEIPT)),
        ("ffc", 48, (After.ANNOUNCEMENT, After.VOTE)),
        ("ccvr", 32, (After.UPLOAD, After.OPENING)),
        ("ccvr", 48, (After.ANNOUNCEMENT, After.RECEIPT)),
    ],
)
async def test_the_sum_is_the_plain_one_whoever_drops_out(
    server: Server, kind: str, ring_bits: int, drop: tuple[After, After]
) -> None:
    statistic, plainly = PLAINLY[kind]
    after = {"ccvr": {"samples_per_class": 20, "power": 0.5}} if kind == "ccvr" else {}
    question: dict[str, Any] = {"statistics": [statistic], "ring_bits": ring_bits}
    if kind == "ccvr":  # both that drop out were counted
        question |= {"withhold": {"margin": 2}, "members_min": 6}
    party = Party(SIX, question=question, after=after)
    await check_sum(server, party, plainly, drop)


async def test_the_sum_of_a_process_is_the_plain_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `uvicorn service.app:app`, where the window for uploads passes in real time."""
    monkeypatch.undo()  # chunks are as long as the process has them
    process: Any = Process(tmp_path / "data", {"VEILSUM_RESUME_GRACE_S": "0"})
    party = Party(SIX, question={"ring_bits": 48, "windows": {"enrol": 60, "upload": 5, "answer": 4}})
    try:
        await process.start()
        await check_sum(process, party, moments, (After.ANNOUNCEMENT, After.OPENING))
    finally:
        await process.close()


async def check_sum(server: Server, party: Party, plainly: Any, drop: tuple[After, After]) -> None:
    """Check that with two dropouts the sum is that of the others' rows, and that the head follows from it."""
    await party.begin(server)
    if "count" in party.content.question.steps:
        await party.count(server)
    party.drop = dict(zip(("m-1", "m-4"), drop, strict=True))
    round_id = await party.open_round(server)
    view = await party.play(server, round_id)
    left = {member for member, after in party.drop.items() if after < After.UPLOAD}
    assert (view["state"], view["survivors"]) == ("done", [each for each in party.ids if each not in left])
    total = load((await server.client.get(f"/v1/rounds/{round_id}/result/sums")).content)["sum"]
    expected = np.zeros_like(total)
    for member in view["survivors"]:
        features, labels = party.records(member)
        unit = features / np.linalg.norm(features, axis=1, keepdims=True)
        expected += plainly(unit, labels, party.classes, party.content.question.scale)
    np.testing.assert_array_equal(total, expected)
    await party.check_result(server, round_id)
