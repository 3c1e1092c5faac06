"""The privacy guide's picture: what V alone gives away."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.reconstruct import PICTURE, RECORDS, draw, read

ROOT = Path(__file__).parents[2]


def test_v_of_one_record_is_that_record_and_of_many_a_blur() -> None:
    found = {records: read(records) for records in RECORDS}
    np.testing.assert_allclose(found[1].vectors[0], found[1].records[0], rtol=0, atol=1e-12)
    assert [len(found[records].vectors) for records in RECORDS[:3]] == [1, 2, 5]
    for reading in found.values():  # whoever has a record can tell: it lies in the span
        inside = reading.records @ reading.vectors.T @ reading.vectors
        np.testing.assert_allclose(inside, reading.records, rtol=0, atol=1e-6)
    assert found[50].likeness < found[50].strangers
    guide = (ROOT / "docs/concepts/privacy-guide.md").read_text("utf-8")
    assert f"]({PICTURE.name})" in guide


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    path = tmp_path / "picture.png"
    draw([read(records) for records in RECORDS]).savefig(path)
    assert path.stat().st_size == pytest.approx((ROOT / PICTURE).stat().st_size, rel=0.5)
