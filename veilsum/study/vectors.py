"""Compute a member's vector at each step of a study, exactly as docs/protocol/member.md specifies it.

A vector depends only on the study, the step's terms and material, the rows, and noise. No row is ever refused; unusable rows add nothing.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from veilsum.calibration import CCVRStatistics, FFCStatistics, RandomFeatures
from veilsum.calibration.lattice import SumsLattice
from veilsum.calibration.privacy.integer_sums import (
    ClassMoments,
    GradientSums,
    IntegerMean,
    IntegerMoments,
    IntegerSums,
)
from veilsum.calibration.privacy.noisy_sums import whiten_rows
from veilsum.calibration.privacy.release import Release, clip_member
from veilsum.calibration.privacy.sampler import ByteSource
from veilsum.calibration.rows import (
    Floats,
    Integers,
    any_labels,
    as_features,
    row_blocks,
    unit_directions,
    usable_rows,
    with_constant,
)
from veilsum.calibration.sparse_columns import SparseColumns
from veilsum.protocol.periods import PeriodKind
from veilsum.protocol.round_spec import RoundSpec
from veilsum.protocol.statistics import CCVR, FFC, RandomFeaturesFFC, Statistic
from veilsum.protocol.study import COUNT_STEP, MEAN_STEP, ROWS_LEVELS, ROWS_STEP, SUM_STEP, Question
from veilsum.study.promise import mechanism_of

Array = npt.NDArray[Any]
Material: TypeAlias = Mapping[str, Floats]
Statistics: TypeAlias = FFCStatistics | CCVRStatistics
RowMap: TypeAlias = Callable[[Array], Floats]


def compute_vector(
    spec: RoundSpec,
    features: Any,
    labels: Any,
    material: Material | None = None,
    random_bytes: ByteSource = os.urandom,
) -> Integers:
    """Return a member's vector of a step other than the judge's, (spec.elements,).

    Features are (n, dim) float16, float32 or float64, and labels (n,) class indices. Rows that are all zeros, not finite, or without a
    known class add nothing. `material` comes from `read_material`; None if the step needs none. Noise is drawn from `random_bytes`. In a
    rehearsal no noise is added, no sparse column is cleared, and only numbers of rows count (periods: Rehearsals).

    Raises:
        WrongDtype, ShapeMismatch: features or labels have a wrong type or shape.
    """
    question = spec.question
    matrix = as_features(features, question.dim)
    indices = any_labels(labels, len(matrix))
    usable = usable_rows(matrix, indices, len(question.classes)) & ~np.isin(indices, spec.withheld)
    rows, classes = matrix[usable], indices[usable].astype(np.int64)
    rehearses = spec.kind is PeriodKind.REHEARSAL
    if spec.step == COUNT_STEP:
        return hold_classes(question, classes) if rehearses else count_classes(question, rows, classes)
    if spec.step == ROWS_STEP:
        return _rows_vector(question, rows, classes, by_number=rehearses)
    if not spec.noisy:
        columns = None if rehearses else count_columns(question, rows, classes)
        return _exact_vector(question, rows, classes, columns)
    flat = noiseless_vector(spec, rows, classes, material or {})
    if spec.adds_noise:
        mechanism_of(spec).add_noise(flat, random_bytes)
    return flat


def list_accumulators(question: Question) -> Iterator[tuple[str, slice, Statistics, RowMap]]:
    """Yield, for each statistic, its kind, its place in an exact vector, an empty accumulator, and the map applied to unit rows first."""
    start, classes = 0, len(question.classes)
    for block in question.statistics:
        place = slice(start, start + question.elements_of_statistic(block))
        yield (
            block.kind,
            place,
            *make_accumulator(block, question.dim, classes, question.digest, constant=question.constant),
        )
        start = place.stop


def make_accumulator(
    block: Statistic, dim: int, classes: int, seed: bytes, *, constant: bool
) -> tuple[Statistics, RowMap]:
    """Return an empty accumulator, and the map applied to unit rows first."""
    match block:
        case FFC():
            return FFCStatistics(dim, classes, constant=constant), _same_rows
        case RandomFeaturesFFC():
            phi = RandomFeatures(dim, block.size, block.bandwidth, seed)
            return FFCStatistics(block.size, classes), phi.of_units
        case CCVR():
            return CCVRStatistics(dim, classes), _same_rows


def random_features(question: Question) -> RandomFeatures | None:
    """Return φ of the study's random features; None without them."""
    for block in question.statistics:
        if isinstance(block, RandomFeaturesFFC):
            return RandomFeatures(question.dim, block.size, block.bandwidth, question.digest)
    return None


def count_classes(question: Question, matrix: Array, labels: Integers) -> Integers:
    """Return 1 for each class with at least `least_per_class` usable rows, which have features enough by themselves, else 0; (C,)."""
    columns = SparseColumns(question.dim, len(question.classes))
    for block in row_blocks(len(matrix), question.dim):
        columns.count(unit_directions(matrix[block]), labels[block])
    numbers = question.records.rows_per_id * question.class_elements
    return hold_classes(question, labels) & columns.classes_suffice(numbers, question.h_min)


