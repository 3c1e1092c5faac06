from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veilsum.calibration.errors import LayoutMismatch
from veilsum.calibration.layout import DenseBlock, Layout, SymmetricBlock, ccvr_layout, ffc_layout

NAMES = st.text("AZaz09_.-", min_size=1, max_size=12)
BLOCKS = st.one_of(
    st.builds(SymmetricBlock, NAMES, st.integers(1, 150)),
    st.builds(DenseBlock, NAMES, st.lists(st.integers(1, 5), max_size=3).map(tuple)),
)
LAYOUTS = st.lists(BLOCKS, min_size=1, max_size=4, unique_by=lambda block: block.name).map(
    lambda blocks: Layout(tuple(blocks))
)


def test_the_order_is_upper_triangle_by_rows_then_c_order() -> None:
    layout = Layout((SymmetricBlock("V", 3), DenseBlock("U", (3, 2))))
    V = np.array([[1, 2, 3], [-9, 4, 5], [-9, -9, 6]])
    U = np.array([[7, 8], [9, 10], [11, 12]])
    vector = layout.flatten({"U": np.asfortranarray(U), "V": V})
    assert vector.dtype == np.int64
    assert vector.tolist() == list(range(1, 13))
    assert layout.slices == {"V": slice(0, 6), "U": slice(6, 12)}
    assert layout.unflatten(vector)["V"].tolist() == [[1, 2, 3], [2, 4, 5], [3, 5, 6]]
    assert ffc_layout(1280, 100).elements == 947_940  # the paper's main table


@given(LAYOUTS, st.sampled_from([np.float64, np.int64]))
@settings(deadline=None, max_examples=50)
def test_flatten_and_unflatten_are_inverse(layout: Layout, dtype: type[Any]) -> None:
    vector = np.arange(layout.elements, dtype=dtype)
    arrays = layout.unflatten(vector)
    for block in layout.blocks:
        assert arrays[block.name].shape == block.shape
        if isinstance(block, SymmetricBlock):
            assert (arrays[block.name] == arrays[block.name].T).all()
    again = layout.flatten(arrays)
    assert again.dtype == dtype
    assert (again == vector).all()
    next(iter(arrays.values()))[...] = 0
    assert (vector == np.arange(layout.elements)).all(), "unflatten must return copies"


@pytest.mark.parametrize(
    ("arrays", "match"),
    [
        ({"V": np.eye(2)}, "has blocks"),
        ({"V": np.eye(2), "U": np.ones(3), "n": np.ones(1)}, "has blocks"),
        ({"V": np.eye(2), "U": np.ones(3, np.int64)}, "float64"),
        ({"V": np.eye(2, dtype=np.float32), "U": np.ones(3, np.float32)}, "float64"),
        ({"V": np.eye(3), "U": np.ones(3)}, r"\bV\b.*\(3, 3\)"),
        ({"V": np.eye(2), "U": np.ones((3, 1))}, r"\bU\b"),
    ],
)
def test_arrays_and_vectors_that_do_not_fit_are_refused(arrays: dict[str, Any], match: str) -> None:
    layout = Layout((SymmetricBlock("V", 2), DenseBlock("U", (3,))))
    with pytest.raises(LayoutMismatch, match=match):
        layout.flatten(arrays)
    for vector in (np.ones(5), np.ones(7), np.ones((6, 1))):
        with pytest.raises(LayoutMismatch, match=r"needs \(6,\)"):
            layout.unflatten(vector)


@pytest.mark.parametrize("sizes", [(0, 2), (2, 0), (-1, 2), (True, 2), (2.0, 2), ("2", 2), (2**41, 2)])
def test_sizes_are_whole_numbers_from_1(sizes: tuple[Any, Any]) -> None:
    for make in (ffc_layout, ccvr_layout):
        with pytest.raises(LayoutMismatch, match="whole numbers from 1"):
            make(*sizes)
    numpys: Any = (np.int64(2), np.int32(3))
    assert ffc_layout(*numpys) == ffc_layout(2, 3)
