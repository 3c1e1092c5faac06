"""Where members train: the CPU, or a GPU, and its arithmetic."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn

from training.algorithms.base import State
from training.data.dataset import Dataset
from training.heads import Classifier

Precision = Literal["float32", "bfloat16"]


@dataclass(frozen=True)
class Hardware:
    """A device and its arithmetic. Draws are the same everywhere; results are equal up to rounding, and bit-equal on CPUs only.

    Attributes:
        device: torch's name, such as ``cpu`` or ``cuda:0``.
        channels_last: the memory layout of images and convolutions, which tensor cores need. On a CPU it gives a tenth more
            images per second for MOON's CNN and makes no difference for the other models.
        bfloat16: multiply in bfloat16; weights and updates stay float32. On a GPU it gains a sixth for VGG-11 and makes the small
            CNNs slower. Without it, convolutions on a GPU use TF32, torch's default.
        compiled: run features by `torch.compile`, forwards and backwards, and as CUDA graphs on a GPU. Each batch shape
            costs up to a minute before its first step, so this is for long runs.
    """

    device: str = "cpu"
    channels_last: bool = True
    bfloat16: bool = False
    compiled: bool = False

    @classmethod
    def choose_device(cls, name: str, *, precision: Precision = "float32", compiled: bool = False) -> Self:
        """Choose a device by torch's name.

        Raises:
            ValueError: if the device is unknown or missing, or cannot compute or compile.
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
        if compiled:
            try:
                torch.compile(torch.neg)(torch.zeros(1, device=name))
            except RuntimeError as error:
                raise ValueError(
                    f"torch.compile does not work here: {str(error).splitlines()[0]}; install a C++ compiler, such as g++, or run without it"
                ) from error
        return cls(name, bfloat16=precision == "bfloat16", compiled=compiled)

    def describe_hardware(self) -> dict[str, Any]:
        """Return the settings that change a run's numbers by more than another CPU would; empty by default."""
        return {name: True for name in ("bfloat16", "compiled") if getattr(self, name)}

    def move_model(self, model: nn.Module) -> nn.Module:
        """Move a model to the device; on a GPU cuDNN then searches the fastest convolutions."""
        if self._is_cuda:
            torch.backends.cudnn.benchmark = True
        form = torch.channels_last if self.channels_last else torch.preserve_format
        return model.to(device=self.device, memory_format=form)  # type: ignore[call-overload, no-any-return]

    def feature_function(self, model: Classifier) -> Callable[[Tensor], Tensor]:
        """Return the function that computes features in a training step."""
        if not self.compiled:
            return model.features
        if not self._is_cuda:
            return torch.compile(model.features, dynamic=False)
        graphed = torch.compile(model.features, dynamic=False, mode="reduce-overhead")

        def replay_graph(x: Tensor) -> Tensor:
            # Allows the graph to overwrite the last step's features.
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
            return graphed(x)

        return replay_graph

    def move_images(self, x: Tensor) -> Tensor:
        """Move inputs to the device."""
        moved = x.to(self.device)
        last = self.channels_last and moved.ndim == 4
        return moved.contiguous(memory_format=torch.channels_last) if last else moved

    def move_records(self, data: Dataset) -> Dataset:
        """Move records to the device."""
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
    def replays(self) -> bool:
        """Whether steps are replayed as CUDA graphs; `compiled` makes graphs of its own."""
        return self._is_cuda and not self.compiled

    @property
    def _is_cuda(self) -> bool:
        return torch.device(self.device).type == "cuda"

    def arithmetic_context(self) -> AbstractContextManager[None]:
        """Return the context in which a forward pass computes."""
        if not self.bfloat16:
            return nullcontext()
        return torch.autocast(torch.device(self.device).type, dtype=torch.bfloat16)


CPU_HARDWARE = Hardware()
