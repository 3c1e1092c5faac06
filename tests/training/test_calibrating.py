from typing import Any

import numpy as np
import pytest

from tests.support.digits import DIGITS
from training.calibrating import CALIBRATIONS, MemberFeatures, fit_calibration
from training.evaluate import accuracy, extract_features, predict_logits
from training.federated import train
from training.heads import NormalisedHead
from training.models.config import ExtractorConfig
from training.partition import dirichlet_partition
from training.recipe import fedavg_recipe
from veilsum.calibration import solve_ffc

PARTITION = dirichlet_partition(DIGITS.train.y.numpy(), 6, 0.1, np.random.default_rng(0), min_size=10)
MLP = ExtractorConfig("mlp", (1, 8, 8), {"hidden": 64, "dim": 32})
TRAINED = train(fedavg_recipe(MLP, rounds=3, local_epochs=2, lr=0.1), DIGITS, PARTITION).classifier
HELD = MemberFeatures.compute_features(TRAINED, DIGITS.train, PARTITION)
TEST = extract_features(TRAINED, DIGITS.test.x).numpy()
QUICK: dict[str, dict[str, Any]] = {
    "ccvr": {"per_class": 200, "transform": "none", "lr": 0.01},
    "all-data": {"lr": 0.01},
}


@pytest.mark.parametrize("kind", CALIBRATIONS)
def test_every_calibration_mends_a_head_that_uneven_data_biased(kind: str) -> None:
    fitted = fit_calibration(kind, HELD, **QUICK.get(kind, {}))
    after = float((fitted.predict(TEST) == DIGITS.test.y.numpy()).mean())
    assert after > accuracy(TRAINED, DIGITS.test) + 0.02
    assert (fitted.upload_bytes is None) == (kind == "all-data")


def test_members_sums_give_the_pooled_records_head() -> None:
    pooled = fit_calibration("ffc", HELD, ridge=0.1).head
    rows = np.concatenate(HELD.features).astype(np.float64)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    wanted = np.eye(10)[np.concatenate(HELD.labels)]
    by_hand = np.linalg.solve(rows.T @ rows + 0.1 * np.eye(32), rows.T @ wanted)
    np.testing.assert_allclose(pooled.weights, by_hand, rtol=1e-8)
    assert fit_calibration("ffc", HELD).options["ridge"] == solve_ffc(HELD.sum_ffc()).ridge


@pytest.mark.parametrize("normalised", [True, False])
def test_what_the_trained_head_does_is_known_as_one_matrix(*, normalised: bool) -> None:
    recipe = fedavg_recipe(MLP, head=NormalisedHead) if normalised else fedavg_recipe(MLP)
    classifier = recipe.build(10)
    held = MemberFeatures.compute_features(classifier, DIGITS.train, PARTITION)
    logits = extract_features(classifier, DIGITS.test.x).double().numpy() @ held.head[:-1] + held.head[-1]
    np.testing.assert_allclose(logits, predict_logits(classifier, DIGITS.test.x).numpy(), atol=1e-5)


def test_draws_depend_on_the_seed_alone() -> None:
    def weights(seed: int) -> np.ndarray:
        held = MemberFeatures.compute_features(TRAINED, DIGITS.train, PARTITION, seed=seed)
        return fit_calibration("ccvr", held, per_class=20, solver="exact").head.weights

    np.testing.assert_array_equal(weights(1), weights(1))
    assert not np.array_equal(weights(1), weights(2))
