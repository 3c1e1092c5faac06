from collections.abc import Callable

import numpy as np
import pytest
import torch

from tests.support.digits import DIGITS, MLP
from tests.training.conftest import EXTRACTOR, linear_model, site_of
from training.algorithms.aggregations import FedAvg
from training.algorithms.base import Algorithm
from training.algorithms.named import ALGORITHMS
from training.algorithms.weights import ControlVariates, DynamicPenalty, HeadFirst, PersonalLayers
from training.federated import train
from training.partition import dirichlet_partition
from training.recipe import fedavg, spherefed

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
    recipe = fedavg(MLP, algorithm=ALGORITHMS["fedrep"](head_epochs=1), rounds=1, local_epochs=2)
    trained = train(recipe, DIGITS, PARTITION).classifier.state_dict()
    before = recipe.build(10).state_dict()
    assert {name.split(".")[0] for name, t in before.items() if not torch.equal(t, trained[name])} == {
        "extractor",
        "head",
    }


@pytest.mark.parametrize("head_epochs", [0, 2, 3])
def test_both_parts_have_an_epoch_at_least(head_epochs: int) -> None:
    with pytest.raises(ValueError, match=f"head_epochs must lie between, not {head_epochs}"):
        fedavg(MLP, algorithm=ALGORITHMS["fedrep"](head_epochs=head_epochs), local_epochs=2)


def test_a_fixed_head_has_no_epochs_of_its_own() -> None:
    recipe = spherefed(MLP, algorithm=ALGORITHMS["fedrep"](head_epochs=1), rounds=1, local_epochs=2)
    with pytest.raises(ValueError, match="need a head that is learned"):
        recipe.build(10)


def test_scaffold_measures_a_head_of_ones_own_from_where_it_starts(
    quadratic: Callable[..., list[float]],
) -> None:
    # Targets 0 and 4, η = ½, one step; the second member counts three times. TrainingRound 1: 0 and 2; c_k = 0 and −4, c = −3.
    # TrainingRound 2: 0 − ½(0 − 3) and 2 − ½(−2 + 4 − 3); c_k = 0 and −2, the gradients there, c = −3 + ¾·2.
    # TrainingRound 3: 1.5 − ½(1.5 − 1.5) and 2.5 − ½(−1.5 + 2 − 1.5).
    variates = ControlVariates(uniform=False)
    for terms in ((variates, PersonalLayers("head")), (PersonalLayers("head"), variates)):
        algorithm = Algorithm(FedAvg(), terms)
        run = quadratic([0, 4], [1, 3], rounds=3, lr=0.5, local_epochs=1, algorithm=algorithm)
        assert run == [1.5, 2.25, 2.625]


def test_feddyn_measures_layers_of_ones_own_from_where_they_start() -> None:
    # Four weights of the head, each 1 or 0, that started 2 higher and were received 5 higher; α = ½ and h_k = 0.
    model = linear_model()
    weights = {name: tensor.clone() for name, tensor in model.shared_weights().items()}
    received, origin = (weights | {"head.weight": weights["head.weight"] + by} for by in (5.0, 2.0))
    x, y = torch.eye(2), torch.tensor([0, 1])
    site = site_of(model, x, y, received=received, origin=origin)
    _, memory = DynamicPenalty(0.5).finish(site, 1)
    assert torch.equal(memory["head.weight"], torch.full((2, 2), 0.5 * 2))
    assert not memory[EXTRACTOR].any()
