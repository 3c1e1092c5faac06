"""An honest coordinator in memory: the REST contract over `Request` and `Response`, real protocol phases inside."""

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from safetensors.numpy import save

from client_sdk.effects import Request, Response
from tests.support.simulator import total_of
from veilsum.calibration.answer import Answer
from veilsum.protocol import rest
from veilsum.protocol.attempt import Attempt
from veilsum.protocol.causes import Cause
from veilsum.protocol.coordinator import (
    Certified,
    Collecting,
    CoordinatorPhase,
    Ended,
    Enrolling,
    Erasing,
    Recovered,
    Voided,
    disclose,
)
from veilsum.protocol.disputes import vertex_cover
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.messages import (
    NO_CONTEXT,
    Evictions,
    KeyCard,
    Link,
    Lost,
    Manifest,
    Message,
    Opening,
    Roster,
    Study,
    Survivor,
    SurvivorSet,
    Terms,
    Upload,
    parse,
)
from veilsum.protocol.opening_rules import earlier_context, link_of
from veilsum.protocol.record import (
    DisputeView,
    DocumentView,
    ResultRecord,
    SolutionView,
    SurvivorView,
    sign_record,
)
from veilsum.protocol.round_spec import RoundSpec
from veilsum.protocol.study import SUM_STEP, Content, read_content, withheld_classes
from veilsum.protocol.transcript import Transcript
from veilsum.study.answers import answer, pooled
from veilsum.study.promise import promise
from veilsum.study.result_files import Files, files, read_material


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


