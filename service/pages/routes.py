"""The public pages. A signed-in operator sees more on some of them."""

import time
from collections import Counter
from collections.abc import Collection
from importlib.metadata import version
from pathlib import Path as FilePath
from typing import Annotated, Any
from weakref import WeakKeyDictionary

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, Response
from fastapi.staticfiles import StaticFiles

from service.access.guarded_route import GuardedRoute
from service.access.guards import EVERYONE_GUARD
from service.coordination.cohorts import Brief, Cohort
from service.coordination.combining import stored_record
from service.coordination.coordinator import Coordinator
from service.coordination.federations import names_of
from service.coordination.readiness import Readiness
from service.coordination.rounds import Round
from service.coordination.sites import list_reports
from service.http.metering import in_thread
from service.http.problems import not_found
from service.pages import reading
from service.pages.judging import place_x, place_y, read_judgement
from service.pages.rendering import KeptRoute, cause_advice, render_page
from service.pages.session import SIGNED_IN_OR_NOT, session_of
from service.pages.wording import PHASES, STATE_WORDS, words_of
from service.routes.common import CombinationPath, Here, Hex32Path, TheRound
from service.storage.blobs import in_blob_thread
from service.telemetry.metrics import REFUSALS_COUNT
from veilsum.protocol.causes import Cause
from veilsum.protocol.counting import honest_rows
from veilsum.protocol.periods import PeriodKind, kind_of_period
from veilsum.protocol.record import SolutionView, record_digest
from veilsum.protocol.rest import TRUST_SENTENCE, CohortView, RoundView, Scope, round_name
from veilsum.protocol.study import ROWS_LEVELS, read_content
from veilsum.study.progress import RunEnd
from veilsum.study.sites import SiteRow, judge_sites, list_dropped
from veilsum.system.intervals import compute_presence_s

router = APIRouter(
    include_in_schema=False,
    default_response_class=HTMLResponse,
    route_class=KeptRoute.behind_guard(EVERYONE_GUARD),
    dependencies=SIGNED_IN_OR_NOT,
)
files = APIRouter(include_in_schema=False, route_class=GuardedRoute.behind_guard(EVERYONE_GUARD))
PAGE_ROUNDS, PAGE_RUNS, PAGE_MEMBERS = 50, 50, 100
PROCESS_START_S = time.time()
MEMBER_SILENT_S = 600.0
"""When a federation's page shows a member as silent. The pages of a run go by its study, as `veilsum operator run` does."""
STATIC_FILES = StaticFiles(directory=FilePath(__file__).parent / "static")
CRITERION_WORDS = {"gcv": "GCV", "given": "as asked for", "": "no new head"}
"""How λ was chosen, in a word."""

Number = Annotated[int, Query(alias="page", ge=1, le=1 << 32)]


