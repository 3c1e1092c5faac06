from __future__ import annotations

import json
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


@given(LAYOUTS)
@settings(deadline=None, max_examples=50)
def test_bytes_round_trip_and_name_the_layout(layout: Layout) -> None:
    again = Layout.from_bytes(layout.to_bytes())
    assert again == layout
    assert hash(again) == hash(layout)
    assert again.to_bytes() == layout.to_bytes()


def test_the_encoding_is_pinned() -> None:
    assert ffc_layout(2, 3, bias=True).to_bytes() == (
        b'{"blocks":[{"dim":3,"kind":"symmetric","name":"V"},{"kind":"dense","name":"U","shape":[3,3]},'
        b'{"kind":"dense","name":"n","shape":[3]}],"version":1}'
    )


@pytest.mark.parametrize(
    ("encoded", "hint"),
    [
        (b"", "not ASCII JSON"),
        (b"\xff", "not ASCII JSON"),
        ("é".encode(), "not ASCII JSON"),
        (b"[" * 100_000, "not ASCII JSON"),
        (b"[]", "keys blocks and version"),
        (b"null", "keys blocks and version"),
        (b'{"blocks":[],"version":1}', "blocks of different names"),
        (b'{"blocks":[],"version":2}', "version 2 is unknown"),
        (b'{"blocks":[{"dim":2,"kind":"symmetric","name":"V"}]}', "keys blocks and version"),
        (b'{"blocks":{"dim":2},"version":1}', "keys blocks and version"),
        (b'{"a":0,"blocks":[{"dim":2,"kind":"symmetric","name":"V"}],"version":1}', "and no others"),
        (b'{"blocks":[{"dim":2,"kind":"symmetric","name":"V"}],"version":true}', "not the canonical"),
        (b'{"blocks":[{"dim":2,"kind":"symmetric","name":"V"}],"version":1.0}', "not the canonical"),
        (b'{"blocks":[{"dim":2,"kind":"symmetric","name":"V"}],"version":1} ', "not the canonical"),
        (b'{"version":1,"blocks":[{"dim":2,"kind":"symmetric","name":"V"}]}', "not the canonical"),
        (b'{"blocks":[{"dim":1,"dim":2,"kind":"symmetric","name":"V"}],"version":1}', "not the canonical"),
        (b'{"blocks":[{"dim":2,"kind":"symmetric","name":"\\u0056"}],"version":1}', "not the canonical"),
        (b'{"blocks":[{"dim":2,"kind":"symmetric","name":"V","x":0}],"version":1}', "not a block"),
        (b'{"blocks":[{"dim":2.0,"kind":"symmetric","name":"V"}],"version":1}', "not a block"),
        (b'{"blocks":[{"dim":2,"kind":"banded","name":"V"}],"version":1}', "not a block"),
        (b'{"blocks":["V"],"version":1}', "not a block"),
        (b'{"blocks":[{"dim":true,"kind":"symmetric","name":"V"}],"version":1}', "whole numbers"),
        (b'{"blocks":[{"dim":0,"kind":"symmetric","name":"V"}],"version":1}', "whole numbers"),
        (b'{"blocks":[{"dim":-1,"kind":"symmetric","name":"V"}],"version":1}', "whole numbers"),
        (b'{"blocks":[{"kind":"dense","name":"U","shape":[2,"3"]}],"version":1}', "whole numbers"),
        (b'{"blocks":[{"kind":"dense","name":"U","shape":[2,1e3]}],"version":1}', "whole numbers"),
        (b'{"blocks":[{"kind":"dense","name":"","shape":[2]}],"version":1}', "block name"),
        (b'{"blocks":[{"kind":"dense","name":"../x","shape":[2]}],"version":1}', "block name"),
        (b" " * (2**20 + 1), "more than a layout takes"),
    ],
)
def test_other_bytes_are_refused(encoded: bytes, hint: str) -> None:
    with pytest.raises(LayoutMismatch, match=hint):
        Layout.from_bytes(encoded)


@given(st.binary(max_size=60) | st.lists(st.none() | st.integers() | st.text()).map(json.dumps))
@settings(deadline=None, max_examples=60)
def test_garbage_never_raises_anything_else(garbage: bytes | str) -> None:
    with pytest.raises(LayoutMismatch):
        Layout.from_bytes(garbage if isinstance(garbage, bytes) else garbage.encode())


def test_names_are_unique_and_the_size_is_bounded() -> None:
    with pytest.raises(LayoutMismatch, match="different names"):
        Layout((DenseBlock("V", (1,)), SymmetricBlock("V", 2)))
    with pytest.raises(LayoutMismatch, match="split the layout"):
        Layout((SymmetricBlock("V", 2**30),))
    untyped: Any = 7
    with pytest.raises(LayoutMismatch, match="block name"):
        DenseBlock(untyped, (1,))


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
