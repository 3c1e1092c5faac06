import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from client_sdk import Records, Result
from tests.support.cli import records
from veilsum.calibration import FFCStatistics, solve_ffc
from veilsum.calibration.head_file import Calibrated
from veilsum.calibration.rows import Floats
from veilsum.export import to_onnx


def test_an_onnx_model_answers_as_the_result(result: Result, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    from onnx.reference import ReferenceEvaluator  # noqa: PLC0415 - an extra

    features, labels = records(np.random.default_rng(1), 40)
    judged = result.judge(Records(features, labels))
    to_onnx(judged, tmp_path / "head.onnx")
    model = onnx.load(tmp_path / "head.onnx")
    given = np.vstack([features, np.zeros((1, features.shape[1]))]).astype(np.float32)
    found: Any = ReferenceEvaluator(model).run(None, {"features": given})
    label, logits, probabilities = found
    np.testing.assert_array_equal(label[:-1], judged.predict(features))
    np.testing.assert_allclose(probabilities[:-1], judged.probabilities(features), atol=1e-5)
    assert np.isfinite(logits).all()
    props = {each.key: json.loads(each.value) for each in model.metadata_props}
    assert props["round"] == result.record.round
    assert props["classes"] == list(result.spec.question.classes)


def test_a_head_with_a_centre_answers_as_itself(
    centred: Calibrated, around_centre: Floats, tmp_path: Path
) -> None:
    pytest.importorskip("onnx")
    from onnx.reference import ReferenceEvaluator  # noqa: PLC0415 - an extra

    to_onnx(centred, tmp_path / "head.onnx")
    given = np.vstack([around_centre, np.zeros((1, around_centre.shape[1]))]).astype(np.float32)
    found: Any = ReferenceEvaluator(str(tmp_path / "head.onnx")).run(None, {"features": given})
    label, logits, probabilities = found
    np.testing.assert_array_equal(label[:-1], centred.predict(given[:-1]))
    np.testing.assert_allclose(logits[:-1], centred.scores(given[:-1]) / 0.2, rtol=0, atol=1e-5)
    expected = centred.head.probabilities(given[:-1], temperature=0.2, normalise=True)
    np.testing.assert_allclose(probabilities[:-1], expected, rtol=0, atol=1e-5)
    assert centred.head.bias is not None
    np.testing.assert_allclose(logits[-1, :3], centred.head.bias[:3] / 0.2, rtol=1e-6)


def test_without_a_temperature_there_are_no_probabilities(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    from onnx.reference import ReferenceEvaluator  # noqa: PLC0415 - an extra

    features, labels = records(np.random.default_rng(1), 40)
    statistics = FFCStatistics(features.shape[1], 5, normalise=True)
    statistics.update(features, labels)
    with pytest.warns(UserWarning, match="no temperature"):
        to_onnx(solve_ffc(statistics), tmp_path / "head.onnx")
    model = ReferenceEvaluator(onnx.load(tmp_path / "head.onnx"))
    found: Any = model.run(None, {"features": features.astype(np.float32)})
    _, logits = found
    assert np.isneginf(logits[:, 3:]).all()
