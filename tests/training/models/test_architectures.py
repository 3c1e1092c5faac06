from functools import cache

import pytest
import torch

from training.data.dataset import Dataset
from training.heads import Classifier, LearnedHead
from training.models.architectures import ARCHITECTURES, build_extractor
from training.models.config import ExtractorConfig
from training.models.layers import Extractor

DIMS = {
    "cnn": 64,
    "convnet7": 1024,
    "feduv_cnn": 256,
    "mlp": 64,
    "mobilenetv2": 1280,
    "moon_cnn": 256,
    "resnet18": 512,
    "resnet50": 2048,
    "senet18": 512,
    "vgg11": 512,
    "vgg13": 512,
}
SMALL = ["cnn", "convnet7", "feduv_cnn", "mlp", "moon_cnn"]


@cache
def shaped(architecture: str, shape: tuple[int, int, int]) -> Extractor:
    """Build an extractor without values, which has shapes and no work."""
    with torch.device("meta"):
        return build_extractor(ExtractorConfig(architecture, shape)).eval()


def parameters(module: torch.nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize("architecture", sorted(ARCHITECTURES))
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 64, 64)], ids=str)
@torch.no_grad()
def test_features_have_the_stated_dimension(architecture: str, shape: tuple[int, int, int]) -> None:
    extractor = shaped(architecture, shape)
    assert (
        extractor(torch.rand(2, *shape, device="meta")).shape == (2, extractor.dim) == (2, DIMS[architecture])
    )


@pytest.mark.parametrize("architecture", sorted(ARCHITECTURES))
@torch.no_grad()
def test_a_records_features_do_not_depend_on_its_batch(architecture: str) -> None:
    extractor = build_extractor(ExtractorConfig(architecture, (3, 32, 32))).eval()
    x = torch.rand(3, 3, 32, 32)
    together = extractor(x)
    assert together.shape == (3, DIMS[architecture])
    torch.testing.assert_close(together[:1], extractor(x[:1]), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("architecture", SMALL)
def test_a_member_with_a_single_record_can_train(architecture: str) -> None:
    extractor = build_extractor(ExtractorConfig(architecture, (1, 28, 28))).train()
    extractor(torch.rand(1, 1, 28, 28)).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in extractor.parameters())


# What others count for the same networks: PyTorch's ImageNet MobileNetV2 without its classifier of 1,281,000, whose
# convolutions are the same except for their strides; the ResNets with 3×3 stems that CIFAR's literature quotes as 11.17
# and 23.52 million with a head of ten classes.
@pytest.mark.parametrize(
    ("architecture", "expected"),
    [
        ("mobilenetv2", 3_504_872 - 1_281_000),
        ("resnet18", 11_173_962 - 10 * 513),
        ("resnet50", 23_520_842 - 10 * 2049),
    ],
)
def test_published_counts_of_parameters(architecture: str, expected: int) -> None:
    assert parameters(shaped(architecture, (3, 32, 32))) == expected


def test_the_moon_cnn_s_table_holds_at_other_sizes() -> None:
    # Added up from the layers that the paper prints; the third has 16·4·4 inputs at 28 px and 16·13·13 at 64.
    at_32 = (25 * 3 + 1) * 6 + (25 * 6 + 1) * 16 + 401 * 120 + 121 * 84 + 85 * 84 + 85 * 256
    assert parameters(shaped("moon_cnn", (1, 28, 28))) == at_32 - 25 * 2 * 6 - (400 - 256) * 120
    assert parameters(shaped("moon_cnn", (3, 64, 64))) == at_32 + (2704 - 400) * 120


@pytest.mark.parametrize(
    ("architecture", "options"), [("resnet18", "norm, stride, projector"), ("mlp", "hidden, dim")]
)
def test_an_unknown_option_is_refused_with_those_there_are(architecture: str, options: str) -> None:
    with pytest.raises(ValueError, match=f"'width'.*{options}"):
        build_extractor(ExtractorConfig(architecture, (1, 8, 8), {"width": 3}))


@pytest.mark.parametrize(
    ("architecture", "option", "value"),
    [
        ("cnn", "width", 0),
        ("mlp", "hidden", -1),
        ("moon_cnn", "dim", 0),
        ("feduv_cnn", "dim", -1),
        ("mobilenetv2", "stride", 0),
        ("resnet18", "projector", -1),
    ],
)
def test_sizes_are_positive(architecture: str, option: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"{option} .*{value}"):
        build_extractor(ExtractorConfig(architecture, (3, 32, 32), {option: value}))


@pytest.mark.parametrize(("architecture", "side"), [("moon_cnn", 15), ("feduv_cnn", 23)])
def test_images_that_are_too_small_are_refused(architecture: str, side: int) -> None:
    with pytest.raises(ValueError, match=f"{side + 1} px .*{side}×{side}"):
        build_extractor(ExtractorConfig(architecture, (1, side, side)))
    shape = (1, side + 1, side + 1)
    assert build_extractor(ExtractorConfig(architecture, shape))(torch.rand(2, *shape)).shape == (2, 256)


def test_bytes_are_scaled_and_normalised_in_the_network() -> None:
    data = Dataset(
        torch.randint(256, (4, 3, 32, 32), dtype=torch.uint8),
        torch.tensor([0, 1, 0, 1]),
        2,
        "toy",
        mean=(0.4, 0.5, 0.6),
        std=(0.2, 0.3, 0.4),
    )
    config = ExtractorConfig.of("cnn", data, width=8)
    assert (config.shape, config.options) == ((3, 32, 32), {"width": 8})
    extractor = build_extractor(config)
    by_hand = (data.x.float() / 255 - torch.tensor([0.4, 0.5, 0.6])[:, None, None]) / torch.tensor(
        [0.2, 0.3, 0.4]
    )[:, None, None]
    torch.testing.assert_close(extractor.scale_pixels(data.x), by_hand)
    torch.testing.assert_close(extractor(data.x), extractor.layers(by_hand))
    torch.testing.assert_close(extractor(data.x.float() / 255), extractor(data.x))
    assert "0.4" in config.preprocessing
    for form in (torch.contiguous_format, torch.channels_last):
        assert torch.equal(extractor.scale_pixels(data.x.contiguous(memory_format=form)), by_hand)
    # Neither sent in a round nor averaged, but moved with the rest.
    plain = build_extractor(ExtractorConfig("cnn", (3, 32, 32), {"width": 8}))
    assert extractor.state_dict().keys() == plain.state_dict().keys()
    classifier = Classifier(extractor, LearnedHead(extractor.dim, 2), normalise=False)
    assert classifier.shared_weights().keys() == classifier.state_dict().keys()
    assert extractor.to("meta").scale_pixels(data.x.to("meta")).shape == data.x.shape
    assert ExtractorConfig("cnn", (3, 32, 32)).preprocessing == "bytes over 255"
