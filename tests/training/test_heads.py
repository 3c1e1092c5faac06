import pytest
import torch

from training.heads import Classifier, FixedHead, LearnedHead, orthonormal_head
from training.models import ExtractorConfig

MLP = ExtractorConfig("mlp", (1, 8, 8), {"dim": 12})


@pytest.mark.parametrize(("dim", "classes"), [(10, 10), (64, 10), (5, 1)])
def test_orthonormal_rows_have_the_identity_as_gram_matrix(dim: int, classes: int) -> None:
    weight = orthonormal_head(dim, classes).weight
    assert weight.shape == (classes, dim)
    torch.testing.assert_close(weight @ weight.T, torch.eye(classes), atol=1e-6, rtol=0)


def test_orthonormal_rows_need_a_dimension_each() -> None:
    with pytest.raises(ValueError, match="choose an extractor with dim >= 10"):
        orthonormal_head(9, 10)


def test_the_seed_decides_the_orthonormal_head() -> None:
    def drawn(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return orthonormal_head(6, 3).weight

    assert torch.equal(drawn(1), drawn(1))
    assert not torch.equal(drawn(1), drawn(2))


def test_features_have_norm_one_where_asked() -> None:
    x = torch.rand(7, 1, 8, 8)
    extractor = MLP.build()
    raw = Classifier(extractor, LearnedHead(12, 3), normalise=False).features(x)
    unit = Classifier(extractor, LearnedHead(12, 3), normalise=True).features(x)
    torch.testing.assert_close(unit.norm(dim=1), torch.ones(7))
    torch.testing.assert_close(unit * raw.norm(dim=1, keepdim=True), raw)


def test_logits_are_the_heads_product() -> None:
    weight, bias = torch.rand(3, 12), torch.rand(3)
    classifier = Classifier(MLP.build(), FixedHead(weight, bias), normalise=True)
    x = torch.rand(4, 1, 8, 8)
    torch.testing.assert_close(classifier(x), classifier.features(x) @ weight.T + bias)


def test_a_fixed_head_is_neither_trained_nor_sent() -> None:
    fixed = Classifier(MLP.build(), orthonormal_head(12, 3), normalise=True)
    learned = Classifier(MLP.build(), LearnedHead(12, 3), normalise=True)
    assert not any(p.requires_grad for p in fixed.head.parameters())
    assert set(learned.shared_weights()) - set(fixed.shared_weights()) == {"head.weight", "head.bias"}
