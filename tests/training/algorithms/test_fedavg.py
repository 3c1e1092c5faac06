import torch

from tests.training.conftest import linear_model
from training.algorithms.aggregations import FedAvg
from training.algorithms.base import TrainingRound, Update, weighted_mean

ROUND = TrainingRound(index=0, lr=0.1, members=2)


def test_weights_count_by_records() -> None:
    updates = [
        Update({"w": torch.tensor([1.0, 2.0])}, records=1, steps=1, loss=0.0),
        Update({"w": torch.tensor([5.0, 10.0])}, records=3, steps=9, loss=0.0),
    ]
    weights, state = FedAvg().combine({}, updates, {}, ROUND)
    assert weights["w"].tolist() == [4.0, 8.0]
    assert weights["w"].dtype == torch.float32
    assert state == FedAvg().start(linear_model()) == {}
    assert FedAvg(uniform=True).combine({}, updates, {}, ROUND)[0]["w"].tolist() == [3.0, 6.0]


def test_the_mean_is_the_sum_in_double_precision_whatever_the_tensors_are() -> None:
    generator = torch.Generator().manual_seed(0)
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        states = [{"w": torch.randn(4, 500, generator=generator).to(dtype)} for _ in range(7)]
        weights = [1.0, 2.0, 3.0, 5.0, 7.0, 11.0, 13.0]
        total = torch.zeros((4, 500), dtype=torch.float64)
        for state, weight in zip(states, weights, strict=True):
            total.add_(state["w"], alpha=weight / 42)  # torch converts as it adds: the same bits, more slowly
        assert torch.equal(weighted_mean(states, weights)["w"], total.to(dtype))


def test_counters_stay_integers() -> None:
    mean = weighted_mean([{"n": torch.tensor(3)}, {"n": torch.tensor(4)}], [1.0, 2.0])["n"]
    assert mean.dtype == torch.int64
    assert int(mean) == 4
