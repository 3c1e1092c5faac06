from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibration import DenseBlock, Layout, LayoutMismatch, SymmetricBlock, ffc_layout

NAMES = st.from_regex(r"[A-Za-z0-9_.-]{1,12}", fullmatch=True)
BLOCKS = st.one_of(
    st.builds(SymmetricBlock, NAMES, st.integers(1, 150)),
    st.builds(DenseBlock, NAMES, st.lists(st.integers(1, 5), max_size=3).map(tuple)),
)
LAYOUTS = st.lists(BLOCKS, min_size=1, max_size=4, unique_by=lambda block: block.name).map(
    lambda blocks: Layout(tuple(blocks))
)


def test_the_papers_main_table_has_947_940_elements() -> None:
    assert ffc_layout(1280, 100).elements == 947_940


def test_the_order_is_upper_triangle_by_rows_then_c_order() -> None:
    layout = Layout((SymmetricBlock("V", 3), DenseBlock("U", (3, 2))))
    V = np.array([[1, 2, 3], [-9, 4, 5], [-9, -9, 6]])
    U = np.array([[7, 8], [9, 10], [11, 12]])
    vector = layout.flatten({"U": np.asfortranarray(U), "V": V})
    assert vector.dtype == np.int64
    assert vector.tolist() == list(range(1, 13))
    assert layout.slices == {"V": slice(0, 6), "U": slice(6, 12)}
    assert layout.unflatten(vector)["V"].tolist() == [[1, 2, 3], [2, 4, 5], [3, 5, 6]]


@given(LAYOUTS, st.sampled_from([np.float64, np.int64]))
@settings(deadline=None, max_examples=50)
def test_flatten_and_unflatten_are_inverse(layout: Layout, dtype: type[Any]) -> None:
    vector = np.arange(layout.elements, dtype=dtype)
    arrays = layout.unflatten(vector)
    for block in layout.blocks:
        assert arrays[block.name].shape == block.shape
        if isinstance(block, SymmetricBlock):
            assert (arrays[block.name] == arrays[block.name].T).all()
    out = np.empty_like(vector)
    assert layout.flatten(arrays, out) is out
    assert (out == vector).all()
    next(iter(arrays.values()))[...] = 0
    assert (vector == np.arange(layout.elements)).all(), "unflatten must return copies"


def test_flatten_writes_through_a_strided_out() -> None:
    layout = Layout((DenseBlock("a", (2, 3)), SymmetricBlock("b", 2)))
    wide = np.zeros(2 * layout.elements)
    layout.flatten({"a": np.ones((2, 3)), "b": np.ones((2, 2))}, wide[::2])
    assert wide.tolist() == [1.0, 0.0] * 9


def test_names_are_unique_and_the_size_is_bounded() -> None:
    with pytest.raises(LayoutMismatch, match="different names"):
        Layout((DenseBlock("V", (1,)), SymmetricBlock("V", 2)))
    with pytest.raises(LayoutMismatch, match="split the layout"):
        Layout((SymmetricBlock("V", 2**30),))
    untyped: Any
    for untyped in (7, "", "../x"):
        with pytest.raises(LayoutMismatch, match="block name"):
            DenseBlock(untyped, (1,))
    for untyped in (True, 0, -1, 2.0):
        with pytest.raises(LayoutMismatch, match="whole numbers"):
            SymmetricBlock("V", untyped)


@pytest.mark.parametrize(
    ("arrays", "hint"),
    [
        ({"V": np.eye(2)}, "has blocks"),
        ({"V": np.eye(2), "U": np.ones(3), "n": np.ones(1)}, "has blocks"),
        ({"V": np.eye(2), "U": np.ones(3, np.int64)}, "all float64 or all int64"),
        ({"V": np.eye(2, dtype=np.float32), "U": np.ones(3, np.float32)}, "all float64 or all int64"),
        ({"V": np.eye(3), "U": np.ones(3)}, r"block V has shape \(3, 3\), not \(2, 2\)"),
        ({"V": np.eye(2), "U": np.ones((3, 1))}, "block U has shape"),
    ],
)
def test_arrays_that_do_not_fit(arrays: dict[str, Any], hint: str) -> None:
    layout = Layout((SymmetricBlock("V", 2), DenseBlock("U", (3,))))
    with pytest.raises(LayoutMismatch, match=hint):
        layout.flatten(arrays)


def test_vectors_that_do_not_fit() -> None:
    layout = Layout((SymmetricBlock("V", 2),))
    for vector in (np.ones(2), np.ones(4), np.ones((3, 1))):
        with pytest.raises(LayoutMismatch, match=r"needs \(3,\)"):
            layout.unflatten(vector)
    for out in (np.ones(4), np.ones(3, np.int64)):
        with pytest.raises(LayoutMismatch, match=r"pass float64\(3,\)"):
            layout.flatten({"V": np.eye(2)}, out)
