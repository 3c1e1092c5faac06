"""The published files of a result, and a reader's check of them against the sums."""

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
from veilsum.calibration.judge_tables import Scale
from veilsum.calibration.rows import CONSTANT_ENTRY, FEATURES_FACTOR, Floats, Integers
from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.record import mismatch_fault
from veilsum.protocol.rest import HEAD_METADATA
from veilsum.protocol.round_spec import RoundSpec
from veilsum.protocol.statistics import FFC
from veilsum.protocol.study import MEAN_STEP, SUM_STEP
from veilsum.study.answers import Pooled, compute_answer, read_pooled
from veilsum.study.promise import promise_noise
from veilsum.study.vectors import Material, random_features

_NOTES_TOLERANCE = 1e-9
"""Tolerated difference between machines' linear algebra, as a share of the largest weight."""
_REALS_TOLERANCE = 1e-9
"""Tolerated difference between libraries' real functions, as a share of a number."""


@dataclass(frozen=True, repr=False)
class Files:
    """The published files of a result, in safetensors format.

    Attributes:
        head: the head; None after a mean.
        documents: documents by name, including further heads.
        material: input of the chain's next step; None at its end.
    """

    head: bytes | None
    documents: Mapping[str, bytes]
    material: bytes | None


def encode_files(spec: RoundSpec, found: Answer) -> Files:
    """Encode an answer as files. The same answer gives the same bytes.

    Raises:
        PeerFault: sum-check-failed if members would refuse the next step's material, as after a false vector.
    """
    if any(not (np.abs(array) <= MATERIAL_MAX).all() for array in found.material.values()):
        raise PeerFault(
            Cause.SUM_CHECK_FAILED,
            f"no next step follows: its material would hold numbers above {MATERIAL_MAX:g}, which members refuse",
        )
    documents = {name: document_file(each) for name, each in found.documents.items()}
    documents |= {name: head_file(spec, each, found.scales.get(name)) for name, each in found.heads.items()}
    head = None if found.head is None else head_file(spec, found.head, found.scales.get(""))
    return Files(head, documents, material_file(found.material) if found.material else None)


_HEADER_BYTES_MAX = 1 << 16
"""Most bytes of a safetensors header, besides those that `file_bytes_max` gives to each class."""


def file_bytes_max(spec: RoundSpec) -> int:
    """Return a bound on the size of any one file of a step: a head, a document or its material.

    The largest hold a second moment with a row of weights for each feature; the heads to judge stand in one file.
    """
    question = spec.question
    width, classes = max(question.width, question.dim), len(question.classes)
    weights = (width + 8) * (classes + 8)
    numbers = width * width + weights
    if question.judge is not None and spec.judges:
        numbers = question.judge.heads * weights + spec.elements
    return 8 * numbers + _HEADER_BYTES_MAX


def digest_of(content: bytes | None) -> str | None:
    """Compute a file's SHA-256 in hexadecimal, as in records; None without a file."""
    return None if content is None else hashlib.sha256(content).hexdigest()


def head_file(spec: RoundSpec, head: Head, scale: Scale | None = None) -> bytes:
    """Encode a head, with the withheld classes, the privacy guarantee and the scale for the judge."""
    calibrated = Calibrated(head, spec.withheld, noise=_noise_notes(spec), scale=scale)
    return document_file(Document(calibrated.arrays, calibrated.notes))


def document_file(document: Document) -> bytes:
    """Encode a document's arrays, and its notes in a single metadata entry, because the library writes several in any order."""
    metadata = {HEAD_METADATA: json.dumps(dict(document.notes), sort_keys=True)} if document.notes else None
    arrays = {name: np.ascontiguousarray(document.arrays[name]) for name in sorted(document.arrays)}
    return save(arrays, metadata)


def document_in(content: bytes) -> Document:
    """Parse a document. Raises PeerFault(result-mismatch) if it is malformed."""
    try:
        return Document(load(content), notes_in(content, HEAD_METADATA))
    except (SafetensorError, KeyError, ValueError) as error:  # includes types and shapes unknown to numpy
        raise mismatch_fault(f"no safetensors file: {error}") from error


def calibrated_in(content: bytes) -> Calibrated:
    """Parse a head's file. Raises PeerFault(result-mismatch) if it holds no head."""
    document = document_in(content)
    try:
        return Calibrated.of(document.arrays, document.notes)
    except CalibrationError as error:
        raise mismatch_fault(f"no head: {error}") from error


