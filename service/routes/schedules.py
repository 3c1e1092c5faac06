"""Rounds to be opened at a time."""

from typing import Annotated

from fastapi import APIRouter, Path

from protocol import rest
from protocol.causes import Cause
from protocol.scheduling import ScheduleRequest, ScheduleView, ScheduleViews, Unscheduled
from service.access.guards import GuardedRoute
from service.problems import declared
from service.routes.common import ANYBODY, ROUNDS, Here, Hex32Path

router = APIRouter(tags=["schedules"], route_class=GuardedRoute)
SchedulePath = Annotated[str, Path(pattern=rest.ROUND_PATTERN)]


@router.post(
    rest.SCHEDULES,
    status_code=201,
    dependencies=ROUNDS.dependencies,
    responses=declared(*ROUNDS.causes, Cause.NOT_FOUND, Cause.WRONG_PHASE),
)
async def schedule(cohort: Hex32Path, request: ScheduleRequest, here: Here) -> ScheduleView:
    """Have a round of a formed cohort opened at a time (operator); it is tried once."""
    return await here.schedules.add(cohort, request)


@router.get(rest.SCHEDULES, dependencies=ANYBODY.dependencies, responses=declared(Cause.NOT_FOUND))
async def schedules(cohort: Hex32Path, here: Here) -> ScheduleViews:
    """What a cohort's rounds are scheduled for, and what became of it, by time."""
    await here.cohort(cohort)  # not-found for a stranger
    return ScheduleViews(await here.schedules.of(cohort))


@router.post(
    rest.UNSCHEDULE,
    dependencies=ROUNDS.dependencies,
    responses=declared(*ROUNDS.causes, Cause.NOT_FOUND, Cause.WRONG_PHASE),
)
async def unschedule(schedule: SchedulePath, here: Here) -> Unscheduled:
    """Take back what has not begun (operator)."""
    await here.schedules.remove(schedule)
    return Unscheduled(removed=schedule)
