import pytest
import torch

from training.data.catalogue import load_digits_dataset
from training.data.dataset import Dataset, crop_and_flip, draw_moves, draw_stratified, shuffle_batches


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


def test_a_subset_keeps_the_order_asked_for_groups_names_and_moments() -> None:
    data = Dataset(
        torch.arange(12, dtype=torch.uint8).reshape(3, 1, 2, 2),
        torch.tensor([0, 1, 1]),
        2,
        "toy",
        torch.tensor([5, 6, 7]),
        ("a", "b"),
        mean=(0.5,),
        std=(0.2,),
    )
    subset = data.subset(torch.tensor([2, 0]))
    assert subset.x[:, 0, 0, 0].tolist() == [8, 0]
    assert subset.y.tolist() == [1, 0]
    assert subset.groups is not None
    assert subset.groups.tolist() == [7, 5]
    assert len(data.subset(torch.tensor([], dtype=torch.int64))) == 0
    assert (subset.class_names, subset.mean, subset.std, subset.shape) == (
        ("a", "b"),
        (0.5,),
        (0.2,),
        (1, 2, 2),
    )


def test_a_smaller_image_holds_the_means_of_the_areas() -> None:
    x = torch.tensor([[[[0, 10, 20, 30], [10, 20, 30, 41], [1, 1, 2, 2], [1, 1, 2, 2]]]], dtype=torch.uint8)
    data = Dataset(x, torch.tensor([0]), 1, "toy")
    assert data.resize_images(2).x.tolist() == [[[[10, 30], [1, 2]]]]
    assert data.resize_images(2).x.dtype == torch.uint8
    assert data.resize_images(4) is data
    floats = Dataset(x / 255, torch.tensor([0]), 1, "toy").resize_images(2)
    torch.testing.assert_close(floats.x, torch.tensor([[[[10, 30.25], [1, 2]]]]) / 255)


def test_a_stratified_draw_keeps_the_classes_shares() -> None:
    labels = torch.tensor([0] * 60 + [1] * 30 + [2] * 10)[
        torch.randperm(100, generator=torch.Generator().manual_seed(0))
    ]
    drawn = draw_stratified(labels, 50, torch.Generator().manual_seed(1))
    assert labels[drawn].bincount().tolist() == [30, 15, 5]
    assert sorted(set(drawn.tolist())) == drawn.tolist()
    again, other = (draw_stratified(labels, 50, torch.Generator().manual_seed(seed)) for seed in (1, 2))
    assert torch.equal(drawn, again)
    assert not torch.equal(drawn, other)
    for records in (0, 101):
        with pytest.raises(ValueError, match=f"{records} of 100"):
            draw_stratified(labels, records, torch.Generator())


@pytest.mark.parametrize(
    ("records", "sizes"), [(9, [4, 5]), (8, [4, 4]), (10, [4, 4, 2]), (1, [1]), (3, [3])]
)
def test_an_epoch_visits_every_record_and_leaves_no_batch_of_one(records: int, sizes: list[int]) -> None:
    parts = list(shuffle_batches(records, 4))
    assert [len(part) for part in parts] == sizes
    assert sorted(torch.cat(parts).tolist()) == list(range(records))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_every_image_is_a_shift_of_itself_or_its_mirror(dtype: torch.dtype) -> None:
    x = (torch.arange(40 * 2 * 3 * 5) % 251 + 1).reshape(40, 2, 3, 5).to(dtype)
    before = x.clone()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        y = crop_and_flip(x, draw_moves(len(x), padding=1), padding=1)
    assert y.shape == x.shape
    assert y.dtype == dtype
    assert torch.equal(x, before)
    seen = set()
    for image, moved in zip(x, y, strict=True):
        padded = torch.nn.functional.pad(image, (1, 1, 1, 1))
        cuts = {
            (top, left): padded[:, top : top + 3, left : left + 5] for top in range(3) for left in range(3)
        }
        both = {
            (*at, flip): cut.flip(2) if flip else cut for at, cut in cuts.items() for flip in (False, True)
        }
        fits = [at for at, cut in both.items() if torch.equal(moved, cut)]
        assert len(fits) == 1, fits
        seen.add(fits[0])
    assert len(seen) > 12


def test_a_device_s_own_generator_has_no_say() -> None:
    after = []
    for device in ("cpu", "meta"):  # in place of a GPU
        with torch.random.fork_rng():
            torch.manual_seed(0)
            moved = crop_and_flip(torch.zeros(8, 1, 6, 6, device=device), draw_moves(8, device))
            assert moved.device.type == device
            after.append(torch.rand(3))
    assert torch.equal(*after)
