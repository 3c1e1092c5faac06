"""The published files of a result, and a reader's check against the sums."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from veilsum.calibration import CalibrationError, FFCStatistics, Head
from veilsum.calibration.answer import Answer, Document
from veilsum.calibration.checks import check_solution
from veilsum.calibration.head_file import Calibrated, form_of, notes_in
from veilsum.calibration.rows import SQRT_HALF, Floats, Integers
from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.record import mismatch
from veilsum.protocol.rest import HEAD
from veilsum.protocol.round_spec import RoundSpec
from veilsum.protocol.study import FFC, MEAN_STEP, SUM_STEP
from veilsum.study.answers import Pooled, answer, pooled
from veilsum.study.promise import promise
from veilsum.study.vectors import Material, random_features

_TOLERANCE = 1e-9
"""Of the largest weight: what another machine's linear algebra may round apart."""
_REALS = 1e-9


@dataclass(frozen=True, repr=False)
class Files:
    """The published files of a result, in safetensors format.

    Attributes:
        head: None after a mean.
        documents: by name, further heads among them.
        material: what the next step of the chain takes; None at its end.
    """

    head: bytes | None
    documents: Mapping[str, bytes]
    material: bytes | None


def files(spec: RoundSpec, found: Answer) -> Files:
    """The files of an answer: the same bytes for the same answer."""
    documents = {name: document_file(each) for name, each in found.documents.items()}
    documents |= {name: head_file(spec, each) for name, each in found.heads.items()}
    head = None if found.head is None else head_file(spec, found.head)
    return Files(head, documents, material_file(found.material) if found.material else None)


def digest_of(content: bytes | None) -> str | None:
    """A file's SHA-256 in hexadecimal, as records name it."""
    return None if content is None else hashlib.sha256(content).hexdigest()


def head_file(spec: RoundSpec, head: Head) -> bytes:
    """A head's file, which names the classes withheld and what noise promises."""
    calibrated = Calibrated(head, spec.withheld, noise=_noise(spec))
    return document_file(Document(calibrated.arrays, calibrated.notes))


def document_file(document: Document) -> bytes:
    """Arrays, and what they do not say in one entry of the metadata: the library writes several in any order."""
    metadata = {HEAD: json.dumps(dict(document.notes), sort_keys=True)} if document.notes else None
    arrays = {name: np.ascontiguousarray(document.arrays[name]) for name in sorted(document.arrays)}
    return save(arrays, metadata)


def document_in(content: bytes) -> Document:
    """Parse a document; PeerFault(result-mismatch) if malformed."""
    try:
        return Document(load(content), notes_in(content, HEAD))
    except (SafetensorError, KeyError, ValueError) as error:  # also types and shapes that numpy has not
        raise mismatch(f"no safetensors file: {error}") from error


def calibrated_in(content: bytes) -> Calibrated:
    """Parse a head's file; PeerFault(result-mismatch) if it holds no head."""
    document = document_in(content)
    try:
        return Calibrated.of(document.arrays, document.notes)
    except CalibrationError as error:
        raise mismatch(f"no head: {error}") from error


def check_head(spec: RoundSpec, calibrated: Calibrated, material: Material | None = None) -> None:
    """Refuse a step's head that the study does not have: of another kind, size or map, or that names other classes or noise."""
    question, head = spec.question, calibrated.head
    first = question.statistics[0]
    if spec.step == MEAN_STEP:
        raise mismatch("a mean ends in no head")
    if (head.dim, head.classes) != (question.dim, len(question.classes)):
        raise mismatch(
            f"the head takes {head.dim} features to {head.classes} classes, the study has {question.dim} and {len(question.classes)}"
        )
    expected = {"ffc": "linear", "ccvr": "tukey"}.get(first.kind, first.kind)
    form = form_of(head)
    if form["kind"] != expected or (isinstance(first, FFC) and (head.bias is not None) != first.bias):
        raise mismatch(f"the head is {form['kind']}, the study's is {first}")
    phi = random_features(question)
    if expected == "random-features" and phi is not None:
        applied = (form["seed"], form["bandwidth"])
        if applied != (phi.seed.hex(), phi.bandwidth):
            raise mismatch("the head does not apply the study's random features")
    centre = (material or {}).get("centre")
    if (head.centre is None) != (centre is None) or not np.array_equal(head.centre, centre):  # type: ignore[arg-type]
        raise mismatch("the head does not take off the mean that this step did")
    if calibrated.withheld != spec.withheld or not _alike(calibrated.noise, _noise(spec)):
        raise mismatch("the head names other classes withheld, or other noise, than study and terms")


