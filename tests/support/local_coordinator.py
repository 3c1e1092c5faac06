"""An honest coordinator in memory: the REST contract over `Request` and `Response`, real protocol phases inside."""

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from safetensors.numpy import save

from client_sdk.effects import Request, Response
from client_sdk.signing import Signer
from tests.support.simulator import Chain, total_of
from veilsum.protocol import rest
from veilsum.protocol.attempt import Attempt
from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator import (
    Collecting,
    CoordinatorPhase,
    Ended,
    Enrolling,
    Erasing,
    Recovered,
    disclose,
)
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.messages import (
    NO_CONTEXT,
    Cards,
    Evictions,
    KeyCard,
    Lost,
    Manifest,
    Message,
    Opening,
    Roster,
    Study,
    Terms,
    Upload,
    parse,
)
from veilsum.protocol.record import ResultRecord, sign_record
from veilsum.protocol.study import read_content
from veilsum.protocol.transcript import Transcript
from veilsum.study.answers import answer, pooled
from veilsum.study.result_files import Files, files, read_material
from veilsum.study.views import record_of, spec_view

T = TypeVar("T")


@dataclass
class Cohort:
    enrolling: Enrolling
    version: int = 1
    manifest: Manifest | None = None
    fault: PeerFault | None = None
    place: tuple[int, int] = (0, 0)
    rounds: list[str] = field(default_factory=list)


@dataclass
class Round:
    round_id: str
    cohort: Cohort
    phase: CoordinatorPhase
    transcript: Transcript
    version: int = 1
    spool: dict[tuple[str, int], bytes] = field(default_factory=dict)
    record: ResultRecord | None = None
    published: Files | None = None
    sums: bytes = b""
    total: np.ndarray[Any, Any] | None = None
    fault: PeerFault | None = None
    material: bytes | None = None
    holders: tuple[int, ...] = ()
    disclosure: bytes = b""


