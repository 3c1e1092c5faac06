from dataclasses import replace

import numpy as np
import pytest
import torch

from research.analysis import analyse, member_models
from training.data.catalogue import load_digits_dataset
from training.data.dataset import Dataset, Split
from training.federated import train
from training.heads import Classifier, LearnedHead, orthonormal_head
from training.models.architectures import build_extractor
from training.models.config import ExtractorConfig
from training.partition import Partition, iid_partition
from training.recipe import Constant, Recipe, mean_squared_error

FEDAVG = Recipe(
    model=ExtractorConfig("mlp", (1, 8, 8)),
    schedule=Constant(),
    rounds=1,
    local_epochs=1,
    batch_size=32,
    lr=0.1,
)
CALIBRATED = replace(
    FEDAVG, head=orthonormal_head, loss=mean_squared_error, normalise=True, calibrate_every=1, lr=0.01
)


@pytest.fixture(scope="module")
def dealt() -> tuple[Split, Partition]:
    data = load_digits_dataset(0)
    few = Split(data.train.subset(torch.arange(200)), data.test)
    return few, iid_partition(few.train.y.numpy(), 3, np.random.default_rng(0))


@pytest.mark.parametrize("recipe", [FEDAVG, CALIBRATED])
def test_members_models_are_those_that_the_next_round_would_average(
    recipe: Recipe, dealt: tuple[Split, Partition]
) -> None:
    data, partition = dealt
    first, second = (train(replace(recipe, rounds=rounds), data, partition) for rounds in (1, 2))
    before = {name: tensor.clone() for name, tensor in first.classifier.state_dict().items()}
    models = [
        {name: tensor.clone() for name, tensor in model.state_dict().items()}
        for model in member_models(first, data.train, partition)
    ]
    assert len(models) == 3
    weights = torch.from_numpy(partition.sizes / partition.sizes.sum())
    for name, after in second.classifier.shared_weights().items():
        mean = sum(w * model[name].double() for w, model in zip(weights, models, strict=True))
        torch.testing.assert_close(after.double(), mean, rtol=1e-5, atol=1e-6)
        assert not torch.equal(models[0][name], models[1][name])
    if recipe.calibrate_every:  # no member trains the head, and each has the one in use
        assert all(torch.equal(model["head.weight"], before["head.weight"]) for model in models)
    for name, tensor in first.classifier.state_dict().items():
        assert torch.equal(tensor, before[name])


def test_a_member_that_diverges_is_no_number_in_the_file() -> None:
    data = Dataset(torch.rand(12, 1, 8, 8), torch.arange(12) % 3, 3, "toy")
    models = [
        Classifier(build_extractor(ExtractorConfig("mlp", (1, 8, 8))), LearnedHead(64, 3), normalise=False)
        for _ in range(2)
    ]
    torch.nn.init.constant_(models[1].head.weight, torch.nan)
    found = analyse(models[0], models, data)
    assert found.consistency == {"direction": None, "norm difference": None}
    assert type(found).model_validate_json(found.model_dump_json()) == found
