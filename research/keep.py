"""Copy result files into the repository in short form: a third of the bytes, and the same reports.

    .venv/bin/python -m research.keep runs/reproduce-small research/results/reproduce-small

An existing file is replaced if it is of the same experiment and seed, and refused otherwise. Runs of one experiment in one folder
that differ in more than the seed are refused.
"""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

from research.results import AnalysedResult, ResultError, read_results, read_run, shortened, task
from training.results import Diverged, write_result

LARGEST = 20_000  # bytes: a hundred classes over a hundred rounds take 15,000


def keep(source: Path, target: Path) -> tuple[int, int]:
    """Copy files, and return their number and bytes.

    Raises:
        ResultError: the source is not a folder, a file holds no result, would replace another run, or is too large; or runs of one experiment differ in settings.
    """
    if not source.is_dir():
        raise ResultError(f"{source} is not a folder of results")
    read_results([source])  # refuses a folder without any, and whatever is damaged
    copied = size = 0
    runs = _runs(source)
    _refuse_mixtures(_runs(target) | {target / file.relative_to(source): run for file, run in runs.items()})
    for file, result in runs.items():
        path = target / file.relative_to(source)
        if path.exists():
            there = read_run(path)
            if (there.experiment, there.seed) != (result.experiment, result.seed):
                raise ResultError(
                    f"{path} is {there.experiment} under seed {there.seed}; choose another folder"
                )
        write_result(shortened(result) if isinstance(result, AnalysedResult) else result, path, indent=None)
        if (now := path.stat().st_size) > LARGEST:
            path.unlink()
            raise ResultError(f"{file} takes {now:,} bytes even when short; leave its analyses out")
        copied, size = copied + 1, size + now
    return copied, size


def _runs(folder: Path) -> dict[Path, AnalysedResult | Diverged]:
    found = {}
    for file in sorted(folder.rglob("*.json")):
        try:
            found[file] = read_run(file)
        except ResultError:
            continue  # another program's, which read_results passed over as well
    return found


def _refuse_mixtures(runs: Mapping[Path, AnalysedResult | Diverged]) -> None:
    first: dict[tuple[Path, str], Path] = {}
    for file, run in runs.items():
        other = first.setdefault((file.parent, run.experiment), file)
        if task(run) != task(runs[other]):
            raise ResultError(
                f"{file} is {run.experiment} at other settings than {other.name} in its folder, not under another seed: "
                "keep one of them, or give one another folder and name"
            )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    args = parser.parse_args()
    try:
        copied, size = keep(args.source, args.target)
    except (ResultError, OSError) as error:
        parser.error(str(error))
    print(f"{copied} results, {size / copied:,.0f} bytes each, {size / 1e3:,.0f} kB in all")
    return 0


if __name__ == "__main__":
    sys.exit(main())
