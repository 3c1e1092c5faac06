"""Compute a pack's features under slips that pipelines for images are known to make."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from veilsum.calibration.rows import as_array, unit_rows
from veilsum.protocol.errors import Misuse

Image = npt.NDArray[Any]
"""(height, width) or (height, width, channels), values as in the file."""
Extract = Callable[[Sequence[Image]], Any]
"""Returns the features of images, (n, dim): the whole pipeline, with resize and normalisation."""
Floats = npt.NDArray[np.float64]

_SAME_MAX = 1e-6
"""A slip that changes no row of length 1 by more is left out."""


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
        (n, dim) reference features; and those under each slip that changes them, by name.
    """
    shown = [np.asarray(each) for each in images]
    if not shown or any(each.ndim not in {2, 3} for each in shown):
        raise Misuse("images: expected at least one, each (height, width) or (height, width, channels)")
    reference = _run(extract, shown)
    found = {name: _run(extract, changed) for name, changed in _change_images(shown, size)}
    found |= {name: _run(changed, shown) for name, changed in (variants or {}).items()}
    unit = unit_rows(reference)[0]
    changes = {name: float(np.abs(unit_rows(each)[0] - unit).max()) for name, each in found.items()}
    if tried := [name for name in _RESIZES if name in changes]:
        del changes[min(tried, key=changes.__getitem__)]  # the extractor's own, up to rounding
    return reference, {name: found[name] for name, change in changes.items() if change > _SAME_MAX}


def _run(extract: Extract, images: Sequence[Image]) -> Floats:
    features: Floats = as_array(extract(images)).astype(np.float64)
    if features.ndim != 2 or len(features) != len(images):
        raise Misuse(
            f"the extractor returned features of shape {features.shape} for {len(images)} images: expected (n, dim)"
        )
    return features


def _change_images(
    images: Sequence[Image], size: tuple[int, int] | None
) -> Iterator[tuple[str, list[Image]]]:
    """Yield the images under each slip that can be made of them."""
    if size is not None or all(each.shape[0] == each.shape[1] for each in images):
        yield "transposed", [np.swapaxes(each, 0, 1).copy() for each in images]
        yield "rotated", [np.rot90(each).copy() for each in images]
    yield "flipped", [each[:, ::-1].copy() for each in images]
    yield "upside-down", [each[::-1].copy() for each in images]
    yield "inverted", [_invert(each) for each in images]
    if all(each.ndim == 3 and each.shape[2] == 3 for each in images):
        yield "bgr", [each[:, :, ::-1].copy() for each in images]
    if size is not None and any(each.shape[:2] != size for each in images):
        for name in _RESIZES:
            yield name, [resize_image(each, size, name) for each in images]


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