def check_head(spec: RoundSpec, calibrated: Calibrated, material: Material | None = None) -> None:
    """Refuse a head whose kind, size, map, withheld classes or noise differ from the study's and terms' (result-mismatch)."""
    question, head = spec.question, calibrated.head
    first = question.statistics[0]
    if spec.step == MEAN_STEP:
        raise mismatch_fault("a mean ends in no head")
    if (head.dim, head.classes) != (question.dim, len(question.classes)):
        raise mismatch_fault(
            f"the head takes {head.dim} features to {head.classes} classes, the study has {question.dim} and {len(question.classes)}"
        )
    expected = {"ffc": "linear", "ccvr": "tukey"}.get(first.kind, first.kind)
    form = form_of(head)
    constant = " with a constant" if question.constant else ""
    if form["kind"] != expected or (isinstance(first, FFC) and (head.bias is not None) != question.constant):
        raise mismatch_fault(f"the head is {form['kind']}, the study's is {first.kind}{constant}")
    phi = random_features(question)
    if expected == "random-features" and phi is not None:
        applied = (form["seed"], form["bandwidth"])
        if applied != (phi.seed.hex(), phi.bandwidth):
            raise mismatch_fault("the head does not apply the study's random features")
    centre = (material or {}).get("centre")
    if (head.centre is None) != (centre is None) or not np.array_equal(head.centre, centre):  # type: ignore[arg-type]
        raise mismatch_fault("the head does not subtract this step's mean")
    if calibrated.withheld != spec.withheld or not is_promised(spec, calibrated.noise):
        raise mismatch_fault("the head names other classes withheld, or other noise, than study and terms")


def check_answer(
    spec: RoundSpec,
    total: Integers,
    members: int,
    found: Files,
    *,
    rows: int,
    ridge: float | None,
    material: Material | None = None,
) -> Pooled:
    """Check that a result follows from its sums: identities, rows, heads, and the next step's material. Returns the pooled statistics.

    A single exact ridge head without random features is checked by Freivalds' method at the record's λ; other heads are solved again.

    `total`, (spec.elements,), is the sum of `members` vectors. `rows` and `ridge` are the record's numbers of rows and λ; `ridge` is None
    for a head without λ.
    """
    if total.shape != (spec.elements,) or total.dtype != np.int64:
        raise mismatch_fault(f"the sums are {total.dtype}{total.shape}, the step has int64({spec.elements},)")
    with _mismatch_where_refused():
        held = read_pooled(spec, total, members)
    first = next(iter(held.values()))
    if len(held) == 1 and isinstance(spec.question.statistics[0], FFC) and isinstance(first, FFCStatistics):
        _check_solves(first, found, rows, ridge)
        return held
    with _mismatch_where_refused():
        again = compute_answer(spec, held, members, material, ridge=None if spec.noisy else ridge)
    _check_rows(again.records, rows)
    _check_same("head", again.head, found.head)
    for statistic in spec.question.statistics:
        if head := again.heads.get(statistic.kind):
            _check_same(statistic.kind, head, found.documents.get(statistic.kind))
    if again.material:
        seen = {} if found.material is None else document_in(found.material).arrays
        _check_arrays("material", again.material, seen)
    return held


def _check_solves(sums: FFCStatistics, found: Files, rows: int, ridge: float | None) -> None:
    _check_rows(sums.records, rows)
    if ridge is None or found.head is None:
        raise mismatch_fault("the record names no λ, or no head, and the study's head has one")
    head = calibrated_in(found.head).head
    weights = head.weights
    if head.bias is not None:  # the summed rows are (√.9·x, √.1)
        weights = np.vstack([head.weights / FEATURES_FACTOR, head.bias / CONSTANT_ENTRY])
    with _mismatch_where_refused():
        check_solution(sums.V, sums.U, ridge, weights, np.random.default_rng())


def _check_rows(seen: int, rows: int) -> None:
    if seen != rows:
        raise mismatch_fault(f"the sums hold {seen} rows, the record says {rows}")


def _check_same(name: str, head: Head | None, content: bytes | None) -> None:
    if (head is None) != (content is None):
        raise mismatch_fault(f"{name}: either the published or the solved head is missing")
    if head is not None and content is not None:
        published = calibrated_in(content).head
        if form_of(published) != form_of(head):
            raise mismatch_fault(f"{name}: the head is of another form than its sums give")
        _check_arrays(name, head.tensors, published.tensors)


