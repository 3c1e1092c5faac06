import torch

from tests.training.conftest import linear_model, site_of
from training.algorithms.aggregations import FedAvg
from training.algorithms.base import Batch, TrainingRound
from training.algorithms.features import GlobalMemory, PrintedMemory
from training.algorithms.named import ALGORITHMS

X = torch.tensor([[1.0, 0.0], [3.0, 2.0], [0.0, 5.0]])
Y = torch.tensor([0, 0, 2])
MEANS = torch.tensor([[1.0, 0.0], [0.0, 2.0], [4.0, 4.0]])


def test_the_head_sees_the_plain_feature_and_its_classs_vector() -> None:
    site = site_of(linear_model(classes=3), X, Y, broadcast={"means": MEANS}, round=TrainingRound(7, 0.1, 2))
    seen = GlobalMemory(alpha=0.5, warmup=8).features(X, Y, site)  # the eighth round's index is 7
    assert seen.tolist() == [[1.5, 0.0], [3.5, 2.0], [2.0, 7.0]]
    assert torch.equal(GlobalMemory(alpha=0.5, warmup=9).features(X, Y, site), X)


def test_a_member_sends_its_own_means_and_which_classes_it_holds() -> None:
    model = linear_model(classes=3)
    term = GlobalMemory()
    site = site_of(model, X, Y, broadcast=term.start(model))
    message, memory = term.finish(site, 5)
    assert message["means"].tolist() == [[2.0, 1.0], [0.0, 0.0], [0.0, 5.0]]
    assert message["holders"].tolist() == [1.0, 0.0, 1.0]
    assert memory == {}
    assert model.training


ONE = {"means": torch.tensor([[2.0, 1.0], [0.0, 0.0], [0.0, 5.0]]), "holders": torch.tensor([1.0, 0, 1])}
TWO = {"means": torch.tensor([[4.0, 3.0], [0.0, 0.0], [0.0, 0.0]]), "holders": torch.tensor([1.0, 0, 0])}


def test_the_server_averages_the_holders_and_keeps_what_nobody_held() -> None:
    after = GlobalMemory().reduce({"means": MEANS}, [ONE, TWO], TrainingRound(0, 0.1, 2))
    assert after["means"].tolist() == [[3.0, 2.0], [0.0, 2.0], [0.0, 5.0]]


def test_as_printed_the_server_divides_by_all_participants() -> None:
    after = PrintedMemory().reduce({"means": MEANS}, [ONE, TWO], TrainingRound(0, 0.1, 2))
    assert after["means"].tolist() == [[3.0, 2.0], [0.0, 0.0], [0.0, 2.5]]
    early = PrintedMemory(warmup=60).reduce({"means": MEANS}, [{}], TrainingRound(8, 0.1, 2))
    assert early == {"means": MEANS}
    assert ALGORITHMS["gmv"](over="participants").terms == (PrintedMemory(),)
    assert ALGORITHMS["gmv"]().terms == (GlobalMemory(),)
    assert PrintedMemory() != GlobalMemory()  # nor are their recipes


def test_participants_count_alike_or_by_their_records() -> None:
    for name in ("gmv", "scaffold"):
        alike, by_records = ALGORITHMS[name](), ALGORITHMS[name](uniform=False)
        assert (alike.aggregation, by_records.aggregation) == (FedAvg(uniform=True), FedAvg())
        told = [[getattr(term, "uniform", None) for term in each.terms] for each in (alike, by_records)]
        assert told == ([[True], [False]] if name == "scaffold" else [[None], [None]])


def test_nothing_is_computed_long_before_it_is_of_use() -> None:
    model, term = linear_model(classes=3), GlobalMemory(warmup=60)
    early = site_of(model, X, Y, broadcast=term.start(model), round=TrainingRound(8, 0.1, 2))
    assert term.finish(early, 1) == ({}, {})
    assert term.reduce({"means": MEANS}, [{}], TrainingRound(8, 0.1, 2)) == {"means": MEANS}
    last = site_of(model, X, Y, broadcast=term.start(model), round=TrainingRound(9, 0.1, 2))
    assert term.finish(last, 1)[0].keys() == {"means", "holders"}
    assert term.penalty(Batch(X, Y, X, X), last) == 0
