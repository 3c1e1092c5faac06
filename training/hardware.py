"""Where members train: the processor, or a GPU with its arithmetic."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor, nn

    from training.algorithms import State
    from training.data import Dataset
    from training.heads import Classifier


@dataclass(frozen=True)
class Hardware:
    """The same experiment elsewhere: the same draws, and equal but for rounding. The CPU alone gives equal bits.

    Attributes:
        device: torch's name, such as ``cpu`` or ``cuda:0``.
        channels_last: keep images and convolutions in that order, which tensor cores want, and processors do not mind: a tenth more
            images a second of MOON's CNN, about as many of the others.
        bfloat16: multiply in that type; weights, and what members send, stay float32.
        compiled: run features by `torch.compile`, forwards and backwards, on a GPU replayed as CUDA graphs. Each shape of a batch
            costs up to a minute before its first step, so this is for long runs.
    """

    device: str = "cpu"
    channels_last: bool = True
    bfloat16: bool = False
    compiled: bool = False

    @classmethod
    def named(cls, name: str, *, compiled: bool = False) -> Hardware:
        """What suits a device: bfloat16 on a GPU.

        Raises:
            ValueError: if torch knows no such device, or this machine has none, or nothing can be compiled on it.
        """
        try:
            torch.empty(0, device=name)
        except (RuntimeError, AssertionError) as error:
            raise ValueError(
                f"device {name!r} can't be used here: {str(error).splitlines()[0]}; take cpu, or cuda where torch has it"
            ) from error
        if compiled:
            try:
                torch.compile(torch.neg)(torch.zeros(1, device=name))
            except RuntimeError as error:
                raise ValueError(
                    f"torch.compile does not work here: {str(error).splitlines()[0]}; install a C++ compiler, such as g++, or run without it"
                ) from error
        return cls(name, bfloat16=not name.startswith("cpu"), compiled=compiled)

    def describe(self) -> dict[str, Any]:
        """What moves a run's numbers by more than another processor would, JSON-ready: nothing where all is as usual."""
        return {name: True for name in ("bfloat16", "compiled") if getattr(self, name)}

    def model(self, model: nn.Module) -> nn.Module:
        """The model in its place."""
        form = torch.channels_last if self.channels_last else torch.preserve_format
        return model.to(device=self.device, memory_format=form)  # type: ignore[call-overload, no-any-return]

    def features(self, model: Classifier) -> Callable[[Tensor], Tensor]:
        """The model's features, as a step of training runs them."""
        if not self.compiled:
            return model.features
        if torch.device(self.device).type != "cuda":
            return torch.compile(model.features, dynamic=False)
        graphed = torch.compile(model.features, dynamic=False, mode="reduce-overhead")

        def replayed(x: Tensor) -> Tensor:
            torch.compiler.cudagraph_mark_step_begin()  # the last step's features may be overwritten
            return graphed(x)

        return replayed

    def images(self, x: Tensor) -> Tensor:
        """Inputs in their place."""
        moved = x.to(self.device)
        last = self.channels_last and moved.ndim == 4
        return moved.contiguous(memory_format=torch.channels_last) if last else moved

    def records(self, data: Dataset) -> Dataset:
        """Records in their place."""
        return replace(data, x=self.images(data.x), y=data.y.to(self.device))

    def state(self, state: State) -> State:
        """Weights in their place; the very same tensors where they are there already."""
        return {name: tensor.to(self.device) for name, tensor in state.items()}

    def arithmetic(self) -> AbstractContextManager[None]:
        """The type in which a forward pass multiplies."""
        if not self.bfloat16:
            return nullcontext()
        return torch.autocast(torch.device(self.device).type, dtype=torch.bfloat16)


CPU = Hardware()
