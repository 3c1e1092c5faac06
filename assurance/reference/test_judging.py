"""Both implementations count the same right and wrong answers."""

from typing import Any

import numpy as np
import pytest
import rfc8785
from safetensors.numpy import load

from assurance.reference import judging
from assurance.reference.study import Study
from tests.study.specs import content_of, fields_of, whole
from veilsum.calibration.ccvr_head import TukeyHead
from veilsum.calibration.head import Head
from veilsum.calibration.judge_tables import ShownHeads, tabulate_records
from veilsum.calibration.random_features import KernelHead, RandomFeatures
from veilsum.study.judging import encode_shown, table_shapes

RANDOM = {"kind": "random-features", "size": 6, "bandwidth": 0.7}


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("seed", range(8))
def test_both_count_the_same_answers(seed: int, classes: int) -> None:
    """With heads of each kind, classes that the first never answers, a centre, and a positive class or none."""
    rng = np.random.default_rng(seed)
    keys = [f"class-{label}" for label in range(classes)]
    judge: dict[str, Any] = {
        "epsilon": 1.0,
        "delta": 1e-7,
        "heads": 3,
        "positive": keys[0] if seed % 2 else None,
        "bins": {"confidence": 2 + seed, "score": 4},
    }
    values = whole(dim=4, classes=keys, judge=judge, **fields_of({"kind": "ffc"}, RANDOM))
    question, study = content_of(values).question, Study(rfc8785.dumps(values))
    phi, empty = RandomFeatures(4, 4, 0.7, question.digest), (2,) if classes == 3 and seed % 3 == 0 else ()

    def weights(rows: int) -> Any:
        return rng.standard_normal((rows, classes))

    heads = [
        Head(
            weights(4), rng.standard_normal(classes), empty, centre=rng.uniform(-0.2, 0.2, 4) if seed % 4 == 1 else None
        ),
        KernelHead(weights(4), None, empty, phi),
        TukeyHead(weights(4), None, empty, 0.5, unit=True),
    ]
    heads = heads[seed % 3 :] + heads[: seed % 3]
    edges = np.array([-0.5, 0.0, 0.7]) if table_shapes(question).positive is not None else np.zeros(0)
    shown = ShownHeads(tuple(heads[: 1 + seed % 3]), 0.4, edges)
    material = {name: array.tolist() for name, array in load(encode_shown(question, shown)).items()}
    features, labels = rng.standard_normal((200, 4)), rng.integers(0, classes, 200)
    theirs = tabulate_records(table_shapes(question), shown, features, labels)
    ours = np.array(judging.tables(study, judge, features.tolist(), labels.tolist(), material))
    assert len(ours) == len(theirs) == question.elements_of("judge")
    # A rounded product may put a place in a bin on the other side of a step.
    assert np.abs(ours - theirs).max() <= 2
