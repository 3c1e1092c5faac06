import pytest

from training.schedules import Constant, Cosine, MultiStep


def test_factors() -> None:
    assert [Constant().factor(t, 4) for t in range(4)] == [1] * 4
    assert [Cosine().factor(t, 3) for t in range(3)] == pytest.approx([1, 0.75, 0.25])
    steps = MultiStep((1, 3), 0.5)
    assert [steps.factor(t, 4) for t in range(4)] == [1, 0.5, 0.5, 0.25]