class LocalCoordinator(Chain):
    """Answers requests at once: whoever waits for news asks `has_news` first."""

    def __init__(self, key: SigningKey, roster: Roster, study: Study, now_s: Callable[[], float]) -> None:
        super().__init__()
        self.key, self.roster, self.now_s = key, roster, now_s
        self.studies: dict[str, Study] = {study.hash.hex(): study}
        self.study = study
        self.cohorts: dict[str, Cohort] = {}
        self.rounds: dict[str, Round] = {}
        self.revision = 1
        self.wire: dict[tuple[str, str], list[bytes]] = {}
        self.requests: list[Request] = []

    # The operator's side

    def publish(self, study: Study) -> None:
        """Take a study for the cohorts that are opened from now on."""
        self.study = self.studies[study.hash.hex()] = study

    def open_cohort(self, period: str = "p1", repeats: str | None = None) -> str:
        context = NO_CONTEXT if repeats is None else bytes.fromhex(repeats)
        enrolling = Enrolling(
            self.roster, self.study, len(self.cohorts), period, context, self.sets.get(context, ())
        )
        self.cohorts[enrolling.cohort.hex()] = Cohort(enrolling)
        self.revision += 1
        return enrolling.cohort.hex()

    def close_cohort(self, cohort: str) -> None:
        entry = self.cohorts[cohort]
        entry.version += 1
        self.revision += 1
        try:
            entry.manifest = entry.enrolling.manifest()
        except PeerFault as fault:
            entry.fault = fault

    def next_step(self, cohort: str) -> str | None:
        """The step of the cohort's run that is opened next; None once the run is over."""
        enrolling = self.cohorts[cohort].enrolling
        return self.step_after(enrolling.content.question, enrolling.period, enrolling.repeats)

    def terms(self, cohort: str, step: str | None = None, **changes: Any) -> Terms:
        enrolling = self.cohorts[cohort].enrolling
        question, period, repeats = enrolling.content.question, enrolling.period, enrolling.repeats
        made = self.terms_of(question, period, repeats, self.now_s(), step, NO_CONTEXT)
        if question.takes_material(made.step):
            before = question.steps[question.steps.index(made.step) - 1]
            made = replace(made, material=hashlib.sha256(self.material_after(before, period)).digest())
        return replace(made, **changes)

    def material_after(self, step: str, period: str) -> bytes:
        """What the step published for the next one."""
        for entry in self.rounds.values():
            named = (entry.phase.attempt.terms.step, entry.phase.attempt.manifest.period) == (step, period)
            if named and entry.published is not None:
                assert entry.published.material is not None
                return entry.published.material
        raise AssertionError(step)

    def open_round(self, cohort: str, **changes: Any) -> str:
        entry = self.cohorts[cohort]
        assert entry.manifest is not None
        material = changes.pop("shown_material", None)
        terms = self.terms(cohort, **changes)
        opening = Opening.make(
            self.key,
            cohort=entry.manifest.cohort,
            sequence=entry.place[0],
            attempt=entry.place[1],
            links=self.links,
            terms=terms,
        )
        attempt = Attempt(entry.enrolling.roster, entry.enrolling.study, entry.manifest, opening)
        round_id = rest.round_name(attempt.context)
        collecting = Collecting.begin(attempt, self.now_s(), self.rests_on(attempt))
        cards = entry.enrolling.cards_for(entry.manifest, entry.manifest.decryptors[0])
        self.rounds[round_id] = Round(round_id, entry, collecting, Transcript.begin(attempt, cards))
        if terms.material != NO_CONTEXT:
            steps = attempt.question.steps
            before = steps[steps.index(terms.step) - 1]
            shown = material or self.material_after(before, attempt.manifest.period)
            self.rounds[round_id].material = shown
        entry.rounds.append(round_id)
        entry.version += 1
        self.revision += 1
        return round_id

    def lose(self, round_id: str, admin: SigningKey) -> None:
        """The admin closes an erasing round."""
        entry = self.rounds[round_id]
        assert isinstance(entry.phase, Erasing)
        self._take(entry, Lost.make(admin, context=entry.phase.attempt.context))

    def expire(self, round_id: str) -> None:
        entry = self.rounds[round_id]
        self._move(entry, entry.phase.expire(max(self.now_s(), entry.phase.deadline_s or 0.0)))

    def cancel(self, round_id: str) -> None:
        entry = self.rounds[round_id]
        self._move(entry, entry.phase.cancel(self.now_s()))

    # The members' side

    def has_news(self, request: Request) -> bool:
        after = request.params.get("after")
        if after is None or request.method != "GET":  # an answer is taken at once
            return True
        kind, name = request.path.split("/")[2:4]
        if kind == "federations":
            return self.revision > int(after)
        version = self.cohorts[name].version if kind == "cohorts" else self.rounds[name].version
        return version > int(after)

    def handle(self, request: Request) -> Response:
        self.requests.append(request)
        assert request.signer or "signature" in request.headers, f"{request} is not signed"
        if request.method != "GET":
            sender = parse(request.body).member if "answers" in request.path else ""  # type: ignore[attr-defined]  # answers have one
            kind = request.body[1:2].hex() if "answers" in request.path else ""
            self.wire.setdefault((f"{request.method} {request.path}", sender + kind), []).append(request.body)
        for method, template, handler in self._routes():
            match = re.fullmatch(re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", template), request.path)
            if match and request.method == method:
                named: dict[str, Any] = match.groupdict()
                try:
                    if "round_id" in named and template != rest.ROUND:
                        named["at"] = found(self.rounds, named.pop("round_id"))
                    return answered(handler(**named) if method == "GET" else handler(request, **named))
                except PeerFault as fault:
                    return refusal(fault)
        return refusal(PeerFault(Cause.NOT_FOUND, request.path))

    def _routes(self) -> list[tuple[str, str, Callable[..., Any]]]:
        """What is read is given the names in its path, and what is sent the request before them; a round is found by its id, but for its view."""
        return [
            ("GET", rest.ROSTER, lambda federation: self.roster),
            ("GET", rest.STUDY, lambda federation, study: found(self.studies, study)),
            ("GET", rest.STUDIES, lambda federation: [study_view(each) for each in self.studies.values()]),
            ("GET", rest.RUNS, lambda federation: self._runs()),
            ("GET", rest.COHORT, self._cohort),
            ("GET", rest.CARDS, self._cards),
            ("GET", rest.CLOSING, self._closing),
            ("GET", rest.ROUND, self.view),
            ("GET", rest.OPENING, lambda at: at.phase.attempt.opening),
            ("GET", rest.MATERIAL, lambda at: at.material or b""),
            ("GET", rest.REQUEST, self._request),
            ("GET", rest.RESULT, self._result),
            ("GET", rest.WEIGHTS, lambda at: at.published.head),
            ("GET", rest.SUMS, lambda at: at.sums),
            ("GET", rest.DOCUMENT, lambda at, name: at.published.documents[name]),
            ("GET", rest.EVICTIONS, lambda at: Evictions(at.phase.attempt.context, at.phase.proofs)),
            ("GET", rest.TRANSCRIPT, self._transcript),
            ("GET", rest.DISCLOSURE, self._disclosure),
            ("PUT", rest.CARD, self._card),
            ("PUT", rest.UPLOAD, self._upload),
            ("PUT", rest.CHUNK, self._chunk),
            ("POST", rest.ANSWERS, self._answer),
        ]

    def _runs(self) -> rest.RunsView:
        runs = []
        for name, entry in self.cohorts.items():
            enrolling = entry.enrolling
            runs.append(
                rest.RunView(
                    cohort=name,
                    study=enrolling.study.hash.hex(),
                    name=enrolling.content.notes.name,
                    version=enrolling.content.notes.version,
                    period=enrolling.period,
                    counter=enrolling.counter,
                    repeats=None if enrolling.repeats == NO_CONTEXT else enrolling.repeats.hex(),
                    state=self._state(entry),  # type: ignore[arg-type]  # one of the three
                    over=self.next_step(name) is None,
                    round=next(reversed(entry.rounds), None),
                )
            )
        return rest.RunsView(revision=self.revision, runs=tuple(runs))

    def _state(self, entry: Cohort) -> str:
        return "formed" if entry.manifest else "failed" if entry.fault else "enrolling"

    def _disclosure(self, at: Round, member: str) -> bytes:
        signer = self.requests[-1].signer
        assert isinstance(signer, Signer)
        if signer.key.public != at.phase.attempt.roster.key_of(member):
            raise PeerFault(Cause.FORBIDDEN, f"this is {member}'s alone")
        if not at.disclosure:
            raise PeerFault(Cause.WRONG_PHASE, f"round {at.round_id} keeps no disclosure")
        return at.disclosure

    def _card(self, request: Request, cohort: str, member: str) -> rest.CohortView:
        entry = self.cohorts[cohort]
        if entry.manifest is not None or entry.fault is not None:
            raise PeerFault(Cause.WRONG_PHASE, "the cohort takes no cards any more")
        card = KeyCard.from_bytes(request.body)
        assert card.member == member
        entry.enrolling = entry.enrolling.receive(card, self.now_s())
        entry.version += 1
        if entry.enrolling.complete:
            self.close_cohort(cohort)
        return self._cohort(cohort)

    def _cohort(self, cohort: str) -> rest.CohortView:
        entry = self.cohorts[cohort]
        enrolling = entry.enrolling
        return rest.CohortView(
            cohort=cohort,
            federation=self.roster.federation.hex(),
            study=enrolling.study.hash.hex(),
            name=enrolling.content.notes.name,
            study_version=enrolling.content.notes.version,
            period=enrolling.period,
            counter=enrolling.counter,
            repeats=None if enrolling.repeats == NO_CONTEXT else enrolling.repeats.hex(),
            state=self._state(entry),  # type: ignore[arg-type]  # one of the three
            version=entry.version,
            members=enrolling.invited,
            rounds=tuple(entry.rounds),
            step=self.next_step(cohort),
            cards=tuple(sorted(entry.enrolling.cards)),
            deadline_s=None,
            quorum=None,
            fault=problem(entry.fault) if entry.fault else None,
        )

    def _cards(self, cohort: str, member: str) -> Cards:
        entry = self.cohorts[cohort]
        assert entry.manifest is not None
        if member not in entry.manifest.place:
            raise PeerFault(Cause.UNKNOWN_MEMBER, f"formed without {member}", [member])
        return entry.enrolling.cards_for(entry.manifest, member)

    def _closing(self, context: str) -> Message:
        phase = self.rounds[context[:16]].phase
        if not isinstance(phase, Ended):
            raise PeerFault(Cause.WRONG_PHASE, f"the round is {phase.name}")
        return phase.closing

    def view(self, round_id: str) -> rest.RoundView:
        entry = found(self.rounds, round_id)
        attempt, phase = entry.phase.attempt, entry.phase
        state = phase.name
        if isinstance(phase, Recovered):
            state = "failed" if entry.fault else "done"
        fault = entry.fault or getattr(phase, "fault", None)
        return rest.RoundView(
            round=round_id,
            federation=attempt.roster.federation.hex(),
            cohort=attempt.manifest.cohort.hex(),
            context=attempt.context.hex(),
            sequence=attempt.opening.sequence,
            attempt=attempt.opening.attempt,
            state=state,  # type: ignore[arg-type]  # the phases' names
            ended=isinstance(phase, Ended),
            version=entry.version,
            deadline_s=phase.deadline_s,
            members=attempt.members,
            survivors_min=attempt.quorum.survivors_min,
            threshold=attempt.quorum.threshold,
            uploaded=tuple(m for m in attempt.members if isinstance(phase, Collecting) and phase.whole(m)),
            waiting_for=phase.waiting_for(),
            survivors=(),
            fault=problem(fault) if fault else None,
            phase_seconds={},
            holders=entry.holders,
            spec=spec_view(attempt),
        )

    def _request(self, at: Round, member: str) -> Response:
        if member not in at.phase.attempt.members:
            raise PeerFault(Cause.UNKNOWN_MEMBER, f"{member} is not in this round's cohort", [member])
        message = at.phase.request_for(member)
        headers = {
            rest.VERSION_HEADER: str(at.version),
            rest.STATE_HEADER: self.view(at.round_id).state,
            rest.ROSTER_HEADER: str(self.roster.number),
        }
        return Response(204, headers) if message is None else Response(200, headers, message.to_bytes())

    def _answer(self, request: Request, at: Round) -> Response:
        message = parse(request.body)
        self._take(at, message)
        return self._request(self.rounds[at.round_id], message.member)  # type: ignore[attr-defined]  # answers have one

    def _upload(self, request: Request, at: Round, member: str) -> rest.UploadView:
        upload = parse(request.body)
        assert isinstance(upload, Upload)
        assert upload.header.member == member
        self._take(at, upload)
        missing = at.phase.missing_chunks(member) if isinstance(at.phase, Collecting) else ()
        return rest.UploadView(member=member, chunks=at.phase.attempt.chunks, missing=missing)

    def _chunk(self, request: Request, at: Round, member: str, index: str) -> Response:
        place, digest = int(index), hashlib.sha256(request.body).digest()
        if not isinstance(at.phase, Collecting):
            raise PeerFault(Cause.WRONG_PHASE, f"the attempt is {at.phase.name}")
        at.phase.check_chunk(member, place, digest, request.body)
        at.spool[member, place] = request.body
        self._move(at, at.phase.chunk_stored(member, place, self.now_s()))
        return self._request(self.rounds[at.round_id], member)

    def _result(self, at: Round) -> ResultRecord:
        if at.record is None:
            raise PeerFault(Cause.WRONG_PHASE, "no result yet")
        return at.record

    def _transcript(self, at: Round) -> bytes:
        return at.transcript.signed(self.key, at.phase.attempt.context).to_json().encode()

    # Moving on

    def _take(self, entry: Round, message: Message) -> None:
        phase = entry.phase.receive(message, self.now_s())
        entry.transcript = entry.transcript.received(message, entry.phase, phase)
        self._move(entry, phase)

    def _move(self, entry: Round, phase: CoordinatorPhase) -> None:
        if phase is entry.phase:
            return
        entry.transcript = entry.transcript.moved(entry.phase, phase)
        before, entry.phase = entry.phase, phase
        entry.version += 1
        if isinstance(phase, Ended) and phase.name != before.name:
            self.revision += 1
            entry.cohort.version += 1
            if isinstance(phase, Recovered):
                entry.total = total_of(phase, entry.spool)
            entry.cohort.place = self.ended(phase, entry.total)
        if isinstance(phase, Recovered):
            self._solve(entry, phase)

    def _solve(self, entry: Round, phase: Recovered) -> None:
        spec, total = phase.attempt.spec, entry.total
        assert total is not None
        entry.sums = save({"sum": total})
        if spec.indicator:
            entry.holders = tuple(int(count) for count in total)
            shown = disclose(phase, lambda member, index: entry.spool[member, index])
            entry.disclosure = shown.to_bytes()
            return
        try:
            material = read_material(spec, entry.material)
            found = answer(spec, pooled(spec, total, len(phase.summed)), len(phase.summed), material)
        except PeerFault as fault:
            entry.fault = fault
            return
        entry.published = files(spec, found)
        counted = (
            r.holders
            for r in self.rounds.values()
            if r.phase.attempt.context == phase.attempt.terms.indicator
        )
        sums, head = hashlib.sha256(entry.sums).hexdigest(), entry.transcript.head
        holders = next(counted, ())
        entry.record = record_of(entry.round_id, phase, found, entry.published, sums, head, holders)
        entry.record = self.sign(entry)

    def sign(self, entry: Round, **changes: Any) -> ResultRecord:
        """The record of a round, with other values where given."""
        assert entry.record is not None
        return sign_record(entry.record.model_copy(update={**changes, "signature": ""}), self.key)


def study_view(study: Study) -> rest.StudyView:
    content = read_content(study.content)
    return rest.StudyView(
        study=study.hash.hex(),
        name=content.notes.name,
        version=content.notes.version,
        question=content.question.digest.hex(),
        approval=content.approval.hex(),
        expires_s=content.notes.expires,
        revoked=False,
    )


def problem(fault: PeerFault) -> rest.Problem:
    return rest.Problem(
        type=rest.PROBLEM_BASE + fault.cause.value,
        title=fault.cause.summary,
        status={Cause.NOT_FOUND: 404, Cause.WRONG_PHASE: 409}.get(fault.cause, 422),
        detail=fault.detail,
        cause=fault.cause.value,
        parties=fault.parties,
    )


def refusal(fault: PeerFault) -> Response:
    document = problem(fault)
    return Response(document.status, {"content-type": rest.PROBLEM}, document.model_dump_json().encode())


def found(known: Mapping[str, T], name: str) -> T:
    if name not in known:
        raise PeerFault(Cause.NOT_FOUND, f"there is no {name}")
    return known[name]


def answered(value: Any) -> Response:
    """A message or bytes as they are, and views as JSON."""
    match value:
        case Response():
            return value
        case bytes():
            return Response(200, {}, value)
        case Message():
            return Response(200, {}, value.to_bytes())
        case list():
            text = f"[{','.join(each.model_dump_json() for each in value)}]"
        case _:
            text = value.model_dump_json()
    return Response(200, {"content-type": "application/json"}, text.encode())
