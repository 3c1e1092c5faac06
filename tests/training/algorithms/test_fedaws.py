import pytest
import torch

from tests.training.conftest import linear_model
from training.algorithms.aggregations import Spreading, spread_out
from training.algorithms.base import TrainingRound, Update
from training.heads import Classifier, random_head


def test_the_spread_of_two_orthogonal_classes() -> None:
    # Both orders of the one pair, at distance √2 whatever their lengths.
    weight = torch.tensor([[3.0, 0.0], [0.0, 0.5]])
    torch.testing.assert_close(spread_out(weight, 2.0), torch.tensor(2 * (2 - 2**0.5) ** 2))
    assert spread_out(weight, 1.0) == 0


def test_the_server_turns_close_classes_apart_and_leaves_others() -> None:
    weight = torch.tensor([[1.0, 0.0], [0.8, 0.6]])
    updates = [Update({"head.weight": weight, "b": torch.tensor(1.0)}, records=1, steps=1, loss=0.0)]
    apart, _ = Spreading(margin=2**0.5, lr=0.1).combine({}, updates, {}, TrainingRound(0, 0.1, 1))
    # d = ‖w₁ − w₂‖ = √0.4 and the gradient to w₁ is −4(ν − d)(w₁ − w₂)/d without its part along w₁: (0, 0.6·…).
    d = 0.4**0.5
    pull = 4 * (2**0.5 - d) / d
    torch.testing.assert_close(apart["head.weight"][0], torch.tensor([1.0, -0.1 * pull * 0.6]))
    assert float(apart["b"]) == 1
    same, _ = Spreading(margin=0.1).combine({}, updates, {}, TrainingRound(0, 0.1, 1))
    assert torch.equal(same["head.weight"], weight)


def test_several_steps_are_single_steps_in_a_row() -> None:
    weight = torch.tensor([[1.0, 0.0], [0.8, 0.6]])

    def spread(head: torch.Tensor, steps: int) -> torch.Tensor:
        updates = [Update({"head.weight": head}, records=1, steps=1, loss=0.0)]
        return Spreading(steps=steps).combine({}, updates, {}, TrainingRound(0, 0.1, 1))[0]["head.weight"]

    torch.testing.assert_close(spread(weight, 3), spread(spread(spread(weight, 1), 1), 1))
    assert not torch.equal(spread(weight, 3), spread(weight, 1))


def test_a_fixed_head_cannot_be_spread() -> None:
    assert Spreading().start(linear_model()) == {}
    fixed = Classifier(linear_model().extractor, random_head(2, 2), normalise=False)
    with pytest.raises(ValueError, match="head"):
        Spreading().start(fixed)
