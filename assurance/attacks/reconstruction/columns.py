"""Rows that stand alone in a column of V, or in two columns together."""

from __future__ import annotations

import numpy as np

from veilsum.calibration.rows import Floats


def read_columns(V: Floats) -> Floats:
    """Return V[j]/√V[j, j] for each column: the row that has feature j, if there is only one."""
    used = np.diagonal(V) > 1e-9
    candidates: Floats = V[used] / np.sqrt(np.diagonal(V)[used])[:, None]
    return candidates


def read_pairs(V: Floats, most: int = 400) -> Floats:
    """Return a candidate for each pair of columns: the row that has both, if it is the only one with any two of j, k and a third feature.

    Then V[j, m]·V[k, m]/V[j, k] = z_m². Taken are the pairs that fewest rows seem to share, by V[j, k]²/(V[j, j]·V[k, k]).
    """
    size = np.sqrt(np.maximum(np.diagonal(V), 1e-300))
    j, k = np.triu_indices(len(V), 1)
    shared = np.abs(V[j, k]) > 1e-7
    j, k = j[shared], k[shared]
    order = np.argsort(np.abs(V[j, k]) / (size[j] * size[k]))[:most]
    found = []
    for one, other in zip(j[order], k[order], strict=True):
        squares = V[one] * V[other] / V[one, other]
        z = np.sqrt(np.maximum(squares, 0)) * np.sign(V[one])
        # V[j, j] may hold other rows: a third feature m of this row gives z_j² = V[j, k]·V[j, m]/V[k, m].
        for own, partner in ((one, other), (other, one)):
            thirds = np.flatnonzero((np.abs(V[own]) > 1e-7) & (np.abs(V[partner]) > 1e-7))
            thirds = thirds[(thirds != own) & (thirds != partner)]
            if thirds.size:
                z[own] = np.sqrt(np.abs(np.median(V[own, partner] * V[own, thirds] / V[partner, thirds])))
        found.append(z)
    return np.array(found).reshape(-1, len(V))
