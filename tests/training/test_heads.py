import pytest
import torch

from training.heads import (
    Classifier,
    LearnedHead,
    NormalisedHead,
    Orthonormal,
    Simplex,
    Tammes,
    orthonormal_head,
    random_head,
    unbiased_head,
    uniform_head,
)
from training.models.architectures import build_extractor
from training.models.config import ExtractorConfig

MLP = ExtractorConfig("mlp", (1, 8, 8), {"dim": 12})


@pytest.mark.parametrize(("dim", "classes"), [(10, 10), (64, 10), (5, 1)])
def test_orthonormal_rows_have_the_identity_as_gram_matrix(dim: int, classes: int) -> None:
    weight = orthonormal_head(dim, classes).weight
    assert weight.shape == (classes, dim)
    torch.testing.assert_close(weight @ weight.T, torch.eye(classes), atol=1e-6, rtol=0)


def test_a_temperature_scales_the_orthonormal_head() -> None:
    torch.manual_seed(3)
    plain = orthonormal_head(6, 3).weight
    torch.manual_seed(3)
    scaled = Orthonormal(16.0)(6, 3)
    torch.testing.assert_close(scaled.weight, 16 * plain)
    assert not scaled.weight.requires_grad


def test_other_papers_heads() -> None:
    learned, fixed = unbiased_head(50, 40), uniform_head(50, 40)
    assert learned.state_dict().keys() == {"weight"}
    assert learned.weight.requires_grad
    assert not fixed.weight.requires_grad
    assert fixed.weight.abs().max() <= 50**-0.5
    # a uniform deviation, a 1/√6 of `random_head`'s
    assert float(fixed.weight.std()) == pytest.approx((3 * 50) ** -0.5, rel=0.05)


def test_features_have_norm_one_where_asked() -> None:
    x = torch.rand(7, 1, 8, 8)
    extractor = build_extractor(MLP)
    raw = Classifier(extractor, LearnedHead(12, 3), normalise=False).features(x)
    unit = Classifier(extractor, LearnedHead(12, 3), normalise=True).features(x)
    torch.testing.assert_close(unit.norm(dim=1), torch.ones(7))
    torch.testing.assert_close(unit * raw.norm(dim=1, keepdim=True), raw)


def test_a_fixed_head_is_neither_trained_nor_sent() -> None:
    fixed = Classifier(build_extractor(MLP), orthonormal_head(12, 3), normalise=True)
    learned = Classifier(build_extractor(MLP), LearnedHead(12, 3), normalise=True)
    assert not any(p.requires_grad for p in fixed.head.parameters())
    assert set(learned.shared_weights()) - set(fixed.shared_weights()) == {"head.weight", "head.bias"}


@pytest.mark.parametrize(("dim", "classes"), [(4, 4), (64, 10), (2, 2)])
def test_a_simplexs_gram_matrix(dim: int, classes: int) -> None:
    weight = Simplex(scale=1.5)(dim, classes).weight
    cosine = -1 / (classes - 1)
    gram = 1.5**2 * ((1 - cosine) * torch.eye(classes) + cosine)
    torch.testing.assert_close(weight @ weight.T, gram, atol=1e-6, rtol=0)
    torch.testing.assert_close(weight.sum(dim=0), torch.zeros(dim), atol=1e-6, rtol=0)


def test_tammes_comes_near_the_simplex_where_there_is_room_and_spreads_where_there_is_none() -> None:
    torch.manual_seed(0)
    weight = Tammes()(8, 5).weight
    torch.testing.assert_close(weight.norm(dim=1), torch.ones(5))
    off = (weight @ weight.T)[~torch.eye(5, dtype=torch.bool)]
    torch.testing.assert_close(off, torch.full((20,), -0.25), atol=0.02, rtol=0)
    # Six points on a sphere are an octahedron at best: the nearest are at right angles.
    crowded = Tammes()(3, 6).weight
    off = (crowded @ crowded.T)[~torch.eye(6, dtype=torch.bool)]
    assert float(off.max()) < 0.1
    assert Tammes()(3, 1).weight.shape == (1, 3)


def test_a_random_head_has_he_s_variance() -> None:
    torch.manual_seed(0)
    weight = random_head(200, 300).weight
    assert float(weight.var()) == pytest.approx(2 / 200, rel=0.05)
    assert not weight.requires_grad


def test_a_normalised_heads_logits_do_not_depend_on_its_vectors_lengths() -> None:
    head = NormalisedHead(2, 2)
    head.load_state_dict({"weight": torch.tensor([[3.0, 4.0], [0.0, 0.5]])})
    torch.testing.assert_close(head(torch.tensor([[1.0, 2.0]])), torch.tensor([[2.2, 2.0]]))
    assert head.weight.requires_grad


@pytest.mark.parametrize("training", [True, False])
def test_features_under_other_weights_leave_the_model_as_it_is(*, training: bool) -> None:
    classifier = Classifier(build_extractor(MLP), LearnedHead(12, 3), normalise=True).train(training)
    other = Classifier(build_extractor(MLP), LearnedHead(12, 3), normalise=True)
    x, before = torch.rand(4, 1, 8, 8), {n: t.clone() for n, t in classifier.state_dict().items()}
    z = classifier.features_under(other.state_dict(), x)
    torch.testing.assert_close(z, other.eval().features(x))
    assert not z.requires_grad
    assert classifier.extractor.training is training
    assert all(torch.equal(t, before[n]) for n, t in classifier.state_dict().items())
