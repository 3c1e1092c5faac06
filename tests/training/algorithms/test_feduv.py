from math import exp, log

import pytest
import torch

from tests.training.conftest import linear_model, site_of
from training.algorithms.base import Batch
from training.algorithms.features import ClassVariance, Uniformity, uniformity_loss, variance_loss


def test_variance_on_a_worked_matrix() -> None:
    # Probabilities (¾, ¼) and (¼, ¾): each column deviates by ½/√2 over n − 1, where 1/√2 is wanted.
    logits = torch.tensor([[log(3), 0.0], [0.0, log(3)]])
    assert float(variance_loss(logits)) == pytest.approx(0.5 / 2**0.5)


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_one_sure_record_of_each_class_is_what_variance_asks_for(classes: int) -> None:
    assert float(variance_loss(1e3 * torch.eye(classes))) == pytest.approx(0, abs=1e-6)
    # A batch that is all one class lacks all of it.
    alike = torch.zeros(4, classes).index_fill_(1, torch.tensor(0), 1e3)
    assert float(variance_loss(alike)) == pytest.approx(classes**-0.5, abs=1e-5)


def test_uniformity_on_a_worked_matrix() -> None:
    # Squared distances 1, 4 and 5: their median is inside 2σ.
    z = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]])
    expected = (exp(-1 / 8) + exp(-4 / 8) + exp(-5 / 8)) / 3
    assert float(uniformity_loss(z)) == pytest.approx(expected)


def test_uniformity_pushes_apart_and_not_through_sigma() -> None:
    z = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]]).requires_grad_()
    uniformity_loss(z).backward()  # type: ignore[no-untyped-call]
    assert z.grad is not None
    # Of exp(−d²/8) for the first pair, d = 1, and exp(−½) for the second.
    first = torch.tensor([exp(-1 / 8) / 4, 2 * exp(-1 / 2) / 4]) / 3
    torch.testing.assert_close(z.grad[0], first)
    same = torch.ones(3, 2).requires_grad_()
    uniformity_loss(same).backward()  # type: ignore[no-untyped-call]
    assert same.grad is not None
    assert same.grad.isfinite().all()


def test_the_terms_weigh_as_the_paper_does() -> None:
    x, y = torch.rand(5, 2), torch.tensor([0, 1, 0, 1, 0])
    model = linear_model(classes=8)
    site = site_of(model, x, y)
    batch = Batch(x, y, x, torch.rand(5, 8))
    torch.testing.assert_close(ClassVariance().penalty(batch, site), 2 * variance_loss(batch.logits))
    torch.testing.assert_close(ClassVariance(0.5).penalty(batch, site), 0.5 * variance_loss(batch.logits))
    torch.testing.assert_close(Uniformity().penalty(batch, site), 0.5 * uniformity_loss(x))
