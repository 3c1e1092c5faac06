"""M4: from recovered seeds to a signed result (protocol §4.8)."""

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save

from calibration import (
    CalibrationError,
    FFCStatistics,
    Layout,
    Solution,
    SumsLattice,
    check_sums,
    default_grid,
    lattice_from,
    smallest_ridge,
    solve_ffc,
    weights_error_bound,
)
from protocol.causes import Cause
from protocol.errors import PeerFault
from protocol.identity import SigningKey
from protocol.messages import Terms
from protocol.published import RareView, ResultRecord, SolutionView, SurvivorView
from protocol.record import sign_record
from protocol.rest import HEAD
from service.modes import Summands
from service.preflight import PROMISED_BITS
from service.rounds import Round
from service.storage.blobs import FileBlobs

WEIGHTS, SUMS, EVICTIONS = "weights", "sums", "evictions"


@dataclass(frozen=True)
class Outcome:
    """A finished sum: what is published, and what only the operator may read (`SUMS`).

    Attributes:
        record: None for an indicator round.
        holders: of an indicator round, how many members hold each class.
    """

    record: ResultRecord | None
    documents: dict[str, bytes]
    holders: tuple[int, ...] = ()


def compute(
    round_: Round, recovered: Summands, blobs: FileBlobs, key: SigningKey, rare: RareView | None = None
) -> Outcome:
    """Unmask, check, solve and sign; `rare` says in the record why classes were withheld.

    Raises:
        PeerFault: sum-check-failed, naming the identity that the sum breaks; nothing is published then.
    """
    attempt = recovered.attempt
    terms = attempt.opening.terms
    total = sum_of(round_, recovered, blobs)
    vectors = recovered.vectors
    try:
        statistics, solution = solve(terms, total, vectors)
    except CalibrationError as error:
        raise PeerFault(Cause.SUM_CHECK_FAILED, f"{type(error).__name__}: {error}") from error
    weights, sums = weights_file(solution, terms.withheld), save({"sum": total})
    record = ResultRecord(
        mode=round_.mode.name,
        round=round_.id,
        federation=attempt.roster.federation.hex(),
        cohort=attempt.manifest.cohort.hex(),
        context=attempt.context.hex(),
        closing=recovered.closing.hex(),
        terms=terms.hash.hex(),
        extractor=terms.extractor.hex(),
        statistic=terms.statistic,
        survivors=tuple(SurvivorView(member=s.member, digest=s.digest.hex()) for s in recovered.survivors),
        withheld=terms.withheld,
        rare=rare,
        records=statistics.records,
        weights_sha256=hashlib.sha256(weights).hexdigest(),
        sums_sha256=hashlib.sha256(sums).hexdigest(),
        # nothing is noted any more once the seeds are rebuilt
        transcript=round_.noted.head.hex() if round_.noted else None,
        weights_error_bound=error_bound(terms, solution, vectors),
        solution=solution_view(solution),
        **recovered.particulars(),
    )
    return Outcome(sign_record(record, key), {WEIGHTS: weights, SUMS: sums, **recovered.documents()})


def weights_file(solution: Solution, withheld: Sequence[int] = ()) -> bytes:
    """A head as safetensors: a column for each class, all zero and named in the metadata where its score means nothing."""
    named = {"classes_without_records": solution.empty_classes, "withheld": tuple(withheld)}
    # One entry: the library writes several in any order, and the record names the file's digest.
    return save(solution.tensors, {HEAD: json.dumps(named)})


def solution_view(solution: Solution) -> SolutionView:
    """How the head was solved, as records show it."""
    return SolutionView(
        ridge=solution.ridge,
        grid=tuple(solution.grid.tolist()),
        gcv=tuple(error if math.isfinite(error) else None for error in solution.gcv.tolist()),
        dof=solution.dof,
        condition=solution.condition,
        residual=solution.residual,
        rank=solution.rank,
        empty_classes=solution.empty_classes,
    )


def sum_of(round_: Round, recovered: Summands, blobs: FileBlobs) -> npt.NDArray[np.int64]:
    """The sum, chunk by chunk from storage."""
    terms = recovered.attempt.opening.terms
    total = np.empty(terms.elements, np.int64)
    for index in range(recovered.attempt.chunks):
        start = index * terms.chunk_elements
        total[start : start + terms.chunk_elements] = recovered.chunk(
            index, lambda owner, place: blobs.get(round_.chunk_name(owner, place))
        )
    return total


def solve(terms: Terms, total: npt.NDArray[np.int64], members: int) -> tuple[FFCStatistics, Solution]:
    """Check the sum's identities and solve for the head."""
    layout = Layout.from_bytes(terms.layout)
    lattice = lattice_from(terms.lattice, terms.lattice_bits)
    bias = terms.statistic == "ffc-bias"
    check_sums(layout, lattice, total, members=members, bias=bias)
    statistics = FFCStatistics.from_sums(layout, lattice, total, bias=bias, members=members)
    return statistics, solve_ffc(statistics, terms.ridges or _grid(terms, statistics, members))


def _grid(terms: Terms, statistics: FFCStatistics, members: int) -> Sequence[float] | None:
    """The solver's own grid, without the ridges below which the promised precision would not hold."""
    if terms.lattice != SumsLattice.name or terms.ring_bits < PROMISED_BITS:
        return None
    dim = len(statistics.V)
    grid = default_grid(statistics.records, dim).tolist()
    smallest = smallest_ridge(dim, members, terms.lattice_bits)
    return [ridge for ridge in grid if ridge >= smallest] or [smallest]


def error_bound(terms: Terms, solution: Solution, members: int) -> float | None:
    """How far rounding may have moved a weight at the most; None where nothing was rounded or no bound holds."""
    lattice = lattice_from(terms.lattice, terms.lattice_bits)
    if not isinstance(lattice, SumsLattice):
        return None
    bound = weights_error_bound(
        solution.raw_weights,
        solution.ridge,
        members=members,
        scale_bits=lattice.bits,
        smallest_eigenvalue=solution.smallest_eigenvalue,
    )
    return bound if math.isfinite(bound) else None
