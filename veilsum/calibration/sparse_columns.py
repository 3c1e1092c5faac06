"""Features that too few of a member's rows have: they are set to 0 before an exact sum, and what is left is counted.

Of a feature j that one row alone has, V[j]/√V[j, j] is that row. So a member clears a feature in all rows of a vector if fewer than
`HOLDERS_MIN` of them have it, or if one of them holds more than half of its Σz². This is decided once, and no row is scaled again.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from veilsum.calibration.rows import Floats, Integers

HOLDERS_MIN = 5
"""Rows that must have a feature. Measured: a larger number costs up to 16 points of accuracy."""


class SparseColumns:
    """How many rows of a vector have each feature, over all rows or within each class; then the features to clear.

    Pass every row to `count` first, then `clear` the same rows.

    Args:
        dim: features per row.
        classes: C to decide within each class; None to decide over all rows.
    """

    def __init__(self, dim: int, classes: int | None = None) -> None:
        self.by_class = classes is not None
        groups = 1 if classes is None else classes
        self._rows = np.zeros(groups, np.int64)
        self._holders = np.zeros((groups, dim), np.int64)
        self._squares, self._peaks = np.zeros((groups, dim)), np.zeros((groups, dim))

    def count(self, rows: Floats, labels: Integers) -> None:
        """Add (n, dim) float64 rows z, scaled to length 1, and their class indices.

        Squares are added in the order of the rows, so that a feature's Σz² is the same to the last bit however rows are cut into blocks.
        """
        for group, places in self._groups(labels):
            part = rows[places]
            squares = part * part
            self._rows[group] += len(part)
            self._holders[group] += np.count_nonzero(part, axis=0)
            np.maximum(self._peaks[group], squares.max(axis=0, initial=0), out=self._peaks[group])
            total = self._squares[group]
            for square in squares:
                total += square

    def clear(self, rows: Floats, labels: Integers) -> None:
        """Set the sparse features of (n, dim) rows to 0, in place."""
        for group, sparse in enumerate(self.sparse):
            columns = np.flatnonzero(sparse)
            if not self.by_class:
                rows[:, columns] = 0
            elif columns.size:
                rows[np.ix_(np.flatnonzero(labels == group), columns)] = 0

    @property
    def sparse(self) -> NDArray[np.bool_]:
        """Which features are cleared, (1, dim) or (C, dim). If one row holds exactly half of Σz², the feature stays."""
        sparse: NDArray[np.bool_] = (self._holders < HOLDERS_MIN) | (2 * self._peaks > self._squares)
        return sparse

    @property
    def entries(self) -> Integers:
        """Non-zero features that are left in the rows of each group, together, (1,) or (C,)."""
        left: Integers = np.where(self.sparse, 0, self._holders).sum(axis=1)
        return left

    def rows_suffice(self, numbers: int, honest_members: int) -> bool:
        """Tell whether the rows suffice for a vector of `numbers` numbers, if `honest_members` send as much: `entries_suffice`."""
        return entries_suffice(
            int(self._rows.sum()), int(self.entries.sum()), numbers, honest_members=honest_members
        )

    def classes_suffice(self, numbers: int, honest_holders: int) -> NDArray[np.bool_]:
        """Tell for each class whether its rows suffice for `numbers` numbers of its own, if `honest_holders` send as much, (C,)."""
        assert self.by_class
        pairs = zip(self._rows.tolist(), self.entries.tolist(), strict=True)
        return np.array(
            [
                entries_suffice(rows, entries, numbers, honest_members=honest_holders)
                for rows, entries in pairs
            ],
            np.bool_,
        )

    def _groups(self, labels: Integers) -> Iterator[tuple[int, slice | NDArray[np.intp]]]:
        """Yield each group that is present, with the places of its rows, ascending."""
        if not self.by_class:
            yield 0, slice(None)
            return
        for label in np.unique(labels).tolist():
            yield label, np.flatnonzero(labels == label)


def entries_suffice(rows: int, entries: int, numbers: int, *, honest_members: int) -> bool:
    """Tell whether rows · (entries a row − 1) ≥ 2 · numbers / honest_members, exactly.

    A row of length 1 with k non-zero features has k − 1 unknowns. Where all honest members pass, a sum of `numbers` numbers has half as many
    equations as unknowns at the most.

    Args:
        rows: a member's rows.
        entries: their non-zero features together, after sparse ones were cleared.
        numbers: M of the vector, or those that one class alone feeds.
        honest_members: the fewest honest members whose rows are summed.
    """
    return (entries - rows) * honest_members >= 2 * numbers
