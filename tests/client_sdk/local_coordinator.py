"""An honest coordinator in memory: the REST contract over `Request` and `Response`, real protocol phases inside."""

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from safetensors.numpy import save

from calibration import FFCStatistics, SumsLattice, ffc_layout, solve_ffc
from client_sdk.effects import Request, Response
from protocol import published, rest
from protocol.attempt import Attempt
from protocol.causes import Cause
from protocol.coordinator import (
    Collecting,
    CoordinatorPhase,
    Ended,
    Enrolling,
    Erasing,
    Recovered,
    Voided,
    Windows,
)
from protocol.disputes import vertex_cover
from protocol.errors import PeerFault
from protocol.identity import SigningKey
from protocol.ledger import LedgerFault
from protocol.messages import (
    NO_INDICATOR,
    Evictions,
    KeyCard,
    Ledger,
    LedgerException,
    Link,
    Manifest,
    Message,
    Opening,
    Past,
    Roster,
    Terms,
    Upload,
    parse,
)
from protocol.messages import Lost as LostMessage
from protocol.record import sign_record
from protocol.transcript import Transcript

DIM, CLASSES = 3, 2


@dataclass
class Cohort:
    enrolling: Enrolling
    version: int = 1
    manifest: Manifest | None = None
    fault: PeerFault | None = None
    place: tuple[int, int] = (0, 0)


@dataclass
class Round:
    round_id: str
    cohort: Cohort
    phase: CoordinatorPhase
    transcript: Transcript
    version: int = 1
    spool: dict[tuple[str, int], bytes] = field(default_factory=dict)
    record: published.ResultRecord | None = None
    weights: bytes = b""
    sums: bytes = b""
    total: np.ndarray[Any, Any] | None = None
    fault: PeerFault | None = None


