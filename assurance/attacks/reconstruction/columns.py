"""Rows that stand alone in a column of V, or in two columns together."""

from __future__ import annotations

import numpy as np

from veilsum.calibration.rows import Floats

_SHARED_MIN, _RATIO_TOLERANCE, _LENGTH_TOLERANCE = 1e-6, 1e-4, 1e-3


def read_columns(V: Floats) -> Floats:
    """Return V[j]/√V[j, j] for each column: the row that has feature j, if there is only one."""
    used = np.diagonal(V) > 1e-9
    candidates: Floats = V[used] / np.sqrt(np.diagonal(V)[used])[:, None]
    return candidates


def read_pairs(V: Floats, most: int = 100) -> Floats:
    """Return rows that alone have two features j and k together, and with each of them several others.

    For every feature m that no other row has beside j or k, V[j, m]/V[k, m] = z_j/z_k: such features give themselves away by one and the same
    ratio, z_j² = V[j, k]·z_j/z_k, and z_m = V[j, m]/z_j. A row is sure if its length is 1. Sure rows are taken off V, and the search goes on;
    if none is sure, the `most` longest candidates are returned.
    """
    V, sure, guesses = V.copy(), list[Floats](), list[Floats]()
    while True:
        fresh = dict[bytes, Floats]()
        for j, k in zip(*np.triu_indices(len(V), 1), strict=True):
            z = _read_pair(V, int(j), int(k))
            if z is None:
                continue
            if abs(float(z @ z) - 1) < _LENGTH_TOLERANCE:
                fresh[np.round(z, 3).tobytes()] = z
            elif not sure and float(z @ z) < 1:
                guesses.append(z)
        for z in fresh.values():
            V -= np.outer(z, z)
        sure += fresh.values()
        if not fresh or len(sure) > len(V) ** 2:
            break
    found = sure or sorted(guesses, key=lambda z: -float(z @ z))[:most]
    return np.array(found).reshape(-1, len(V))


def _read_pair(V: Floats, j: int, k: int) -> Floats | None:
    if V[j, k] < _SHARED_MIN:
        return None
    shared = np.flatnonzero((np.abs(V[j]) > _SHARED_MIN) & (np.abs(V[k]) > _SHARED_MIN))
    shared = shared[(shared != j) & (shared != k)]
    if not shared.size:
        return None
    ratios = V[j, shared] / V[k, shared]
    order = np.argsort(ratios)
    sorted_ratios = ratios[order]
    near = np.searchsorted(sorted_ratios, sorted_ratios + _RATIO_TOLERANCE * np.abs(sorted_ratios), "right")
    runs = near - np.arange(len(near))
    at = int(runs.argmax())
    ratio = float(sorted_ratios[at])
    if ratio <= 0:
        return None
    agreeing, z = shared[order[at : near[at]]], np.zeros(len(V))
    z[j] = np.sqrt(V[j, k] * ratio)
    z[k] = z[j] / ratio
    z[agreeing] = V[j, agreeing] / z[j]
    return z
