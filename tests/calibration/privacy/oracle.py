"""Write another library's values, with a Python that has it (such libraries pin other versions than we do).

PYTHON tests/calibration/privacy/oracle.py dp_accounting > tests/calibration/privacy/dp_accounting_values.json
PYTHON tests/calibration/privacy/oracle.py opendp > tests/calibration/privacy/opendp_values.json
"""

# mypy: disable-error-code="import-not-found"

import json
import sys
from importlib.metadata import version
from typing import Any

CHAINS = {
    "mean+sum+6-gradients": [[0.05, 1], [0.2, 1], [0.125, 6]],
    "mean+sum+16-gradients": [[0.05, 1], [0.15, 1], [0.05, 16]],
}
"""Shares of μ² in each recipe with gradients, and the number of steps of each."""

JUDGE_DELTA, JUDGE_MU = 1e-6, (0.02, 0.1, 0.25, 0.5, 1.0, 2.0)
"""δ, and μ of judgements: of ε from about 0.1 to 10."""


def dp_accounting() -> dict[str, Any]:
    from dp_accounting import GaussianDpEvent, NeighboringRelation  # noqa: PLC0415
    from dp_accounting.pld import PLDAccountant  # noqa: PLC0415

    epsilon, delta = 1.0, 1e-5

    def row(sigma: float, rounds: int) -> list[float]:
        accountant = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE)
        accountant.compose(GaussianDpEvent(sigma), rounds)
        return [sigma, rounds, float(accountant.get_epsilon(delta)), float(accountant.get_delta(epsilon))]

    def judge(mu: float) -> list[float]:
        accountant = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE)
        accountant.compose(GaussianDpEvent(1 / mu))
        return [mu, float(accountant.get_epsilon(JUDGE_DELTA))]

    def chain(shares: list[list[float]], mu: float) -> list[float]:
        accountant = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE)
        for share, steps in shares:
            accountant.compose(GaussianDpEvent(1 / (mu * share**0.5)), int(steps))
        return [mu, float(accountant.get_epsilon(delta))]

    return {
        "source": f"dp-accounting {version('dp-accounting')}, PLDAccountant over GaussianDpEvent, add or remove one",
        "columns": ["sigma", "rounds", f"epsilon at delta {delta:g}", f"delta at epsilon {epsilon:g}"],
        "rows": [row(sigma, rounds) for sigma in (0.7, 1.0, 2.0, 5.0, 20.0) for rounds in (1, 4, 16, 64)],
        "chains": {
            recipe: {"shares": shares, "rows": [chain(shares, mu) for mu in (0.142, 0.268, 0.503, 0.93)]}
            for recipe, shares in CHAINS.items()
        },
        "judge": {"delta": JUDGE_DELTA, "rows": [judge(mu) for mu in JUDGE_MU]},
    }


def opendp() -> dict[str, Any]:
    import opendp.prelude as dp  # noqa: PLC0415

    dp.enable_features("contrib")

    def epsilon(rho: float, delta: float) -> float:
        """Return the ε to which OpenDP converts ρ of zCDP, at δ; a change of 1 costs ρ."""
        space = dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)
        curve = dp.c.make_zCDP_to_approxDP(dp.m.make_gaussian(*space, (1 / (2 * rho)) ** 0.5)).map(1.0)
        return float(curve.epsilon(delta))

    rhos, deltas = (0.001, 0.01, 0.1, 0.5, 1.0, 4.0), (1e-9, 1e-6, 1e-5, 1e-3)
    return {
        "source": f"OpenDP {version('opendp')}, make_zCDP_to_approxDP",
        "columns": ["rho", "delta", "epsilon"],
        "rows": [[rho, delta, epsilon(rho, delta)] for rho in rhos for delta in deltas],
    }


if __name__ == "__main__":
    values = {"dp_accounting": dp_accounting, "opendp": opendp}[sys.argv[1]]()
    sys.stdout.write(json.dumps(values) + "\n")
