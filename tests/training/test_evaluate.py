import numpy as np
import pytest
import torch
from torch import nn

from training.evaluate import extract_features, predict_logits, with_head
from training.heads import Classifier, FixedHead
from training.models.config import ExtractorConfig
from training.models.layers import Extractor
from training.recipe import spherefed_recipe

# Features are the inputs and the head is the identity: the prediction is the position of the largest input.
PLAIN = Classifier(Extractor(nn.Identity(), 3), FixedHead(torch.eye(3)), normalise=False)
X = torch.tensor([[0.9, 0.1, 0.0], [0.2, 0.8, 0.0], [0.6, 0.4, 0.0], [0.0, 0.0, 1.0]])


def test_features_are_float32_and_do_not_depend_on_how_they_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    classifier = spherefed_recipe(ExtractorConfig("cnn", (1, 8, 8))).build(10)
    x = torch.rand(9, 1, 8, 8)
    whole = extract_features(classifier, x)
    assert whole.shape == (9, 64)
    assert whole.dtype == torch.float32
    assert not whole.requires_grad
    torch.testing.assert_close(whole.norm(dim=1), torch.ones(9))
    monkeypatch.setattr("training.evaluate.EVALUATION_BATCH", 4)
    torch.testing.assert_close(extract_features(classifier, x), whole)


def test_features_are_computed_where_weights_lie_and_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    classifier = spherefed_recipe(ExtractorConfig("mlp", (1, 8, 8))).build(10).to("meta")  # in place of a GPU
    seen = []

    def features(_: Classifier, x: torch.Tensor) -> torch.Tensor:
        seen.append(x.device.type)
        return torch.zeros(len(x), 64)

    monkeypatch.setattr(Classifier, "features", features)
    assert extract_features(classifier, torch.rand(2, 1, 8, 8)).device.type == "cpu"
    assert seen == ["meta"]


@pytest.mark.parametrize("normalise", [True, False])
@pytest.mark.parametrize("as_array", [True, False])
def test_a_calibrated_head_takes_the_trained_ones_place(*, normalise: bool, as_array: bool) -> None:
    trained = Classifier(PLAIN.extractor, PLAIN.head, normalise=normalise)
    weights, bias = np.arange(9.0).reshape(3, 3), np.array([1.0, 0.0, -1.0])
    calibrated = (
        with_head(trained, weights, bias)
        if as_array
        else with_head(trained, torch.as_tensor(weights), torch.as_tensor(bias))
    )
    z = X / X.norm(dim=1, keepdim=True) if normalise else X
    np.testing.assert_allclose(predict_logits(calibrated, X).numpy(), z.numpy() @ weights + bias, rtol=1e-5)
    assert calibrated.normalise is normalise
    assert calibrated.extractor is trained.extractor
    assert torch.equal(trained.head.weight, torch.eye(3))


@pytest.mark.parametrize("bias", [None, np.array([-5.0, -5.0, -5.0])])
def test_a_class_that_a_head_was_not_fitted_to_is_never_predicted(bias: np.ndarray | None) -> None:
    weights = np.array([[-1.0, -1.0, 0.0], [-1.0, -1.0, 0.0], [-1.0, -2.0, 0.0]])
    head = with_head(PLAIN, weights, bias, unanswered=(2,))
    logits = predict_logits(head, X)
    assert (logits[:, 2] == -torch.inf).all()
    assert set(logits.argmax(dim=1).tolist()) <= {0, 1}
    if bias is not None:
        assert bias.tolist() == [-5.0] * 3


@pytest.mark.parametrize("shape", [(4, 3), (3,), (2, 3)])
def test_a_heads_weights_must_fit_the_features(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"shape \(3, C\)"):
        with_head(PLAIN, torch.zeros(shape))
