import json
from collections.abc import Callable

import numpy as np
import pytest

from veilsum.demo.comparison import Heads
from veilsum.demo.facts import Facts
from veilsum.demo.wording import power, seconds

KEYS = {
    "members",
    "survivors",
    "withheld",
    "lost",
    "accuracy_before",
    "accuracy_masked",
    "accuracy_plain",
    "accuracy_fedavg",
    "accuracy_fedavg_plain",
    "weights_max_rel_diff",
    "upload_bytes_per_member",
    "vector_elements",
    "seconds",
}


def test_the_summary_has_exactly_its_keys_and_is_json(make_facts: Callable[..., Facts]) -> None:
    summary = json.loads(json.dumps(make_facts().summary()))
    assert set(summary) == KEYS
    assert summary["members"] == 4
    assert (summary["accuracy_fedavg"], summary["accuracy_fedavg_plain"]) == (0.75, 0.85)
    assert summary["survivors"] == ["member-02", "member-03", "member-04"]
    assert summary["lost"] == [
        {"member": "member-01", "after": "card"},
        {"member": "member-03", "after": "upload"},
    ]
    assert summary["seconds"]["total"] == 20.0


def test_a_good_run_has_no_faults(make_facts: Callable[..., Facts]) -> None:
    assert make_facts().faults == ()


@pytest.mark.parametrize("difference", [1.1e-6, np.nan])
def test_heads_that_differ_are_a_fault(make_facts: Callable[..., Facts], difference: float) -> None:
    assert len(make_facts(max_rel_diff=difference).faults) == 1


def test_a_head_that_is_no_better_is_a_fault(make_facts: Callable[..., Facts]) -> None:
    assert len(make_facts(accuracies=Heads(0.9, 0.9, 0.9, 0.9, 0.9)).faults) == 1


def test_numbers_read_well() -> None:
    assert power(0.0) == "0"
    assert power(1.25e-12) == "1.2·10⁻¹²"
    assert seconds(0.05) == "0.05 s"
    assert seconds(12.34) == "12.3 s"
