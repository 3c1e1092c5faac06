"""A batch of runs of a machine, reproducible from its number. Shared by `run` and the tests."""

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
    """The results of a batch.

    Attributes:
        part: a machine's name.
        number: the batch's seed.
        steps: number of steps.
        receives: messages accepted or refused.
        seconds: of processor time.
        reached: how often each state of interest was reached.
        violations: broken rules, each with a program that was shrunk if asked for.
    """

    part: str
    number: int
    steps: int
    receives: int
    seconds: float
    reached: Counter[str] = field(default_factory=Counter)
    violations: tuple[str, ...] = ()


def run_batch(part: str, number: int, runs: int, *, shrink: bool = False) -> Batch:
    """Run a machine this many times, each with at most `STEPS_A_RUN` steps.

    Args:
        part: a machine's name.
        number: the batch's seed.
        runs: number of runs.
        shrink: look for a shorter program that breaks the rule, which may take minutes.
    """
    TALLY.clear()
    started = process_time()
    with remembered_signatures():
        violations = [what] if (what := _machine(part, number, _settings(runs, shrink=shrink))) else []
    seconds = process_time() - started
    return Batch(part, number, TALLY.steps, TALLY.receives, seconds, TALLY.reached.copy(), tuple(violations))


def _machine(part: str, number: int, how: settings) -> str:
    """Run one machine from its own seed; return the program that breaks it, or an empty text."""
    form: type[RuleBasedStateMachine] = type(part.title(), (MACHINES[part],), {})
    heard = io.StringIO()
    try:
        with redirect_stdout(heard):
            run_state_machine_as_test(seed(number)(form), settings=how)
    except Exception as error:  # noqa: BLE001 - any exception of a run is a finding
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
