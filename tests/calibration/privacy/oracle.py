"""Write dp_accounting_values.json anew, with a Python that has dp-accounting (which pins other versions than ours).

PYTHON tests/calibration/privacy/oracle.py > tests/calibration/privacy/dp_accounting_values.json
"""

import json
import sys
from importlib.metadata import version

from dp_accounting import GaussianDpEvent, NeighboringRelation  # type: ignore[import-not-found]
from dp_accounting.pld import PLDAccountant  # type: ignore[import-not-found]

SIGMAS, ROUNDS = (0.7, 1.0, 2.0, 5.0, 20.0), (1, 4, 16, 64)
EPSILON, DELTA = 1.0, 1e-5


def row(sigma: float, rounds: int) -> list[float]:
    accountant = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE)
    accountant.compose(GaussianDpEvent(sigma), rounds)
    return [sigma, rounds, float(accountant.get_epsilon(DELTA)), float(accountant.get_delta(EPSILON))]


if __name__ == "__main__":
    values = {
        "source": f"dp-accounting {version('dp-accounting')}, PLDAccountant over GaussianDpEvent, add or remove one",
        "columns": ["sigma", "rounds", f"epsilon at delta {DELTA:g}", f"delta at epsilon {EPSILON:g}"],
        "rows": [row(sigma, rounds) for sigma in SIGMAS for rounds in ROUNDS],
    }
    sys.stdout.write(json.dumps(values, indent=1) + "\n")
