"""Where members train: the processor, or a GPU with its arithmetic."""

from __future__ import annotations

from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from torch import Tensor, nn

    from training.algorithms import State
    from training.data import Dataset
    from training.heads import Classifier

Precision = Literal["auto", "float32", "bfloat16"]


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
    def named(cls, name: str, *, precision: Precision = "auto", compiled: bool = False) -> Hardware:
        """A device and its arithmetic.

        Args:
            name: torch's.
            precision: what is multiplied in; ``auto`` is bfloat16 on GPUs that have it, and float32 elsewhere.
            compiled: as the attribute.

        Raises:
            ValueError: if torch knows no such device, or this machine has none, or nothing can be computed or compiled on it.
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
        return cls(
            name,
            bfloat16=precision == "bfloat16" or (precision == "auto" and _fast(there)),
            compiled=compiled,
        )

    def describe(self) -> dict[str, Any]:
        """What moves a run's numbers by more than another processor would, JSON-ready: nothing where all is as usual."""
        return {name: True for name in ("bfloat16", "compiled") if getattr(self, name)}

    def model(self, model: nn.Module) -> nn.Module:
        """The model in its place, and convolutions, on a GPU, by whichever algorithm was the fastest for a batch's shape."""
        if self._cuda:
            torch.backends.cudnn.benchmark = True
        form = torch.channels_last if self.channels_last else torch.preserve_format
        return model.to(device=self.device, memory_format=form)  # type: ignore[call-overload, no-any-return]

    def features(self, model: Classifier) -> Callable[[Tensor], Tensor]:
        """The model's features, as a step of training runs them."""
        if not self.compiled:
            return model.features
        if not self._cuda:
            return torch.compile(model.features, dynamic=False)
        graphed = torch.compile(model.features, dynamic=False, mode="reduce-overhead")

        def replayed(x: Tensor) -> Tensor:
            # The last step's features may be overwritten.
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
            return graphed(x)

        return replayed

    def sgd(self, parameters: Iterable[nn.Parameter], **options: Any) -> torch.optim.SGD:
        """SGD, in one kernel for all weights on a GPU."""
        return torch.optim.SGD(parameters, fused=True if self._cuda else None, **options)

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

    @contextmanager
    def lent(self, model: nn.Module) -> Iterator[None]:
        """The model here within the block, and on the processor again after it."""
        model.to(self.device)
        try:
            yield
        finally:
            model.cpu()

    @property
    def _cuda(self) -> bool:
        return torch.device(self.device).type == "cuda"

    def arithmetic(self) -> AbstractContextManager[None]:
        """The type in which a forward pass multiplies."""
        if not self.bfloat16:
            return nullcontext()
        return torch.autocast(torch.device(self.device).type, dtype=torch.bfloat16)


def _fast(there: Tensor) -> bool:
    """Whether bfloat16 is native where a tensor lies; processors are left in float32."""
    if not there.is_cuda:
        return False
    with torch.cuda.device(there.device):
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))


CPU = Hardware()
