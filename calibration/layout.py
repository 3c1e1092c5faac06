"""Which number of a statistic stands where in the flat vector that is summed."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from calibration.errors import LayoutMismatch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_ELEMENTS_MAX = 2**40
_MIRROR = 64  # a tile that stays in cache while its transpose is written: 3 times faster than rows


@dataclass(frozen=True)
class SymmetricBlock:
    """A symmetric (dim, dim) matrix; only its upper triangle travels, diagonal included, row by row."""

    name: str
    dim: int

    def __post_init__(self) -> None:
        _check_block(self.name, (self.dim,))

    @property
    def shape(self) -> tuple[int, ...]:
        """(dim, dim)."""
        return (self.dim, self.dim)

    @property
    def elements(self) -> int:
        """How many numbers travel: dim·(dim + 1)/2."""
        return self.dim * (self.dim + 1) // 2

    def pack(self, matrix: NDArray[Any], out: NDArray[Any]) -> None:
        """Write the upper triangle of `matrix` to `out`; what stands below the diagonal is not read."""
        start = 0
        for row in range(self.dim):
            stop = start + self.dim - row
            out[start:stop] = matrix[row, row:]
            start = stop

    def unpack(self, vector: NDArray[Any]) -> NDArray[Any]:
        """The whole (dim, dim) matrix, a new array."""
        matrix = np.zeros(self.shape, vector.dtype)
        start = 0
        for row in range(self.dim):
            stop = start + self.dim - row
            matrix[row, row:] = vector[start:stop]
            start = stop
        mirror(matrix)
        return matrix


@dataclass(frozen=True)
class DenseBlock:
    """An array of any shape, in C order."""

    name: str
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))
        _check_block(self.name, self.shape)

    @property
    def elements(self) -> int:
        """How many numbers travel: the product of the shape."""
        return math.prod(self.shape)

    def pack(self, array: NDArray[Any], out: NDArray[Any]) -> None:
        """Write `array` to `out`."""
        out.reshape(self.shape)[...] = array

    def unpack(self, vector: NDArray[Any]) -> NDArray[Any]:
        """The array, a new one."""
        return vector.reshape(self.shape).copy()


Block = SymmetricBlock | DenseBlock


@dataclass(frozen=True)
class Layout:
    """Blocks, one after the other, in one flat vector.

    Args:
        blocks: in the order in which they stand.

    Raises:
        LayoutMismatch: no block, two blocks of one name, a bad name or dimension.
    """

    blocks: tuple[Block, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "blocks", tuple(self.blocks))
        names = [block.name for block in self.blocks]
        if not names or len(set(names)) != len(names):
            raise LayoutMismatch(f"a layout needs blocks of different names, not {names}")
        if self.elements > _ELEMENTS_MAX:
            raise LayoutMismatch(f"{self.elements} elements are more than {_ELEMENTS_MAX}; split the layout")

    @property
    def elements(self) -> int:
        """Length of the flat vector."""
        return sum(block.elements for block in self.blocks)

    @cached_property
    def slices(self) -> dict[str, slice]:
        """Where each block stands in the flat vector."""
        found, start = {}, 0
        for block in self.blocks:
            found[block.name] = slice(start, start + block.elements)
            start += block.elements
        return found

    def flatten(self, arrays: Mapping[str, NDArray[Any]], out: NDArray[Any] | None = None) -> NDArray[Any]:
        """One flat vector of all blocks.

        Args:
            arrays: one array per block name, all float64 or all int64. Of a symmetric block only the
                upper triangle is read.
            out: (elements,) array of the same type to write to.

        Returns:
            The (elements,) vector, `out` if it was given.

        Raises:
            LayoutMismatch: other names, shapes or types than the blocks'.
        """
        if set(arrays) != set(self.slices):
            raise LayoutMismatch(f"the layout has blocks {sorted(self.slices)}, not {sorted(arrays)}")
        types = {array.dtype for array in arrays.values()}
        if len(types) != 1 or not types <= {np.dtype(np.float64), np.dtype(np.int64)}:
            raise LayoutMismatch(f"blocks are {sorted(map(str, types))}; make all float64 or all int64")
        (dtype,) = types
        if out is None:
            out = np.empty(self.elements, dtype)
        elif out.shape != (self.elements,) or out.dtype != dtype:
            raise LayoutMismatch(f"out is {out.dtype}{out.shape}; pass {dtype}({self.elements},)")
        for block in self.blocks:
            array = arrays[block.name]
            if array.shape != block.shape:
                raise LayoutMismatch(f"block {block.name} has shape {array.shape}, not {block.shape}")
            block.pack(array, out[self.slices[block.name]])
        return out

    def unflatten(self, vector: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """New arrays of the blocks' full shapes; symmetric ones are restored.

        Raises:
            LayoutMismatch: the vector has another length.
        """
        if vector.shape != (self.elements,):
            raise LayoutMismatch(f"the vector has shape {vector.shape}; this layout needs ({self.elements},)")
        return {block.name: block.unpack(vector[self.slices[block.name]]) for block in self.blocks}


def mirror(matrix: NDArray[Any]) -> None:
    """Make a square matrix symmetric: what stands above the diagonal is written below it."""
    for row in range(0, len(matrix), _MIRROR):
        stop = row + _MIRROR
        tile = matrix[row:stop, row:stop]
        tile[...] = np.triu(tile) + np.triu(tile, 1).T
        matrix[stop:, row:stop] = matrix[row:stop, stop:].T


def _check_block(name: object, shape: tuple[object, ...]) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise LayoutMismatch(f"block name {name!r}: use 1 to 64 of A-Z a-z 0-9 _ . -")
    for size in shape:
        # type() and not isinstance: True is an int, and would be written as one.
        if type(size) is not int or not 1 <= size <= _ELEMENTS_MAX:
            raise LayoutMismatch(f"block {name}: dimensions are whole numbers from 1, not {shape}")