def hold_classes(question: Question, labels: Integers) -> Integers:
    """Return 1 for each class with at least `least_per_class` of the (n,) labels, else 0; (C,)."""
    rows = np.bincount(labels, minlength=len(question.classes))
    return (rows >= question.records.least_per_class).astype(np.int64)


def _rows_vector(question: Question, matrix: Array, labels: Integers, *, by_number: bool) -> Integers:
    """Return 1 for each of `ROWS_LEVELS` quarters of `least` that the rows reach, in features too unless `by_number`, else 0; (8,)."""
    if by_number:
        least = question.records.least
        return np.array([4 * len(matrix) >= level * least for level in ROWS_LEVELS], np.int64)
    entries = int(count_columns(question, matrix, labels).entries.sum())
    return np.array([reaches_level(question, level, len(matrix), entries) for level in ROWS_LEVELS], np.int64)


def reaches_level(question: Question, level: int, rows: int, entries: int) -> bool:
    """Whether a member's rows of published classes reach a level of the step `rows` (member: Count vectors).

    Args:
        question: of the study.
        level: in quarters of `least`.
        rows: the member's rows.
        entries: their non-zero features together, after sparse ones were cleared.
    """
    records = question.records
    least, numbers = level * records.least, 2 * records.rows_per_id * question.elements
    return 4 * rows >= least and 4 * (entries - rows) * question.rows_needed >= least * numbers


def rows_bear_sum(
    question: Question, matrix: Array, labels: Integers, *, more: int = 0, honest: int | None = None
) -> bool:
    """Whether a member's rows have features enough for an exact sum (SELECT-4).

    Args:
        question: of the study.
        matrix: the rows, (n, dim).
        labels: their class indices, (n,).
        more: elements of other sums of the same rows.
        honest: fewest honest members in the sum; None for those of the study's smallest cohort.
    """
    if honest is None:
        honest = question.smallest.quorum.survivors_min - question.a
    numbers = question.records.rows_per_id * question.elements + more
    return count_columns(question, matrix, labels).rows_suffice(numbers, honest)


def _exact_vector(
    question: Question, matrix: Array, labels: Integers, columns: SparseColumns | None
) -> Integers:
    """Return the statistics in order, rounded to integers in units of 2^−s, of rows without the features that `columns` clears."""
    lattice = SumsLattice(question.scale)
    flat = np.empty(question.elements, np.int64)
    for _, place, statistics, mapped in list_accumulators(question):
        for block in row_blocks(len(matrix), max(question.dim, statistics.dim)):
            rows = unit_directions(matrix[block])
            if columns is not None:
                columns.clear(rows, labels[block])
            statistics.add(mapped(rows), labels[block])
        statistics.vector(lattice, flat[place])
    return flat


def count_columns(question: Question, matrix: Array, labels: Integers) -> SparseColumns:
    """Count which features the (n, dim) rows of an exact vector have: within each class if the study sums CCVR's statistics."""
    by_class = any(isinstance(block, CCVR) for block in question.statistics)
    columns = SparseColumns(question.dim, len(question.classes) if by_class else None)
    for block in row_blocks(len(matrix), question.dim):
        columns.count(unit_directions(matrix[block]), labels[block])
    return columns


def noiseless_vector(spec: RoundSpec, matrix: Array, labels: Integers, material: Material) -> Integers:
    """Return a noisy step's vector before noise: the clipped integer sums of usable rows."""
    mechanism = mechanism_of(spec)
    sums, mapped = _integer_sums(spec, mechanism.release, material), _row_map(spec, material)
    for block in row_blocks(len(matrix), max(spec.question.dim, spec.question.width)):
        sums.update(mapped(matrix[block]), labels[block])
    flat, noise = sums.flat, spec.question.noise
    assert noise is not None
    if noise.unit == "member":
        flat = clip_member(flat, mechanism.release.element_weights(mechanism.lattice), mechanism.sensitivity)
    # Needed for members too: one block alone may be as long as Δ, and the ring has room for `most` rows of each member.
    bound = spec.question.records.most * mechanism.lattice.unit(2)
    np.clip(flat, -bound, bound, out=flat)
    return flat


def _integer_sums(spec: RoundSpec, release: Release, material: Material) -> IntegerSums:
    (statistic,) = spec.question.statistics
    if spec.step == MEAN_STEP:
        return IntegerMean(release)
    if spec.step != SUM_STEP:
        return GradientSums(release, material["weights"])
    if isinstance(statistic, CCVR):
        return ClassMoments(release)
    return IntegerMoments(release, constant=spec.question.constant)


def _row_map(spec: RoundSpec, material: Material) -> RowMap:
    """Return the map from features to the rows that a noisy step sums. It maps each row by itself."""
    centre, whitening = material.get("centre"), material.get("whitening")
    phi = None if spec.step == MEAN_STEP else random_features(spec.question)

    def map_rows(matrix: Array) -> Floats:
        rows = unit_directions(matrix, centre, total=True)
        rows = rows if phi is None else phi.of_units(rows, apart=True)
        if whitening is None:
            return rows
        rows = with_constant(rows) if spec.question.constant else rows
        return whiten_rows(rows, whitening)

    return map_rows


def _same_rows(rows: Array) -> Array:
    return rows
