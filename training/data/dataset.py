"""Labelled data as two tensors, and batches as slices of a permutation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

_RESIZED_AT_ONCE = 4096


@dataclass(frozen=True)
class Dataset:
    """Labelled records.

    Attributes:
        x: inputs of shape (n, channels, height, width): uint8 in 0..255 as published, which the extractor scales, or
            float32 in 0..1.
        y: labels, int64 of shape (n,), each in 0..classes-1.
        classes: the number of classes C.
        name: what reports call it.
        groups: which natural member each record belongs to (a writer, a speaker, a domain), int64 of shape (n,); or None.
        class_names: C names, or none.
        group_names: a name for each group, or none.
        mean: each channel's published mean in 0..1, for `ExtractorConfig.of`; or none.
        std: the same, standard deviation.

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
    def shape(self) -> tuple[int, int, int]:
        """One input's (channels, height, width)."""
        channels, height, width = self.x.shape[1:]
        return channels, height, width

    def subset(self, indices: Tensor) -> Dataset:
        """The records at `indices`, of shape (m,), in that order."""
        groups = None if self.groups is None else self.groups[indices]
        return replace(self, x=self.x[indices], y=self.y[indices], groups=groups)

    def resized(self, side: int) -> Dataset:
        """The same images with `side` × `side` pixels, each the mean of the area that it covers."""
        if self.shape[1:] == (side, side):
            return self
        parts = [
            functional.interpolate(part.float(), size=(side, side), mode="area")
            for part in torch.split(self.x, _RESIZED_AT_ONCE)
        ]
        x = torch.cat([part.round().byte() if self.x.dtype == torch.uint8 else part for part in parts])
        return replace(self, x=x)


class Split(NamedTuple):
    """Records to train on and records held out for the test."""

    train: Dataset
    test: Dataset


def stratified(labels: Tensor, records: int, generator: torch.Generator) -> Tensor:
    """The sorted indices of `records` records whose classes have the shares that they have in `labels`, of shape (n,).

    Raises:
        ValueError: if there are fewer records.
    """
    if not 0 < records <= len(labels):
        raise ValueError(f"{records} of {len(labels)} records can't be drawn")
    # Every class's records get ranks spread evenly over 0..1; the lowest ranks of all classes together are the draw.
    order = torch.randperm(len(labels), generator=generator)
    ranks = torch.empty(len(labels), dtype=torch.float64)
    for label in torch.unique(labels):
        own = order[labels[order] == label]
        ranks[own] = (torch.arange(len(own), dtype=torch.float64) + 0.5) / len(own)
    return ranks.argsort(stable=True)[:records].sort().values


def batches(records: int, batch_size: int, device: str | torch.device = "cpu") -> Iterator[Tensor]:
    """One epoch's batches: index tensors on the device that slice a fresh permutation from the processor's generator.

    A last batch of one joins the batch before it: batch normalisation has no variance of one record.
    """
    parts = list(torch.split(torch.randperm(records).to(device), batch_size))
    if len(parts) > 1 and len(parts[-1]) == 1:
        parts[-2:] = [torch.cat(parts[-2:])]
    return iter(parts)
