"""The audit of the noise: `make audit`.

48 full-size releases with a random half of 512 canaries each pass through the whole integer pipeline, then 1,000 whole chains of each
recipe with a canary and as many without. In all audits μ̂ must match the promised μ, and each of five bugs in the shares, and a chain
with too little noise, must be flagged.
Exit status 1 otherwise.
"""

# ruff: noqa: T201 - a command prints

from collections.abc import Callable, Iterator
from functools import partial
from time import monotonic
from typing import Any

from assurance.audit.canaries import Canaries
from assurance.audit.chain import Chain
from assurance.audit.estimate import Estimate
from assurance.audit.pipeline import BUGS, Bug, unchanged
from assurance.reports import arguments, report
from veilsum.protocol.study import RECIPES


def full_size(bug: Bug, seed: int) -> tuple[Estimate, float]:
    """Audit a few releases of l = 1280, C = 100 with many canaries; return μ̂ and the promised μ."""
    canaries = Canaries(1280, 100, 512, bug)
    return canaries.estimate(48, seed), canaries.mechanism.mu_round


def whole_chain(recipe: str, quieter: float, seed: int, chains: int = 1_000) -> tuple[Estimate, float]:
    """Audit whole chains, with and without one canary."""
    chain = Chain(recipe, quieter)
    return chain.estimate(chains, seed), chain.mu


CHAIN_BUGS = {"": 1.0, "noise for 1.5 times μ": 1.5}


def list_audits(seed: int) -> Iterator[tuple[str, str, Callable[[], tuple[Estimate, float]]]]:
    """Yield each audit: its name, its bug or an empty text, and what runs it."""
    for name, bug in {"": unchanged, **BUGS}.items():
        yield "full size", name, partial(full_size, bug, seed)
    for recipe, steps in RECIPES.items():
        for name, quieter in CHAIN_BUGS.items() if len(steps) > 1 else ():
            yield f"whole chain of {recipe}", name, partial(whole_chain, recipe, quieter, seed)


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    rows, as_it_should_be = list[dict[str, Any]](), True
    for kind, name, audit in list_audits(given.seed):
        started = monotonic()
        estimate, promised = audit()
        fault = estimate.fault(promised)
        as_it_should_be &= (fault is not None) == bool(name)
        rows.append(
            {
                "audit": kind,
                "bug": name or None,
                "mu_promised": promised,
                "mu_estimated": estimate.mu,
                "standard_error": estimate.error,
                "fault": fault,
                "seconds": round(monotonic() - started, 1),
            }
        )
        said = fault or f"μ̂ = {estimate.mu:.3f} of {promised:.3f}"
        print(f"{kind}, {name or 'as it is'}: {said}", flush=True)
    found = {"seed": given.seed, "passed": as_it_should_be, "audits": rows}
    report(found, given.output, sound=as_it_should_be)


if __name__ == "__main__":
    main()
