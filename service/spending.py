"""The consortium's privacy budget: what all noisy rounds of a federation together may say of one record.

Each member's own ledger is the authority over its records (protocol §7); here a federation sees what it has spent as a whole, as
if every record stood in each of its noisy rounds.
"""

import math
from collections.abc import Mapping

from calibration.privacy import NoiseTerms, compose, gdp_epsilon
from protocol.budget import BudgetView
from protocol.causes import Cause
from protocol.errors import PeerFault
from protocol.messages import Terms

DELTA = 1e-5
"""At which the sum of all rounds is shown, whatever each was shown at."""


def view(noisy: Mapping[str, float], federation: str, budget: float | None) -> BudgetView:
    """What the federation has spent, by the μ of its noisy rounds, which stand under their ids."""
    mu = compose(noisy.values())
    epsilon = gdp_epsilon(mu, DELTA) if mu else 0.0
    return BudgetView(
        federation=federation,
        mu=mu,
        epsilon=epsilon if math.isfinite(epsilon) else None,
        delta=DELTA,
        mu_budget=budget,
        rounds=tuple(noisy),
    )


def check(noisy: Mapping[str, float], terms: Terms, budget: float) -> None:
    """Refuse a noisy round that would leave the budget (terms-refused)."""
    spent = compose(noisy.values())
    asked = NoiseTerms.from_bytes(terms.noise).mu
    if compose((spent, asked)) > budget * (1 + 1e-12):
        left = max(0.0, budget**2 - spent**2) ** 0.5
        raise PeerFault(
            Cause.TERMS_REFUSED,
            f"this federation's noisy rounds have taken μ = {spent:.4g} of the {budget:.4g} that the operator has set "
            f"(VEILSUM_MU_BUDGET), and another {asked:.4g} would leave it: a round of μ ≤ {left:.4g} would fit",
        )
