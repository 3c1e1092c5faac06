import pytest
import torch

from training.data import crop_and_flip


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_every_image_is_a_shift_of_itself_or_its_mirror(dtype: torch.dtype) -> None:
    x = (torch.arange(40 * 2 * 3 * 5) % 251 + 1).reshape(40, 2, 3, 5).to(dtype)
    before = x.clone()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        y = crop_and_flip(x, padding=1)
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


def test_the_seed_decides() -> None:
    x = torch.rand(8, 1, 6, 6)
    results = []
    for seed in (1, 1, 2):
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            results.append(crop_and_flip(x))
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])


def test_without_padding_only_the_mirror_is_left() -> None:
    x = torch.rand(30, 1, 4, 4)
    y = crop_and_flip(x, padding=0)
    same = (y == x).flatten(1).all(1)
    assert torch.equal(y[~same], x[~same].flip(3))
    assert 0 < same.sum() < 30


def test_a_device_s_own_generator_has_no_say() -> None:
    after = []
    for device in ("cpu", "meta"):  # which stands for a GPU
        with torch.random.fork_rng():
            torch.manual_seed(0)
            crop_and_flip(torch.zeros(8, 1, 6, 6, device=device))
            after.append(torch.rand(3))
    assert torch.equal(*after)
