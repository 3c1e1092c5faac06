"""The consortium's privacy budget: what all noisy rounds of a federation together may say of one record.

Each member's own ledger is the authority over its records (protocol §7); here a federation sees what it has spent as a whole, as
if every record stood in each of its noisy rounds.
"""

import math
from collections.abc import Iterable

from calibration.privacy import NoiseTerms, compose, gdp_epsilon
from protocol.causes import Cause
from protocol.errors import PeerFault
from protocol.messages import Terms
from protocol.rest import BudgetView
from service.asked import mechanism_of
from service.rounds import Round

DELTA = 1e-5
"""At which the sum of all rounds is shown, whatever each was shown at."""


def view(rounds: Iterable[Round], federation: str, budget: float | None) -> BudgetView:
    """What the federation has spent; a round counts from its opening, and no more once it has ended VOID."""
    noisy = [each for each in rounds if _charged(each, federation)]
    mu = _composed(noisy)
    epsilon = gdp_epsilon(mu, DELTA) if mu else 0.0
    return BudgetView(
        federation=federation,
        mu=mu,
        epsilon=epsilon if math.isfinite(epsilon) else None,
        delta=DELTA,
        mu_budget=budget,
        rounds=tuple(each.id for each in noisy),
    )


def check(rounds: Iterable[Round], federation: str, terms: Terms | None, budget: float | None) -> None:
    """Refuse a noisy round that would leave the budget (terms-refused)."""
    if terms is None or not terms.noise or budget is None:
        return
    spent = _composed(each for each in rounds if _charged(each, federation))
    asked = NoiseTerms.from_bytes(terms.noise).mu
    if compose((spent, asked)) > budget * (1 + 1e-12):
        left = max(0.0, budget**2 - spent**2) ** 0.5
        raise PeerFault(
            Cause.TERMS_REFUSED,
            f"this federation's noisy rounds have taken μ = {spent:.4g} of the {budget:.4g} that the operator has set "
            f"(VEILSUM_MU_BUDGET), and another {asked:.4g} would leave it: a round of μ ≤ {left:.4g} would fit",
        )


def _composed(noisy: Iterable[Round]) -> float:
    attempts = (each.attempt for each in noisy)
    return compose(mechanism_of(attempt.opening.terms, attempt.manifest).mu_round for attempt in attempts)


def _charged(round_: Round, federation: str) -> bool:
    attempt = round_.attempt
    same = bool(attempt.roster.federation.hex() == federation and attempt.opening.terms.noise)
    return same and not (round_.final is not None and round_.final.state == "voided")
