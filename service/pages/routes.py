"""The pages that anybody may read."""

import asyncio
import time
from functools import lru_cache
from pathlib import Path as FilePath
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, Response
from fastapi.staticfiles import StaticFiles

from protocol.causes import Cause
from protocol.published import SolutionView
from protocol.rare_classes import class_floor
from protocol.record import record_digest
from protocol.rest import RoundView, round_name
from protocol.study import read_content
from protocol.trust import TRUST
from service.access.guards import GuardedRoute
from service.combining import stored_record
from service.pages import grid, paths, reading
from service.pages.problems import advice, cause_named
from service.pages.rendering import page
from service.pages.session import SIGNED_IN_OR_NOT, session_of
from service.pages.wording import PHASES, STATES
from service.problems import not_found
from service.rounds import Round
from service.routes.common import ANYBODY, CombinationPath, Here, Hex32Path, TheRound
from service.telemetry.metrics import REFUSALS
from service.telemetry.readiness import Readiness

router = APIRouter(
    include_in_schema=False,
    default_response_class=HTMLResponse,
    route_class=GuardedRoute,
    dependencies=SIGNED_IN_OR_NOT,
)
files = APIRouter(include_in_schema=False, route_class=GuardedRoute, dependencies=ANYBODY.dependencies)
PAGE_ROUNDS, PAGE_MEMBERS = 50, 100
STARTED_S = time.time()
FILES = StaticFiles(directory=FilePath(__file__).parent / "static")

Number = Annotated[int, Query(ge=1, le=1 << 32)]


