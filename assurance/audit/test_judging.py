"""A small version of `make judge-intervals`."""

import numpy as np
import pytest

from assurance.audit.judging import Population, list_faults, list_figures, simulate
from veilsum.calibration.judge_tables import tabulate_records


@pytest.fixture(scope="module", params=[2, 10])
def population(request: pytest.FixtureRequest) -> Population:
    return Population(request.param, size=20_000)


def test_the_population_is_counted_as_members_count_their_records(population: Population) -> None:
    chosen = np.random.default_rng(0).integers(population.size, size=500)
    counted = tabulate_records(
        population.shapes, population.shown, population.features[chosen], population.labels[chosen]
    )
    assert (counted == population.tabulate(chosen)).all()


def test_intervals_hold(population: Population) -> None:
    rows = []
    for records in (1_000, 20_000):
        found, loss = simulate(population, records, 30, seed=1)
        setting = {"classes": population.classes, "records": records}
        rows += [{**setting, "figure": kind, **vars(seen)} for kind, seen in found.items()]
        rows.append({**setting, "figure": "choice", "loss": loss})
    assert [fault for fault in list_faults(rows, 30) if "hold with" in fault] == []


def test_without_noise_the_whole_population_has_its_true_figures(population: Population) -> None:
    verdict = population.judge(population.tabulate(np.arange(population.size)), 0.0)
    for kind, figures in list_figures(verdict).items():
        for figure, truth in zip(figures, population.true_values[kind], strict=True):
            assert (figure is None) == (truth is None)
            if figure is not None and truth is not None:
                near = 0.004 if kind in {"AUROC", "calibration error"} else 0.001
                assert figure.value == pytest.approx(truth, abs=near), kind
