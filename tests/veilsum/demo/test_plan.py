from dataclasses import replace

import numpy as np
import pytest

from training.data import load_digits_dataset
from training.evaluate import accuracy, extract_features, with_head
from training.federated import train
from training.heads import LearnedHead
from training.recipe import cross_entropy
from veilsum.demo.plan import demo_fedavg_recipe, demo_partition, demo_recipe, rare_partition


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


def test_fedavg_differs_from_spherefed_in_what_defines_it() -> None:
    ours = replace(demo_recipe(5), rounds=3)
    beside = demo_fedavg_recipe(ours)
    assert (beside.head, beside.loss, beside.normalise) == (LearnedHead, cross_entropy, False)
    assert beside == replace(
        ours, head=LearnedHead, loss=cross_entropy, normalise=False, lr=beside.lr, algorithm=beside.algorithm
    )


def test_the_last_digit_goes_to_two_members_and_every_other_to_all() -> None:
    data = load_digits_dataset(0)
    partition = rare_partition(data.train, 0)
    assert len(partition) == 12
    assert np.count_nonzero(partition.label_counts, axis=0).tolist() == [12] * 9 + [2]
    dealt = np.sort(np.concatenate(partition.members))
    np.testing.assert_array_equal(dealt, np.arange(len(data.train)))
    assert partition.digest == rare_partition(data.train, 0).digest != rare_partition(data.train, 1).digest
