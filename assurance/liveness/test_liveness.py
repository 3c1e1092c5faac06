"""A short run of `make liveness`: one run of each kind."""

import asyncio
from pathlib import Path

import pytest

from assurance.liveness.proxy import Fault
from assurance.liveness.run import campaign
from assurance.liveness.world import KINDS


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_runs_end_whatever_happens_to_their_processes(tmp_path: Path) -> None:
    found = asyncio.run(campaign(tmp_path, len(KINDS), first_seed=0, abreast=len(KINDS)))
    assert not found["faults"]
    assert set(found["by_kind"]) == set(KINDS)
    assert set(found["network_faults_done"]) == set(Fault)
