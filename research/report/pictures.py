"""Figures of runs on the same data and deal, as far as their results have the numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from research import plots
from research.report.cells import HEADS
from veilsum.cli.plots import label_distribution, per_class_accuracy

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from research.report.cells import Cell
    from training.results import PerClass, RunResult

_MOST_CLASSES = 30
_MOST_LINES = 18


class Picture(NamedTuple):
    """A figure: a data URI, its alternative text and its caption."""

    image: str
    alternative: str
    caption: str


def pictures(found: Sequence[Cell]) -> Iterator[Picture]:
    """Figures of cells that share data and deal."""
    yield from _by_head(found)
    yield _rounds(found)
    yield from _classes(found)
    yield _labels(found[0])
    yield from _sweeps(found)
    yield from _similarity(found)
    yield from _heads(found)
    yield from _separability(found)
    yield from _embeddings(found)


def _by_head(found: Sequence[Cell]) -> Iterator[Picture]:
    if len(found) > 1 and any(len(cell.heads) > 1 for cell in found):
        names = {
            _name(cell, found): {
                HEADS.get(head, head): [
                    value for run in cell.runs if (value := run.accuracy_after(head)) is not None
                ]
                for head in cell.heads
            }
            for cell in found
        }
        yield Picture(
            plots.accuracy_by_head(names),
            "Accuracy of each method under the trained head and each calibration; the table above holds the numbers.",
            "Means over seeds.",
        )


def _rounds(found: Sequence[Cell]) -> Picture:
    shown = found[:_MOST_LINES]
    runs = {_name(cell, found): [_curve(run) for run in cell.runs] for cell in shown}
    return Picture(
        plots.accuracy_bands(runs),
        "Test accuracy after each round, by method; the table above holds the final values.",
        "Lines are means over seeds, bands reach from the lowest seed to the highest."
        + (f" The first {_MOST_LINES} methods are drawn." if len(found) > _MOST_LINES else ""),
    )


def _curve(run: RunResult) -> list[float]:
    """Return the accuracy after each round, interpolated where it was not evaluated."""
    evaluated = {line.round: line.accuracy for line in run.history if line.accuracy is not None}
    rounds = [line.round for line in run.history]
    curve: list[float] = np.interp(rounds, list(evaluated), list(evaluated.values())).tolist()
    return curve


def _classes(found: Sequence[Cell]) -> Iterator[Picture]:
    """Draw the cell that a calibration helped most."""
    best: tuple[float, Cell, str] | None = None
    for cell in found:
        for each in cell.first.calibrations:
            if each.per_class and cell.first.per_class and len(each.per_class) <= _MOST_CLASSES:
                gain = each.accuracy - cell.first.accuracy
                if best is None or gain > best[0]:
                    best = (gain, cell, each.kind)
    if best is None:
        return
    _, cell, kind = best
    after = next(each for each in cell.first.calibrations if each.kind == kind)
    before, later = _array(cell.first.per_class), _array(after.per_class)
    known = np.isfinite(before) & np.isfinite(later)
    name = HEADS.get(kind, kind)
    yield Picture(
        per_class_accuracy(
            before[known],
            later[known],
            class_names=[str(c) for c in np.flatnonzero(known)],
            labels=("trained head", name),
        ),
        f"Accuracy by class before and after {name}.",
        f"{cell.first.method}, seed {cell.first.seed}, the trained head's worst class first: of these runs the one that a calibration helped most.",
    )


def _labels(cell: Cell) -> Picture:
    counts = np.array(cell.first.deal.label_counts)
    moved = cell.first.deal.moved
    return Picture(
        label_distribution(counts),
        "Records of each class at each member.",
        f"Seed {cell.first.seed}."
        + (f" {moved} records were moved by a repair, so that no member has too few." if moved else ""),
    )


def _sweeps(found: Sequence[Cell]) -> Iterator[Picture]:
    names = {"ridge": "λ", "per_class": "virtual features a class"}
    keys = sorted(
        {(sweep.kind, sweep.parameter) for cell in found for run in cell.runs for sweep in run.sweeps}
    )
    for kind, parameter in keys:
        values, accuracies = {}, {}
        for cell in found:
            own = [s for run in cell.runs for s in run.sweeps if (s.kind, s.parameter) == (kind, parameter)]
            if own:
                # Seeds that tried other values can't share a line with the first one's.
                same = [s.accuracies for s in own if s.values == own[0].values]
                values[_name(cell, found)], accuracies[_name(cell, found)] = own[0].values, same
        yield Picture(
            plots.sweep_curve(values, accuracies, parameter=names.get(parameter, parameter)),
            f"Accuracy of {HEADS.get(kind, kind)} over {names.get(parameter, parameter)}.",
            f"{HEADS.get(kind, kind)}: means over seeds, bands from the lowest to the highest.",
        )


def _similarity(found: Sequence[Cell]) -> Iterator[Picture]:
    with_cka = {
        _name(cell, found): {layer: np.array(m, dtype=float) for layer, m in cell.first.analyses.cka.items()}
        for cell in found
        if cell.first.analyses.cka
    }
    if with_cka:
        yield Picture(
            plots.layer_similarity(with_cka),
            "Centred kernel alignment between members' models, by layer.",
            "Members' models after one more local training, on the same test records. CCVR found deeper layers to agree less, and heads least.",
        )


def _heads(found: Sequence[Cell]) -> Iterator[Picture]:
    spectra = {
        _name(cell, found): np.array(cell.first.analyses.singular_values)
        for cell in found
        if cell.first.analyses.singular_values
    }
    if spectra:
        yield Picture(
            plots.singular_values(spectra),
            "Singular values of the global head, each over its largest.",
            "FedUV found the tail of a head that uneven data trained to fall off: directions in which it no longer tells classes apart.",
        )
    biased = next((cell for cell in found if cell.first.analyses.head_norms), None)
    if biased is not None:
        analyses, counts = biased.first.analyses, np.array(biased.first.deal.label_counts)
        norms = np.array(analyses.head_norms, dtype=float)
        said = "; ".join(
            f"{name} {value:.3f}" for name, value in analyses.consistency.items() if value is not None
        )
        if norms.shape == counts.shape:
            yield Picture(
                plots.head_norms(norms, counts),
                "The norm of each class vector at each member over the records it holds of the class.",
                f"{biased.first.method}. Over members: {said}." if said else f"{biased.first.method}.",
            )


def _separability(found: Sequence[Cell]) -> Iterator[Picture]:
    distance, gain = {}, {}
    for cell in found:
        best = max((each.accuracy for each in cell.first.calibrations), default=None)
        if cell.first.analyses.separability is not None and best is not None:
            distance[_name(cell, found)] = cell.first.analyses.separability
            gain[_name(cell, found)] = best - cell.first.accuracy
    if len(distance) > 1:
        yield Picture(
            plots.separability_gain(distance, gain),
            "Gain by the best calibration over the distance between classes' features.",
            "CCVR forecasts the gain by that distance. Features are scaled to a mean square norm of one, so that methods compare.",
        )


def _embeddings(found: Sequence[Cell]) -> Iterator[Picture]:
    for cell in found:
        analyses = cell.first.analyses
        if analyses.embedding:
            predicted = {
                HEADS.get(name, name): np.array(values) for name, values in analyses.predicted.items()
            }
            yield Picture(
                plots.embedding(
                    np.array(analyses.embedding, dtype=float), np.array(analyses.labels), predicted
                ),
                f"t-SNE of test features of {cell.first.method}, by class and with each head's errors.",
                f"{cell.first.method}: neighbourhoods mean something, distances between clusters don't.",
            )
            return


def _name(cell: Cell, found: Sequence[Cell]) -> str:
    # Two experiments may share a method's name; then the experiment's own tells them apart, or else their order.
    method, experiment = cell.first.method, cell.first.experiment
    if sum(other.first.method == method for other in found) == 1:
        return method
    same = [other for other in found if other.first.experiment == experiment]
    return experiment if len(same) == 1 else f"{experiment}, {same.index(cell) + 1}"


def _array(accuracies: PerClass) -> npt.NDArray[np.float64]:
    return np.array([np.nan if value is None else value for value in accuracies])
