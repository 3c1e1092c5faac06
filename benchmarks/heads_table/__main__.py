"""Every head × {plain, secure, ε} on digits, Fashion-MNIST and CIFAR-10: result files, and the page that is made of them.

One file for each set of features and each seed, written when all its rounds are done: what is there with every head under noise is not
run again. A coordinator process serves the rounds, and members of the SDK answer them over HTTP on this machine; all of it takes some
thirty CPU minutes, which two processes share where each has `--only` some of the features. Their folders are synced to disk at every
step: TMPDIR on a memory disk halves the time.

    VEILSUM_DATA=… .venv/bin/python -m benchmarks.heads_table
    .venv/bin/python -m benchmarks.heads_table --page docs/heads-table.md    # the page alone, from the files that are there
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import torch

from benchmarks.heads_table.claims import claims_of
from benchmarks.heads_table.features import DATA, SEEDS, Features, load_features
from benchmarks.heads_table.federation import Coordinator, Federation
from benchmarks.heads_table.files import RESULTS, ResultFile, read_results
from benchmarks.heads_table.heads import Compared, Row
from benchmarks.heads_table.page import page_of

ROOT = Path(__file__).parents[2]
CPU_MINUTES = 1.8  # a file, without making features


def measured(features: Features, coordinator: Coordinator, home: Path) -> ResultFile:
    """All rows of one set of features under one seed."""
    rows = list[Row]()
    for part in (Compared.exact, Compared.noisy):
        folder = home / f"{features.name}-{features.seed}-{part.__name__}"
        folder.mkdir()
        with Federation(features, coordinator, folder) as federation:
            rows += part(Compared(features, federation))
    return ResultFile.of(features, rows)


def is_whole(path: Path, features: str) -> bool:
    """Whether a file is there, of the features of this digest, and has every head under noise."""
    if not path.exists():
        return False
    found = ResultFile.read(path)
    return found.features == features and not found.without_noise


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--output", type=Path, default=RESULTS, help="the folder of result files")
    parser.add_argument(
        "--cache", type=Path, default=ROOT / "runs/heads-table", help="where features are kept"
    )
    parser.add_argument("--data", type=Path, help="the data folder; VEILSUM_DATA's where not given")
    parser.add_argument("--only", action="append", choices=DATA, help="these features alone; may be repeated")
    parser.add_argument(
        "--page", type=Path, help="write this page from the files that are there, and run nothing"
    )
    given = parser.parse_args()
    if given.page is None:
        run(given.output, given.cache, given.data, given.only or DATA)
    results = read_results(given.output)
    if given.page is not None:
        given.page.write_text(page_of(results), encoding="utf-8")
    broken = [claim for claim in claims_of(results) if not claim.kept]
    for claim in broken:
        print(f"not kept: {claim.promise}: {claim.measured:.4g}, promised {claim.limit:g}")
    if broken and given.page is None:
        sys.exit("heads_table: a promise is not kept")


def run(output: Path, cache: Path, folder: Path | None, names: Sequence[str]) -> None:
    """Whatever files are missing."""
    torch.set_num_threads(1)
    cells = [(seed, name) for seed, name in product(SEEDS, names)]
    missing = [
        (seed, name)
        for seed, name in cells
        if not is_whole(ResultFile.path(output, name, seed), load_features(name, seed, cache, folder).digest)
    ]
    minutes = CPU_MINUTES * len(missing)
    print(f"{len(missing)} of {len(cells)} files are missing: some {minutes:.0f} CPU minutes", flush=True)
    with tempfile.TemporaryDirectory(prefix="veilsum-heads-") as home, Coordinator(Path(home)) as coordinator:
        for seed, name in missing:
            began = time.perf_counter()
            features = load_features(name, seed, cache, folder)
            found = measured(features, coordinator, Path(home))
            found.write(output)
            print(f"{name}, seed {seed}: {found.summary} ({time.perf_counter() - began:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
