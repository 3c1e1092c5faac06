"""The audit of full-size releases: `make audit-canaries`.

Each release of l = 1280, C = 100 holds a random half of 512 orthonormal canaries and goes through the whole integer pipeline. Over
all of them μ̂ must be what was promised; then the same with each of five bugs in the shares, and each must be flagged. What the first
release alone says stands beside it. Exit status 1 otherwise.
"""

# ruff: noqa: T201 - a command prints

import argparse
import json
import sys
from pathlib import Path
from time import monotonic

import numpy as np

from assurance.audit.canaries import Canaries
from assurance.audit.estimate import estimate_mu
from assurance.audit.pipeline import BUGS, unchanged


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--dim", type=int, default=1280)
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--canaries", type=int, default=512)
    parser.add_argument("--releases", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=Path("runs/audit-canaries.json"))
    given = parser.parse_args()
    rows, as_it_should_be = [], True
    for name, bug in {"": unchanged, **BUGS}.items():
        audited, started = Canaries(given.dim, given.classes, given.canaries, bug), monotonic()
        scored = [audited.scores(given.seed, release) for release in range(given.releases)]
        promised = audited.mechanism.mu_round
        first = estimate_mu(*scored[0])
        without, having = (np.concatenate(each) for each in zip(*scored, strict=True))
        estimate = estimate_mu(without, having)
        fault = estimate.fault(promised)
        as_it_should_be &= (fault is not None) == bool(name)
        rows.append(
            {
                "bug": name or None,
                "mu_promised": promised,
                "mu_estimated": estimate.mu,
                "standard_error": estimate.error,
                "fault": fault,
                "mu_of_the_first_release": first.mu,
                "standard_error_of_the_first_release": first.error,
                "fault_in_the_first_release": first.fault(promised),
                "seconds": round(monotonic() - started, 1),
            }
        )
        print(f"{name or 'as it is'}: {fault or f'μ̂ = {estimate.mu:.3f} of {promised:.3f}'}", flush=True)
    report = {
        **{key: getattr(given, key) for key in ("dim", "classes", "canaries", "releases", "seed")},
        "passed": as_it_should_be,
        "audits": rows,
    }
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"written to {given.output}")
    return 0 if as_it_should_be else 1


if __name__ == "__main__":
    sys.exit(main())