class LocalCoordinator:
    """Answers requests at once: whoever waits for news asks `has_news` first."""

    def __init__(self, key: SigningKey, roster: Roster, study: Study, now_s: Callable[[], float]) -> None:
        self.key, self.roster, self.now_s = key, roster, now_s
        self.studies: dict[str, Study] = {study.hash.hex(): study}
        self.study = study
        self.cohorts: dict[str, Cohort] = {}
        self.rounds: dict[str, Round] = {}
        self.links: tuple[Link, ...] = ()
        self.sets: dict[bytes, tuple[Survivor, ...]] = {}
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
        run = (enrolling.content.question.digest, enrolling.period)
        spent = {
            link.step
            for link in self.links
            if (link.question, link.period) == run and link.repeats == enrolling.repeats and link.spends
        }
        repeated = link_of(self.links, enrolling.repeats)
        steps = enrolling.content.question.steps if repeated is None else (repeated.step,)
        return next((step for step in steps if step not in spent), None)

    def terms(self, cohort: str, **changes: Any) -> Terms:
        enrolling = self.cohorts[cohort].enrolling
        question, period = enrolling.content.question, enrolling.period
        step = changes.pop("step", None) or self.next_step(cohort) or question.steps[-1]
        values: dict[str, Any] = {
            "step": step,
            "indicator": NO_CONTEXT,
            "withheld": (),
            "evicted": (),
            "material": NO_CONTEXT,
            "latest_end_s": int(self.now_s()) + 86_400,
        }
        if question.takes_material(step):
            before = question.steps[question.steps.index(step) - 1]
            values["material"] = hashlib.sha256(self.material_after(before, period)).digest()
        for entry in self.rounds.values():
            attempt = entry.phase.attempt
            if attempt.context == enrolling.repeats:
                named_by = attempt.terms
                values |= {
                    "indicator": named_by.indicator,
                    "withheld": named_by.withheld,
                    "evicted": named_by.evicted,
                }
            named = (attempt.question.digest, attempt.manifest.period) == (question.digest, period)
            if entry.holders and step == SUM_STEP and named:
                assert isinstance(entry.phase, Recovered)
                values |= {
                    "indicator": attempt.context,
                    "withheld": withheld_classes(question, entry.holders),
                    "evicted": entry.phase.evicted,
                }
        return Terms(**{**values, **changes})

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
        rests_on = self.sets.get(earlier_context(attempt))
        earlier = () if rests_on is None else (SurvivorSet(rests_on),)
        collecting = Collecting.begin(attempt, self.now_s(), earlier)
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
        for method, pattern, handler in self._routes():
            match = re.fullmatch(pattern, request.path)
            if match and request.method == method:
                try:
                    return handler(request, **match.groupdict())
                except PeerFault as fault:
                    return refusal(fault)
        return refusal(PeerFault(Cause.NOT_FOUND, request.path))

    def _routes(self) -> list[tuple[str, str, Callable[..., Response]]]:
        def pattern(template: str) -> str:
            return re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", template)

        return [
            ("GET", pattern(rest.ROSTER), self._roster),
            ("PUT", pattern(rest.CARD), self._card),
            ("GET", pattern(rest.COHORT), self._cohort),
            ("GET", pattern(rest.CARDS), self._cards),
            ("GET", pattern(rest.STUDY), self._study),
            ("GET", pattern(rest.STUDIES), self._studies),
            ("GET", pattern(rest.RUNS), self._runs),
            ("GET", pattern(rest.MATERIAL), self._material),
            ("GET", pattern(rest.DOCUMENT), self._document),
            ("GET", pattern(rest.SUMS), self._sums),
            ("GET", pattern(rest.DISCLOSURE), self._disclosure),
            ("GET", pattern(rest.CLOSING), self._closing),
            ("GET", pattern(rest.EVICTIONS), self._evictions),
            ("GET", pattern(rest.ROUND), self._round),
            ("GET", pattern(rest.OPENING), self._opening),
            ("GET", pattern(rest.REQUEST), self._request),
            ("POST", pattern(rest.ANSWERS), self._answer),
            ("PUT", pattern(rest.UPLOAD), self._upload),
            ("PUT", pattern(rest.CHUNK), self._chunk),
            ("GET", pattern(rest.RESULT), self._result),
            ("GET", pattern(rest.WEIGHTS), self._weights),
            ("GET", pattern(rest.TRANSCRIPT), self._transcript),
        ]

    def _roster(self, _request: Request, federation: str) -> Response:
        del federation
        return Response(200, {}, self.roster.to_bytes())

    def _study(self, _request: Request, federation: str, study: str) -> Response:
        del federation
        if study not in self.studies:
            raise PeerFault(Cause.NOT_FOUND, f"no study {study}")
        return Response(200, {}, self.studies[study].to_bytes())

    def _studies(self, _request: Request, federation: str) -> Response:
        del federation
        views = [study_view(study, read_content(study.content)) for study in self.studies.values()]
        return Response(200, {}, f"[{','.join(view.model_dump_json() for view in views)}]".encode())

    def _runs(self, _request: Request, federation: str) -> Response:
        del federation
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
                )
            )
        return model(rest.RunsView(revision=self.revision, runs=tuple(runs)))

    def _state(self, entry: Cohort) -> str:
        return "formed" if entry.manifest else "failed" if entry.fault else "enrolling"

    def _material(self, _request: Request, round_id: str) -> Response:
        return Response(200, {}, self.rounds[round_id].material or b"")

    def _document(self, _request: Request, round_id: str, name: str) -> Response:
        made = self.rounds[round_id].published
        assert made is not None
        return Response(200, {}, made.documents[name])

    def _sums(self, _request: Request, round_id: str) -> Response:
        return Response(200, {}, self.rounds[round_id].sums)

    def _disclosure(self, request: Request, round_id: str, member: str) -> Response:
        entry = self.rounds[round_id]
        assert request.signer is not None
        if request.signer.key.public != entry.phase.attempt.roster.key_of(member):
            raise PeerFault(Cause.FORBIDDEN, f"this is {member}'s alone")
        if not entry.disclosure:
            raise PeerFault(Cause.WRONG_PHASE, f"round {round_id} keeps no disclosure")
        return Response(200, {}, entry.disclosure)

    def _card(self, request: Request, cohort: str, member: str) -> Response:
        entry = self.cohorts[cohort]
        if entry.manifest is not None or entry.fault is not None:
            raise PeerFault(Cause.WRONG_PHASE, "the cohort takes no cards any more")
        card = KeyCard.from_bytes(request.body)
        assert card.member == member
        entry.enrolling = entry.enrolling.receive(card, self.now_s())
        entry.version += 1
        if entry.enrolling.complete:
            self.close_cohort(cohort)
        return self._cohort(request, cohort)

    def _cohort(self, _request: Request, cohort: str) -> Response:
        entry = self.cohorts[cohort]
        enrolling = entry.enrolling
        return model(
            rest.CohortView(
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
        )

    def _cards(self, _request: Request, cohort: str, member: str) -> Response:
        entry = self.cohorts[cohort]
        assert entry.manifest is not None
        if member not in entry.manifest.place:
            raise PeerFault(Cause.UNKNOWN_MEMBER, f"formed without {member}", [member])
        return Response(200, {}, entry.enrolling.cards_for(entry.manifest, member).to_bytes())

    def _closing(self, _request: Request, context: str) -> Response:
        phase = self.rounds[context[:16]].phase
        if not isinstance(phase, Ended):
            raise PeerFault(Cause.WRONG_PHASE, f"the round is {phase.name}")
        return Response(200, {}, phase.closing.to_bytes())

    def _evictions(self, _request: Request, round_id: str) -> Response:
        phase = self.rounds[round_id].phase
        assert isinstance(phase, Recovered)
        return Response(200, {}, Evictions(phase.attempt.context, phase.proofs).to_bytes())

    def view(self, round_id: str) -> rest.RoundView:
        entry = self.rounds[round_id]
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

    def _round(self, _request: Request, round_id: str) -> Response:
        if round_id not in self.rounds:
            raise PeerFault(Cause.NOT_FOUND, f"no round {round_id}")
        return model(self.view(round_id))

    def _opening(self, _request: Request, round_id: str) -> Response:
        return Response(200, {}, self.rounds[round_id].phase.attempt.opening.to_bytes())

    def _request(self, _request: Request, round_id: str, member: str) -> Response:
        if round_id not in self.rounds:
            raise PeerFault(Cause.NOT_FOUND, f"no round {round_id}")
        entry = self.rounds[round_id]
        if member not in entry.phase.attempt.members:
            raise PeerFault(Cause.UNKNOWN_MEMBER, f"{member} is not in this round's cohort", [member])
        message = entry.phase.request_for(member)
        headers = {
            rest.VERSION_HEADER: str(entry.version),
            rest.STATE_HEADER: self.view(round_id).state,
            rest.ROSTER_HEADER: str(self.roster.number),
        }
        return Response(204, headers) if message is None else Response(200, headers, message.to_bytes())

    def _answer(self, request: Request, round_id: str) -> Response:
        entry = self.rounds[round_id]
        message = parse(request.body)
        self._take(entry, message)
        return self._request(request, round_id, message.member)  # type: ignore[attr-defined]  # answers have one

    def _upload(self, request: Request, round_id: str, member: str) -> Response:
        entry = self.rounds[round_id]
        upload = parse(request.body)
        assert isinstance(upload, Upload)
        assert upload.header.member == member
        self._take(entry, upload)
        phase = entry.phase
        missing = phase.missing_chunks(member) if isinstance(phase, Collecting) else ()
        return model(rest.UploadView(member=member, chunks=phase.attempt.chunks, missing=missing))

    def _chunk(self, request: Request, round_id: str, member: str, index: str) -> Response:
        entry, digest = self.rounds[round_id], hashlib.sha256(request.body).digest()
        if not isinstance(entry.phase, Collecting):
            raise PeerFault(Cause.WRONG_PHASE, f"the attempt is {entry.phase.name}")
        entry.phase.check_chunk(member, int(index), digest, request.body)
        entry.spool[member, int(index)] = request.body
        self._move(entry, entry.phase.chunk_stored(member, int(index), self.now_s()))
        return self._request(request, round_id, member)

    def _result(self, _request: Request, round_id: str) -> Response:
        record = self.rounds[round_id].record
        if record is None:
            raise PeerFault(Cause.WRONG_PHASE, "no result yet")
        return model(record)

    def _weights(self, _request: Request, round_id: str) -> Response:
        made = self.rounds[round_id].published
        assert made is not None
        assert made.head is not None
        return Response(200, {}, made.head)

    def _transcript(self, _request: Request, round_id: str) -> Response:
        entry = self.rounds[round_id]
        signed = entry.transcript.signed(self.key, entry.phase.attempt.context)
        return Response(200, {}, signed.to_json().encode())

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
            sequence, attempt = phase.attempt.opening.place
            self.links = (*self.links, phase.link)
            self.revision += 1
            entry.cohort.version += 1
            if isinstance(phase, Certified):
                self.sets[phase.attempt.context] = phase.certificate.survivors
            entry.cohort.place = (sequence, attempt + 1) if isinstance(phase, Voided) else (sequence + 1, 0)
        if isinstance(phase, Recovered):
            self._solve(entry, phase)

    def _solve(self, entry: Round, phase: Recovered) -> None:
        spec = phase.attempt.spec
        entry.total = total = total_of(phase, entry.spool)
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
        entry.record = self.sign(entry, found)

    def sign(self, entry: Round, found: Answer | None = None, **changes: Any) -> ResultRecord:
        """The record of a round, with other values where given."""
        assert isinstance(entry.phase, Recovered)
        if found is None:
            assert entry.record is not None
            return sign_record(entry.record.model_copy(update={**changes, "signature": ""}), self.key)
        assert entry.published is not None
        attempt, certificate = entry.phase.attempt, entry.phase.certificate
        head = entry.published.head
        counted = next(
            (
                each.holders
                for each in self.rounds.values()
                if each.phase.attempt.context == attempt.terms.indicator
            ),
            (),
        )
        documents = sorted(entry.published.documents.items())
        values = {
            "round": entry.round_id,
            "context": attempt.context.hex(),
            "federation": attempt.roster.federation.hex(),
            "study": attempt.study.hash.hex(),
            "name": attempt.content.notes.name,
            "version": attempt.content.notes.version,
            "period": attempt.manifest.period,
            "step": attempt.terms.step,
            "cohort": attempt.manifest.cohort.hex(),
            "terms": attempt.terms.hash.hex(),
            "survivors_hash": certificate.survivors_hash.hex(),
            "survivors": tuple(
                SurvivorView(member=s.member, digest=s.digest.hex()) for s in certificate.survivors
            ),
            "disputes": tuple(
                DisputeView.model_validate({"cause": d.cause.value, "parties": d.parties})
                for d in entry.phase.disputes
            ),
            "dropped": tuple(
                sorted(vertex_cover(attempt.context, entry.phase.disputes, attempt.quorum.colluders))
            ),
            "evicted": entry.phase.evicted,
            "withheld": attempt.terms.withheld,
            "holders": counted,
            "rows": found.records,
            "noise": noise_view(attempt.spec),
            "head": None if head is None else hashlib.sha256(head).hexdigest(),
            "sums": hashlib.sha256(entry.sums).hexdigest(),
            "documents": tuple(
                DocumentView(name=name, sha256=hashlib.sha256(content).hexdigest())
                for name, content in documents
            ),
            "transcript": entry.transcript.head.hex(),
            "error_bound": found.error_bound,
            "solution": SolutionView(
                chosen_by=found.chosen_by,
                ridge=found.ridge,
                empty_classes=() if found.head is None else found.head.empty_classes,
            ),
        }
        return sign_record(ResultRecord(**{**values, **changes}), self.key)


def noise_view(spec: RoundSpec) -> rest.NoiseView | None:
    return rest.NoiseView(**vars(promise(spec))) if spec.noisy else None


def spec_view(attempt: Attempt) -> rest.SpecView:
    spec = attempt.spec
    indicator = attempt.terms.indicator
    return rest.SpecView(
        study=spec.study.hex(),
        name=spec.content.notes.name,
        version=spec.content.notes.version,
        period=spec.period,
        step=spec.step,
        statistics=tuple(each.kind for each in spec.question.statistics),
        dim=spec.question.dim,
        classes=len(spec.question.classes),
        elements=spec.elements,
        ring_bits=spec.ring_bits,
        withheld=spec.withheld,
        indicator=None if indicator == NO_CONTEXT else indicator.hex(),
        latest_end_s=attempt.terms.latest_end_s,
        noise=noise_view(spec),
    )


def study_view(study: Study, content: Content) -> rest.StudyView:
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


def model(value: rest.Model) -> Response:
    return Response(200, {"content-type": "application/json"}, value.model_dump_json().encode())
