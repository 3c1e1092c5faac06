import torch

from tests.training.conftest import linear_model, site_of
from training.algorithms.features import RestrictedSoftmax


def test_logits_of_absent_classes_are_scaled() -> None:
    site = site_of(linear_model(classes=4), torch.rand(3, 2), torch.tensor([1, 3, 3]))
    logits = torch.tensor([[2.0, 4.0, -6.0, 8.0]])
    scaled = RestrictedSoftmax(0.25).logits(logits, torch.tensor([1]), site)
    assert scaled.tolist() == [[0.5, 4.0, -1.5, 8.0]]