def _check_arrays(name: str, expected: Mapping[str, Any], seen: Mapping[str, Any]) -> None:
    if {key: array.shape for key, array in seen.items()} != {
        key: array.shape for key, array in expected.items()
    }:
        raise mismatch_fault(f"{name} has other arrays than follow from the sums")
    for key, array in expected.items():
        most = _NOTES_TOLERANCE * float(np.abs(array).max(initial=1e-300))
        if not np.abs(seen[key] - array).max(initial=0.0) <= most:
            raise mismatch_fault(f"{name}: {key} does not follow from the sums")


def is_promised(spec: RoundSpec, noise: Mapping[str, Any] | None) -> bool:
    """Whether a file's or record's noise is the step's promise, up to the last digits, where libraries differ."""
    expected = _noise_notes(spec)
    if noise is None or expected is None:
        return noise is expected
    return noise.keys() == expected.keys() and all(
        isinstance(noise[name], float) and abs(noise[name] - value) <= _REALS_TOLERANCE * abs(value)
        for name, value in expected.items()
    )


def _noise_notes(spec: RoundSpec) -> dict[str, float] | None:
    found = promise_noise(spec)
    return None if found is None else found.model_dump()


@contextmanager
def _mismatch_where_refused() -> Iterator[None]:
    """Raise errors about the sums as result-mismatch."""
    try:
        yield
    except (CalibrationError, PeerFault) as error:
        raise mismatch_fault(f"{type(error).__name__}: {error}") from error


MATERIAL_MAX = 1e6
"""Maximum absolute value in material. If scores overflowed, nothing would bound a row's contribution, and no noise would hide it."""


def material_shapes(spec: RoundSpec) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a step's material, by name."""
    if not spec.takes_material:
        return {}
    question = spec.question
    (statistic,) = question.statistics
    centred: dict[str, tuple[int, ...]] = {"centre": (question.dim,)} if MEAN_STEP in question.steps else {}
    if spec.step == SUM_STEP:
        return centred
    width, classes = question.width_of(statistic), len(question.classes)
    return {**centred, "whitening": (width, width), "weights": (width, classes), "rate": (1,)}


def read_material(spec: RoundSpec, content: bytes | None) -> dict[str, Floats]:
    """Read the arrays of a step's material; empty if the step needs none. The caller checks the digest in the terms.

    Raises:
        PeerFault: terms-refused if an array is missing, unknown, not finite, of a wrong shape or type, or holds a number so large that
            scores could overflow.
    """
    wanted = material_shapes(spec)
    arrays = {} if content is None else load_material(spec.step, content)
    seen = {name: array.shape for name, array in arrays.items()}
    if seen != wanted:
        raise material_fault(spec.step, f"arrays {wanted} are needed, not {seen}")
    return arrays


def load_material(step: str, content: bytes) -> dict[str, Floats]:
    """Load a file of float64 arrays. Raises PeerFault(terms-refused) for other types, and numbers that are not finite or too large."""
    try:
        arrays = load(content)
    except (SafetensorError, KeyError, ValueError) as error:
        raise material_fault(step, f"no safetensors file: {error}") from error
    for name, array in arrays.items():
        if array.dtype != np.float64 or not (np.abs(array) <= MATERIAL_MAX).all():
            raise material_fault(step, f"{name}: expected float64 numbers up to {MATERIAL_MAX:g}")
    return arrays


def check_material_digest(content: bytes, digest: bytes) -> None:
    """Check a step's material against the signed terms (NOISE-3, PERIOD-5). Raises PeerFault(terms-refused) for another file."""
    if hashlib.sha256(content).digest() != digest:
        detail = "the material does not match the SHA-256 in the signed terms"
        raise PeerFault(Cause.TERMS_REFUSED, detail, ["coordinator"])


def material_file(arrays: Mapping[str, Floats]) -> bytes:
    """Encode arrays as a safetensors file. The same arrays give the same bytes."""
    return save({name: np.ascontiguousarray(arrays[name]) for name in sorted(arrays)})


def material_fault(step: str, detail: str) -> PeerFault:
    """Build the fault of a step's material that its terms can't mean (terms-refused)."""
    return PeerFault(Cause.TERMS_REFUSED, f"material of step {step}: {detail}", ["coordinator"])
