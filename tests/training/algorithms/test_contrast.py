from math import exp, log

import pytest
import torch

from tests.support.calls import record_calls
from tests.training.conftest import EXTRACTOR, linear_model, site_of
from training.algorithms.base import Batch, Site
from training.algorithms.features import FeatureDiscrepancy, ModelContrastive, squared_mmd
from training.heads import Classifier

X, Y = torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.tensor([0, 1])
TURNED = torch.tensor([[0.0, -1.0], [1.0, 0.0]])


def batch(site: Site) -> Batch:
    z = site.model.features(X)
    return Batch(X, Y, z, site.model.head(z))


def value(penalty: torch.Tensor | float) -> float:
    return float(torch.as_tensor(penalty).detach())


def test_moons_contrast_on_a_worked_pair() -> None:
    # The received model sees what the one in training sees, the remembered one a right angle away from it.
    site = site_of(linear_model(), X, Y, memory={EXTRACTOR: TURNED})
    penalty = ModelContrastive(mu=3.0, temperature=0.5).penalty(batch(site), site)
    assert value(penalty) == pytest.approx(3 * log(1 + exp((0 - 1) / 0.5)))
    # The other way round: z is far from the received features and at the remembered ones.
    site = site_of(linear_model(), X, Y, received={EXTRACTOR: TURNED}, memory={EXTRACTOR: torch.eye(2)})
    penalty = ModelContrastive(mu=3.0, temperature=0.5).penalty(batch(site), site)
    assert value(penalty) == pytest.approx(3 * log(1 + exp((1 - 0) / 0.5)))


def test_moon_remembers_the_extractor_and_has_nothing_to_say_before() -> None:
    site = site_of(linear_model(), X, Y)
    assert ModelContrastive().penalty(batch(site), site) == 0
    message, memory = ModelContrastive().finish(site, 3)
    assert message == {}
    assert memory.keys() == {EXTRACTOR}
    with torch.no_grad():
        site.model.get_parameter(EXTRACTOR).zero_()
    assert torch.equal(memory[EXTRACTOR], torch.eye(2))


@pytest.mark.parametrize("term", [ModelContrastive(), FeatureDiscrepancy()])
def test_features_under_fixed_weights_are_computed_once_a_round(
    term: ModelContrastive | FeatureDiscrepancy, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = site_of(linear_model(), X, Y, received={EXTRACTOR: -TURNED}, memory={EXTRACTOR: TURNED})
    looks = record_calls(monkeypatch, Classifier, "features_under", lambda *arguments: len(arguments[-1]))
    models = 2 if isinstance(term, ModelContrastive) else 1
    for rows in (torch.tensor([1, 1]), torch.tensor([1, 0]), torch.tensor([0, 0])):
        x, y = X[rows], Y[rows]
        z = site.model.features(x)
        fresh = term.penalty(Batch(x, y, z, z), site)
        assert looks == [len(x)] * models  # augmented: other pictures in every epoch
        looks.clear()
        torch.testing.assert_close(term.penalty(Batch(x, y, z, z, rows), site), fresh)
        assert looks == ([2] * models if rows.tolist() == [1, 1] else [])
        looks.clear()


def test_only_the_model_in_training_has_a_gradient() -> None:
    site = site_of(linear_model(), X, Y, memory={EXTRACTOR: TURNED})
    penalty = ModelContrastive().penalty(batch(site), site)
    assert isinstance(penalty, torch.Tensor)
    penalty.backward()  # type: ignore[no-untyped-call]
    assert site.model.get_parameter(EXTRACTOR).grad is not None
    assert not any(tensor.requires_grad for tensor in (*site.received.values(), *site.memory.values()))


def test_a_discrepancy_of_single_points() -> None:
    # The distances between {0} and {1} are 0, 1, 1, 0, of mean ½.
    k = sum(exp(-1 / (0.5 * 2.0**power)) for power in range(-2, 3)) / 5
    mmd = squared_mmd(torch.zeros(1, 1), torch.ones(1, 1))
    torch.testing.assert_close(mmd, torch.tensor(2 - 2 * k))
    assert squared_mmd(X, X) == 0


def test_fedmmd_is_the_discrepancy_to_the_received_features() -> None:
    site = site_of(linear_model(), X, Y)
    assert value(FeatureDiscrepancy(2.0).penalty(batch(site), site)) == 0
    moved = site_of(linear_model(), X, Y, received={EXTRACTOR: TURNED})
    expected = 2 * squared_mmd(X, X @ TURNED.T)
    torch.testing.assert_close(FeatureDiscrepancy(2.0).penalty(batch(moved), moved), expected)
    assert float(expected) > 0
    alone = Batch(*(part[:1] for part in batch(moved)[:4]))
    assert value(FeatureDiscrepancy(2.0).penalty(alone, moved)) == 0
