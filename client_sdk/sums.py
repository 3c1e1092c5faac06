"""M5 for readers: verify the sums, and that the published result follows from them."""

import hashlib

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load

from client_sdk.errors import mismatch
from client_sdk.result import Result
from veilsum.study.answers import Pooled, answer, pooled
from veilsum.study.result_files import Files, check_answer, material_file


def verify_sums(result: Result, sums_file: bytes, rng: np.random.Generator | None = None) -> Pooled:
    """Check the sums behind a result, in this order (result-mismatch for each).

    1. the file is the one that the signed record names, one int64 vector of the step's length;
    2. it keeps every identity that a sum of honest members keeps;
    3. its rows are those that the record states, and the heads follow from it (`check_answer`).

    Args:
        result: that `Result.verify` has passed.
        sums_file: a safetensors file with one tensor, `sum`.
        rng: the verifier's own randomness; fresh where None.

    Returns:
        What the sum holds, by the kind of the statistic.

    Raises:
        PeerFault: the first of these that does not hold.
    """
    if hashlib.sha256(sums_file).hexdigest() != result.record.sums:
        raise mismatch("the sums are not those that the record names")
    try:
        total = load(sums_file)["sum"]
    except (SafetensorError, KeyError, ValueError) as error:
        raise mismatch(f"the sums are not a safetensors file of a tensor `sum`: {error}") from error
    spec, members = result.spec, len(result.summed)
    following = None
    if spec.noisy and total.shape == (spec.elements,) and spec.step != spec.question.steps[-1]:
        # The next step's opening binds its material, and its members check it there; here it is what follows from the sums.
        following = material_file(
            answer(spec, pooled(spec, total, members), members, result.material).material
        )
    return check_answer(
        spec,
        total,
        members,
        Files(result.head_file, result.document_files, following),
        rows=result.record.rows,
        ridge=result.record.solution.ridge,
        material=result.material,
        rng=rng,
    )
