"""M5 for those who may read the sums: that they are sound, and that the published head follows from them."""

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load

from calibration import CalibrationError, FFCStatistics, check_solution, lattice_from
from calibration.head_file import arrays_of
from calibration.questions import Question, Summed
from client_sdk.asked import terms_mechanism, terms_question
from client_sdk.errors import mismatch
from client_sdk.result import Result

_TOLERANCE = 1e-9
"""Of the largest weight: what another machine's linear algebra may round apart."""


def verify_sums(result: Result, sums_file: bytes, rng: np.random.Generator | None = None) -> Any:
    """Check the sums behind a result, in this order (result-mismatch for each).

    1. the file is the one that the signed record names, one int64 vector of the terms' length;
    2. it keeps every identity that a sum of honest members keeps (`Question.gathered`; of a noisy sum there are none);
    3. it sums as many records as the record says;
    4. the head follows from it: ridge weights solve it at the record's ridge (Freivalds, 3 rounds), another head is solved again and
       compared.

    Args:
        result: that `Result.verify` has passed.
        sums_file: a safetensors file with one tensor, `sum`.
        rng: the verifier's own randomness; fresh where None.

    Returns:
        The pooled statistics of the round's question.

    Raises:
        PeerFault: the first of these that does not hold.
    """
    if hashlib.sha256(sums_file).hexdigest() != result.record.sums_sha256:
        raise mismatch("the sums are not those that the record names")
    terms, attempt = result.evidence.opening.terms, result.evidence.attempt
    try:
        total = load(sums_file)["sum"]
        if total.shape != (terms.elements,) or total.dtype != np.int64:
            raise mismatch(f"the sums are {total.dtype}{total.shape}, the terms say int64({terms.elements},)")
        asked = terms_question(attempt, result.material)
        lattice = lattice_from(terms.lattice, terms.lattice_bits)
        mechanism = terms_mechanism(attempt)
        ridges = (result.record.solution.ridge,) if result.record.solution.ridge and asked.rows else ()
        summed = Summed(lattice, len(result.summed), ridges, mechanism=mechanism)
        gathering = asked.gathering(lattice)
        gathering.take(0, total)
        pooled = asked.gathered(gathering, summed)
        _check_follows(result, asked, pooled, summed, rng or np.random.default_rng())
    except (SafetensorError, KeyError, ValueError, CalibrationError) as error:
        raise mismatch(f"{type(error).__name__}: {error}") from error
    return pooled


def _check_follows(
    result: Result, asked: Question, pooled: Any, summed: Summed, rng: np.random.Generator
) -> None:
    if isinstance(pooled, FFCStatistics) and asked.rows == len(pooled.V) == asked.dim + asked.bias:
        _check_records(result, pooled.records)
        ridge = result.record.solution.ridge
        if ridge is None:
            raise mismatch("the record names no ridge, and the head is one that has one")
        check_solution(pooled.V, pooled.U, ridge, _solved(result, pooled.constant), rng)
        return
    answer = asked.answer(pooled, summed)
    _check_records(result, answer.records)
    if answer.head is None:
        return
    published = arrays_of(result.calibrated.head)
    for name, array in arrays_of(answer.head).items():
        seen = published.get(name)
        most = _TOLERANCE * float(np.abs(array).max(initial=1e-300))
        if seen is None or seen.shape != array.shape or np.abs(seen - array).max(initial=0.0) > most:
            raise mismatch(f"the head's {name} do not follow from the sums")


def _check_records(result: Result, records: int) -> None:
    if records != result.record.records:
        raise mismatch(f"the sums hold {records} records, the record says {result.record.records}")


def _solved(result: Result, constant: float) -> npt.NDArray[np.float64]:
    """(l, C) weights in the space that was solved: the export scaled features and constant apart."""
    if result.bias is None:
        return result.weights
    return np.vstack([result.weights / np.sqrt(0.5), result.bias / constant])
