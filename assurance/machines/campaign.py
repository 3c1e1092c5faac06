"""A batch of runs of a machine, from its number alone: what `run` and the tests have in common."""

import io
from collections import Counter
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from time import process_time

from hypothesis import HealthCheck, Phase, Verbosity, seed, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from assurance.machines.hostile import Hostile
from assurance.machines.loyal import Loyal
from assurance.machines.tally import TALLY
from tests.support.remembered import remembered_signatures

MACHINES: dict[str, type[RuleBasedStateMachine]] = {"hostile": Hostile, "loyal": Loyal}
STEPS_A_RUN = 100


@dataclass(frozen=True)
class Batch:
    """What one batch did.

    Attributes:
        part: a machine's name.
        number: fixes it.
        steps: that it took.
        receives: messages taken or refused.
        seconds: of processor time.
        reached: how often what was reached.
        violations: what broke, as far down as it could be shrunk.
    """

    part: str
    number: int
    steps: int
    receives: int
    seconds: float
    reached: Counter[str] = field(default_factory=Counter)
    violations: tuple[str, ...] = ()


def run_batch(part: str, number: int, runs: int, *, shrink: bool = False) -> Batch:
    """So many runs of a machine, each of at most `STEPS_A_RUN` steps.

    Args:
        part: a machine's name.
        number: fixes the batch.
        runs: of the machine.
        shrink: look for a shorter program where one breaks a rule; minutes, maybe.
    """
    TALLY.clear()
    started = process_time()
    with remembered_signatures():
        violations = [what] if (what := _machine(part, number, _settings(runs, shrink=shrink))) else []
    seconds = process_time() - started
    return Batch(part, number, TALLY.steps, TALLY.receives, seconds, TALLY.reached.copy(), tuple(violations))


def _machine(part: str, number: int, how: settings) -> str:
    """Run one machine from a seed of its own; the program that breaks it, or nothing."""
    form: type[RuleBasedStateMachine] = type(part.title(), (MACHINES[part],), {})
    heard = io.StringIO()
    try:
        with redirect_stdout(heard):
            run_state_machine_as_test(seed(number)(form), settings=how)
    except Exception as error:  # noqa: BLE001 - whatever a run raises is what is looked for
        notes = "\n".join(getattr(error, "__notes__", ()))
        return f"batch {number}: {type(error).__name__}: {error}\n{notes}"
    return ""


def _settings(runs: int, *, shrink: bool) -> settings:
    return settings(
        max_examples=runs,
        stateful_step_count=STEPS_A_RUN,
        deadline=None,
        database=None,
        verbosity=Verbosity.normal,
        phases=(Phase.generate, *([Phase.shrink] if shrink else [])),
        suppress_health_check=tuple(HealthCheck),
    )
