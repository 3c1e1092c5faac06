"""`make both-stores`: run the coordinator's tests on SQLite and files, then on PostgreSQL and S3, with results for each pair."""

import argparse
import os
from collections import Counter
from pathlib import Path

import pytest

from assurance.reports import report

ONCE = "without a pair"
"""Tests that open no coordinator, or several over stores of their own."""


class Counts:
    """A plugin that counts the tests' outcomes on each pair of stores.

    Attributes:
        found: outcomes by pair.
        failed: names of failed tests.
    """

    def __init__(self) -> None:
        self.found = {pair: Counter[str]() for pair in ("embedded", "servers", ONCE)}
        self.failed: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or not report.passed:
            values = report.nodeid.rpartition("[")[2].rstrip("]").split("-")
            pair = next((name for name in self.found if name in values), ONCE)
            self.found[pair][report.outcome] += 1
            if report.failed:
                self.failed.append(report.nodeid)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("tests", nargs="*", help="some of them; all of the coordinator's by default")
    chosen, counts = parser.parse_args(), Counts()
    os.environ |= {"TEST_STORES": "both", "CI_MUST_RUN": "1"}
    tests = chosen.tests or [str(Path(__file__).parent)]
    code = pytest.main(["--no-cov", "--timeout", "900", *tests], plugins=[counts])
    found = {pair: dict(sorted(outcomes.items())) for pair, outcomes in counts.found.items()}
    report({**found, "failed": counts.failed}, chosen.output, sound=not code)


if __name__ == "__main__":
    main()
