from collections.abc import Callable

import numpy as np
import pytest

from veilsum.cli.demo.comparison import Heads
from veilsum.cli.demo.facts import Facts


def test_a_good_run_has_no_faults(make_facts: Callable[..., Facts]) -> None:
    assert make_facts().faults == ()


@pytest.mark.parametrize("difference", [1.1e-6, np.nan])
def test_heads_that_differ_are_a_fault(make_facts: Callable[..., Facts], difference: float) -> None:
    assert len(make_facts(max_rel_diff=difference).faults) == 1


def test_a_head_that_is_no_better_is_a_fault(make_facts: Callable[..., Facts]) -> None:
    assert len(make_facts(accuracies=Heads(0.9, 0.9, 0.9, 0.9, 0.9)).faults) == 1
