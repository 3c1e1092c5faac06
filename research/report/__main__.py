"""`python -m research.report RESULTS... --output page.html`: results beside the papers' tables, as one page."""

import argparse
import sys
from pathlib import Path

from research.report import cells, markdown, page
from research.results import ResultError, read_diverged, read_results


def main() -> None:
    """Write the page: `.md` with tables only, `.html` with figures."""
    parser = argparse.ArgumentParser(prog="python -m research.report", description=__doc__)
    parser.add_argument("results", type=Path, nargs="+", help="result files, or folders of them")
    parser.add_argument("--output", type=Path, default=Path("runs/report.html"))
    parser.add_argument("--title", default="Our runs and the papers'")
    given = parser.parse_args()
    try:
        found, diverged = cells(read_results(given.results)), read_diverged(given.results)
    except (ResultError, OSError) as error:
        parser.error(str(error))
    if not found:
        parser.error("all of these runs diverged: there is nothing to compare")
    text = (
        markdown(found, diverged)
        if given.output.suffix == ".md"
        else page(found, diverged, title=given.title)
    )
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text(text, "utf-8")
    sys.stdout.write(
        f"{sum(len(cell.runs) for cell in found)} runs of {len(found)} experiments: {given.output}\n"
    )


if __name__ == "__main__":
    main()
