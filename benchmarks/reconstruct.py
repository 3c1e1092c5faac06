"""What V of a single member reveals about its records: `python -m benchmarks.reconstruct` draws docs/concepts/reconstructed.png.

Features are the pixels of scikit-learn's digits, scaled to length 1, so that feature vectors can be displayed. V = Σ z zᵀ of one record
has that record as its only eigenvector. With more records, eigenvectors are mixtures, but their span still contains each record.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from sklearn.datasets import load_digits

RECORDS = (1, 2, 5, 50)
SHOWN = 5
PICTURE = Path("docs/concepts/reconstructed.png")
_RANK = 1e-9

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Reading:
    """The result of V's eigendecomposition.

    Attributes:
        records: (n, l), of length 1.
        vectors: (r, l), eigenvectors by falling eigenvalue, r the rank of V.
        likeness: |cos| between the first eigenvector and the record most similar to it.
        strangers: the same for as many records of others: the likeness to expect by chance.
        outside: median distance of 200 other records from the span of V; the member's own records lie in it.
    """

    records: Floats
    vectors: Floats
    likeness: float
    strangers: float
    outside: float


def read(records: int, seed: int = 2) -> Reading:
    """Compute V of this many random records, and analyse it."""
    pixels = load_digits().data
    drawn = np.random.default_rng(seed).permutation(pixels / np.linalg.norm(pixels, axis=1, keepdims=True))
    own, others = drawn[:records], drawn[-200:]
    values, vectors = np.linalg.eigh(own.T @ own)
    falling = vectors[:, ::-1].T[: int((values > _RANK * values[-1]).sum())]
    falling *= np.where(falling.sum(axis=1, keepdims=True) < 0, -1, 1)
    outside = np.linalg.norm(others - (others @ falling.T) @ falling, axis=1)
    return Reading(
        own,
        falling,
        float((own @ falling[0]).max()),
        float((others[:records] @ falling[0]).max()),
        float(np.median(outside)),
    )


def draw(readings: list[Reading]) -> Figure:
    """Draw a row for each reading: records on the left, the first eigenvectors on the right."""
    figure = Figure(figsize=(8, 3.7), dpi=110, facecolor="white")
    spaces = {"wspace": 0.1, "hspace": 0.35, "left": 0.01, "right": 0.99, "top": 0.87, "bottom": 0.01}
    cells = figure.subplots(len(readings), 2 * SHOWN + 1, gridspec_kw=spaces, squeeze=False)
    for row, found in zip(cells, readings, strict=True):
        for cell in row:
            cell.set_axis_off()
        for cell, record in zip(row[:SHOWN], found.records, strict=False):
            cell.imshow(record.reshape(8, 8), cmap="gray_r")
        for cell, vector in zip(row[SHOWN + 1 :], found.vectors, strict=False):
            cell.imshow(vector.reshape(8, 8), cmap="gray_r")
        said = f"the first is like a record: {found.likeness:.2f}; like a stranger's: {found.strangers:.2f}"
        row[SHOWN + 1].set_title(said, fontsize=8, loc="left", pad=2)
        count = len(found.records)
        more = f", {SHOWN} shown" if count > SHOWN else ""
        row[0].set_title(f"{count} record{'s' if count > 1 else ''}{more}", fontsize=8, loc="left", pad=2)
    figure.text(0.015, 0.95, "One member's records", fontsize=9, weight="bold")
    figure.text(0.555, 0.95, "What its V gives: the first eigenvectors", fontsize=9, weight="bold")
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=PICTURE)
    output = parser.parse_args().output
    readings = [read(records) for records in RECORDS]
    draw(readings).savefig(output)
    for found in readings:
        print(
            f"{len(found.records):3} records: first eigenvector like one {found.likeness:.2f}, like a stranger's {found.strangers:.2f}; "
            f"strangers lie outside by {found.outside:.2f}"
        )


if __name__ == "__main__":
    main()
