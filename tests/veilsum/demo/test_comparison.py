from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from veilsum.demo import comparison
from veilsum.demo.comparison import compare, max_rel_diff
from veilsum.demo.errors import DemoError
from veilsum.demo.folder import Folder


def test_the_difference_is_relative_to_the_largest_weight_or_bias() -> None:
    ours = (np.array([[1.0, 2.0]]), np.array([4.5]))
    reference = (np.array([[1.0, 2.25]]), np.array([5.0]))
    assert max_rel_diff(ours, reference) == 0.1
    assert max_rel_diff((ours[0], None), (reference[0], None)) == 0.25 / 2.25


def compare_results(monkeypatch: pytest.MonkeyPatch, signatures: dict[str, str]) -> None:
    """Members whose results carry these signatures and λ = 0.5, beside a plain fit that chose another λ."""

    def result(member: str) -> Any:
        signature = signatures[member]
        record = SimpleNamespace(signature=signature, solution=SimpleNamespace(ridge=0.5))
        return SimpleNamespace(record=record, survivors=())

    monkeypatch.setattr(comparison, "fit_in_the_clear", lambda *_: SimpleNamespace(ridge=0.25))
    held: Any = SimpleNamespace(living=tuple(signatures), federation=SimpleNamespace(result=result))
    learned: Any = None
    compare(learned, held, Folder(Path("/demo")))


def test_members_with_different_results_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DemoError, match="different results"):
        compare_results(monkeypatch, {"member-01": "aa", "member-02": "bb"})


def test_another_ridge_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DemoError, match=r"the masked sums chose λ = 0\.5, the plain ones λ = 0\.25"):
        compare_results(monkeypatch, {"member-01": "aa", "member-02": "aa"})
