"""That the sums are sound and the weights solve them."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load, save

from client_sdk.errors import PeerFault
from client_sdk.result import Result
from client_sdk.sums import verify_sums
from protocol.causes import Cause
from tests.client_sdk.federation import Federation, tensor


def finished(folder: Path, terms: dict[str, Any], settings: dict[str, Any]) -> tuple[Result, bytes]:
    federation = Federation(folder)
    round_id = federation.coordinator.open_round(federation.enrol(), **terms)
    flows = {
        m: federation.member(m).contribute(round_id, federation.statistics(m, **settings), "main")
        for m in federation.ids
    }
    result = federation.together(flows)["member-0"]
    federation.close()
    return result, federation.coordinator.rounds[round_id].sums


@pytest.mark.parametrize("bias", [False, True])
def test_honest_sums_pass(tmp_path: Path, *, bias: bool) -> None:
    result, sums = finished(tmp_path, {"bias": bias}, {"bias": bias})
    pooled = verify_sums(result, sums)
    assert pooled.records == result.record.records == 5 + 6 + 7


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, bytes]:
    return finished(tmp_path_factory.mktemp("sums"), {}, {})


def named(result: Result, sums: bytes, **changes: Any) -> Result:
    values = {"sums_sha256": hashlib.sha256(sums).hexdigest(), **changes}
    return replace(result, record=result.record.model_copy(update=values))


def moved(sums: bytes, index: int) -> bytes:
    total = load(sums)["sum"]
    total[index] += 1 << 31
    return save({"sum": total})


FALSE_SUMS: dict[str, Callable[[bytes], bytes]] = {
    "a count too many": lambda sums: moved(sums, -1),
    "a trace too large": lambda sums: moved(sums, 0),
    "another name": lambda sums: save({"total": load(sums)["sum"]}),
    "another length": lambda sums: save({"sum": load(sums)["sum"][:-1]}),
    "no file": lambda _: b"",
    "a shape beyond numpy's": lambda _: tensor("I64", [0, 1 << 62], 0),
}


@pytest.mark.parametrize("name", FALSE_SUMS)
def test_sums_that_no_honest_members_have_are_refused(plain: tuple[Result, bytes], name: str) -> None:
    result, sums = plain
    false = FALSE_SUMS[name](sums)
    with pytest.raises(PeerFault, match="not those that the record names"):
        verify_sums(result, false)
    with pytest.raises(PeerFault) as caught:
        verify_sums(named(result, false), false)
    assert caught.value.cause is Cause.RESULT_MISMATCH


def test_another_number_of_records_is_refused(plain: tuple[Result, bytes]) -> None:
    result, sums = plain
    with pytest.raises(PeerFault, match="hold 18 records, the record says 19"):
        verify_sums(named(result, sums, records=19), sums)


def test_a_record_without_the_ridge_that_was_solved_at_is_refused(plain: tuple[Result, bytes]) -> None:
    result, sums = plain
    solution = result.record.solution.model_copy(update={"ridge": None})
    with pytest.raises(PeerFault, match="names no ridge") as caught:
        verify_sums(named(result, sums, solution=solution), sums)
    assert caught.value.cause is Cause.RESULT_MISMATCH


def test_weights_that_solve_something_else_are_refused(plain: tuple[Result, bytes]) -> None:
    result, sums = plain
    weights = result.weights.copy()
    weights[0, 0] += 1e-6 * np.abs(weights).max()
    with pytest.raises(PeerFault, match="SolutionCheckFailed"):
        verify_sums(replace(result, weights_file=save({"weights": weights})), sums)
