import torch
from torch import nn

from training.models.layers import BatchNorm2d
from training.models.mobilenet import InvertedResidual, mobilenetv2


def test_the_narrow_end_is_linear_and_adds_x_where_shapes_agree() -> None:
    block = InvertedResidual(8, 8, 6, 1, "group").eval()
    assert isinstance(block.branch[-1], nn.GroupNorm)
    x = torch.rand(2, 8, 4, 4)
    torch.testing.assert_close(block(x), x + block.branch(x))
    for narrow in (InvertedResidual(8, 16, 6, 1, "group"), InvertedResidual(8, 8, 6, 2, "group")):
        torch.testing.assert_close(narrow(x), narrow.branch(x))


def test_maps_end_at_4_pixels_for_cifar_and_for_tinyimagenet() -> None:
    for side, sizes in ((32, [32, 32, 32, 16, 8, 8, 4, 4, 4]), (64, [64, 64, 32, 16, 8, 8, 4, 4, 4])):
        layers = mobilenetv2((3, side, side)).eval().layers
        assert isinstance(layers, nn.Sequential)
        x, seen = torch.rand(1, 3, side, side), []
        with torch.no_grad():
            for block in list(layers)[:9]:
                x = block(x)
                seen.append(x.shape[-1])
        assert seen == sizes


def test_batch_normalisation_is_a_choice_for_cifar_100() -> None:
    by_batch = mobilenetv2((3, 32, 32), norm="batch")
    assert sum(isinstance(m, BatchNorm2d) for m in by_batch.modules()) == 52
    assert not any(isinstance(m, nn.GroupNorm) for m in by_batch.modules())
