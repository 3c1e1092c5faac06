"""A head of any kind as named arrays and a few words: what its file holds."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from calibration.errors import ShapeMismatch
from calibration.head import Head
from calibration.random_features import KernelHead, RandomFeatures
from calibration.virtual import TukeyHead

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from calibration.rows import Floats, Integers

_CLASSES_MAX = 1 << 16
_HEADER_MAX = 1 << 24


def form_of(head: Head) -> dict[str, Any]:
    """What a head's arrays do not say: its kind, and how it maps features."""
    match head:
        case KernelHead(map=phi):
            numbers: dict[str, Any] = {
                "size": phi.size,
                "bandwidth": phi.bandwidth,
                "seed": phi.seed.hex(),
                "mapped": phi.dim,
            }
            return {"kind": "random-features", **numbers}
        case TukeyHead(power=power, unit=unit):
            raised: dict[str, Any] = {} if power is None else {"power": power}
            return {"kind": "tukey", "unit": unit, **raised}
        case _:
            return {"kind": "linear"}


def head_from(
    arrays: Mapping[str, NDArray[Any]], form: Mapping[str, Any], empty_classes: tuple[int, ...]
) -> Head:
    """The head that `Head.tensors` and `form_of` describe.

    Args:
        arrays: float64: `weights`, and maybe `bias` and `centre`.
        form: as `form_of`.
        empty_classes: that it never answers.

    Raises:
        ShapeMismatch: arrays, numbers or words that make no head.
    """
    weights, bias, centre = _checked(arrays)
    if len(set(empty_classes)) != len(empty_classes) or not {*empty_classes} <= {*range(weights.shape[1])}:
        raise ShapeMismatch(
            f"classes {list(empty_classes)[:5]} are not among the {weights.shape[1]} of the head"
        )
    if len(empty_classes) == weights.shape[1]:
        raise ShapeMismatch("a head that answers none of its classes is none")
    match dict(form):
        case {"kind": "linear", **rest} if not rest:
            return Head(weights, bias, empty_classes, centre=_centre_of(centre, len(weights)))
        case {"kind": "tukey", "unit": bool(unit), **rest} if set(rest) <= {"power"}:
            power = rest.get("power")
            if power is None or (isinstance(power, float) and 0 < power <= 1):
                centre = _centre_of(centre, len(weights))
                return TukeyHead(weights, bias, empty_classes, power, unit, centre=centre)
        case {
            "kind": "random-features",
            "mapped": int(mapped),
            "size": int(size),
            "bandwidth": float(bandwidth),
            "seed": str(seed),
            **rest,
        } if not rest and type(mapped) is int and size == len(weights):
            try:
                phi = RandomFeatures(mapped, size, bandwidth, bytes.fromhex(seed))
            except ValueError as error:
                raise ShapeMismatch(f"no random features follow from this: {error}") from error
            return KernelHead(weights, bias, empty_classes, phi, centre=_centre_of(centre, mapped))
    raise ShapeMismatch(f"a head of this form is not known here: {str(dict(form))[:200]}")


def _centre_of(centre: Floats | None, dim: int) -> Floats | None:
    if centre is not None and centre.shape != (dim,):
        raise ShapeMismatch(f"the centre has shape {centre.shape}; the head takes {dim} features")
    return centre


def _checked(arrays: Mapping[str, NDArray[Any]]) -> tuple[Floats, Floats | None, Floats | None]:
    """Weights, bias and centre, of the shapes that a head has."""
    names = {"weights", "bias", "centre"}
    for name, array in arrays.items():
        dimensions = 1 if name in {"bias", "centre"} else 2
        if name not in names or array.dtype != np.float64 or array.ndim != dimensions:
            raise ShapeMismatch(f"{name} is {array.dtype}{array.shape}; a head has float64 {sorted(names)}")
        if not np.isfinite(array).all():
            raise ShapeMismatch(f"{name} is not finite float64")
    weights, bias = arrays.get("weights"), arrays.get("bias")
    if weights is None or not weights.size or (bias is not None and bias.shape != weights.shape[1:]):
        seen = {name: array.shape for name, array in arrays.items()}
        raise ShapeMismatch(
            f"the head's file holds {seen}; a head has weights (l, C), and a bias of (C,) or none"
        )
    return weights, bias, arrays.get("centre")


