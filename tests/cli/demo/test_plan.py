import numpy as np
import pytest

from training.data.catalogue import load_digits_dataset
from training.evaluate import accuracy, extract_features, with_head
from training.federated import train
from veilsum.cli.demo.plan import demo_partition, demo_recipe


@pytest.mark.slow
def test_a_head_fitted_to_all_members_features_beats_the_trained_one() -> None:
    data = load_digits_dataset(0)
    partition = demo_partition(data.train, 0)
    assert len(partition) == 12
    assert partition.sizes.min() >= 10
    assert partition.digest == demo_partition(data.train, 0).digest
    classifier = train(demo_recipe(0), data, partition).classifier
    # Dong et al. 2022, eq. 10, with a small ridge.
    z = extract_features(classifier, data.train.x).double().numpy()
    weights = np.linalg.solve(z.T @ z + 0.1 * np.eye(z.shape[1]), z.T @ np.eye(10)[data.train.y])
    before = accuracy(classifier, data.test)
    after = accuracy(with_head(classifier, weights), data.test)
    assert before > 0.85
    assert after > before + 0.01
