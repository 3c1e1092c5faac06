"""The exact vectors of a study, to the last integer: what a member sends, and what the coordinator makes of their sum.

The specification is docs/protocol-next.md §8. A vector depends on the question, the rows and the classes withheld, and on nothing else.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from calibration import CCVRStatistics, FFCStatistics, RandomFeatures, SumsLattice
from calibration.checks import check_sums
from calibration.layouts import ffc_layout
from calibration.rows import unit_rows
from protocol.causes import Cause
from protocol.errors import PeerFault
from veilsum.study import content
from veilsum.study.content import CCVR, FFC, Question

Array = npt.NDArray[Any]
Integers = npt.NDArray[np.int64]
Statistics: TypeAlias = FFCStatistics | CCVRStatistics


def indicator(question: Question, labels: Array) -> Integers:
    """1 for each class with at least `least_per_class` of these rows, else 0; (C,)."""
    rows = np.bincount(labels, minlength=len(question.classes))
    return (rows >= question.records.least_per_class).astype(np.int64)


def vector(question: Question, features: Array, labels: Array, withheld: Collection[int] = ()) -> Integers:
    """A member's vector, (question.elements,): its statistics one after the other, rounded to multiples of 2^−s.

    Args:
        question: of an exact study.
        features: (n, dim) float16, float32 or float64 rows, each of which is finite and not all zeros.
        labels: (n,) class indices.
        withheld: classes whose rows are left out of everything.
    """
    kept = ~np.isin(labels, list(withheld))
    rows, classes = unit_rows(features[kept])[0], labels[kept]
    lattice = SumsLattice(question.scale)
    flat = np.empty(question.elements, np.int64)
    for place, statistics, mapped in _accumulators(question):
        statistics.update(mapped(rows), classes)
        flat[place] = statistics.vector(lattice)
    return flat


def pooled(question: Question, total: Integers, members: int) -> Mapping[str, Statistics]:
    """The statistics that a sum holds, by their kinds, once the identities of honest sums hold.

    Args:
        question: of an exact study.
        total: (question.elements,) centred sum.
        members: how many vectors were added.

    Raises:
        SumCheckFailed: an identity is broken.
    """
    lattice, classes = SumsLattice(question.scale), len(question.classes)
    found: dict[str, Statistics] = {}
    for (place, statistics, _), block in zip(_accumulators(question), question.statistics, strict=True):
        part = total[place]
        if isinstance(statistics, CCVRStatistics):
            statistics.add_sums(lattice, part)
            statistics.check(lattice, members)
            found[block.kind] = statistics
            continue
        bias = isinstance(block, FFC) and block.bias
        layout = ffc_layout(statistics.dim, classes, bias=bias)
        check_sums(layout, lattice, part, members=members, bias=bias)
        found[block.kind] = FFCStatistics.from_sums(layout, lattice, part.copy(), bias=bias, members=members)
    return found


def rare(question: Question, holders: Collection[int]) -> tuple[int, ...]:
    """The classes to withhold, ascending: those that too few members hold, or whose rows of CCVR would be too few."""
    if question.withhold is None:
        return ()
    margin = question.withhold.margin
    floor = question.a + question.h_min + margin
    if question.has("ccvr") and not question.thin_classes:
        rows = -(-2 * question.dim // question.records.least_per_class)
        floor = max(floor, rows + question.a + margin)
    return tuple(label for label, held in enumerate(holders) if held < floor)


def check_enough(question: Question, holders: Collection[int]) -> None:
    """Refuse a sum with too few rows of honest members behind the classes that it publishes (indicator-mismatch)."""
    assert question.withhold is not None
    withheld, missing = set(rare(question, holders)), question.a + question.withhold.margin
    honest = sum(max(0, held - missing) for label, held in enumerate(holders) if label not in withheld)
    rows = question.records.least_per_class * honest
    if rows < 2 * question.width:
        raise PeerFault(
            Cause.INDICATOR_MISMATCH,
            f"the classes that can be published hold as few as {rows} rows of honest members, and {question.width} dimensions "
            f"need {2 * question.width}: bring more members, or sign a study with a higher least_per_class",
            ["coordinator"],
        )


def _accumulators(question: Question) -> Iterator[tuple[slice, Statistics, Any]]:
    """For each statistic its place in the vector, empty statistics, and the map that unit rows go through first."""
    start, classes = 0, len(question.classes)
    for block in question.statistics:
        stop = start + block.elements(question.dim, classes)
        match block:
            case FFC():
                empty = FFCStatistics(question.dim, classes, bias=block.bias, track_records=False)
                yield slice(start, stop), empty, _same
            case content.RandomFeatures():
                phi = RandomFeatures(question.dim, block.size, block.bandwidth, question.digest)
                yield slice(start, stop), FFCStatistics(block.size, classes, track_records=False), phi
            case CCVR():
                yield slice(start, stop), CCVRStatistics(question.dim, classes), _same
        start = stop


def _same(rows: Array) -> Array:
    return rows
