"""The coordinator's paths as flows: one method each, bytes and models in, checked models out (protocol.rest)."""

from typing import TypeVar

from pydantic import BaseModel, RootModel, ValidationError

from client_sdk.effects import Flow, Request, Response
from client_sdk.errors import PeerFault, first_fault
from client_sdk.retry import RetryingClient
from veilsum.protocol import rest
from veilsum.protocol.attempt import Closing
from veilsum.protocol.causes import Cause
from veilsum.protocol.messages import (
    Cards,
    Disclosure,
    Evictions,
    KeyCard,
    Message,
    Opening,
    Roster,
    Study,
    Upload,
    parse,
)
from veilsum.protocol.record import ResultRecord

LONG_POLL_S = 30.0

_Model = TypeVar("_Model", bound=BaseModel)


class StudyViews(RootModel[tuple[rest.StudyView, ...]]):
    """The studies of a federation."""


class CoordinatorApi:
    """What a member may ask of the coordinator. Everything raises what `RetryingClient.call` raises.

    Answers that don't parse raise PeerFault with the cause that fits, naming "coordinator".
    """

    def __init__(self, caller: RetryingClient, *, wait_s: float = LONG_POLL_S) -> None:
        self._caller, self._wait_s = caller, wait_s

    def roster(self, federation: bytes) -> Flow[Roster]:
        """The newest roster, not yet verified."""
        path = rest.ROSTER.format(federation=federation.hex())
        return Roster.from_bytes((yield from self._get(path)).body)

    def study(self, federation: bytes, study: bytes) -> Flow[Study]:
        """A study by its hash, not yet checked."""
        path = rest.STUDY.format(federation=federation.hex(), study=study.hex())
        return Study.from_bytes((yield from self._get(path)).body)

    def studies(self, federation: bytes) -> Flow[tuple[rest.StudyView, ...]]:
        """The studies that were published."""
        response = yield from self._get(rest.STUDIES.format(federation=federation.hex()))
        return model_of(StudyViews, response).root

    def runs(self, federation: bytes, after: int | None = None) -> Flow[rest.RunsView]:
        """The federation's runs now; or with `after`, once their revision is above it or the long poll ends."""
        response = yield from self._get(rest.RUNS.format(federation=federation.hex()), after)
        return model_of(rest.RunsView, response)

    def send_card(self, card: KeyCard) -> Flow[rest.CohortView]:
        """Hand this member's card in; the cohort as it is then."""
        path = rest.CARD.format(cohort=card.cohort.hex(), member=card.member)
        return model_of(rest.CohortView, (yield from self._send("PUT", path, card.to_bytes())))

    def cohort(self, cohort: bytes, after: int | None = None) -> Flow[rest.CohortView]:
        """The cohort now; or with `after`, once its version is above it or the long poll ends."""
        path = rest.COHORT.format(cohort=cohort.hex())
        return model_of(rest.CohortView, (yield from self._get(path, after)))

    def cards(self, cohort: bytes, member: str) -> Flow[Cards]:
        """The manifest with the cards that a member needs, not yet checked."""
        path = rest.CARDS.format(cohort=cohort.hex(), member=member)
        return Cards.from_bytes((yield from self._get(path)).body)

    def closing(self, context: bytes) -> Flow[Closing]:
        """How an attempt was closed, not yet checked."""
        message = parse((yield from self._get(rest.CLOSING.format(context=context.hex()))).body)
        if not isinstance(message, Closing):
            raise PeerFault(
                Cause.UNKNOWN_MESSAGE, f"a {type(message).__name__} closes no attempt", ["coordinator"]
            )
        return message

    def round(self, round_id: str, after: int | None = None) -> Flow[rest.RoundView]:
        """The round now; or with `after`, once its version is above it or the long poll ends."""
        response = yield from self._get(rest.ROUND.format(round_id=round_id), after)
        return model_of(rest.RoundView, response)

    def request(
        self, round_id: str, member: str, after: int | None = None
    ) -> Flow[tuple[Message | None, int]]:
        """What the member has to answer now, if anything, and the version to wait after."""
        path = rest.REQUEST.format(round_id=round_id, member=member)
        response = yield from self._get(path, after)
        version = response.headers.get(rest.VERSION_HEADER, "")
        if not (version.isascii() and version.isdecimal()):
            raise PeerFault(Cause.MALFORMED, f"no {rest.VERSION_HEADER} header", ["coordinator"])
        return (parse(response.body) if response.status == 200 else None), int(version[:18])

    def opening(self, round_id: str) -> Flow[Opening]:
        """The round's opening, not yet checked."""
        return Opening.from_bytes((yield from self._get(rest.OPENING.format(round_id=round_id))).body)

    def announce(self, round_id: str, upload: Upload) -> Flow[rest.UploadView]:
        """Announce an upload, or ask what is missing of it: the same request."""
        path = rest.UPLOAD.format(round_id=round_id, member=upload.header.member)
        return model_of(rest.UploadView, (yield from self._send("PUT", path, upload.to_bytes())))

    def chunk(self, round_id: str, member: str, index: int, packed: bytes) -> Flow[rest.UploadView]:
        """Send one masked chunk."""
        path = rest.CHUNK.format(round_id=round_id, member=member, index=index)
        return model_of(rest.UploadView, (yield from self._send("PUT", path, packed)))

    def answer(self, round_id: str, message: Message) -> Flow[rest.RoundView]:
        """Answer a request: a receipt, vote, refusal, reveal or erasure report."""
        path = rest.ANSWERS.format(round_id=round_id)
        return model_of(rest.RoundView, (yield from self._send("POST", path, message.to_bytes())))

    def result(self, round_id: str) -> Flow[ResultRecord]:
        """The signed record, not yet verified."""
        return model_of(ResultRecord, (yield from self._get(rest.RESULT.format(round_id=round_id))))

    def weights(self, round_id: str) -> Flow[bytes]:
        """The head's file, not yet verified."""
        return (yield from self._get(rest.WEIGHTS.format(round_id=round_id))).body

    def document(self, round_id: str, name: str) -> Flow[bytes]:
        """A document beside the head, not yet verified."""
        return (yield from self._get(rest.DOCUMENT.format(round_id=round_id, name=name))).body

    def sums(self, round_id: str, limit_bytes: int) -> Flow[bytes]:
        """The file of the sum itself, not yet verified; for readers alone."""
        path = rest.SUMS.format(round_id=round_id)
        return (yield from self._caller.call(Request("GET", path, limit_bytes=limit_bytes))).body

    def material(self, round_id: str) -> Flow[bytes]:
        """What the round's step takes of earlier ones, not yet checked."""
        return (yield from self._get(rest.MATERIAL.format(round_id=round_id))).body

    def transcript(self, round_id: str, limit_bytes: int) -> Flow[bytes]:
        """The file of an ended round's transcript, not yet replayed."""
        path = rest.TRANSCRIPT.format(round_id=round_id)
        request = Request("GET", path, limit_bytes=limit_bytes)
        return (yield from self._caller.call(request)).body

    def evictions(self, round_id: str) -> Flow[Evictions]:
        """The proofs against survivors that the sum is without, not yet checked."""
        path = rest.EVICTIONS.format(round_id=round_id)
        return Evictions.from_bytes((yield from self._get(path)).body)

    def disclosure(self, round_id: str, member: str) -> Flow[Disclosure]:
        """What an indicator round was made of, not yet checked; for members alone."""
        path = rest.DISCLOSURE.format(round_id=round_id, member=member)
        request = Request("GET", path, limit_bytes=rest.MAX_DISCLOSURE_BYTES)
        return Disclosure.from_bytes((yield from self._caller.call(request)).body)

    def _get(self, path: str, after: int | None = None) -> Flow[Response]:
        if after is None:
            return (yield from self._caller.call(Request("GET", path)))
        params = {"after": str(after), "wait_s": f"{self._wait_s:g}"}
        return (yield from self._caller.call(Request("GET", path, params=params, wait_s=self._wait_s)))

    def _send(self, method: str, path: str, body: bytes) -> Flow[Response]:
        return (yield from self._caller.call(Request(method, path, body, {"content-type": rest.OCTETS})))


def model_of(form: type[_Model], response: Response) -> _Model:
    """The model in an answer's body; PeerFault(malformed) naming the coordinator and the field."""
    try:
        return form.model_validate_json(response.body)
    except ValidationError as error:
        raise PeerFault(
            Cause.MALFORMED,
            f"the coordinator's {form.__name__}: {first_fault(error, 'the body')}",
            ["coordinator"],
        ) from error
