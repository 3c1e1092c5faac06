"""Checks that the sums are sound and that the weights solve them."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load, save

from client_sdk.result import Result
from client_sdk.verification import verify_sums
from tests.study.specs import fields_of
from tests.support.consortium import Consortium
from tests.support.forging import tensor
from tests.support.refusals import refused
from tests.support.serving import Stage
from veilsum.protocol.causes import Cause


def finished(stage: Stage, folder: Path, question: dict[str, Any]) -> tuple[Result, bytes]:
    consortium = Consortium(stage, folder, question=question)
    cohort = consortium.enrol()
    while consortium.operator.cohort(cohort).step is not None:
        result = consortium.run(cohort)["member-0"]
    consortium.close()
    return result, consortium.operator.sums(result.record.round)


STATISTICS = [
    [{"kind": "ffc", "constant": True}],
    [{"kind": "random-features", "size": 4, "bandwidth": 1.0}],
    [{"kind": "ffc"}, {"kind": "random-features", "size": 4, "bandwidth": 1.0}],
]


@pytest.mark.parametrize("statistics", STATISTICS)
def test_honest_sums_pass(stage: Stage, tmp_path: Path, statistics: list[dict[str, Any]]) -> None:
    result, sums = finished(stage, tmp_path, fields_of(*statistics))
    pooled = verify_sums(result, sums)
    assert list(pooled) == [each["kind"] for each in statistics]
    assert result.record.rows == 20 + 21 + 22


def test_every_step_of_a_noisy_chain_passes(noisy: Consortium) -> None:
    cohort, kinds = noisy.enrol(), list[str]()
    while noisy.operator.cohort(cohort).step is not None:
        result = noisy.run(cohort)["member-0"]
        kinds += verify_sums(result, noisy.operator.sums(result.record.round))
        assert result.record.noise is not None
        assert (result.head is None) == (result.record.step == "mean")
    assert kinds == ["mean", "ffc"]


@pytest.fixture(scope="module")
def plain(stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, bytes]:
    return finished(stage, tmp_path_factory.mktemp("sums"), {})


def named(result: Result, sums: bytes, **changes: Any) -> Result:
    values = {"sums": hashlib.sha256(sums).hexdigest(), **changes}
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
    with refused("result-mismatch", "coordinator"):
        verify_sums(result, false)
    with refused("result-mismatch", "coordinator"):
        verify_sums(named(result, false), false)


def test_another_number_of_rows_is_refused(plain: tuple[Result, bytes]) -> None:
    result, sums = plain
    with refused("result-mismatch", "coordinator"):
        verify_sums(named(result, sums, rows=64), sums)


def test_a_record_without_the_ridge_that_was_solved_at_is_refused(plain: tuple[Result, bytes]) -> None:
    result, sums = plain
    solution = result.record.solution.model_copy(update={"ridge": None})
    with refused(Cause.RESULT_MISMATCH, "coordinator"):
        verify_sums(named(result, sums, solution=solution), sums)


def test_weights_that_solve_something_else_are_refused(plain: tuple[Result, bytes]) -> None:
    result, sums = plain
    weights = result.weights.copy()
    weights[0, 0] += 1e-6 * np.abs(weights).max()
    with refused("result-mismatch", "coordinator"):
        verify_sums(replace(result, head_file=save({"weights": weights})), sums)
