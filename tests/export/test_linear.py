import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from client_sdk import Result
from client_sdk.combined import Combined
from tests.support.cli import records
from veilsum.calibration import FFCStatistics, RandomFeatures, solve_ffc
from veilsum.calibration.ccvr_head import TukeyHead
from veilsum.calibration.head_file import Calibrated
from veilsum.calibration.random_features import KernelHead
from veilsum.export.linear import layer_of, linear_head
from veilsum.protocol.errors import Misuse
from veilsum.protocol.record import CombinedRecord, SolutionView
from veilsum.protocol.rest import HEAD_METADATA


def test_a_head_is_the_same_from_a_result_its_file_and_its_parts(result: Result, tmp_path: Path) -> None:
    path = tmp_path / "head.safetensors"
    assert result.head_file is not None
    path.write_bytes(result.head_file)
    for source in (result, path, str(path), result.calibrated, result.calibrated.head):
        weights, bias = layer_of(linear_head(source), 2.0)
        np.testing.assert_array_equal(weights, result.weights / 2)
        assert result.bias is not None
        np.testing.assert_array_equal(bias, result.bias / 2)


def test_classes_that_a_combination_withholds_are_never_predicted(result: Result) -> None:
    assert result.head_file is not None
    record = CombinedRecord.model_construct(withheld=(2,), solution=SolutionView(empty_classes=(0,)))
    combined = Combined(record, result.head_file)
    weights, bias = layer_of(linear_head(combined), 1.0)
    np.testing.assert_array_equal(weights[:, [0, 2]], 0)
    assert np.isneginf(bias).tolist() == [True, False, True]
    features, _ = records(np.random.default_rng(0), 10)
    assert set(combined.predict(features).tolist()) == {1}


def test_classes_without_records_are_known_from_a_solution_and_from_a_file(tmp_path: Path) -> None:
    features, labels = records(np.random.default_rng(0), 30)
    statistics = FFCStatistics(features.shape[1], 5, constant=False)
    statistics.update(features, labels)
    solution = solve_ffc(statistics)
    save_file(solution.tensors, tmp_path / "head.safetensors")
    for source in (solution, tmp_path / "head.safetensors"):
        assert linear_head(source).head.empty_classes == (3, 4)
        assert layer_of(linear_head(source), 1.0)[1].tolist() == [0, 0, 0, -np.inf, -np.inf]


def test_what_is_no_linear_head_is_refused(tmp_path: Path) -> None:
    missing = tmp_path / "none.safetensors"
    with pytest.raises(Misuse, match=r"none\.safetensors"):
        linear_head(missing)
    with pytest.raises(Misuse, match=r"Result\.load"):
        linear_head(tmp_path)
    save_file({"other": np.zeros((2, 2))}, missing)
    with pytest.raises(Misuse, match="calibrate") as refused:
        linear_head(missing)
    assert "coordinator" not in str(refused.value)  # a file of this machine's owner
    for head in (
        KernelHead(np.zeros((8, 2)), None, (), RandomFeatures(3, 8, 1.0, b"a test")),
        TukeyHead(np.eye(3), None, (), 0.5, unit=True),
        TukeyHead(np.eye(3), None, (), None, unit=False),
    ):
        with pytest.raises(Misuse, match="to_sklearn"):
            linear_head(head)


def test_a_linear_head_may_have_a_centre(centred: Calibrated, tmp_path: Path) -> None:
    save_file(centred.arrays, tmp_path / "head.safetensors", {HEAD_METADATA: json.dumps(centred.notes)})
    head = centred.head
    retrained = TukeyHead(head.weights, head.bias, head.empty_classes, None, unit=True, centre=head.centre)
    for source in (tmp_path / "head.safetensors", retrained):  # CCVR has no power after a noisy mean
        np.testing.assert_array_equal(linear_head(source).head.centre, head.centre)