def page_numbers(number: int, total: int, most: int) -> dict[str, int]:
    """Number a page and count the pages, for `parts.turning`."""
    return {"number": number, "pages": -(-total // most)}


async def last_heard(
    request: Request,
    here: Coordinator,
    federation: str,
    members: Collection[str],
    silent_s: float = MEMBER_SILENT_S,
) -> dict[str, Any]:
    """When members were last heard from; they are shown as silent after `silent_s`."""
    if not may_run(request, federation):
        return {"heard": None}
    return {"heard": await here.last_heard.read_times(federation, members), "silent_s": silent_s}


def may_run(request: Request, federation: str) -> bool:
    """Whether the viewer may run this federation's rounds, and so sees more of its members, as in a preflight."""
    return _has_scope(request, Scope.ROUNDS, federation)


def _has_scope(request: Request, scope: Scope, federation: str) -> bool:
    session = session_of(request)
    return session is not None and session.has_scope(scope) and session.caller.federation in {"", federation}


@router.get("/")
async def show_rounds(
    request: Request,
    here: Here,
    federation: Annotated[str, Query(pattern="^([0-9a-f]{64})?$")] = "",
    state: Annotated[str, Query(pattern="^[a-z]{0,16}$")] = "",
    number: Number = 1,
) -> HTMLResponse:
    """All rounds, running ones first."""
    chosen = reading.Filter(federation, state)
    listed = await reading.rounds_page(here, chosen, (number - 1) * PAGE_ROUNDS, PAGE_ROUNDS)
    return render_page(
        request,
        "rounds.html",
        listed=listed,
        chosen=chosen,
        forming=await reading.forming_cohorts(here, federation) if number == 1 and not state else [],
        states=[("live", "running"), *((name, words.title) for name, words in STATE_WORDS.items())],
        federations=await reading.federation_names(here),
        **page_numbers(number, listed.total, PAGE_ROUNDS),
    )


@files.get("/static/{name}")
async def serve_static(request: Request, name: str) -> Response:
    """A style, a script or a picture; 304 if the browser has it."""
    return await STATIC_FILES.get_response(name, request.scope)


@router.get("/rounds/{round_id}")
async def show_round(request: Request, here: Here, found: TheRound, number: Number = 1) -> HTMLResponse:
    """One round: what each member has done, which members it waits for, and until when."""
    view, first = found.current_view(), (number - 1) * PAGE_MEMBERS
    waited_for = frozenset(view.waiting_for)
    newest = await here.federations.read_roster(view.federation)
    members = sorted(view.members, key=lambda member: (member not in waited_for, member))
    shown = members[first : first + PAGE_MEMBERS]
    question = found.attempt.question
    return render_page(
        request,
        "round.html",
        view=view,
        words=words_of(view.state, view.spec.step),
        end=RunEnd.of_round(view),
        phases=PHASES,
        columns=reading.answer_columns(view),
        rows=reading.member_rows(
            found, view, await answers_by_phase(found), shown, chunks=may_run(request, view.federation)
        ),
        **page_numbers(number, len(members), PAGE_MEMBERS),
        **await last_heard(
            request,
            here,
            view.federation,
            waited_for.intersection(shown),
            compute_presence_s(question.windows.answer),
        ),
        spare=spare_parties(found, view),
        opened_s=found.opened_s,
        refused=dict((request.app.state.refused.get_value(found.id) or Counter()).most_common()),
        advice=cause_advice(),
        gone=sorted({*view.members}.difference(names_of(newest))),
        federation=newest,
        count=count_round(view),
        no_sum=await reading.find_no_sum(here, view, question),
        question=question,
        classes=found.attempt.content.class_names,
        levels=[-(-level * question.records.least // 4) for level in ROWS_LEVELS],
        honest_rows=honest_rows(question, view.reached) if view.reached else 0,
        may_run=may_run(request, view.federation),
    )


@router.get("/rounds/{round_id}/result")
async def show_result(request: Request, here: Here, found: TheRound) -> HTMLResponse:
    """A finished round's signed record, and how to check it."""
    record, attempt, view = found.documents.require_record(), found.attempt, found.current_view()
    public, judged = attempt.content.after.readers == "anyone", attempt.spec.judges
    may_read, judgement = _has_scope(request, Scope.SUMS, view.federation), None
    if judged and (public or may_read):  # as its documents
        judgement = await read_judgement(here, found)
    positive, names = attempt.question.positive_class, attempt.content.class_names
    return render_page(
        request,
        "result.html",
        judged=judged,
        judgement=judgement,
        positive=None if positive is None else names[positive],
        place_x=place_x,
        place_y=place_y,
        view=view,
        record=record,
        **_ridge_choice(record.solution),
        trust=TRUST_SENTENCE,
        count=count_round(view),
        members=len(attempt.members),
        classes=names,
        floor=attempt.question.class_floor if record.holders else 0,
        question=attempt.question,
        public=public,
        may_read=may_read,
        federation=await here.federations.read_roster(view.federation),
    )


@router.get("/combinations/{combination}")
async def show_combination(request: Request, combination: CombinationPath, here: Here) -> HTMLResponse:
    """The signed record of combined periods, and how to check it."""
    record = await in_blob_thread(stored_record, combination, here.blobs, here.key.public)
    content = read_content((await here.federations.read_study(record.federation, record.study)).content)
    return render_page(
        request,
        "combination.html",
        record=record,
        classes=content.class_names,
        digest=record_digest(record).hex(),
        public=content.after.readers == "anyone",
        federation=await here.federations.read_roster(record.federation),
        **_ridge_choice(record.solution),
    )


def _ridge_choice(solution: SolutionView) -> dict[str, Any]:
    """λ and its errors, for `curve.html`."""
    return {
        "curve": list(zip(solution.grid, solution.errors, strict=True)),
        "criterion": CRITERION_WORDS.get(solution.chosen_by, solution.chosen_by),
    }


@router.get("/federations")
async def show_federations(request: Request, here: Here) -> HTMLResponse:
    """The federations and their members."""
    names = await reading.federation_names(here)
    found = list[reading.FederationPage]()
    for each in sorted(names, key=lambda id_: names[id_]):
        with here.database.quarantine.skip_errors(f"federation {each}"):
            found.append(await reading.federation_page(here, each))
    return render_page(request, "federations.html", federations=found)


@router.get("/federations/{federation}")
async def show_federation(
    request: Request, federation: Hex32Path, here: Here, number: Number = 1
) -> HTMLResponse:
    """One federation's members, studies and runs."""
    found, first = await reading.federation_page(here, federation), (number - 1) * PAGE_MEMBERS
    newest = found.cohorts[: -PAGE_RUNS - 1 : -1]
    cohorts = list[tuple[CohortView, Brief | None]]()
    for name in newest:
        with here.database.quarantine.skip_errors(f"cohort {name} of federation {federation}"):
            cohort = await here.catalogue.find_cohort(name)
            cohorts.append((await here.cohort_view(cohort), cohort.rounds[-1] if cohort.rounds else None))
    shown = found.names[first : first + PAGE_MEMBERS]
    return render_page(
        request,
        "federation.html",
        federation=found,
        people=found.describe_people(
            shown,
            await reading.count_enrolments(here, federation, shown),
            await reading.newest_uploads(here, federation),
        ),
        **await last_heard(request, here, federation, shown),
        cohorts=cohorts,
        studies=(await here.federations.study_views(federation))[::-1],
        combinations=await here.combinations.list_records(federation),
        **page_numbers(number, len(found.names), PAGE_MEMBERS),
    )


@router.get("/cohorts/{cohort}")
async def show_cohort(request: Request, cohort: Hex32Path, here: Here, number: Number = 1) -> HTMLResponse:
    """One run of a study: who has enrolled and paired, those that it waits for first, and its outcome."""
    found, first = await here.catalogue.find_cohort(cohort), (number - 1) * PAGE_MEMBERS
    view = await here.cohort_view(found)
    enrolled, awaited = frozenset(view.cards), frozenset(view.awaited_members)
    members = sorted(view.members, key=lambda member: (member not in awaited, member in enrolled, member))
    shown = members[first : first + PAGE_MEMBERS]
    return render_page(
        request,
        "cohort.html",
        view=view,
        **await reading.run_end(here, found, view),
        federation=found.roster,
        members=shown,
        enrolled=enrolled,
        decryptors=found.window.manifest.decryptors if found.window else (),
        rounds=found.rounds[::-1],
        sites=await rehearsed_sites(request, here, found, view),
        **page_numbers(number, len(members), PAGE_MEMBERS),
        **await last_heard(
            request, here, view.federation, shown, compute_presence_s(found.content.question.windows.answer)
        ),
    )


async def rehearsed_sites(
    request: Request, here: Coordinator, found: Cohort, view: CohortView
) -> tuple[SiteRow, ...]:
    """What the sites of a rehearsal reported, with a verdict on each, for operators; nothing of other runs."""
    if kind_of_period(view.period) is not PeriodKind.REHEARSAL or not may_run(request, view.federation):
        return ()
    last = (await here.catalogue.find_round(found.rounds[-1].id)).current_view() if found.rounds else None
    shown = await in_blob_thread(list_reports, here.blobs, view.cohort)
    come = {*view.cards, *(site.member for site in shown.sites)}
    return judge_sites(
        sorted(come) if view.forming else view.members,
        come if view.forming else view.cards,
        list_dropped(last),
        shown,
        found.content.question.windows.upload,
        version("veilsum"),
        found.window.manifest.decryptors if found.window else None,
    )


@router.get("/health")
async def show_health(request: Request, here: Here) -> HTMLResponse:
    """/readyz and /metrics for people."""
    readiness: Readiness = request.app.state.readiness
    counts = await here.summaries.count_states()
    refusals = Counter(
        {cause: int(REFUSALS_COUNT.labels(cause.value)._value.get()) for cause in Cause}  # noqa: SLF001
    )
    return render_page(
        request,
        "health.html",
        missing=await readiness.failed_checks(),
        checks=readiness.names,
        damaged=here.list_damaged(),
        counted={name: counts[name] for name in STATE_WORDS if counts[name]},
        refusals=[(cause, count) for cause, count in refusals.most_common() if count],
        key=here.key.public.hex(),
        up_s=time.time() - PROCESS_START_S,
    )


@router.get("/problems/{cause}")
async def show_problem(request: Request, cause: str) -> HTMLResponse:
    """The meaning of a cause, and what to do about it."""
    if cause not in set(Cause):
        raise not_found("cause; all of them are listed under /problems")
    return render_page(request, "problem.html", cause=Cause(cause), advice=cause_advice()[cause])


@router.get("/problems")
async def show_problems(request: Request) -> HTMLResponse:
    """Every cause."""
    return render_page(request, "problems.html", causes=list(Cause))


_answers = WeakKeyDictionary[Round, reading.Answers]()
"""Of ended rounds with a transcript that could be read, which are read once, and forgotten with the round."""


async def answers_by_phase(found: Round) -> reading.Answers | None:
    """The answers of each member."""
    if found.end is None:
        return await in_thread(reading.answers_of, found)
    answers = _answers.get(found)
    if answers is None:  # not read yet, or found damaged then: its transcript may have been restored since
        answers = await in_blob_thread(reading.answers_of, found)
        if answers is not None:
            _answers[found] = answers
    return answers


def spare_parties(found: Round, view: RoundView) -> tuple[int, str] | None:
    """How many more members or decryptors may drop out before the sum fails; None once that is decided."""
    match view.state:
        case "collecting":
            left, what = len(view.members) - view.survivors_min, "member"
        case "checking":
            left, what = len(view.uploaded) - view.survivors_min, "upload"
        case "freezing" | "revealing":
            left, what = len(found.attempt.decryptors) - view.threshold, "decryptor"
        case _:
            return None
    return max(left, 0), what


def count_round(view: RoundView) -> str | None:
    """The round that decided what is withheld."""
    named = view.spec.count
    return None if named is None else round_name(bytes.fromhex(named))
