"""Several states under one set of names, as one safetensors file or message holds them."""

from collections.abc import Mapping, Sequence

from training.algorithms import State


def joined(parts: Mapping[str, State | Sequence[State]]) -> State:
    """Name each tensor by its part and, in a sequence of states, its place: ``part|name`` or ``part|0|name``.

    Tensors that share memory or have gaps are copied, because safetensors does not support them.
    """
    named: State = {}
    for part, states in parts.items():
        if isinstance(states, Mapping):
            named |= {f"{part}|{name}": tensor for name, tensor in states.items()}
        else:
            named |= joined({f"{part}|{i}": state for i, state in enumerate(states)})
    seen: set[int] = set()
    for name, tensor in named.items():
        whole = tensor.detach().contiguous()
        place = whole.untyped_storage().data_ptr()
        named[name] = whole.clone() if place in seen else whole
        seen.add(place)
    return named


def part(named: State, prefix: str) -> State:
    """Return one state of those that `joined` named."""
    return {
        name.removeprefix(f"{prefix}|"): tensor
        for name, tensor in named.items()
        if name.startswith(f"{prefix}|")
    }


def parts(named: State, prefix: str, count: int) -> tuple[State, ...]:
    """Return a sequence of states of those that `joined` named."""
    return tuple(part(named, f"{prefix}|{i}") for i in range(count))
