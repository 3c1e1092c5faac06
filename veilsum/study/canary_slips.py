"""Compute a pack's features under slips that pipelines for images are known to make."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import combinations, product
from typing import Any

import numpy as np
import numpy.typing as npt

from veilsum.calibration.rows import as_array, unit_rows
from veilsum.protocol.errors import Misuse

Image = npt.NDArray[Any]
"""(height, width) or (height, width, channels), values as in the file."""
Extract = Callable[[Sequence[Image]], Any]
"""Returns the features of images, (n, dim): the whole pipeline, with resize and normalisation."""
Change = Callable[[Image], Image]
"""Makes a slip of one image."""
Floats = npt.NDArray[np.float64]

PAIR_MARK = "--"
"""Joins the names of two slips made at once."""
SLIP_NAME_LENGTH_MAX, SLIPS_MAX = 32, 64
SAME_MAX = 1e-6
"""A slip that changes no row of length 1 by more is too small to be found."""


def image_slips(
    extract: Extract,
    images: Sequence[Image],
    *,
    size: tuple[int, int] | None = None,
    variants: Mapping[str, Extract] | None = None,
) -> tuple[Floats, dict[str, Floats]]:
    """Compute the reference features of images, and their features under known slips.

    Args:
        extract: the extractor.
        images: public images. Their values go to `extract` as they are.
        size: (height, width) to which the extractor resizes images: then other ways to resize are tried too, on images of another size. The
            way that changes least is taken for the extractor's own.
        variants: the extractor with one step left out or changed, by the slip's name, such as
            `{"not-normalised": partial(extract, mean=0, std=1)}`.

    Returns:
        (n, dim) reference features; and those under each slip that changes them, by name. Another library often brings two slips at once:
        pairs of transposed images, another order of colour channels, another resize and a variant are named as `bgr--bicubic`.
    """
    shown = [np.asarray(each) for each in images]
    if not shown or any(each.ndim not in {2, 3} for each in shown):
        raise Misuse("images: expected at least one, each (height, width) or (height, width, channels)")
    reference, changes = _run(extract, shown), _list_changes(shown, size)
    unit, runs = unit_rows(reference)[0], dict(variants or {})

    def measure(features: Floats) -> float:
        return float(np.abs(unit_rows(features)[0] - unit).max())

    found = {name: _run(extract, map(change, shown)) for name, change in changes.items()}
    found |= {name: _run(run, shown) for name, run in runs.items()}
    if tried := [name for name in _RESIZES if name in found]:
        del found[min(tried, key=lambda name: measure(found[name]))]  # the extractor's own, up to rounding
    found = {name: each for name, each in found.items() if measure(each) > SAME_MAX}
    for first, second in _list_pairs(found, runs):
        changed = [changes[second](each) for each in shown]
        name = f"{first}{PAIR_MARK}{second}"
        found[name] = (
            _run(runs[first], changed) if first in runs else _run(extract, map(changes[first], changed))
        )
    return reference, {name: each for name, each in found.items() if measure(each) > SAME_MAX}


def _list_pairs(found: Collection[str], runs: Collection[str]) -> list[tuple[str, str]]:
    """List the slips that are tried two at a time, as many as a pack holds."""
    resizes = [name for name in _RESIZES if name in found]
    images = [name for name in ("transposed", "bgr") if name in found]
    pairs = [*product(images, resizes), *combinations(images, 2)]
    pairs += product([each for each in runs if each in found], [*images, *resizes])
    short = [pair for pair in pairs if len(PAIR_MARK.join(pair)) <= SLIP_NAME_LENGTH_MAX]
    return short[: max(0, SLIPS_MAX - len(found))]


def _run(extract: Extract, images: Iterable[Image]) -> Floats:
    shown = [np.ascontiguousarray(each) for each in images]
    features: Floats = as_array(extract(shown)).astype(np.float64)
    if features.ndim != 2 or len(features) != len(shown):
        raise Misuse(
            f"the extractor returned features of shape {features.shape} for {len(shown)} images: expected (n, dim)"
        )
    return features


def _list_changes(images: Sequence[Image], size: tuple[int, int] | None) -> dict[str, Change]:
    """Return the slips that can be made of these images alone: what each does to one."""
    found: dict[str, Change] = {}
    if size is not None or all(each.shape[0] == each.shape[1] for each in images):
        found |= {"transposed": lambda image: np.swapaxes(image, 0, 1), "rotated": np.rot90}
    found |= {
        "flipped": lambda image: image[:, ::-1],
        "upside-down": lambda image: image[::-1],
        "inverted": _invert,
    }
    if all(each.ndim == 3 and each.shape[2] == 3 for each in images):
        found["bgr"] = lambda image: image[:, :, ::-1]
    if size is not None and any(each.shape[:2] != size for each in images):
        found |= {name: partial(resize_image, size=size, how=name) for name in _RESIZES}
    return found


def _invert(image: Image) -> Image:
    top = np.iinfo(image.dtype).max if image.dtype.kind in "iu" else image.max() + image.min()
    inverted: Image = (top - image).astype(image.dtype)
    return inverted


def _triangle(distance: Floats) -> Floats:
    weights: Floats = np.maximum(0.0, 1 - np.abs(distance))
    return weights


def _cubic(distance: Floats) -> Floats:
    """Keys' kernel with a = −½, as Pillow has it."""
    near: Floats = np.abs(distance)
    a = -0.5
    inner = (a + 2) * near**3 - (a + 3) * near**2 + 1
    outer = a * (near**3 - 5 * near**2 + 8 * near - 4)
    return np.where(near < 1, inner, np.where(near < 2, outer, 0.0))


_RESIZES: dict[str, tuple[Callable[[Floats], Floats] | None, bool]] = {
    "nearest": (None, False),
    "bilinear": (_triangle, True),
    "bilinear-aliased": (_triangle, False),
    "bicubic": (_cubic, True),
}
"""Kernel, and whether it is widened where an image shrinks (antialiasing, as Pillow does and OpenCV does not)."""


def resize_image(image: Image, size: tuple[int, int], how: str) -> Image:
    """Resize to (height, width) by `nearest`, `bilinear`, `bilinear-aliased` or `bicubic`; integers are rounded."""
    kernel, widened = _RESIZES[how]
    rows, columns = (
        _resize_weights(before, after, kernel, widened=widened)
        for before, after in zip(image.shape[:2], size, strict=True)
    )
    found: Image = np.einsum("ih,hw...->iw...", rows, image.astype(np.float64))
    found = np.einsum("jw,iw...->ij...", columns, found)
    if image.dtype.kind in "iu":
        limits = np.iinfo(image.dtype)
        found = np.clip(np.rint(found), limits.min, limits.max)
    return found.astype(image.dtype)


def _resize_weights(
    before: int, after: int, kernel: Callable[[Floats], Floats] | None, *, widened: bool
) -> Floats:
    """Return (after, before) weights whose rows sum to 1."""
    scale = before / after
    centres, places = (np.arange(after) + 0.5) * scale, np.arange(before) + 0.5
    if kernel is None:
        nearest: Floats = np.eye(before)[np.floor(centres).astype(int)]
        return nearest
    weights = kernel((places - centres[:, None]) / (max(scale, 1.0) if widened else 1.0))
    found: Floats = weights / weights.sum(axis=1, keepdims=True)
    return found
