import pytest
import torch

from training.models import ARCHITECTURES, ExtractorConfig


@pytest.mark.parametrize("architecture", sorted(ARCHITECTURES))
@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 28, 28), (3, 32, 32)])
def test_features_have_the_stated_dimension(architecture: str, shape: tuple[int, int, int]) -> None:
    extractor = ExtractorConfig(architecture, shape, {"dim": 24}).build()
    features = extractor(torch.rand(2, *shape))
    assert features.shape == (2, extractor.dim) == (2, 24)


@pytest.mark.parametrize("architecture", sorted(ARCHITECTURES))
def test_a_records_features_do_not_depend_on_its_batch(architecture: str) -> None:
    extractor = ExtractorConfig(architecture, (1, 8, 8)).build()
    x = torch.rand(5, 1, 8, 8)
    torch.testing.assert_close(extractor(x)[:1], extractor(x[:1]))


def test_an_unknown_architecture_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="'resnet-1000'; there are cnn, mlp"):
        ExtractorConfig("resnet-1000", (1, 8, 8)).build()
