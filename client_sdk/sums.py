"""M5 for those who may read ΣV and ΣU: that the sums are sound and the published weights solve them."""

import hashlib

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load

from calibration import CalibrationError, FFCStatistics, check_solution, check_sums, lattice_from
from calibration.layout import Layout
from client_sdk.errors import PeerFault
from client_sdk.result import Result
from protocol.causes import Cause


def verify_sums(result: Result, sums_file: bytes, rng: np.random.Generator | None = None) -> FFCStatistics:
    """Check the sums behind a result, in this order (result-mismatch for each).

    1. the file is the one that the signed record names, one int64 vector of the terms' length;
    2. it keeps every identity that a sum of honest members keeps (`calibration.check_sums`);
    3. it sums as many records as the record says;
    4. the weights solve it at the record's ridge (Freivalds, 3 rounds).

    Args:
        result: that `Result.verify` has passed.
        sums_file: a safetensors file with one tensor, `sum`.
        rng: the verifier's own randomness; fresh where None.

    Returns:
        The pooled statistics.

    Raises:
        PeerFault: the first of these that does not hold.
    """
    if hashlib.sha256(sums_file).hexdigest() != result.record.sums_sha256:
        raise _mismatch("the sums are not those that the record names")
    terms, members = result.evidence.opening.terms, len(result.summed)
    bias = terms.statistic == "ffc-bias"
    try:
        total = load(sums_file)["sum"]
        layout, lattice = Layout.from_bytes(terms.layout), lattice_from(terms.lattice, terms.lattice_bits)
        check_sums(layout, lattice, total, members=members, bias=bias)
        pooled = FFCStatistics.from_sums(layout, lattice, total, bias=bias, members=members)
        if pooled.records != result.record.records:
            raise _mismatch(
                f"the sums hold {pooled.records} records, the record says {result.record.records}"
            )
        raw = _solved(result, pooled.constant)
        ridge = result.record.solution.ridge
        check_solution(pooled.V, pooled.U, ridge, raw, rng or np.random.default_rng())
    except (SafetensorError, KeyError, ValueError, CalibrationError) as error:
        raise _mismatch(f"{type(error).__name__}: {error}") from error
    return pooled


def _solved(result: Result, constant: float) -> npt.NDArray[np.float64]:
    """(l, C) weights in the space that was solved: the export scaled features and constant apart."""
    if result.bias is None:
        return result.weights
    return np.vstack([result.weights / np.sqrt(0.5), result.bias / constant])


def _mismatch(detail: str) -> PeerFault:
    return PeerFault(Cause.RESULT_MISMATCH, detail, ["coordinator"])
