"""Put a calibrated head into a PyTorch model, in place of the classifier that you name."""

from collections.abc import Iterable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from veilsum.calibration.head_file import Calibrated
from veilsum.export.linear import HeadSource, layer_of, linear_head
from veilsum.protocol.errors import Misuse

Model = TypeVar("Model", bound=nn.Module)


class CalibratedHead(nn.Linear):
    """Logits W̄ᵀx/T + b/T of features z of any length, (…, dim) to (…, C); −∞ for classes it cannot predict.

    x is z scaled to length 1; with a centre m, z/‖z‖ − m scaled to length 1. A row of zeros stays one.

    `torch.jit.script`, `torch.export` and `torch.onnx.export` take it. Without a centre its state holds `weight` and `bias` alone, as a
    linear layer's does; an ordinary linear layer that loads them answers the same if its features have length 1. With one it also holds
    `centre`, which an ordinary layer refuses.

    `temperature` is T; None takes the head's own. Without either it is 1, and a UserWarning says that a softmax of the logits gives no
    probabilities. `bias` is whether to have the parameter also where the head needs none.
    """

    centre: Tensor | None

    def __init__(self, head: Calibrated, temperature: float | None = None, *, bias: bool = True) -> None:
        temperature = head.choose_temperature(temperature)
        if not temperature > 0:
            raise Misuse(f"a temperature is above 0, not {temperature}")
        weights, constants = layer_of(head, temperature)
        dim, classes = weights.shape
        super().__init__(dim, classes, bias=bias or bool(constants.any()))
        self.requires_grad_(requires_grad=False)
        self.weight.copy_(torch.from_numpy(np.ascontiguousarray(weights.T)))
        if self.bias is not None:
            self.bias.copy_(torch.from_numpy(constants))
        centre = head.head.centre
        self.register_buffer("centre", None if centre is None else self.weight.new_tensor(centre))

    def forward(self, features: Tensor) -> Tensor:
        """Logits of features (…, dim), in their type; lengths are taken in float32 at least."""
        # float16 overflows at 65,504
        wide = features if features.dtype == torch.float64 else features.to(torch.float32)
        # By the largest number first: squares of huge and of tiny ones over- and underflow. A row of zeros stays one.
        wide = wide / wide.abs().amax(-1, keepdim=True).clamp(min=1e-37)
        centre = self.centre
        if centre is not None:
            # (z/‖z‖ − m)·‖z‖, so that a row of zeros stays one
            wide = wide - torch.linalg.vector_norm(wide, dim=-1, keepdim=True) * centre
        unit = functional.normalize(wide, dim=-1).to(features.dtype)
        return functional.linear(unit, self.weight, self.bias)


def replace_head(model: Model, source: HeadSource, *, at: str, temperature: float | None = None) -> Model:
    """Put a calibrated head where the model's classifier is, under all its names, on its device and in its type.

    The classifier's inputs stay as they are: calibrate with `head_inputs` of the same model. The number of
    classes becomes the head's, also where the model keeps it (`num_classes`, `config.num_labels`). With as many classes as before, and
    without a centre, the model's state loads into a model that has its first classifier.

    Args:
        model: changed in place.
        source: what has a linear head (`veilsum.export`).
        at: the classifier's name among `model.named_modules()`, such as torchvision's `fc` or `heads.head`, timm's `head.fc` and
            Hugging Face's `classifier`.
        temperature: what logits are divided by; None takes the head's own, as hold-out records gave it. A softmax of the logits equals
            `Result.probabilities`. Without a temperature it gives no probabilities, and a UserWarning says so.

    Raises:
        Misuse: `at` names no linear layer (they are listed), one that takes features of another length, or one that the model also
            holds where a module cannot be replaced, such as in a list; nothing is changed then.
    """
    calibrated, old = linear_head(source), _find_layer(model, at)
    dim = calibrated.head.dim
    if old.in_features != dim:
        raise Misuse(
            f"layer {at} takes features of length {old.in_features}, the head of length {dim}: it was calibrated for "
            "another extractor"
        )
    _check_replaceable(model, at, old)
    new = CalibratedHead(calibrated, temperature, bias=old.bias is not None)
    new.to(device=old.weight.device, dtype=old.weight.dtype)
    new.train(old.training)
    for path in [path for path, module in _all_modules(model).items() if module is old]:
        model.set_submodule(path, new)
    _set_class_counts(model, calibrated.head.classes)
    return model


def head_inputs(model: nn.Module, batches: Iterable[Any], *, at: str) -> npt.NDArray[np.float32]:
    """Features as the classifier is given them, (n, dim) float32: what a member calibrates with.

    Args:
        model: evaluated without gradients, each module's training mode left as it was.
        batches: what the model is called with, one after the other; a dictionary goes in as keywords.
        at: as `replace_head`.

    Raises:
        Misuse: as `replace_head`; no batches; a classifier that is called with more than one vector a record, or not just
            once for each batch.
    """
    seen: list[npt.NDArray[np.float32]] = []

    def keep(_module: nn.Module, inputs: tuple[Tensor, ...], named: dict[str, Tensor]) -> None:
        features = inputs[0] if inputs else named["input"]
        if features.ndim != 2:
            raise Misuse(f"{at} is given {tuple(features.shape)}, not one vector a record")
        seen.append(features.detach().float().cpu().numpy())

    hook = _find_layer(model, at).register_forward_pre_hook(keep, with_kwargs=True)
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            for number, batch in enumerate(batches, 1):
                _ = model(**batch) if isinstance(batch, dict) else model(batch)
                if len(seen) != number:
                    raise Misuse(
                        f"{at} is called {len(seen) - number + 1} times for a batch: which of its inputs are a "
                        "record's features is not clear; collect them yourself"
                    )
    finally:
        hook.remove()
        for module, training in modes:
            module.training = training
    if not seen:
        raise Misuse("no batches: pass what the model is called with")
    return np.concatenate(seen)


def _find_layer(model: nn.Module, at: str) -> nn.Linear:
    layers = {
        name: each for name, each in _all_modules(model).items() if isinstance(each, nn.Linear) and name
    }
    if at not in layers:
        shown = ", ".join(list(layers)[-8:]) or "none"
        raise Misuse(f"{type(model).__name__} has no linear layer {at!r}; its last ones are: {shown}")
    return layers[at]


def _all_modules(model: nn.Module) -> dict[str, nn.Module]:
    """By all their names: one that is registered twice has two."""
    return dict(model.named_modules(remove_duplicate=False))


def _check_replaceable(model: nn.Module, name: str, old: nn.Module) -> None:
    """Refuse a layer that would stay in use after it was replaced under all its names (Misuse)."""
    for where, module in model.named_modules():
        for attribute, value in vars(module).items():
            held = value.values() if isinstance(value, dict) else value
            each = held if isinstance(value, dict | list | tuple) else [held]
            if attribute != "_modules" and any(one is old for one in each):
                raise Misuse(
                    f"{type(model).__name__} also holds {name} in {f'{where}.{attribute}'.lstrip('.')}, where a module "
                    "can't be replaced: register it as a submodule, or remove it"
                )


def _set_class_counts(model: nn.Module, classes: int) -> None:
    """Where libraries keep the number of classes beside the layer: timm in the model, Hugging Face in both."""
    holders: list[Any] = [model, getattr(model, "config", None)]
    for holder in holders:
        for name in ("num_classes", "num_labels"):
            if getattr(holder, name, classes) != classes:
                setattr(holder, name, classes)
