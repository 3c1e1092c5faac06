"""Write opendp_values.json anew, with a Python that has OpenDP.

PYTHON tests/calibration/privacy/opendp_oracle.py > tests/calibration/privacy/opendp_values.json
"""

import json
import sys
from collections import Counter
from importlib.metadata import version

import opendp.prelude as dp  # type: ignore[import-not-found]

RHOS, DELTAS = (0.001, 0.01, 0.1, 0.5, 1.0, 4.0), (1e-9, 1e-6, 1e-5, 1e-3)
SIGMAS, SAMPLES = (1, 3, 10), 200_000


def epsilon(rho: float, delta: float) -> float:
    """What OpenDP converts ρ of zCDP to, at δ."""
    space = dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)
    scale = (1 / (2 * rho)) ** 0.5  # so that a change of 1 costs ρ
    curve = dp.c.make_zCDP_to_approxDP(dp.m.make_gaussian(*space, scale)).map(1.0)
    return float(curve.epsilon(delta))


def histogram(sigma: int) -> dict[str, int]:
    """How often each integer came, of so many draws."""
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float)
    drawn = dp.m.make_gaussian(*space, float(sigma))([0] * SAMPLES)
    return {str(value): count for value, count in sorted(Counter(drawn).items())}


if __name__ == "__main__":
    dp.enable_features("contrib")
    values = {
        "source": f"OpenDP {version('opendp')}, make_zCDP_to_approxDP and make_gaussian over integers",
        "columns": ["rho", "delta", "epsilon"],
        "rows": [[rho, delta, epsilon(rho, delta)] for rho in RHOS for delta in DELTAS],
        "histograms": {str(sigma): histogram(sigma) for sigma in SIGMAS},
    }
    sys.stdout.write(json.dumps(values) + "\n")