def check_answer(
    spec: RoundSpec,
    total: Integers,
    members: int,
    found: Files,
    *,
    rows: int,
    ridge: float | None,
    material: Material | None = None,
    rng: "np.random.Generator | None" = None,
) -> Pooled:
    """Check that a result follows from its sums: the identities, the rows, the heads, and the next step's material. Returns what the sum holds.

    A single exact ridge head without random features is checked by Freivalds' method at the record's λ; others are solved again.

    `total`, (spec.elements,), is the sum of `members` vectors. `rows` and `ridge` are what the record states; λ is None for a head without
    one. `rng` is the verifier's own randomness; fresh where None.
    """
    if total.shape != (spec.elements,) or total.dtype != np.int64:
        raise mismatch(f"the sums are {total.dtype}{total.shape}, the step has int64({spec.elements},)")
    with _mismatch_where_refused():
        held = pooled(spec, total, members)
    first = next(iter(held.values()))
    if len(held) == 1 and isinstance(spec.question.statistics[0], FFC) and isinstance(first, FFCStatistics):
        _check_solves(first, found, rows, ridge, rng or np.random.default_rng())
        return held
    with _mismatch_where_refused():
        again = answer(spec, held, members, material, ridge=None if spec.noisy else ridge)
    _check_rows(again.records, rows)
    _check_same("head", again.head, found.head)
    for statistic in spec.question.statistics:
        if head := again.heads.get(statistic.kind):
            _check_same(statistic.kind, head, found.documents.get(statistic.kind))
    if again.material:
        seen = {} if found.material is None else document_in(found.material).arrays
        _check_arrays("material", again.material, seen)
    return held


def _check_solves(
    sums: FFCStatistics, found: Files, rows: int, ridge: float | None, rng: "np.random.Generator"
) -> None:
    _check_rows(sums.records, rows)
    if ridge is None or found.head is None:
        raise mismatch("the record names no λ, or no head, and the study's head has one")
    head = calibrated_in(found.head).head
    weights = head.weights
    if head.bias is not None:  # the head's scales features and constant apart
        weights = np.vstack([head.weights / SQRT_HALF, head.bias / SQRT_HALF])
    with _mismatch_where_refused():
        check_solution(sums.V, sums.U, ridge, weights, rng)


def _check_rows(seen: int, rows: int) -> None:
    if seen != rows:
        raise mismatch(f"the sums hold {seen} rows, the record says {rows}")


def _check_same(name: str, head: Head | None, content: bytes | None) -> None:
    if (head is None) != (content is None):
        raise mismatch(f"{name}: published and solved heads are not both there")
    if head is not None and content is not None:
        published = calibrated_in(content).head
        if form_of(published) != form_of(head):
            raise mismatch(f"{name}: the head is of another form than its sums give")
        _check_arrays(name, head.tensors, published.tensors)


def _check_arrays(name: str, expected: Mapping[str, Any], seen: Mapping[str, Any]) -> None:
    if {key: array.shape for key, array in seen.items()} != {
        key: array.shape for key, array in expected.items()
    }:
        raise mismatch(f"{name} has other arrays than follow from the sums")
    for key, array in expected.items():
        most = _TOLERANCE * float(np.abs(array).max(initial=1e-300))
        if not np.abs(seen[key] - array).max(initial=0.0) <= most:
            raise mismatch(f"{name}: {key} does not follow from the sums")


def _noise(spec: RoundSpec) -> dict[str, float] | None:
    found = promise(spec)
    return None if found is None else found.model_dump()


def _alike(seen: Mapping[str, Any] | None, expected: Mapping[str, float] | None) -> bool:
    """Whether two notes agree, up to the last digits, in which libraries differ."""
    if seen is None or expected is None:
        return seen is expected
    return seen.keys() == expected.keys() and all(
        isinstance(seen[name], float) and abs(seen[name] - value) <= _REALS * abs(value)
        for name, value in expected.items()
    )


@contextmanager
def _mismatch_where_refused() -> Iterator[None]:
    """Raise errors about the sums as result-mismatch."""
    try:
        yield
    except (CalibrationError, PeerFault) as error:
        raise mismatch(f"{type(error).__name__}: {error}") from error


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
