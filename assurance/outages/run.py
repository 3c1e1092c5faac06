"""`make outages`: run every test of this folder, and write their figures to one file."""

from pathlib import Path
from typing import Any, cast

import pytest

from assurance.reports import arguments, report


class Figures:
    """A plugin that collects each test's figures.

    Attributes:
        found: by test name.
    """

    def __init__(self) -> None:
        self.found: dict[str, dict[str, Any]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or not report.passed:
            figures = cast("dict[str, Any]", dict(report.user_properties).get("figures", {}))
            name = report.nodeid.partition("::")[2]
            self.found[name] = {"outcome": report.outcome, "took_s": round(report.duration, 1), **figures}


def main() -> None:
    parser = arguments(__doc__)
    chosen, figures = parser.parse_args(), Figures()
    folder = Path(__file__).parent
    code = pytest.main(
        ["--no-cov", "--timeout", "900", "-m", "slow or not slow", str(folder)], plugins=[figures]
    )
    outcomes = [each["outcome"] for each in figures.found.values()]
    counted = {name: outcomes.count(name) for name in sorted(set(outcomes))}
    report({"tests": counted, "found": figures.found}, chosen.output, sound=not code)


if __name__ == "__main__":
    main()
