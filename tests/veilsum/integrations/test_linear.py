import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from client_sdk import Result
from tests.support.cli import records
from veilsum.calibration import FFCStatistics, RandomFeatures, solve_ffc
from veilsum.calibration.head import Head
from veilsum.calibration.head_file import Calibrated
from veilsum.calibration.random_features import KernelHead
from veilsum.integrations.linear import LinearHead
from veilsum.protocol.errors import Misuse
from veilsum.protocol.rest import HEAD


def test_of_a_result_of_its_file_and_of_a_solution(result: Result, tmp_path: Path) -> None:
    head = LinearHead.of(result)
    np.testing.assert_array_equal(head.weights, result.weights)
    assert result.bias is not None
    np.testing.assert_array_equal(head.bias, result.bias)
    assert head.unanswered == result.unanswered == ()
    path = tmp_path / "head.safetensors"
    assert result.head_file is not None
    path.write_bytes(result.head_file)
    np.testing.assert_array_equal(LinearHead.of(path).weights, head.weights)


def test_classes_without_records_are_known_from_a_solution_and_from_a_file(tmp_path: Path) -> None:
    features, labels = records(np.random.default_rng(0), 30)
    statistics = FFCStatistics(features.shape[1], 5, bias=False)
    statistics.update(features, labels)
    solution = solve_ffc(statistics)
    head = LinearHead.of(solution)
    assert head.unanswered == (3, 4)
    assert not head.bias.any()
    save_file(solution.tensors, tmp_path / "head.safetensors")
    assert LinearHead.of(str(tmp_path / "head.safetensors")).unanswered == (3, 4)


def test_what_is_no_linear_head_is_refused(tmp_path: Path) -> None:
    missing = tmp_path / "none.safetensors"
    with pytest.raises(Misuse):
        LinearHead.of(missing)
    save_file({"other": np.zeros((2, 2))}, missing)
    with pytest.raises(Misuse):
        LinearHead.of(missing)
    kernel = KernelHead(np.zeros((8, 2)), None, (), RandomFeatures(3, 8, 1.0, b"a test"))
    with pytest.raises(Misuse):
        LinearHead.of(kernel)
    away = Calibrated(Head(np.eye(3), None, (), centre=np.zeros(3)))
    save_file(away.arrays, missing, {HEAD: json.dumps(away.notes)})
    with pytest.raises(Misuse):
        LinearHead.of(missing)
