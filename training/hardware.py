"""Where members train: the CPU, or a GPU."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor, nn

from training.algorithms.base import State
from training.data.dataset import Dataset


@dataclass(frozen=True)
class Hardware:
    """A device. Draws are the same everywhere; results are equal up to rounding, and bit-equal on CPUs only.

    Convolutions and their images are in the memory layout that tensor cores need.

    Attributes:
        device: torch's name, such as ``cpu`` or ``cuda:0``.
    """

    device: str = "cpu"

    @classmethod
    def choose_device(cls, name: str) -> Self:
        """Choose a device by torch's name.

        Raises:
            ValueError: if the device is unknown or missing, or computes no numbers.
        """
        try:
            there = torch.empty(0, device=name)
        except (RuntimeError, AssertionError) as error:
            raise ValueError(
                f"device {name!r} can't be used here: {str(error).splitlines()[0]}; take cpu, or cuda where torch has it"
            ) from error
        if there.is_meta:
            raise ValueError(
                "device 'meta' can't be used here: it computes no numbers; take cpu, or cuda where torch has it"
            )
        return cls(name)

    def move_model(self, model: nn.Module) -> nn.Module:
        """Move a model to the device; on a GPU cuDNN then searches the fastest convolutions."""
        if self.is_cuda:
            torch.backends.cudnn.benchmark = True
        return model.to(device=self.device, memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]

    def move_images(self, x: Tensor) -> Tensor:
        """Move inputs to the device."""
        moved = x.to(self.device)
        return moved.contiguous(memory_format=torch.channels_last) if moved.ndim == 4 else moved

    def move_records(self, data: Dataset) -> Dataset:
        return replace(data, x=self.move_images(data.x), y=data.y.to(self.device))

    def move_state(self, state: State) -> State:
        """Move weights to the device; tensors that are there already are not copied."""
        return {name: tensor.to(self.device) for name, tensor in state.items()}

    @contextmanager
    def on_device(self, model: nn.Module) -> Iterator[None]:
        """Move the model to the device within the block, and back to the CPU after it."""
        model.to(self.device)
        try:
            yield
        finally:
            model.cpu()

    @property
    def is_cpu(self) -> bool:
        """Whether members train on the processor."""
        return torch.device(self.device).type == "cpu"

    @property
    def is_cuda(self) -> bool:
        """Whether members train on a GPU, where steps are replayed as CUDA graphs."""
        return torch.device(self.device).type == "cuda"


CPU_HARDWARE = Hardware()
