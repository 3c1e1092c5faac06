"""The size of a snapshot after one round of ten members, the time to write it, and its memory in addition to the run's.

The model is VGG-11 and the algorithm SCAFFOLD, so each participant's control variate is as large as the model.

    .venv/bin/python -m benchmarks.snapshots --output runs/snapshots.json
"""

import argparse
import resource
import tempfile
import time
from pathlib import Path

import torch

from benchmarks.reports import write_findings
from training.models.config import ExtractorConfig
from training.recipe import fedavg_recipe
from training.resume import RunState, Snapshots

PARTICIPANTS = 10


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=Path("runs/snapshots.json"))
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    weights = fedavg_recipe(ExtractorConfig("vgg11", (3, 32, 32))).build(10).shared_weights()
    # All members' variates are the same tensors, because the file is measured, not the run's own memory.
    run = RunState(weights, {}, ({name: torch.zeros_like(p) for name, p in weights.items()},), (), ())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        snapshots = Snapshots(folder, {})
        for round_ in range(args.rounds):
            began = time.perf_counter()
            for member in range(PARTICIPANTS):
                snapshots.put_member(member, (weights,), round_)
            snapshots.commit_run(run)
            seconds.append(time.perf_counter() - began)
        size = sum(path.stat().st_size for path in folder.iterdir())  # all files belong to the last snapshot
    found = {
        "megabytes": round(size / 1e6),
        "seconds": [round(each, 2) for each in seconds],
        "megabytes_of_memory": round((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1e3),
    }
    write_findings(found, args.output)
    print(found)


if __name__ == "__main__":
    main()
