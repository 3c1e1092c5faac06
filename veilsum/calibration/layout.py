"""Layouts: the place of each number of a statistic in the flat vector."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilsum.calibration.errors import LayoutMismatch

_SIZE_MAX = 2**40
_TILE_ROWS = 64  # stays in cache while its transpose is written: three times faster than rows


@dataclass(frozen=True)
class SymmetricBlock:
    """A symmetric (dim, dim) matrix, sent as its upper triangle with the diagonal, row by row."""

    name: str
    dim: int

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.dim, self.dim)

    @property
    def elements(self) -> int:
        """Numbers sent: dim·(dim + 1)/2."""
        return self.dim * (self.dim + 1) // 2

    def _row_slices(self) -> list[slice]:
        """The place of each row of the upper triangle in the vector."""
        ends = [row * self.dim - row * (row - 1) // 2 for row in range(self.dim + 1)]
        return [slice(start, stop) for start, stop in pairwise(ends)]

    def pack(self, matrix: NDArray[Any], out: NDArray[Any]) -> None:
        """Write the upper triangle of `matrix` to `out`; elements below the diagonal are not read."""
        for row, place in enumerate(self._row_slices()):
            out[place] = matrix[row, row:]

    def unpack(self, vector: NDArray[Any]) -> NDArray[Any]:
        matrix = np.zeros(self.shape, vector.dtype)
        for row, place in enumerate(self._row_slices()):
            matrix[row, row:] = vector[place]
        mirror_triangle(matrix)
        return matrix


@dataclass(frozen=True)
class DenseBlock:
    """An array of any shape, sent in C order."""

    name: str
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        """Numbers sent: the product of the shape."""
        return math.prod(self.shape)

    def pack(self, array: NDArray[Any], out: NDArray[Any]) -> None:
        out.reshape(self.shape)[...] = array

    def unpack(self, vector: NDArray[Any]) -> NDArray[Any]:
        return vector.reshape(self.shape).copy()


Block = SymmetricBlock | DenseBlock


@dataclass(frozen=True)
class Layout:
    """Named blocks, one after the other, in one flat vector."""

    blocks: tuple[Block, ...]

    @cached_property
    def elements(self) -> int:
        return sum(block.elements for block in self.blocks)

    @cached_property
    def slices(self) -> dict[str, slice]:
        """The place of each block in the flat vector."""
        found, start = {}, 0
        for block in self.blocks:
            found[block.name] = slice(start, start + block.elements)
            start += block.elements
        return found

    def flatten(self, arrays: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
        """Write the blocks' arrays, all float64 or all int64, into one flat vector, (elements,). Raises LayoutMismatch if they do not fit."""
        if set(arrays) != set(self.slices):
            raise LayoutMismatch(f"the layout has blocks {sorted(self.slices)}, not {sorted(arrays)}")
        types = {array.dtype for array in arrays.values()}
        if len(types) != 1 or not types <= {np.dtype(np.float64), np.dtype(np.int64)}:
            raise LayoutMismatch(f"blocks are {sorted(map(str, types))}: make all float64 or all int64")
        out = np.empty(self.elements, types.pop())
        for block in self.blocks:
            array = arrays[block.name]
            if array.shape != block.shape:
                raise LayoutMismatch(f"block {block.name} has shape {array.shape}, expected {block.shape}")
            block.pack(array, out[self.slices[block.name]])
        return out

    def unflatten(self, vector: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Return new arrays of the blocks' full shapes, by name. Raises LayoutMismatch for a vector of another length."""
        if vector.shape != (self.elements,):
            raise LayoutMismatch(f"the vector has shape {vector.shape}; this layout needs ({self.elements},)")
        return {block.name: block.unpack(vector[self.slices[block.name]]) for block in self.blocks}


def ffc_layout(dim: int, classes: int, *, constant: bool = False) -> Layout:
    """FFC's layout: V (l, l) symmetric, U (l, C), n (C,), with l = dim + constant."""
    _check_sizes(dim, classes)
    rows = dim + bool(constant)
    return Layout((SymmetricBlock("V", rows), DenseBlock("U", (rows, classes)), DenseBlock("n", (classes,))))


def ccvr_layout(dim: int, classes: int) -> Layout:
    """CCVR's layout: n (C,), S (C, l), and for each class c the symmetric (l, l) second moment M.c."""
    _check_sizes(dim, classes)
    blocks = (DenseBlock("n", (classes,)), DenseBlock("S", (classes, dim)))
    return Layout((*blocks, *(SymmetricBlock(f"M.{label}", dim) for label in range(classes))))


def mirror_triangle(matrix: NDArray[Any]) -> None:
    """Copy the upper triangle of a square matrix to the lower one."""
    for row in range(0, len(matrix), _TILE_ROWS):
        stop = row + _TILE_ROWS
        tile = matrix[row:stop, row:stop]
        tile[...] = np.triu(tile) + np.triu(tile, 1).T
        matrix[stop:, row:stop] = matrix[row:stop, stop:].T


def _check_sizes(*sizes: Any) -> None:
    # numpy's integers are welcome: labels.max() + 1 is one. True is an int too, and no size.
    if not all(
        isinstance(size, int | np.integer) and type(size) is not bool and 1 <= size <= _SIZE_MAX
        for size in sizes
    ):
        raise LayoutMismatch(f"dim and classes are whole numbers from 1, not {sizes}")
