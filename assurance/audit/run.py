"""The audit of the noise: `make audit`.

20,000 releases with a canary and as many without go through the whole integer pipeline; μ̂ must be what was promised. Then
the same with each of five bugs in the shares, and each must be flagged. Exit status 1 otherwise.
"""

# ruff: noqa: T201 - a command prints

import argparse
import json
import sys
from pathlib import Path
from time import monotonic

from assurance.audit.estimate import Estimate, estimate_mu
from assurance.audit.pipeline import BUGS, Pipeline, unchanged


def audited(pipeline: Pipeline, releases: int, seed: int) -> Estimate:
    return estimate_mu(
        pipeline.scores(releases, canary=False, seed=seed), pipeline.scores(releases, canary=True, seed=seed)
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--releases", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("runs/audit.json"))
    given = parser.parse_args()
    rows, as_it_should_be = [], True
    for name, bug in {"": unchanged, **BUGS}.items():
        pipeline = Pipeline(bug)
        started = monotonic()
        estimate = audited(pipeline, given.releases, given.seed)
        promised = pipeline.mechanism.mu_round
        fault = estimate.fault(promised)
        as_it_should_be &= (fault is not None) == bool(name)
        rows.append(
            {
                "bug": name or None,
                "mu_promised": promised,
                "mu_estimated": estimate.mu,
                "standard_error": estimate.error,
                "fault": fault,
                "seconds": round(monotonic() - started, 1),
            }
        )
        print(f"{name or 'as it is'}: {fault or f'μ̂ = {estimate.mu:.3f} of {promised:.3f}'}", flush=True)
    given.output.parent.mkdir(parents=True, exist_ok=True)
    report = {"releases": given.releases, "seed": given.seed, "passed": as_it_should_be, "audits": rows}
    given.output.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"written to {given.output}")
    return 0 if as_it_should_be else 1


if __name__ == "__main__":
    sys.exit(main())