@router.get(paths.ROUNDS)
async def rounds(
    request: Request,
    here: Here,
    federation: str = "",
    state: str = "",
    number: Annotated[Number, Query(alias="page")] = 1,
) -> HTMLResponse:
    """All rounds, those that run first."""
    chosen = reading.Filter(federation, state)
    listed = await reading.listed(here, chosen, (number - 1) * PAGE_ROUNDS, PAGE_ROUNDS)
    return page(
        request,
        "rounds.html",
        {
            "views": listed.views,
            "total": listed.total,
            "any": listed.any,
            "running": listed.running,
            "chosen": chosen,
            "states": reading.states(),
            "federations": await reading.federation_ids(here),
            "number": number,
            "pages": -(-listed.total // PAGE_ROUNDS),
        },
    )


@files.api_route(paths.STATIC, methods=["GET", "HEAD"])
async def static(request: Request, name: str) -> Response:
    """A style, a script or a picture of the pages; 304 where the browser has it."""
    return await FILES.get_response(name, request.scope)


@router.get(paths.ROUND)
async def one_round(
    request: Request, here: Here, found: TheRound, number: Annotated[Number, Query(alias="page")] = 1
) -> HTMLResponse:
    """One round: who has done what, whom it waits for, and until when."""
    view, first = found.view(), (number - 1) * PAGE_MEMBERS
    waited_for = frozenset(view.waiting_for)
    newest = await here.federations.newest(view.federation)
    members, gone = await asyncio.to_thread(
        lambda: (
            sorted(view.members, key=lambda member: (member not in waited_for, member)),
            sorted(set(view.members).difference(newest.members)),
        )
    )
    return page(
        request,
        "round.html",
        {
            "view": view,
            "words": STATES[view.state],
            "phases": PHASES,
            "columns": grid.columns(view),
            "rows": grid.rows(
                found,
                view,
                await answers(found),
                members[first : first + PAGE_MEMBERS],
                chunks=session_of(request) is not None,
            ),
            "number": number,
            "pages": -(-len(members) // PAGE_MEMBERS),
            "spare": spare(found, view),
            "refused": request.app.state.refused.of(found.id),
            "advice": advice(),
            "gone": gone,
            "roster": newest.number,
            "indicator": indicator_round(view),
            "classes": reading.class_names(found.attempt.content),
        },
    )


CRITERIA = {
    "gcv": "GCV",
    "given": "as asked for",
    "": "no new head",
}
"""What chose λ, or found the head, in a word."""


@router.get(paths.RESULT)
async def result(request: Request, found: TheRound) -> HTMLResponse:
    """What the coordinator signed about a finished round, and how to check it."""
    record, attempt = found.documents.result(), found.attempt
    return page(
        request,
        "result.html",
        {
            "view": found.view(),
            "record": record,
            **_choice(record.solution),
            "trust": TRUST,
            "indicator": indicator_round(found.view()),
            "members": len(attempt.members),
            "classes": reading.class_names(attempt.content),
            "floor": class_floor(attempt.question) if record.holders else 0,
            "question": attempt.question,
            "public": attempt.content.after.readers == "anyone",
        },
    )


@router.get(paths.COMBINATION)
async def combination(request: Request, combination: CombinationPath, here: Here) -> HTMLResponse:
    """What the coordinator signed about periods whose sums were added up, and how to check it."""
    record = await asyncio.to_thread(stored_record, combination, here.blobs)
    study = await here.studies.study(record.federation, record.study)
    context = {
        "record": record,
        "digest": record_digest(record).hex(),
        "public": read_content(study.content).after.readers == "anyone",
        **_choice(record.solution),
    }
    return page(request, "combination.html", context)


def _choice(solution: SolutionView) -> dict[str, Any]:
    """λ and its errors, for `curve.html`."""
    return {
        "curve": list(zip(solution.grid, solution.errors, strict=True)),
        "criterion": CRITERIA.get(solution.chosen_by, solution.chosen_by),
    }


@router.get(paths.MEMBERS)
async def members(request: Request, here: Here) -> HTMLResponse:
    """The federations, and who is in them."""
    names = await reading.federation_ids(here)
    found = [await reading.federation(here, name) for name in names]
    return page(request, "members.html", {"federations": found})


@router.get(paths.FEDERATION)
async def federation(
    request: Request, federation: Hex32Path, here: Here, number: Annotated[Number, Query(alias="page")] = 1
) -> HTMLResponse:
    """One federation's members, studies and cohorts."""
    found, first = await reading.federation(here, federation), (number - 1) * PAGE_MEMBERS
    cohorts = [await here.cohort(name) for name in reversed(found.cohorts)]
    uploaded = await reading.uploaded(here, federation)
    return page(
        request,
        "federation.html",
        {
            "federation": found,
            "people": found.people(found.names(first, PAGE_MEMBERS), cohorts, uploaded),
            "cohorts": [await here.cohort_view(cohort) for cohort in cohorts],
            "studies": (await here.studies.views(federation))[::-1],
            "now_s": here.now(),
            "combinations": await here.combinations(federation),
            "number": number,
            "pages": -(-found.named // PAGE_MEMBERS),
        },
    )


@router.get(paths.HEALTH)
async def health(request: Request, here: Here) -> HTMLResponse:
    """What /readyz and /metrics say, for people."""
    readiness: Readiness = request.app.state.readiness
    await here.catalogue.look()
    counts = here.catalogue.states()
    counted = {name: counts[name] for name in STATES}
    refusals = {cause: int(REFUSALS.labels(cause.value)._value.get()) for cause in Cause}  # noqa: SLF001
    return page(
        request,
        "health.html",
        {
            "missing": await readiness.missing(),
            "checks": readiness.names,
            "counted": {name: count for name, count in counted.items() if count},
            "refusals": sorted(
                ((cause, count) for cause, count in refusals.items() if count), key=lambda pair: -pair[1]
            ),
            "key": here.key.public.hex(),
            "up_s": time.time() - STARTED_S,
        },
    )


@router.get(paths.PROBLEM)
async def problem(request: Request, cause: str) -> HTMLResponse:
    """What a cause means, and what to do about it."""
    found = cause_named(cause)
    if found is None:
        raise not_found("cause; all of them are listed under /problems")
    return page(request, "problem.html", {"cause": found, "advice": advice()[found.value]})


@router.get(paths.PROBLEMS)
async def problems(request: Request) -> HTMLResponse:
    """Every cause."""
    return page(request, "problems.html", {"causes": list(Cause), "advice": advice()})


async def answers(found: Round) -> grid.Answers | None:
    """Who answered what; an ended round's are read once."""
    if found.final is not None:
        return await asyncio.to_thread(_kept_answers, found)
    return await asyncio.to_thread(grid.answers_of, found)


@lru_cache(maxsize=64)
def _kept_answers(found: Round) -> grid.Answers | None:
    return grid.answers_of(found)


def spare(found: Round, view: RoundView) -> tuple[int, str] | None:
    """How many more may vanish before there can be no sum, and of whom; None where that question is over."""
    if view.state == "collecting":
        return len(view.members) - view.survivors_min, "members"
    if view.state == "checking":
        return len(view.uploaded) - view.survivors_min, "uploads"
    if view.state in {"freezing", "revealing"}:
        return len(found.attempt.decryptors) - view.threshold, "decryptors"
    return None


def indicator_round(view: RoundView) -> str | None:
    """The round that decided what is withheld."""
    named = view.spec.indicator
    return None if named is None else round_name(bytes.fromhex(named))
