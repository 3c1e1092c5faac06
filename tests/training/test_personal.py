from typing import Any

import numpy as np
import pytest
import torch

from tests.support.calls import record_calls
from tests.support.digits import DIGITS
from tests.support.digits import LARGER as MLP
from training.algorithms.named import ALGORITHMS
from training.evaluate import accuracy
from training.federated import Trained, train
from training.heads import Classifier
from training.models.config import ExtractorConfig
from training.partition import Partition, dirichlet_partition
from training.personal import (
    PERSONAL_METHODS,
    as_trained,
    fine_tuned,
    keep_back,
    local_ffc,
    local_sgd,
    personal_accuracies,
)
from training.recipe import Recipe, fedavg_recipe, spherefed_recipe

DEALT = dirichlet_partition(DIGITS.train.y.numpy(), 5, 0.2, np.random.default_rng(0), min_size=20)
RECORDS = keep_back(DEALT, DIGITS.train.y.numpy(), 0.25, 0)


def trained(recipe: Recipe) -> Trained:
    return train(recipe, DIGITS, RECORDS.train)


def quick(name: str = "fedavg", **options: Any) -> Recipe:
    return fedavg_recipe(MLP, algorithm=ALGORITHMS[name](**options), rounds=3, local_epochs=2, lr=0.05)


def test_every_record_is_trained_on_or_kept_back() -> None:
    for whole, used, kept in zip(DEALT.members, RECORDS.train.members, RECORDS.test.members, strict=True):
        np.testing.assert_array_equal(np.sort(np.concatenate([used, kept])), whole)
        assert len(kept) == round(0.25 * len(whole))
    pair = Partition.of([np.array([0, 1])], np.array([0, 1]))
    assert keep_back(pair, np.array([0, 1]), 0.01, 0).test.sizes.tolist() == [1]
    assert keep_back(pair, np.array([0, 1]), 0.99, 0).train.sizes.tolist() == [1]


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_a_share_is_between_none_and_all(share: float) -> None:
    with pytest.raises(ValueError, match="lies in"):
        keep_back(DEALT, DIGITS.train.y.numpy(), share, 0)
    with pytest.raises(ValueError, match="min_size >= 2"):
        keep_back(Partition.of([np.array([0])], np.array([0])), np.array([0]), 0.5, 0)


def test_a_head_of_ones_own_beats_everybodys_where_data_are_uneven() -> None:
    run = trained(spherefed_recipe(MLP, rounds=3, local_epochs=2))
    found = {name: personal_accuracies(run, DIGITS.train, RECORDS, name) for name in PERSONAL_METHODS}
    assert {len(accuracies) for accuracies in found.values()} == {5}
    assert min(map(np.mean, (found["ffc"], found["sgd"], found["fine-tuned"]))) > np.mean(found["as-trained"])


def test_personal_evaluation_leaves_the_global_model_as_it_was() -> None:
    run = trained(spherefed_recipe(MLP, rounds=1, local_epochs=1))
    before = {name: t.clone() for name, t in run.classifier.state_dict().items()}
    own = DIGITS.train.subset(torch.from_numpy(RECORDS.train.members[0]))
    tuned, headed, closed = fine_tuned(run, 0, own), local_sgd(run, 0, own), local_ffc(run, 0, own)
    assert all(torch.equal(t, before[name]) for name, t in run.classifier.state_dict().items())
    assert not run.classifier.head.weight.requires_grad
    assert not torch.equal(tuned.head.weight, run.classifier.head.weight)
    for name, tensor in headed.extractor.state_dict().items():
        assert torch.equal(tensor, before[f"extractor.{name}"])
    for name, tensor in closed.extractor.state_dict().items():
        assert torch.equal(tensor, before[f"extractor.{name}"])


@pytest.mark.slow
def test_running_means_of_a_fixed_extractor_stay_where_they_are() -> None:
    normalising = ExtractorConfig("convnet7", (1, 8, 8), {"norm": "batch"})
    run = trained(spherefed_recipe(normalising, rounds=1, local_epochs=1))
    own = DIGITS.train.subset(torch.from_numpy(RECORDS.train.members[0]))
    headed = local_sgd(run, 0, own, epochs=1)
    for name, tensor in headed.extractor.state_dict().items():
        assert torch.equal(tensor, run.classifier.state_dict()[f"extractor.{name}"]), name
    assert not torch.equal(headed.head.weight, run.classifier.head.weight)


def test_a_fixed_extractor_looks_once_at_each_record(monkeypatch: pytest.MonkeyPatch) -> None:
    run = trained(spherefed_recipe(MLP, rounds=1, local_epochs=1))
    looks = record_calls(monkeypatch, Classifier, "features", lambda _, x: len(x))
    own = DIGITS.train.subset(torch.from_numpy(RECORDS.train.members[0]))
    local_sgd(run, 0, own, epochs=3)
    assert looks == [len(own)]


@pytest.mark.parametrize(("name", "layers"), [("lg-fedavg", "extractor."), ("fedper", "head.")])
def test_members_with_layers_of_their_own_are_asked_under_them(name: str, layers: str) -> None:
    run = trained(quick(name))
    own = DIGITS.train.subset(torch.from_numpy(RECORDS.train.members[1]))
    personal = as_trained(run, 1, own)
    for key, tensor in personal.state_dict().items():
        assert torch.equal(tensor, run.classifier.state_dict()[key]) != key.startswith(layers), key
    assert accuracy(personal, own) > accuracy(run.classifier, own)
    for found in (
        local_ffc(run, 1, own),
        local_sgd(run, 1, own),
    ):  # heads over the extractor that the member has
        for key, tensor in found.extractor.state_dict().items():
            assert torch.equal(tensor, personal.extractor.state_dict()[key]), key
    still = fine_tuned(run, 1, own, epochs=1, lr=1e-9).state_dict()
    assert all(torch.allclose(still[key], tensor, atol=1e-6) for key, tensor in personal.state_dict().items())


def test_what_other_methods_remember_is_no_layer() -> None:
    run = trained(quick("scaffold"))
    own = DIGITS.train.subset(torch.from_numpy(RECORDS.train.members[1]))
    state = as_trained(run, 1, own).state_dict()
    assert all(torch.equal(t, state[name]) for name, t in run.classifier.state_dict().items())
