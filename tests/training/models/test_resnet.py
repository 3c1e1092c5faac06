import pytest
import torch
from torch import nn

from training.models.layers import BatchNorm1d, BatchNorm2d
from training.models.resnet import Residual, SqueezeExcitation, resnet18, resnet50


def test_a_block_adds_its_input_to_its_branch() -> None:
    branch = nn.Conv2d(2, 2, 1, bias=False)
    nn.init.zeros_(branch.weight)
    block = Residual([branch], 2, 2, 1, "none")
    x = torch.tensor([[[[1.0, -2.0]], [[-3.0, 4.0]]]])
    assert block(x).tolist() == [[[[1.0, 0.0]], [[0.0, 4.0]]]]


def test_a_shortcut_is_a_convolution_only_where_shapes_differ() -> None:
    assert isinstance(Residual([], 8, 8, 1, "group").shortcut, nn.Identity)
    for after, stride in ((16, 1), (8, 2)):
        shortcut = Residual([], 8, after, stride, "group").shortcut
        assert shortcut(torch.rand(1, 8, 4, 4)).shape == (1, after, 4 // stride, 4 // stride)


def test_the_gate_follows_from_all_channels_means() -> None:
    excitation = SqueezeExcitation(16)
    for p in excitation.parameters():
        nn.init.constant_(p, 0.25)
    x = torch.ones(1, 16, 2, 2)
    # One hidden unit of 16 · ¼ + ¼, then ¼ of it and ¼ through the sigmoid.
    gate = torch.sigmoid(torch.tensor(0.25 * 4.25 + 0.25))
    torch.testing.assert_close(excitation(x), x * gate)


def test_feduvs_resnets_are_choices() -> None:
    small = resnet18((3, 32, 32), norm="batch", stride=2, projector=512)
    assert small.dim == 512
    assert sum(isinstance(m, BatchNorm2d) for m in small.modules()) == 1 + 16 + 4
    assert sum(isinstance(m, BatchNorm1d) for m in small.modules()) == 2
    assert isinstance(small.layers, nn.Sequential)
    with torch.no_grad():
        maps = [small.layers[0](torch.rand(1, 3, 32, 32))]
        for stage in range(1, 5):
            maps.append(small.layers[stage](maps[-1]))
    assert [m.shape[-1] for m in maps] == [32, 16, 8, 4, 2]


def test_a_stem_of_7_halves_the_image() -> None:
    large = resnet50((3, 64, 64), stem=7, stride=1)
    assert isinstance(large.layers, nn.Sequential)
    with torch.no_grad():
        assert large.layers[0](torch.rand(1, 3, 64, 64)).shape == (1, 64, 32, 32)
    with pytest.raises(ValueError, match="stem"):
        resnet50((3, 64, 64), stem=5)
