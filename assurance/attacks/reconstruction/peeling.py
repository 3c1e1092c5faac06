"""A standardised table of 0/1 columns, too wide to list: its weighted co-occurrences follow from V, and rows of rare columns peel off.

A row b of the table becomes x = (b − m)/s and z = t·x with t = 1/‖x‖, so t² follows from b. With the public m and s, V gives Σ t²·b bᵀ up to
one number, Σ t². A column that one to three rows have then holds sums of these rows' t²; the right split passes the test of length, and
each row that is found is taken off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from veilsum.calibration.rows import Floats, unit_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

_TOLERANCE = 1e-5


def draw_table(rows: int, columns: int, seed: int) -> Floats:
    """Return 0/1 rows of a population whose columns are from rare to usual."""
    rates = np.random.default_rng(2).permutation(np.geomspace(0.004, 0.5, columns))
    return (np.random.default_rng(seed).random((rows, columns)) < rates).astype(np.float64)


def standardise_table(bits: Floats, mean: Floats) -> Floats:
    return unit_rows((bits - mean) / np.sqrt(mean * (1 - mean)))[0]


def peel_rows(V: Floats, mean: Floats) -> Floats:
    """Return the 0/1 rows that come off, (found, columns).

    Columns that a member cleared fit no Σ t², and are left out: rows that lack them all are found without them, since rows were scaled first.
    """
    spread, columns = np.sqrt(mean * (1 - mean)), len(mean)
    G, found = V * np.outer(spread, spread), list[Floats]()
    used = _whole_columns(G, mean)
    rest = float((np.square(mean) / np.square(spread))[~used].sum())
    G, mean = G[np.ix_(used, used)], mean[used]
    while len(mean) > 2:
        together = _cooccurrences(G, mean)
        fresh = {
            tuple(bits)
            for column in range(len(G))
            for bits in _split_column(together[column], column, mean, rest)
        }
        if not fresh or len(found) > columns * 50:
            break
        for each in fresh:
            bits = np.array(each)
            apart = (bits - mean) / np.sqrt(rest + (np.square(bits - mean) / (mean * (1 - mean))).sum())
            G = G - np.outer(apart, apart)
            found.append(bits)
    rows = np.zeros((len(found), columns))
    if found:
        rows[:, used] = found
    return rows


def _solve_pairs(G: Floats, mean: Floats) -> tuple[Floats, Floats, Floats, float]:
    """Return Σ t²·b bᵀ as a constant and a slope in q = Σ t², the q at which each pair of columns never meets, and the q of most pairs."""
    slope = -np.square(mean) / (1 - 2 * mean)
    diagonal = np.diagonal(G) / (1 - 2 * mean)
    fixed = G + np.outer(diagonal, mean) + np.outer(mean, diagonal)
    moving = np.outer(slope, mean) + np.outer(mean, slope) - np.outer(mean, mean)
    fixed[np.diag_indices(len(G))], moving[np.diag_indices(len(G))] = diagonal, slope
    roots = -fixed / moving
    listed = np.sort(roots[np.triu_indices(len(G), 1)])
    near = np.searchsorted(listed, listed + 1e-4 * np.abs(listed)) - np.arange(len(listed))
    at = int(near.argmax())
    return fixed, moving, roots, float(np.median(listed[at : at + near[at]]))


def _whole_columns(G: Floats, mean: Floats) -> NDArray[np.bool_]:
    _, _, roots, q = _solve_pairs(G, mean)
    agreeing = np.abs(roots - q) < 2e-4 * abs(q)
    np.fill_diagonal(agreeing, val=False)
    whole: NDArray[np.bool_] = agreeing.sum(axis=1) >= 2
    return whole


def _cooccurrences(G: Floats, mean: Floats) -> Floats:
    fixed, moving, _, q = _solve_pairs(G, mean)
    together: Floats = fixed + q * moving
    return together


def _split_column(sums: Floats, column: int, mean: Floats, rest: float) -> Iterator[Floats]:
    """Yield the rows of a column that one, two or three rows have, if each part is the t² of its own row."""
    total = sums[column]
    if total < _TOLERANCE:
        return
    inner = sums[(sums > _TOLERANCE) & (sums < total - _TOLERANCE)]
    values = inner[np.concatenate([[True], np.diff(np.sort(inner)) > _TOLERANCE])] if inner.size else inner
    values = np.unique(np.round(values, 7))
    splits = [[total], *([v, total - v] for v in values)]
    splits += [[v, w, total - v - w] for v in values for w in values if v < w < total - v - w + total]
    for parts in splits:
        if min(parts) < _TOLERANCE:
            continue
        choices = np.array(np.meshgrid(*[[0, 1]] * len(parts))).reshape(len(parts), -1)
        offered = np.array(parts) @ choices
        apart = np.abs(sums[:, None] - offered)
        nearest = apart.argmin(axis=1)
        if apart.min(axis=1).max() > _TOLERANCE:
            continue
        rows = choices[:, nearest].astype(np.float64)
        lengths = rest + np.square((rows - mean) / np.sqrt(mean * (1 - mean))).sum(axis=1)
        if np.abs(np.array(parts) * lengths - 1).max() < 1e-3:
            yield from rows
            return
