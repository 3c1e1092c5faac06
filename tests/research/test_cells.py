import pytest

from research.report import cells, paper_rows

from .conftest import Make


def test_runs_that_differ_in_the_seed_are_one_cell(make: Make) -> None:
    runs = [
        make(seed=1, accuracy=0.60),
        make(seed=0, accuracy=0.56),
        make(experiment="ccvr-moon", method="MOON"),
    ]
    fedavg, moon = cells(runs)
    assert [run.seed for run in fedavg.runs] == [0, 1]
    measured = fedavg.measured("none")
    assert measured.mean == pytest.approx(58)
    assert measured.spread == pytest.approx(2 * 2**0.5)
    assert str(measured) == "58.00 ± 2.83"
    assert str(moon.measured("ffc")) == "63.00"
    assert len(cells([make(), make(accuracy=0.1)])[0].runs) == 1


def test_runs_at_other_settings_are_another_cell_and_what_is_null_is_as_absent(make: Make) -> None:
    earlier = make(recipe={"lr": 0.01, "seed": 0})
    later = make(seed=1, recipe={"lr": 0.01, "seed": 1, "calibrate_every": None})
    changed = make(seed=2, recipe={"lr": 0.1, "seed": 2}, scale="with training.lr=0.1")
    found = cells([changed, later, earlier])
    assert [[run.seed for run in cell.runs] for cell in found] == [[0, 1], [2]]
    assert [cell.first.experiment for cell in found] == ["ccvr-fedavg", "ccvr-fedavg"]


def test_each_head_stands_beside_the_papers(make: Make) -> None:
    [cell] = cells([make()])
    trained, ccvr = cell.comparisons
    assert (trained.head, trained.paper, trained.paper_spread, trained.gain) == ("none", 58.55, 0.98, None)
    assert trained.difference == pytest.approx(58 - 58.55)
    assert (ccvr.head, ccvr.paper) == ("ccvr", 62.68)
    assert ccvr.gain == pytest.approx(4)
    assert ccvr.paper_gain == pytest.approx(62.68 - 58.55)
    assert cell.heads == ("none", "ffc", "ccvr")


def test_of_another_task_no_difference_is_stated_and_the_reasons_are(make: Make) -> None:
    small = make()
    data = small.data.model_copy(
        update={"name": "Fashion-MNIST", "stands_in_for": "CIFAR-10", "note": "10,000 of 60,000"}
    )
    [cell] = cells(
        [small.model_copy(update={"data": data, "scale": "20 rounds", "experiment": "ccvr-fedavg/small"})]
    )
    assert cell.differs == ("Fashion-MNIST stands in for CIFAR-10", "10,000 of 60,000", "20 rounds")
    assert {each.difference for each in cell.comparisons} == {None}
    assert cell.comparisons[1].gain == pytest.approx(4)
    other = small.data.model_copy(update={"name": "MNIST"})
    assert cells([small.model_copy(update={"data": other})])[0].differs == ("MNIST, the paper CIFAR-10",)


def test_a_paper_that_averages_its_last_rounds_is_met_by_the_same_mean(make: Make) -> None:
    line = make().history[0]
    rounds = [line.model_copy(update={"round": i + 1, "accuracy": i / 1000}) for i in range(1000)]
    [cell] = cells([make(experiment="fedetf-fedavg", history=rounds)])
    assert cell.row is not None
    assert (cell.row.average_last, cell.row.rounds, cell.averaged) == (50, 1000, 50)
    assert cell.comparisons[0].ours.mean == pytest.approx(100 * (0.95 + 0.999) / 2)
    assert cell.differs == ()


def test_fewer_rounds_are_averaged_over_the_papers_share_of_them(make: Make) -> None:
    line = make().history[0]
    rounds = [line.model_copy(update={"round": i + 1, "accuracy": i / 100}) for i in range(100)]
    [cell] = cells([make(experiment="fedetf-etf-gmv", history=rounds)])
    assert cell.comparisons[0].ours.mean == pytest.approx(
        97
    )  # of 95 … 99 %, all after the warm-up in round 90
    assert cell.differs == ("mean of the last 5 of 100 rounds, the paper's of 50 of 1,000",)
    [short] = cells([make(experiment="fedetf-etf-gmv", accuracy=0.6)])
    assert short.averaged == 1
    assert all(row.rounds > row.average_last for row in paper_rows().values() if row.average_last > 1)
