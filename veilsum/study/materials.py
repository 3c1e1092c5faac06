"""A noisy step's input from earlier steps: a centre, or weights whose gradients it sums (docs/protocol.md §9)."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load, save

from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.round_spec import RoundSpec
from veilsum.protocol.study import MEAN_STEP, SUM_STEP

Floats = npt.NDArray[np.float64]

LARGEST = 1e6
"""Of a weight: scores that overflow have no bound, and no noise would cover them."""


def shapes(spec: RoundSpec) -> dict[str, tuple[int, ...]]:
    """The arrays that a step takes, by name."""
    if not spec.takes_material:
        return {}
    question = spec.question
    (statistic,) = question.statistics
    centred: dict[str, tuple[int, ...]] = {"centre": (question.dim,)} if MEAN_STEP in question.steps else {}
    if spec.step == SUM_STEP:
        return centred
    width, classes = statistic.width(question.dim), len(question.classes)
    return {**centred, "whitening": (width, width), "weights": (width, classes), "rate": (1,)}


def read_material(spec: RoundSpec, content: bytes | None) -> dict[str, Floats]:
    """The arrays of a step's material; none where the step takes none. The digest in the terms is the caller's to check.

    Raises:
        PeerFault: terms-refused where an array is missing, unknown, of another shape or type, not finite, or where a number is so large
            that scores could overflow.
    """
    wanted = shapes(spec)
    if content is None:
        content = save({})
    try:
        arrays = load(content)
    except (SafetensorError, KeyError, ValueError) as error:
        raise _refused(spec, f"no safetensors file: {error}") from error
    seen = {name: array.shape for name, array in arrays.items()}
    if seen != wanted or any(array.dtype != np.float64 for array in arrays.values()):
        raise _refused(spec, f"float64 arrays {wanted} are needed, not {seen}")
    for name, array in arrays.items():
        if not (np.abs(array) <= LARGEST).all():
            raise _refused(spec, f"{name} holds a number that is not finite, or above {LARGEST:g}")
    return arrays


def material_file(arrays: Mapping[str, Floats]) -> bytes:
    """A safetensors file: the same bytes for the same arrays."""
    return save({name: np.ascontiguousarray(arrays[name]) for name in sorted(arrays)})


def _refused(spec: RoundSpec, detail: str) -> PeerFault:
    return PeerFault(Cause.TERMS_REFUSED, f"material of step {spec.step}: {detail}", ["coordinator"])
