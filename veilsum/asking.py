"""What rounds ask and promise, in a command's words."""

import json
from collections.abc import Iterable
from typing import Any

from calibration.questions import QUESTIONS
from client_sdk.policy import Policy
from protocol.errors import Misuse
from protocol.rest import NoiseView, Parameter

EXACT = "none: an exact sum, without differential privacy"


def parsed(given: Iterable[str]) -> dict[str, Parameter]:
    """Parameters written NAME=VALUE; true, false and numbers are what they look like, all else is text. Misuse otherwise."""
    values: dict[str, Parameter] = {}
    for each in given:
        name, equals, text = each.partition("=")
        if not equals or not name or name in values:
            raise Misuse(f"--parameter {each}: write NAME=VALUE, each name once")
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        values[name] = value if isinstance(value, str | int | float | bool) else text
    return values


def listed() -> dict[str, Any]:
    """Every question, by name."""
    return {
        name: {
            "what": each.title,
            "learned": each.learns,
            "parameters": [
                f"{key} ({form.__name__}{'' if default is None else f', {default}'})"
                for key, (form, default) in each.domains.items()
            ],
            "rests_on": [*each.rests_on, *(f"{may} (if you like)" for may in each.may_rest_on)],
            "noise": "possible" if each.exact else "needed",
            "answered": "by all members"
            if name in Policy.statistics
            else f"by members who say --statistic {name}",
        }
        for name, each in QUESTIONS.items()
    }


def let_through(noise: dict[str, Any] | None, *, insist: bool) -> None:
    """Ask for noise that leaves little of a head all the same, where there is any; Misuse where there is none."""
    if noise is not None:
        noise["insist"] = insist
    elif insist:
        raise Misuse("--insist goes with --epsilon or --plan: an exact sum has no noise")


def promised(noise: NoiseView | str) -> dict[str, Any]:
    """What differential privacy a round promises, or that it promises none."""
    if isinstance(noise, str):
        return {"noise": EXACT}
    what = "presence" if noise.neighbours == "add-remove" else "content"
    whose = "record" if noise.member_records is None else "member"
    alone = "" if noise.rests_on is None else ", in this round alone: the one that it rests on took its own"
    return {
        "noise": f"ε = {noise.epsilon:.3g} at δ = {noise.delta:g} for a {whose}'s {what}{alone}",
        "epsilon_by_published_bounds": noise.published_epsilon,
        "mu": noise.mu,
        "sigma": noise.sigma,
    }
