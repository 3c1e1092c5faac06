"""A head's file: a head of any kind as named arrays and notes in JSON."""

import json
import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from veilsum.calibration.ccvr_head import TukeyHead
from veilsum.calibration.errors import ShapeMismatch
from veilsum.calibration.head import Head
from veilsum.calibration.judge_tables import Scale
from veilsum.calibration.random_features import KernelHead, RandomFeatures
from veilsum.calibration.rows import Floats, Integers

_CLASSES_MAX = 1 << 16
_HEADER_MAX = 1 << 24
_NUMBER_MAX = 1e150
"""Largest magnitude in a head: scores, and the squares of weights, stay finite."""
_NO_TEMPERATURE = (
    "this head has no temperature, so a softmax of its scores gives no probabilities: find one with hold-out records "
    "(`Result.judge`, `veilsum calibrate --held-out`), or pass temperature="
)


def form_of(head: Head) -> dict[str, Any]:
    """What a head's arrays do not say: its kind, and how it maps features."""
    match head:
        case KernelHead(map=phi):
            numbers = {
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
    """Read the head that `Head.tensors` and `form_of` describe. Raises ShapeMismatch if they describe none."""
    weights, bias, centre = _check_arrays(arrays)
    classes, dim = weights.shape[1], len(weights)
    if len(set(empty_classes)) != len(empty_classes) or not {*empty_classes} <= {*range(classes)}:
        raise ShapeMismatch(f"classes {list(empty_classes)[:5]} are not among the {classes} of the head")
    if len(empty_classes) == classes:
        raise ShapeMismatch("the head cannot predict any class")
    match dict(form):
        case {"kind": "linear", **rest} if not rest:
            head = Head(weights, bias, empty_classes, centre=centre)
        case {"kind": "tukey", "unit": bool(unit), **rest} if _is_power(rest):
            head = TukeyHead(weights, bias, empty_classes, rest.get("power"), unit, centre=centre)
        case {
            "kind": "random-features",
            "mapped": int(mapped),
            "size": int(size),
            "bandwidth": float(bandwidth),
            "seed": str(seed),
            **rest,
        } if not rest and type(mapped) is int and size == dim:
            try:
                phi = RandomFeatures(mapped, size, bandwidth, bytes.fromhex(seed))
            except ValueError as error:
                raise ShapeMismatch(f"invalid random features: {error}") from error
            head = KernelHead(weights, bias, empty_classes, phi, centre=centre)
        case _:
            raise ShapeMismatch(f"unknown form of head: {str(dict(form))[:200]}")
    if centre is not None and centre.shape != (head.dim,):
        raise ShapeMismatch(f"the centre has shape {centre.shape}; the head takes {head.dim} features")
    return head


def _is_power(rest: Mapping[str, Any]) -> bool:
    power = rest.get("power")
    return set(rest) <= {"power"} and (power is None or (isinstance(power, float) and 0 < power <= 1))


def _check_arrays(arrays: Mapping[str, NDArray[Any]]) -> tuple[Floats, Floats | None, Floats | None]:
    """Weights, bias and centre, checked for type and shape."""
    names = {"weights", "bias", "centre"}
    for name, array in arrays.items():
        if name not in names or array.dtype != np.float64 or array.ndim != (2 if name == "weights" else 1):
            raise ShapeMismatch(f"{name} is {array.dtype}{array.shape}; a head has float64 {sorted(names)}")
        if not (np.abs(array) <= _NUMBER_MAX).all():
            raise ShapeMismatch(f"{name} holds numbers that are not finite, or above {_NUMBER_MAX:g}")
    weights, bias = arrays.get("weights"), arrays.get("bias")
    if weights is None or not weights.size or (bias is not None and bias.shape != weights.shape[1:]):
        seen = {name: array.shape for name, array in arrays.items()}
        raise ShapeMismatch(f"the file holds {seen}; a head has weights (l, C), and a bias (C,) or none")
    return weights, bias, arrays.get("centre")


@dataclass(frozen=True, eq=False)
class Calibrated:
    """A head with what a round found out about it, as its file keeps it.

    Attributes:
        head: any kind.
        withheld: empty classes that were left out because few members hold them.
        temperature: τ for `Head.probabilities`, from a hold-out set; None without one.
        noise: what a round with differential privacy promises, by itself and with the steps that it rests on; None for an exact sum.
        scale: for the judge, from the sums; None without one.
    """

    head: Head
    withheld: tuple[int, ...] = ()
    temperature: float | None = None
    noise: Mapping[str, Any] | None = None
    scale: Scale | None = None

    @property
    def notes(self) -> dict[str, Any]:
        """The file's JSON metadata."""
        known = {
            "temperature": self.temperature,
            "noise": dict(self.noise) if self.noise else None,
            "judge": None
            if self.scale is None
            else {"temperature": self.scale.temperature, "edges": self.scale.edges.tolist()},
        }
        return {
            "form": form_of(self.head),
            "classes_without_records": list(self.head.empty_classes),
            "withheld": list(self.withheld),
            **{name: value for name, value in known.items() if value is not None},
        }

    @property
    def arrays(self) -> dict[str, Floats]:
        return self.head.tensors

    @classmethod
    def of(cls, arrays: Mapping[str, NDArray[Any]], notes: Mapping[str, Any]) -> Self:
        """Read `arrays` and `notes`; empty notes are those of a linear head. Raises ShapeMismatch if they describe no head."""
        form = notes.get("form", {"kind": "linear"})
        empty, withheld = (
            _parse_classes(notes.get(name, [])) for name in ("classes_without_records", "withheld")
        )
        temperature, noise = notes.get("temperature"), notes.get("noise")
        if not isinstance(form, dict) or not (noise is None or isinstance(noise, dict)):
            raise ShapeMismatch("a head's notes have its form and its noise as objects")
        if temperature is not None and not (isinstance(temperature, float) and 0 < temperature < math.inf):
            raise ShapeMismatch(f"a temperature is above 0 and finite, not {temperature!r}")
        return cls(
            head_from(arrays, form, empty), withheld, temperature, noise, _parse_scale(notes.get("judge"))
        )

    def without(self, classes: tuple[int, ...]) -> Self:
        """The same head, which never predicts these classes either."""
        empty = tuple(sorted({*self.head.empty_classes, *classes}))
        return replace(self, head=replace(self.head, empty_classes=empty))

    def choose_temperature(self, given: float | None = None) -> float:
        """Return τ for `Head.probabilities`: a given one, or else the head's own, or else 1 with a UserWarning."""
        temperature = self.temperature if given is None else given
        if temperature is None:
            warnings.warn(_NO_TEMPERATURE, stacklevel=3)
            return 1.0
        return temperature

    def predict(self, features: Any) -> Integers:
        """Classes of (n, dim) features of any length, (n,). Raises CalibrationError as `Head.predict`."""
        return self.head.predict(features, normalise=self.head.scales)

    def scores(self, features: Any) -> Floats:
        """Scores of features of any length, (n, C); −∞ for classes that are never predicted."""
        return self.head.answer_scores(features, normalise=self.head.scales)


def notes_in(content: bytes, entry: str) -> dict[str, Any]:
    """Read the JSON object under an entry of a safetensors file's metadata, {} without it. Raises ShapeMismatch for anything else."""
    length = int.from_bytes(content[:8], "little")
    try:
        header = json.loads(content[8 : 8 + min(length, _HEADER_MAX)])
        notes = json.loads(header.get("__metadata__", {}).get(entry, "{}"))
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        raise ShapeMismatch(f"invalid safetensors header: {error}") from error
    if not isinstance(notes, dict):
        raise ShapeMismatch(f"{entry} in the file's metadata is not an object")
    return notes


def _parse_scale(value: Any) -> Scale | None:
    match value:
        case None:
            return None
        case {"temperature": float(temperature), "edges": [*edges], **rest} if not rest and all(
            isinstance(each, float) and math.isfinite(each) for each in [temperature, *edges]
        ):
            return Scale(temperature, np.array(edges, np.float64))
    raise ShapeMismatch("a head's scale for the judge is a temperature and a list of edges")


def _parse_classes(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) > _CLASSES_MAX or {type(label) for label in value} - {int}:
        raise ShapeMismatch("a head's notes list classes as whole numbers")
    return tuple(value)
