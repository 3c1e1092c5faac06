"""Architectures by name, and building them."""

from collections.abc import Callable
from inspect import signature

import torch
from torch import nn

from training.imports import import_object, is_import_path
from training.models.config import ExtractorConfig
from training.models.layers import Extractor
from training.models.mobilenet import mobilenetv2
from training.models.plain import cnn, convnet7, feduv_cnn, mlp, moon_cnn, vgg11, vgg13
from training.models.resnet import resnet18, resnet50, senet18


def build_extractor(config: ExtractorConfig) -> Extractor:
    """Build a configured network, initialised from torch's generator. Raises ValueError if it can't be built."""
    if is_import_path(config.architecture):
        architecture = import_object(config.architecture)
    elif config.architecture in ARCHITECTURES:
        architecture = ARCHITECTURES[config.architecture]
        if len(config.shape) != 3 and config.architecture != "mlp":
            raise ValueError(
                f"{config.architecture} needs images; for inputs of shape {config.shape} take mlp"
            )
    else:
        known = ", ".join(sorted(ARCHITECTURES))
        raise ValueError(f"no architecture is called {config.architecture!r}; there are {known}")
    allowed = list(signature(architecture).parameters)[1:]
    if unknown := sorted(set(config.options) - set(allowed)):
        has = f"its options are {', '.join(allowed)}" if allowed else "it has none"
        raise ValueError(f"{config.architecture} has no option {unknown[0]!r}; {has}")
    if not len(config.mean) == len(config.std) in {0, config.shape[0]} or not all(
        value > 0 for value in config.std
    ):
        raise ValueError(
            f"mean and std must have {config.shape[0]} entries, one a channel, or none, and std be positive"
        )
    made = architecture(config.shape, **config.options)
    extractor = made if isinstance(made, Extractor) else Extractor(made, _feature_length(made, config.shape))
    extractor.config = config
    extractor.expects(tuple(config.mean), tuple(config.std))
    return extractor


@torch.no_grad()
def _feature_length(module: nn.Module, shape: tuple[int, ...]) -> int:
    """Return the length of a module's feature vectors."""
    features = module.eval()(torch.zeros(2, *shape))
    module.train()
    if features.ndim != 2 or len(features) != 2:
        raise ValueError(
            f"an extractor maps (n, …) to features of shape (n, l), not to {tuple(features.shape)}"
        )
    return int(features.shape[1])


_PLAIN_ARCHITECTURES: list[Callable[..., Extractor]] = [cnn, convnet7, feduv_cnn, mlp, moon_cnn, vgg11, vgg13]
_RESIDUAL_ARCHITECTURES: list[Callable[..., Extractor]] = [mobilenetv2, resnet18, resnet50, senet18]
ARCHITECTURES = {make.__name__: make for make in _PLAIN_ARCHITECTURES + _RESIDUAL_ARCHITECTURES}
