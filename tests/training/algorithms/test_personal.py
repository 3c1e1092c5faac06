from collections.abc import Callable

import numpy as np
import pytest
import torch

from tests.support.digits import DIGITS, MLP
from tests.training.conftest import EXTRACTOR, linear_model, site_of
from training.algorithms.aggregations import FedAvg, FedNova, ServerOptimiser, Spreading
from training.algorithms.base import Aggregation, Algorithm, Term, TrainingRound, Update
from training.algorithms.named import ALGORITHMS
from training.algorithms.weights import (
    ControlVariates,
    DynamicCorrection,
    DynamicPenalty,
    HeadFirst,
    PersonalLayers,
    Proximal,
)
from training.federated import train
from training.partition import dirichlet_partition
from training.recipe import fedavg_recipe, spherefed_recipe

PARTITION = dirichlet_partition(DIGITS.train.y.numpy(), 3, 0.5, np.random.default_rng(0), min_size=10)


def test_a_personal_head_goes_on_from_its_own(quadratic: Callable[..., list[float]]) -> None:
    # Targets 0 and 4, η = ½: members come to 0 and 2, then, each from there, to 0 and 3. FedAvg would come to 1.5 from 1.
    run = quadratic([0, 4], [1, 1], rounds=3, lr=0.5, local_epochs=1, algorithm=ALGORITHMS["fedper"]())
    assert run == [1.0, 1.5, 1.75]


@pytest.mark.parametrize(("layers", "name"), [("extractor", EXTRACTOR), ("head", "head.weight")])
def test_what_is_personal_is_kept_and_put_back(layers: str, name: str) -> None:
    term = PersonalLayers(layers)  # type: ignore[arg-type]
    model = linear_model()
    x, y = torch.rand(2, 2), torch.tensor([0, 1])
    site = site_of(model, x, y)
    term.begin(site)
    assert torch.equal(model.get_parameter(name), torch.eye(2))
    with torch.no_grad():
        model.get_parameter(name).fill_(7.0)
    message, memory = term.finish(site, 1)
    assert message == {}
    assert memory.keys() == {name}
    with torch.no_grad():
        model.get_parameter(name).fill_(1.0)
    term.begin(site_of(model, x, y, memory=memory))
    assert (model.get_parameter(name) == 7).all()


def test_the_head_comes_first_and_alone() -> None:
    term = HeadFirst(2)
    assert [
        [term.trains(name, epoch) for epoch in range(4)] for name in ("head.weight", "extractor.layers")
    ] == [[True, True, False, False], [False, False, True, True]]
    recipe = fedavg_recipe(MLP, algorithm=ALGORITHMS["fedrep"](head_epochs=1), rounds=1, local_epochs=2)
    trained = train(recipe, DIGITS, PARTITION).classifier.state_dict()
    before = recipe.build(10).state_dict()
    assert {name.split(".")[0] for name, t in before.items() if not torch.equal(t, trained[name])} == {
        "extractor",
        "head",
    }


@pytest.mark.parametrize("head_epochs", [0, 2, 3])
def test_both_parts_have_an_epoch_at_least(head_epochs: int) -> None:
    with pytest.raises(ValueError, match=f"head_epochs .*{head_epochs}"):
        fedavg_recipe(MLP, algorithm=ALGORITHMS["fedrep"](head_epochs=head_epochs), local_epochs=2)


def test_a_fixed_head_has_no_epochs_of_its_own() -> None:
    recipe = spherefed_recipe(MLP, algorithm=ALGORITHMS["fedrep"](head_epochs=1), rounds=1, local_epochs=2)
    with pytest.raises(ValueError, match="FedRep"):
        recipe.build(10)


@pytest.mark.parametrize("term", [ControlVariates(uniform=False), DynamicPenalty(0.5), Proximal(0.5)])
def test_no_penalty_pulls_a_head_of_ones_own(quadratic: Callable[..., list[float]], term: Term) -> None:
    # Targets 4 and 0, η = ½, two steps: the first member's distance to 4 falls to a quarter in each round, and the other stays at 0.
    for terms in ((term, PersonalLayers("head")), (PersonalLayers("head"), term)):
        algorithm = Algorithm(FedAvg(), terms)
        run = quadratic([4, 0], [1, 1], rounds=3, lr=0.5, local_epochs=2, algorithm=algorithm)
        assert run == [1.5, 1.875, 1.96875]


@pytest.mark.parametrize(
    "aggregation",
    [FedAvg(), FedNova(), DynamicCorrection(0.5), ServerOptimiser("sgd", lr=1.0), Spreading(steps=2)],
)
def test_the_server_takes_no_step_on_layers_that_members_keep(aggregation: Aggregation) -> None:
    """The global model holds their mean, from the first round on."""
    algorithm = Algorithm(aggregation, (PersonalLayers("head"),))
    model = fedavg_recipe(MLP).build(10)
    weights = {name: tensor.clone() for name, tensor in model.shared_weights().items()}
    updates = [
        Update({name: tensor + k for name, tensor in weights.items()}, 2 * k + 1, k + 1, 0.0) for k in (0, 1)
    ]
    state = aggregation.start(model)
    share = 0.5 if aggregation.uniform else 0.75  # of the second member
    for index in range(2):
        found, state = algorithm.combine(weights, updates, state, TrainingRound(index, 0.1, 2))
        for name, tensor in weights.items():
            if name.startswith("head."):
                torch.testing.assert_close(found[name], tensor + share)


def test_what_is_kept_is_not_sent() -> None:
    algorithm = ALGORITHMS["scaffold"]().plus(PersonalLayers("head"))
    [record] = train(
        fedavg_recipe(MLP, algorithm=algorithm, rounds=1, local_epochs=1), DIGITS, PARTITION
    ).history
    extractor = fedavg_recipe(MLP).build(10).extractor
    assert record.upload_bytes == 2 * sum(p.nbytes for p in extractor.parameters())
