from typing import Any

from research import reproduce_row
from training.experiments import load_experiment

QUICK: dict[str, Any] = {
    "training": {"rounds": 3, "local_epochs": 1},
    "model": {"architecture": "mlp"},
    "deal": {"name": "iid", "members": 2},
    "data": {"train_records": 200},
    "calibrate": {"ffc": {}},
}
DIGITS = load_experiment("digits-fedavg", None, QUICK)


def test_the_rows_are_at_the_papers_own_rounds() -> None:
    for row, model in (("ccvr", "moon_cnn"), ("hundred-classes", "mobilenetv2")):
        fedavg, spherefed = reproduce_row.experiments(row, shortened=False)
        assert (fedavg.method, spherefed.method) == ("FedAvg", "SphereFed")
        for each in (fedavg, spherefed):
            assert (each.training.rounds, each.training.local_epochs) == (100, 10)
            assert each.deal == {"name": "dirichlet", "members": 10, "alpha": 0.1}
            assert each.model.architecture == model
            assert each.data.train_records is None
            assert each.scale == ""
    [short, _] = reproduce_row.experiments("hundred-classes", shortened=True)
    assert (short.training.rounds, short.training.local_epochs, short.data.train_records) == (8, 1, 6_000)
    assert short.scale
