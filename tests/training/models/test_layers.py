import pytest
import torch
from torch import nn

from training.models.layers import BatchNorm1d, BatchNorm2d, count_groups, first_stride, make_convolution


def test_groups_hold_eight_channels_or_more_and_are_32_at_most() -> None:
    found = [count_groups(c) for c in (6, 8, 16, 24, 64, 96, 144, 256, 512, 1280)]
    assert found == [1, 1, 2, 3, 8, 12, 18, 32, 32, 32]


def test_a_convolution_has_a_bias_only_where_nothing_normalises() -> None:
    for norm in ("group", "batch", "none"):
        first = make_convolution(3, 16, 3, norm=norm)[0]
        assert isinstance(first, nn.Conv2d)
        assert (first.bias is not None) == (norm == "none")


@pytest.mark.parametrize(
    ("norm", "shape"), [(BatchNorm1d(4), (1, 4)), (BatchNorm2d(4), (1, 4, 1, 1))], ids=["vector", "pixel"]
)
def test_one_record_is_normalised_by_the_running_statistics(
    norm: BatchNorm1d | BatchNorm2d, shape: tuple[int, ...]
) -> None:
    assert norm.running_mean is not None
    assert norm.running_var is not None
    norm.running_mean.copy_(torch.tensor([1.0, 2.0, 3.0, 4.0]))
    norm.running_var.copy_(torch.tensor([1.0, 4.0, 9.0, 16.0]))
    x = torch.full(shape, 5.0)
    expected = torch.tensor([4.0, 1.5, 2 / 3, 0.25]).reshape(shape)
    torch.testing.assert_close(norm.train()(x), expected, rtol=1e-4, atol=1e-4)
    assert norm.running_mean.tolist() == [1, 2, 3, 4]
    torch.testing.assert_close(norm.eval()(x), norm.train()(x))


@pytest.mark.parametrize(
    ("ours", "torchs"), [(BatchNorm1d(4), nn.BatchNorm1d(4)), (BatchNorm2d(4), nn.BatchNorm2d(4))]
)
def test_of_more_records_it_is_torchs(ours: nn.Module, torchs: nn.Module) -> None:
    x = torch.rand(5, 4) if isinstance(ours, BatchNorm1d) else torch.rand(1, 4, 2, 3)
    assert torch.equal(ours.train()(x), torchs.train()(x))
    assert all(torch.equal(b, torchs.state_dict()[n]) for n, b in ours.state_dict().items())


def test_large_images_are_halved_early_unless_told_otherwise() -> None:
    assert [first_stride((3, side, side), None) for side in (28, 32, 63, 64, 96)] == [1, 1, 1, 2, 2]
    assert [first_stride((3, side, side), 1) for side in (32, 96)] == [1, 1]