class LocalCoordinator:
    """Answers requests at once: whoever waits for news asks `has_news` first."""

    def __init__(self, key: SigningKey, roster: Roster, now_s: Callable[[], float]) -> None:
        self.key, self.roster, self.now_s = key, roster, now_s
        self.cohorts: dict[str, Cohort] = {}
        self.rounds: dict[str, Round] = {}
        self.links: tuple[Link, ...] = ()
        self.history: tuple[Past, ...] = ()
        self.wire: dict[tuple[str, str], list[bytes]] = {}
        self.requests: list[Request] = []

    # The operator's side

    def open_cohort(self, cap: int = 1000, colluders: int | None = None) -> str:
        enrolling = Enrolling(self.roster, len(self.cohorts), cap, colluders)
        self.cohorts[enrolling.cohort.hex()] = Cohort(enrolling)
        return enrolling.cohort.hex()

    def close_cohort(self, cohort: str) -> None:
        entry = self.cohorts[cohort]
        entry.version += 1
        try:
            entry.manifest = entry.enrolling.manifest()
        except PeerFault as fault:
            entry.fault = fault

    def terms(self, cohort: str, **changes: Any) -> Terms:
        manifest = self.cohorts[cohort].manifest
        bias = changes.pop("bias", False)
        layout = ffc_layout(DIM, CLASSES, bias=bias)
        assert manifest is not None
        values = {
            "statistic": "ffc-bias" if bias else "ffc",
            "layout": layout.to_bytes(),
            "elements": layout.elements,
            "ring_bits": 48,
            "lattice": "sums",
            "lattice_bits": 31,
            "chunk_elements": 8,
            "records_max": sum(manifest.caps),
            "extractor": self.roster.extractors[0],
            "ridges": (0.1,),
            "noise": b"",
            "indicator": NO_INDICATOR,
            "margin": 0,
            "withheld": (),
            "evicted": (),
            "latest_end_s": int(self.now_s()) + 86_400,
        }
        return Terms(**{**values, **changes})

    def open_round(self, cohort: str, exceptions: tuple[LedgerException, ...] = (), **changes: Any) -> str:
        entry = self.cohorts[cohort]
        assert entry.manifest is not None
        opening = Opening.make(
            self.key,
            cohort=entry.manifest.cohort,
            sequence=entry.place[0],
            attempt=entry.place[1],
            links=self.links,
            terms=self.terms(cohort, **changes),
            exceptions=exceptions,
        )
        attempt = Attempt(entry.enrolling.roster, entry.manifest, opening)
        round_id = rest.round_name(attempt.context)
        collecting = Collecting.begin(attempt, Windows(), self.now_s(), self.history)
        cards = entry.enrolling.cards_for(entry.manifest, entry.manifest.decryptors[0])
        self.rounds[round_id] = Round(round_id, entry, collecting, Transcript.begin(attempt, cards))
        return round_id

    def lose(self, round_id: str, admin: SigningKey) -> None:
        """The admin closes an erasing round."""
        entry = self.rounds[round_id]
        assert isinstance(entry.phase, Erasing)
        self._take(entry, LostMessage.make(admin, context=entry.phase.attempt.context))

    def expire(self, round_id: str) -> None:
        entry = self.rounds[round_id]
        self._move(entry, entry.phase.expire(max(self.now_s(), entry.phase.deadline_s or 0.0)))

    def cancel(self, round_id: str) -> None:
        entry = self.rounds[round_id]
        self._move(entry, entry.phase.cancel(self.now_s()))

    # The members' side

    def has_news(self, request: Request) -> bool:
        after = request.params.get("after")
        if after is None:
            return True
        kind, name = request.path.split("/")[2:4]
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
            ("GET", pattern(rest.LEDGER), self._ledger),
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
        state = "formed" if entry.manifest else "failed" if entry.fault else "enrolling"
        return model(
            rest.CohortView(
                cohort=cohort,
                federation=self.roster.federation.hex(),
                state=state,  # type: ignore[arg-type]  # one of the three
                version=entry.version,
                members=tuple(e.member for e in self.roster.members),
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

    def _ledger(self, _request: Request, federation: str) -> Response:
        return Response(200, {}, Ledger(bytes.fromhex(federation), self.links, self.history).to_bytes())

    def _closing(self, _request: Request, context: str) -> Response:
        phase = self.rounds[context[:16]].phase
        if not isinstance(phase, Ended) or phase.past is None:
            raise PeerFault(Cause.WRONG_PHASE, f"the round is {phase.name}")
        document = phase.request_for("")
        assert document is not None
        return Response(200, {}, document.to_bytes())

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
        )

    def _round(self, _request: Request, round_id: str) -> Response:
        if round_id not in self.rounds:
            raise PeerFault(Cause.NOT_FOUND, f"no round {round_id}")
        return model(self.view(round_id))

    def _opening(self, _request: Request, round_id: str) -> Response:
        return Response(200, {}, self.rounds[round_id].phase.attempt.opening.to_bytes())

    def _request(self, _request: Request, round_id: str, member: str) -> Response:
        entry = self.rounds[round_id]
        message = entry.phase.request_for(member)
        headers = {rest.VERSION_HEADER: str(entry.version)}
        return Response(204, headers) if message is None else Response(200, headers, message.to_bytes())

    def _answer(self, request: Request, round_id: str) -> Response:
        entry = self.rounds[round_id]
        self._take(entry, parse(request.body))
        return model(self.view(round_id))

    def _upload(self, request: Request, round_id: str, member: str) -> Response:
        entry = self.rounds[round_id]
        upload = parse(request.body)
        assert isinstance(upload, Upload)
        assert upload.header.member == member
        self._take(entry, upload)
        return self._upload_view(entry, member)

    def _chunk(self, request: Request, round_id: str, member: str, index: str) -> Response:
        entry, digest = self.rounds[round_id], hashlib.sha256(request.body).digest()
        if not isinstance(entry.phase, Collecting):
            raise PeerFault(Cause.WRONG_PHASE, f"the attempt is {entry.phase.name}")
        entry.phase.check_chunk(member, int(index), digest, request.body)
        entry.spool[member, int(index)] = request.body
        self._move(entry, entry.phase.chunk_stored(member, int(index), self.now_s()))
        return self._upload_view(entry, member)

    def _upload_view(self, entry: Round, member: str) -> Response:
        phase = entry.phase
        missing = phase.missing_chunks(member) if isinstance(phase, Collecting) else ()
        return model(rest.UploadView(member=member, chunks=phase.attempt.chunks, missing=missing))

    def _result(self, _request: Request, round_id: str) -> Response:
        record = self.rounds[round_id].record
        if record is None:
            raise PeerFault(Cause.WRONG_PHASE, "no result yet")
        return model(record)

    def _weights(self, _request: Request, round_id: str) -> Response:
        return Response(200, {}, self.rounds[round_id].weights)

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
            self.links, self.history = (*self.links, phase.link), (*self.history, phase.past)
            entry.cohort.place = (sequence, attempt + 1) if isinstance(phase, Voided) else (sequence + 1, 0)
        if isinstance(phase, Recovered):
            self._solve(entry, phase)

    def _solve(self, entry: Round, phase: Recovered) -> None:
        unmasking, attempt = phase.unmasking(), phase.attempt
        names = unmasking.survivors
        total = np.concatenate(
            [
                unmasking.chunk(index, ((m, entry.spool[m, index]) for m in names))
                for index in range(attempt.chunks)
            ]
        )
        terms = attempt.opening.terms
        bias = terms.statistic == "ffc-bias"
        lattice = SumsLattice(terms.lattice_bits)
        layout = ffc_layout(DIM, CLASSES, bias=bias)
        pooled = FFCStatistics.from_sums(layout, lattice, total, bias=bias, members=len(names))
        solution = solve_ffc(pooled, ridge=terms.ridges[0])
        tensors = {"weights": solution.weights}
        if solution.bias is not None:
            tensors["bias"] = solution.bias
        entry.total, entry.weights, entry.sums = total, save(tensors), save({"sum": total})
        entry.record = self.sign(entry, solution.ridge, pooled.records)

    def sign(self, entry: Round, ridge: float, records: int, **changes: Any) -> published.ResultRecord:
        assert isinstance(entry.phase, Recovered)
        attempt, certificate = entry.phase.attempt, entry.phase.certificate
        values = {
            "round": entry.round_id,
            "federation": attempt.roster.federation.hex(),
            "cohort": attempt.manifest.cohort.hex(),
            "context": attempt.context.hex(),
            "closing": certificate.past.closing.hex(),
            "terms": attempt.opening.terms.hash.hex(),
            "extractor": attempt.opening.terms.extractor.hex(),
            "statistic": attempt.opening.terms.statistic,
            "members": len(attempt.members),
            "survivors": tuple(
                published.SurvivorView(member=s.member, digest=s.digest.hex()) for s in certificate.survivors
            ),
            "disputes": tuple(
                published.DisputeView.model_validate({"cause": d.cause.value, "parties": d.parties})
                for d in entry.phase.disputes
            ),
            "dropped": tuple(
                sorted(vertex_cover(attempt.context, entry.phase.disputes, attempt.quorum.colluders))
            ),
            "evicted": entry.phase.evicted,
            "records": records,
            "weights_sha256": hashlib.sha256(entry.weights).hexdigest(),
            "sums_sha256": hashlib.sha256(entry.sums).hexdigest(),
            "transcript": entry.transcript.head.hex(),
            "weights_error_bound": None,
            "solution": published.SolutionView(
                ridge=ridge,
                grid=(ridge,),
                errors=(0.5,),
                dof=1.0,
                condition=2.0,
                residual=1e-16,
                rank=DIM,
                empty_classes=(),
            ),
        }
        return sign_record(published.ResultRecord(**{**values, **changes}), self.key)


def problem(fault: PeerFault) -> rest.Problem:
    exposed = fault.group if isinstance(fault, LedgerFault) else None
    return rest.Problem(
        type=rest.PROBLEM_BASE + fault.cause.value,
        title=fault.cause.summary,
        status={Cause.NOT_FOUND: 404, Cause.WRONG_PHASE: 409}.get(fault.cause, 422),
        detail=fault.detail,
        cause=fault.cause.value,
        parties=fault.parties,
        group=exposed.members if exposed else (),
        rounds=tuple(map(rest.round_name, exposed.rounds)) if exposed else (),
    )


def refusal(fault: PeerFault) -> Response:
    document = problem(fault)
    return Response(document.status, {"content-type": rest.PROBLEM}, document.model_dump_json().encode())


def model(value: rest.Model) -> Response:
    return Response(200, {"content-type": "application/json"}, value.model_dump_json().encode())
