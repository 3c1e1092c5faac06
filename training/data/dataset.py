"""Labelled data as two tensors, its batches, samples and augmentation."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import torch
from torch import Tensor
from torch.nn import functional

_RESIZE_BATCH = 4096


@dataclass(frozen=True)
class Dataset:
    """Labelled records.

    Attributes:
        x: images of shape (n, channels, height, width), uint8 in 0..255 as published, which the extractor scales, or float32 in
            0..1; or float32 vectors of shape (n, length).
        y: labels, int64 of shape (n,), each in 0..classes-1.
        classes: C.
        name: for reports.
        groups: the natural member of each record (a writer, a speaker, a domain), int64 of shape (n,); or None.
        class_names: C names, or none.
        group_names: a name for each group, or none.
        mean: each channel's published mean in 0..1, for `ExtractorConfig.of`; or none.
        std: each channel's standard deviation; or none.

    Raises:
        ValueError: if x, y and groups disagree in length, or a label is out of range.
    """

    x: Tensor
    y: Tensor
    classes: int
    name: str
    groups: Tensor | None = None
    class_names: tuple[str, ...] = ()
    group_names: tuple[str, ...] = ()
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.y.shape != (len(self.x),):
            raise ValueError(
                f"y must have shape ({len(self.x)},), one label a record, not {tuple(self.y.shape)}"
            )
        if self.groups is not None and self.groups.shape != self.y.shape:
            raise ValueError(
                f"groups must have shape ({len(self.x)},), one a record, not {tuple(self.groups.shape)}"
            )
        if len(self) and not 0 <= int(self.y.min()) <= int(self.y.max()) < self.classes:
            raise ValueError(f"labels must lie in 0..{self.classes - 1}")

    def __len__(self) -> int:
        return len(self.x)

    @property
    def shape(self) -> tuple[int, ...]:
        """One input's (channels, height, width), or (length,)."""
        return tuple(self.x.shape[1:])

    def subset(self, indices: Tensor) -> Self:
        """Return the records at `indices`, of shape (m,), in that order."""
        groups = None if self.groups is None else self.groups[indices]
        return replace(self, x=self.x[indices], y=self.y[indices], groups=groups)

    def resize_images(self, side: int) -> Self:
        """Return the images at `side` × `side` pixels, each the mean of the area that it covers."""
        if self.shape[1:] == (side, side):
            return self
        parts = [
            functional.interpolate(part.float(), size=(side, side), mode="area")
            for part in torch.split(self.x, _RESIZE_BATCH)
        ]
        x = torch.cat([part.round().byte() if self.x.dtype == torch.uint8 else part for part in parts])
        return replace(self, x=x)


class Split(NamedTuple):
    """Training and test records."""

    train: Dataset
    test: Dataset


def draw_stratified(labels: Tensor, records: int, generator: torch.Generator) -> Tensor:
    """Draw `records` records with the class shares of `labels`, of shape (n,), and return their sorted indices.

    Raises:
        ValueError: if there are fewer records.
    """
    if not 0 < records <= len(labels):
        raise ValueError(f"{records} of {len(labels)} records can't be drawn")
    # Each class's records get ranks spread evenly over 0..1; the lowest ranks of all classes are drawn.
    order = torch.randperm(len(labels), generator=generator)
    ranks = torch.empty(len(labels), dtype=torch.float64)
    for label in torch.unique(labels):
        own = order[labels[order] == label]
        ranks[own] = (torch.arange(len(own), dtype=torch.float64) + 0.5) / len(own)
    return ranks.argsort(stable=True)[:records].sort().values


def shuffle_batches(records: int, batch_size: int, device: str | torch.device = "cpu") -> Iterator[Tensor]:
    """Shuffle one epoch into batches: index tensors on the device, from a permutation by the CPU generator.

    A last batch of one record joins the batch before it, because one record has no variance for batch normalisation.
    """
    parts = list(torch.split(torch.randperm(records).to(device), batch_size))
    if len(parts) > 1 and len(parts[-1]) == 1:
        parts[-2:] = [torch.cat(parts[-2:])]
    return iter(parts)


def draw_moves(records: int, device: str | torch.device = "cpu", *, padding: int = 4) -> Tensor:
    """Draw an epoch's augmentation: for each record its shift down and right and whether it is mirrored, (n, 3), on the device.

    The CPU generator draws, so that a GPU trains on the same images, and one copy to the device serves the whole epoch.
    """
    shifts = torch.randint(2 * padding + 1, (records, 2))
    return torch.cat([shifts, torch.randint(2, (records, 1))], dim=1).to(device)


def crop_and_flip(x: Tensor, moves: Tensor, *, padding: int = 4) -> Tensor:
    """Shift each image by up to `padding` pixels either way, filling with black, and mirror some, on the images' device.

    x is (n, channels, height, width), of any type, and does not change; `moves` are (n, 3), of `draw_moves` with the same padding. The
    papers pad by 4 at 32 px.
    """
    n, channels, height, width = x.shape
    padded = functional.pad(x, (padding, padding, padding, padding)).permute(0, 2, 3, 1)
    top, left, mirrored = moves.T[:, :, None]
    across = torch.arange(width, device=x.device)
    # Rows of all images, stacked.
    rows = (
        top
        + torch.arange(height, device=x.device)
        + torch.arange(n, device=x.device)[:, None] * padded.shape[1]
    )
    columns = left + torch.where(mirrored.bool(), across.flip(0), across)
    pixels = (rows[:, :, None] * padded.shape[2] + columns[:, None, :]).flatten()
    moved = padded.reshape(-1, channels).index_select(0, pixels)
    return moved.view(n, height, width, channels).permute(0, 3, 1, 2)
