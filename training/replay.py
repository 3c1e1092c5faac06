"""Training steps replayed as CUDA graphs: launching a small model's kernels one by one takes longer than they run."""

from collections import Counter
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from training.algorithms.base import State
from training.hardware import Hardware

Step = Callable[..., None]
"""A function of tensors of one length, the batch's."""
_STEPS_BEFORE_CAPTURE = 2
"""Steps before a capture, in which cuDNN finds its fastest convolutions."""


class Eager:
    """Steps taken as they are, on any device."""

    def __init__(self, hardware: Hardware) -> None:
        self._hardware = hardware

    def stream_context(self) -> AbstractContextManager[object]:
        """Return the context in which steps run."""
        return nullcontext()

    def hold_tensors(self, name: str, state: State) -> State:
        del name
        return self._hardware.move_state(state)

    def step_for(self, round_: int, key: Hashable, step: Step) -> Step:
        del round_, key
        return step


class Replay(Eager):
    """Steps captured once a round and replayed for every member, on a stream of their own."""

    def __init__(self, hardware: Hardware) -> None:
        super().__init__(hardware)
        self._stream = torch.cuda.Stream(hardware.device)  # type: ignore[no-untyped-call]
        self._states: dict[Hashable, State] = {}
        self._round = -1
        self._seen = Counter[Hashable]()
        self._graphs: dict[Hashable, tuple[torch.cuda.CUDAGraph, list[Tensor]]] = {}
        # Graphs share the memory of this one, which is never replayed and outlives them.
        self._first = torch.cuda.CUDAGraph()
        with self.stream_context():
            self._first.capture_begin()
            torch.zeros(1, device=hardware.device)
            self._first.capture_end()

    def stream_context(self) -> AbstractContextManager[object]:
        self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))
        return torch.cuda.stream(self._stream)

    def hold_tensors(self, name: str, state: State) -> State:
        """Copy the tensors to where the last ones of their names and shapes were, as graphs need."""
        key = (name, *((each, tensor.shape) for each, tensor in state.items()))
        if key not in self._states:
            moved = self._hardware.move_state(state)
            self._states[key] = {each: tensor.clone() for each, tensor in moved.items()}
        else:
            for each, tensor in self._states[key].items():
                tensor.copy_(state[each])
        return self._states[key]

    def step_for(self, round_: int, key: Hashable, step: Step) -> Step:
        """Return a step that is captured at its third batch of a length in the round, and replayed from there.

        Steps of one key do the same with every batch of that length. They change only tensors that `hold_tensors` holds, or that lived
        before and outlive them.
        """
        if round_ != self._round:
            self._round = round_
            self._seen.clear()
            self._graphs.clear()

        def take_step(*inputs: Tensor) -> None:
            kind = key, len(inputs[0])
            self._seen[kind] += 1
            if self._seen[kind] <= _STEPS_BEFORE_CAPTURE:
                step(*inputs)
                return
            if kind not in self._graphs:
                graph, places = torch.cuda.CUDAGraph(), [torch.empty_like(each) for each in inputs]
                graph.capture_begin(pool=self._first.pool())
                step(*places)
                graph.capture_end()
                self._graphs[kind] = graph, places
            graph, places = self._graphs[kind]
            for place, given in zip(places, inputs, strict=True):
                place.copy_(given)
            graph.replay()

        return take_step
