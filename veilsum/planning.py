"""What `veilsum privacy plan` says of a noisy round, or of several, in the order in which it is read."""

from collections.abc import Mapping
from typing import Any

from calibration.privacy import (
    MeanPlan,
    NoiseTerms,
    NoisyRound,
    Plan,
    RefinedPlan,
    gdp_mu,
    plan,
    plan_mean,
    plan_refined,
    plan_round,
)
from calibration.privacy.plan import Verdict
from calibration.questions import Question, Wish, ask, question

UNKNOWN = "not known"
GRADIENT_ROUNDS = 4
"""That a plan of one sum compares itself with."""


def planned(
    statistic: str,
    records: int,
    dim: int,
    classes: int,
    rounds: int,
    parameters: Mapping[str, Any] | None = None,
    **given: Any,
) -> dict[str, Any]:
    """The figures of a question's noisy round; of refine those of all rounds that lead to its head.

    Args:
        statistic: the question.
        records: N of all members.
        dim: features per record.
        classes: C.
        rounds: of gradients, where it is refine.
        parameters: of the question, where they change its size.
        given: as `calibration.privacy.plan`.

    Raises:
        CalibrationError: as `calibration.privacy.plan`, for a question that there is not, and for parameters that it does not have.
    """
    if statistic == "mean":
        given.pop("bias")
        return _mean(plan_mean(records, dim, **given))
    if statistic == "ffc" and given["bias"]:
        statistic = "ffc-bias"
    bias = given["bias"] = given["bias"] or statistic == "ffc-bias"
    if statistic == "refine":
        return _refined(plan_refined(records, dim, classes, rounds=rounds, **given))
    if statistic not in {"ffc", "ffc-bias"} or parameters:
        cohort = {name: given[name] for name in ("members", "survivors_min", "colluders")}
        more = {name: given[name] for name in ("neighbours", "nonnegative", "member_records")}
        noise = NoiseTerms.for_classes(
            classes, gdp_mu(given["epsilon"], given["delta"]), given["delta"], **more
        )
        asked = _asked(
            statistic,
            dim,
            classes,
            {**({"bias": True} if bias and statistic != "ffc-bias" else {}), **(parameters or {})},
        )
        return _other(plan_round(asked, records, noise, **cohort))
    return _sums(
        plan(records, dim, classes, **given),
        plan_refined(records, dim, classes, rounds=GRADIENT_ROUNDS, **given),
    )


def _asked(statistic: str, dim: int, classes: int, parameters: Mapping[str, Any]) -> Question:
    """The question with the layout of its noisy round, as far as it goes before any round that it rests on."""
    if statistic == "rff":
        parameters = {"bandwidth": 1.0, **parameters}
    return question(statistic, ask(statistic, Wish(dim, classes, parameters, noisy=True)).layout)


def _other(made: NoisyRound) -> dict[str, Any]:
    return {
        "expected_points_lost": UNKNOWN,
        **_promised(made),
        "sigma_when_all_are_summed": made.deviation,
        **_sent(made),
    }


def _sums(made: Plan, refined: RefinedPlan) -> dict[str, Any]:
    median, worst = made.expected_loss
    assert refined.gain is not None
    gained, least = refined.gain
    advice = list(made.advice())
    if made.verdict is not Verdict.GOOD and gained > 0:
        advice.append(
            f"{GRADIENT_ROUNDS} rounds of refine at the same budget, which gain about {gained:g} points"
        )
    return {
        "verdict": made.verdict.value,
        "what_would_help": advice,
        "expected_points_lost": median,
        "worst_points_measured": worst,
        **_promised(made),
        "sigma_when_all_are_summed": made.deviation,
        **_sent(made),
        f"points_gained_by_{GRADIENT_ROUNDS}_rounds_of_refine": gained,
        "points_gained_at_worst": least,
    }


def _mean(made: MeanPlan) -> dict[str, Any]:
    return {
        "expected_error_of_the_mean": made.error,
        "expected_points_lost": UNKNOWN,
        **_promised(made),
        "sigma_when_all_are_summed": made.deviation,
        **_sent(made),
    }


def _refined(made: RefinedPlan) -> dict[str, Any]:
    loss, gain = made.expected_loss, made.gain
    return {
        "verdict": UNKNOWN if made.verdict is None else made.verdict.value,
        "expected_points_lost": UNKNOWN if loss is None else loss[0],
        "expected_points_gained_over_one_sum": UNKNOWN if gain is None else gain[0],
        "points_gained_at_worst": UNKNOWN if gain is None else gain[1],
        "rounds_of_refine": made.rounds,
        "mu_of_all_rounds": made.mu,
        "epsilon_of_the_ffc_round": made.first.epsilon,
        "epsilon_of_each_refine_round": made.each.epsilon,
        "delta": made.each.delta,
        "sigma_of_the_ffc_round": made.first.mechanism.sigma,
        "sigma_of_each_refine_round": made.each.mechanism.sigma,
        "upload_bytes_of_the_ffc_round": made.first.upload_bytes,
        "upload_bytes_of_each_refine_round": made.each.upload_bytes,
        "upload_bytes": made.upload_bytes,
    }


def _promised(made: NoisyRound) -> dict[str, Any]:
    return {
        "epsilon": made.epsilon,
        "epsilon_by_published_bounds": made.mechanism.published_epsilon(made.delta),
        "delta": made.delta,
        "mu": made.mechanism.mu_round,
        "sigma": made.mechanism.sigma,
    }


def _sent(made: NoisyRound) -> dict[str, Any]:
    return {
        "survivors_min": made.mechanism.survivors_min,
        "colluders": made.mechanism.colluders,
        "lattice_bits": made.mechanism.lattice.bits,
        "ring_bits": made.ring_bits,
        "upload_bytes": made.upload_bytes,
    }
