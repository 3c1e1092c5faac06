"""A result's files: the head that its record names, and the sum that a reader solves for it (analysis: Results).

A second implementation, written from the protocol's page alone.
"""

import json
import math
import struct
from collections.abc import Mapping, Sequence
from fractions import Fraction
from hashlib import sha256
from typing import Any

import numpy as np

from assurance.reference.judging import parsed
from assurance.reference.study import Study
from assurance.reference.wire import Refused, demand

MISMATCH = "result-mismatch"
FORMS = {"ffc": "linear", "ccvr": "tukey"}


def tensors_of(file: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a file's tensors, and the notes in its metadata."""
    try:
        (length,) = struct.unpack_from("<Q", file)
        found = {name: np.reshape(values, shape) for name, (shape, values) in parsed(file).items()}
        return found, json.loads(json.loads(file[8 : 8 + length])["__metadata__"]["veilsum-head"])
    except (Refused, ValueError, KeyError, TypeError, struct.error):
        raise Refused(MISMATCH) from None


def check_head(study: Study, record: Mapping[str, Any], file: bytes | None) -> None:
    """Check the head of an exact `sum` (RESULT-8)."""
    demand(file is not None and sha256(file).hexdigest() == record["digest"], MISMATCH)
    tensors, notes = tensors_of(file or b"")
    count, bad, constant = len(study.classes), record["unanswered"], study.constant
    demand({"weights"} <= {*tensors} <= {"weights", "bias"}, MISMATCH)
    demand(all((np.abs(each) <= 1e150).all() for each in tensors.values()), MISMATCH)
    demand(tensors["weights"].shape == (study.dim, count), MISMATCH)
    demand("bias" not in tensors or tensors["bias"].shape == (count,), MISMATCH)
    demand(study.kinds[0] != "ffc" or ("bias" in tensors) == constant, MISMATCH)
    demand(notes["form"]["kind"] == FORMS.get(study.kinds[0], study.kinds[0]), MISMATCH)
    demand(notes.get("withheld", []) == record["withheld"] and "noise" not in notes, MISMATCH)
    demand({*bad} < {*range(count)}, MISMATCH)
    demand(study.kinds[0] != "ffc" or not any(each[..., bad].any() for each in tensors.values()), MISMATCH)


def check_sum(study: Study, total: Sequence[int], members: int, record: Mapping[str, Any], file: bytes) -> None:
    """Check an exact sum of `ffc` alone, and its head (RESULT-10). What members round is added exactly."""
    width, count, ridge = study.dim + study.constant, len(study.classes), record["ridge"]
    demand(len(total) == study.elements and ridge is not None, MISMATCH)
    exact = [Fraction(each, 2**study.scale) for each in total]
    slack = Fraction(members, 2 ** (study.scale + 1)) + Fraction(1, 10**9)
    pairs = [(i, j) for i in range(width) for j in range(i, width)]
    V = {pair: value for (i, j), value in zip(pairs, exact, strict=False) for pair in ((i, j), (j, i))}
    U = {(i, c): exact[len(pairs) + i * count + c] for i in range(width) for c in range(count)}
    counts = exact[-count:]
    demand(all(each.denominator == 1 and each >= 0 for each in counts) and sum(counts) == record["rows"], MISMATCH)
    rows = Fraction(record["rows"])
    right = all(abs(each) <= rows + slack for each in V.values())
    right &= all(abs(each) <= counts[c] + slack for (_, c), each in U.items())
    right &= sum(V[i, i] for i in range(width)) <= rows + width * slack
    if study.constant:
        own, last = Fraction(math.sqrt(0.1)), width - 1
        right &= all(abs(U[last, c] - own * counts[c]) <= slack for c in range(count))
        right &= abs(V[last, last] - rows / 10) <= slack
        sums = [own * sum(U[i, c] for c in range(count)) for i in range(last)]
        right &= all(abs(V[last, i] - each) <= (1 + count) * slack for i, each in enumerate(sums))
    size = width + count
    whole = {(i, j): V.get((i, j), Fraction()) for i in range(size) for j in range(size)}
    for (i, c), value in U.items():
        whole[i, width + c] = whole[width + c, i] = value
    whole |= {(width + c, width + c): each for c, each in enumerate(counts)}
    demand(right and is_semidefinite(whole, size, size * slack), MISMATCH)
    tensors, _ = tensors_of(file)
    W = tensors["weights"]
    if study.constant:
        W = np.vstack([W / math.sqrt(0.9), tensors["bias"] / math.sqrt(0.1)])
    left = np.array([[float(V[i, j]) for j in range(width)] for i in range(width)])
    wanted = np.array([[float(U[i, c]) for c in range(count)] for i in range(width)])
    most = (np.linalg.norm(left) + ridge) * np.linalg.norm(W) + np.linalg.norm(wanted)
    demand(np.linalg.norm(left @ W + ridge * W - wanted) <= 1e-10 * most, MISMATCH)


def is_semidefinite(matrix: dict[tuple[int, int], Fraction], size: int, slack: Fraction) -> bool:
    """Whether no eigenvalue is below −slack, by elimination."""
    left = {pair: value + slack * (pair[0] == pair[1]) for pair, value in matrix.items()}
    for k in range(size):
        if left[k, k] <= 0:
            return False
        for i in range(k + 1, size):
            factor = left[i, k] / left[k, k]
            for j in range(k + 1, size):
                left[i, j] -= factor * left[k, j]
    return True
