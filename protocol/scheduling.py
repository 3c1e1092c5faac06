"""Rounds to be opened at a time, as JSON says it."""

from typing import Annotated

from pydantic import Field, RootModel

from protocol.rest import Hex32, Model, Problem, RoundId, RoundRequest, View

LATEST_S = 253_370_764_800
"""The year 9999, with which calendars end; milliseconds lie beyond it."""


class ScheduleRequest(Model):
    """Open a round of the cohort at a time.

    Attributes:
        at_s: when, in Unix time; at once where that has passed.
        round: as it would be sent to open the round now.
    """

    at_s: Annotated[float, Field(gt=0, lt=LATEST_S)]
    round: RoundRequest


class ScheduleView(View):
    """A round that is to be opened, or what became of it.

    Attributes:
        begun_s: when it was tried, once; None while it waits.
        round: the one that was opened.
        fault: why none could be. Where neither stands a while after `begun_s`, the process died in between: look at the cohort's
            rounds.
    """

    schedule: RoundId
    cohort: Hex32
    at_s: float
    begun_s: float | None
    round: RoundId | None
    fault: Problem | None
    request: RoundRequest


class ScheduleViews(RootModel[tuple[ScheduleView, ...]]):
    """A cohort's entries, by time."""


class Unscheduled(View):
    """An entry that was taken back."""

    removed: RoundId