@dataclass(frozen=True, eq=False)
class Calibrated:
    """A head with what a round has found out about it, as its file keeps it.

    Attributes:
        head: any kind.
        withheld: those of its empty classes that few members hold, so that they were left out.
        temperature: τ for `Head.probabilities`, of records held out; None where none were.
        noise: of a round with differential privacy, what it promises, beside what those promise that it rests on; None for an exact sum.
    """

    head: Head
    withheld: tuple[int, ...] = ()
    temperature: float | None = None
    noise: Mapping[str, Any] | None = None

    @property
    def notes(self) -> dict[str, Any]:
        """What stands in the file beside the arrays, as JSON."""
        known = {"temperature": self.temperature, "noise": dict(self.noise) if self.noise else None}
        return {
            "form": form_of(self.head),
            "classes_without_records": list(self.head.empty_classes),
            "withheld": list(self.withheld),
            **{name: value for name, value in known.items() if value is not None},
        }

    @property
    def arrays(self) -> dict[str, Floats]:
        """As `Head.tensors`."""
        return self.head.tensors

    @classmethod
    def of(cls, arrays: Mapping[str, NDArray[Any]], notes: Mapping[str, Any]) -> Calibrated:
        """Read `arrays` and `notes`; notes that are empty are those of a linear head.

        Raises:
            ShapeMismatch: anything that makes no head.
        """
        form = notes.get("form", {"kind": "linear"})
        empty, withheld = (_classes(notes.get(name, [])) for name in ("classes_without_records", "withheld"))
        temperature, noise = notes.get("temperature"), notes.get("noise")
        if not isinstance(form, dict) or not (noise is None or isinstance(noise, dict)):
            raise ShapeMismatch("the notes of a head name its form and its noise as objects")
        if temperature is not None and not (isinstance(temperature, float) and 0 < temperature < math.inf):
            raise ShapeMismatch(f"a temperature is above 0 and finite, not {temperature!r}")
        return cls(head_from(arrays, form, empty), withheld, temperature, noise)

    def without(self, classes: tuple[int, ...]) -> Calibrated:
        """The same head that never answers these classes either."""
        empty = tuple(sorted({*self.head.empty_classes, *classes}))
        return replace(self, head=replace(self.head, empty_classes=empty))

    def predict(self, features: Any) -> Integers:
        """(n,) classes of (n, dim) features of any length.

        Raises:
            CalibrationError: as `Head.predict`; no class that can be answered.
        """
        return self.head.predict(features, normalise=self.head.scales)

    def scores(self, features: Any) -> Floats:
        """(n, C) scores of features of any length; −∞ for the classes that are never answered."""
        scores = self.head.scores(features, normalise=self.head.scales)
        scores[:, list(self.head.empty_classes)] = -np.inf
        return scores


def notes_in(content: bytes, entry: str) -> dict[str, Any]:
    """The JSON object under an entry of a safetensors file's metadata; empty without it.

    Raises:
        ShapeMismatch: no such file, or something else than an object.
    """
    length = int.from_bytes(content[:8], "little")
    try:
        header = json.loads(content[8 : 8 + min(length, _HEADER_MAX)])
        notes = json.loads(header.get("__metadata__", {}).get(entry, "{}"))
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        raise ShapeMismatch(f"the file's header is none: {error}") from error
    if not isinstance(notes, dict):
        raise ShapeMismatch(f"{entry} in the file's metadata is no object")
    return notes


def _classes(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) > _CLASSES_MAX or {type(label) for label in value} - {int}:
        raise ShapeMismatch("the notes of a head list classes as whole numbers")
    return tuple(value)
