from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from veilsum.cli.demo.comparison import Heads
from veilsum.cli.demo.consortium import KilledMember
from veilsum.cli.demo.facts import Facts

MEMBERS = ("member-01", "member-02", "member-03", "member-04")


@pytest.fixture(scope="session")
def make_facts() -> Callable[..., Facts]:
    """Make a run of four members, three of them in the sum, with any facts changed."""

    def make(**changes: Any) -> Facts:
        facts = Facts(
            seed=7,
            members=MEMBERS,
            label_counts=np.array([[5, 0], [0, 4], [3, 3], [1, 1]]),
            mended="member-02",
            canaries="0.9, transposed",
            survivors=MEMBERS[1:],
            lost=(KilledMember("member-01", "pairing"), KilledMember("member-03", "upload")),
            verified=("member-02", "member-04"),
            records=12,
            withheld=(),
            holders=(),
            floor=0,
            test_records=20,
            accuracies=Heads(0.7, 0.9, 0.9, 0.75, 0.85),
            per_class=Heads(
                before=np.array([0.6, 0.8]),
                masked=np.array([0.85, 0.95]),
                plain=np.array([0.85, 0.95]),
                fedavg=np.array([0.7, 0.81]),
                fedavg_plain=np.array([0.8, 0.91]),
            ),
            training=(0.5, 0.7),
            max_rel_diff=3.2e-8,
            error_bound=4e-5,
            ridge=0.1,
            grid=np.array([0.01, 0.1, 1.0]),
            gcv=np.array([np.inf, 0.2, 0.3]),
            upload_bytes=2048,
            elements=100,
            ring_bits=48,
            chunks=1,
            seconds={"training": 12.3, "enrolment": 2.0, "collecting": 5.0, "total": 20.0},
            survivors_min=3,
            threshold=3,
            colluders=1,
            votes=3,
            federation="name-0",
            names={"round": "name-1"},
            versions={"veilsum": "1"},
        )
        return replace(facts, **changes)

    return make
