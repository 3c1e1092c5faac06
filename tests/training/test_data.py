import pytest
import torch

from training.data import Dataset, batches, load_digits_dataset


def test_digits_are_scaled_images_with_every_class_on_both_sides() -> None:
    train, test = load_digits_dataset(seed=0)
    assert len(train) + len(test) == 1797
    assert train.x.shape[1:] == (1, 8, 8)
    assert train.x.dtype == torch.float32
    assert float(train.x.min()) == 0
    assert float(train.x.max()) == 1
    shares = torch.bincount(test.y) / torch.bincount(torch.cat([train.y, test.y]))
    assert shares.sub(0.25).abs().max() < 0.01


def test_the_split_depends_on_the_seed_alone() -> None:
    assert torch.equal(load_digits_dataset(3).train.x, load_digits_dataset(3).train.x)
    assert not torch.equal(load_digits_dataset(3).train.y, load_digits_dataset(4).train.y)


def test_a_subset_keeps_the_order_asked_for() -> None:
    data = Dataset(torch.arange(4.0)[:, None], torch.tensor([0, 1, 2, 0]), 3, "toy")
    subset = data.subset(torch.tensor([3, 1]))
    assert subset.x.flatten().tolist() == [3, 1]
    assert subset.y.tolist() == [0, 1]
    assert len(data.subset(torch.tensor([], dtype=torch.int64))) == 0


@pytest.mark.parametrize(
    ("labels", "reason"),
    [([0], "shape"), ([0, 3], r"0\.\.2"), ([-1, 0], r"0\.\.2")],
)
def test_labels_must_fit(labels: list[int], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Dataset(torch.zeros(2, 1), torch.tensor(labels), 3, "toy")


@pytest.mark.parametrize(
    ("records", "sizes"),
    [(9, [4, 5]), (8, [4, 4]), (10, [4, 4, 2]), (1, [1]), (3, [3])],
)
def test_an_epoch_visits_every_record_and_leaves_no_batch_of_one(records: int, sizes: list[int]) -> None:
    parts = list(batches(records, 4))
    assert [len(part) for part in parts] == sizes
    assert sorted(torch.cat(parts).tolist()) == list(range(records))
