"""The coordinator's paths as flows: one method each, bytes and models in, checked models out (protocol.rest)."""

from dataclasses import dataclass, replace
from typing import Self, TypeVar

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


@dataclass(frozen=True)
class Asked:
    """What a member has to answer in a round.

    Attributes:
        message: None for nothing yet; the closing once the round has ended.
        version: what to wait after.
        state: of the round, a guide and never a proof.
        roster: number of the federation's newest roster while the round collects; 0 afterwards.
        record: of the round's result, not yet verified, which a reveal is answered with; or else None.
    """

    message: Message | None
    version: int
    state: str
    roster: int
    record: ResultRecord | None = None

    @classmethod
    def in_response(cls, response: Response) -> Self:
        """Read body and headers; PeerFault(malformed)."""

        def number(header: str, without: str = "") -> int:
            value = response.headers.get(header, without)
            if not (value.isascii() and value.isdecimal()):
                raise PeerFault(Cause.MALFORMED, f"no number in the {header} header", ["coordinator"])
            return int(value[:18])

        message, record = None, None
        if response.status == 200 and _is_json(response):
            record = model_of(ResultRecord, response)
        elif response.status == 200:
            message = parse(response.body)
        state = response.headers.get(rest.STATE_HEADER, "")
        return cls(message, number(rest.VERSION_HEADER), state, number(rest.ROSTER_HEADER, "0"), record)


@dataclass(frozen=True)
class Invitation:
    """What a member is shown of a cohort before it answers: nothing of it is checked yet."""

    cohort: rest.CohortView
    roster: Roster
    study: Study


class Reads:
    """What members and operators may read. Everything raises what `RetryingClient.call` raises, and returns unverified documents.

    Federations, studies, cohorts and rounds go by their ids in hexadecimal. With `after`, a version that was shown, an answer comes once
    there is a later one or the long poll ends.

    Answers that don't parse raise PeerFault with the cause that fits, naming "coordinator".
    """

    def __init__(self, caller: RetryingClient) -> None:
        self._caller = caller

    def roster(self, federation: str) -> Flow[Roster]:
        """The newest roster."""
        return Roster.from_bytes((yield from self._get(rest.ROSTER.format(federation=federation))).body)

    def study(self, federation: str, study: str) -> Flow[Study]:
        """A study by its hash."""
        path = rest.STUDY.format(federation=federation, study=study)
        return Study.from_bytes((yield from self._get(path)).body)

    def studies(self, federation: str) -> Flow[tuple[rest.StudyView, ...]]:
        """The studies that were published."""
        response = yield from self._get(rest.STUDIES.format(federation=federation))
        return model_of(StudyViews, response).root

    def runs(self, federation: str, after: int | None = None) -> Flow[rest.RunsView]:
        """The federation's runs; their version is `revision`."""
        response = yield from self._get(rest.RUNS.format(federation=federation), after)
        return model_of(rest.RunsView, response)

    def cohort(self, cohort: str, after: int | None = None) -> Flow[rest.CohortView]:
        """A cohort as it stands."""
        return model_of(rest.CohortView, (yield from self._get(rest.COHORT.format(cohort=cohort), after)))

    def round(self, round_id: str, after: int | None = None) -> Flow[rest.RoundView]:
        """A round as it stands."""
        return model_of(rest.RoundView, (yield from self._get(rest.ROUND.format(round_id=round_id), after)))

    def opening(self, round_id: str) -> Flow[Opening]:
        """The round's opening."""
        return Opening.from_bytes((yield from self._get(rest.OPENING.format(round_id=round_id))).body)

    def material(self, round_id: str) -> Flow[bytes]:
        """What the round's step takes of earlier ones."""
        return (yield from self._get(rest.MATERIAL.format(round_id=round_id))).body

    def result(self, round_id: str) -> Flow[ResultRecord]:
        """The signed record."""
        return model_of(ResultRecord, (yield from self._get(rest.RESULT.format(round_id=round_id))))

    def sums(self, round_id: str, limit_bytes: int = 1 << 33) -> Flow[bytes]:
        """The sum itself, a safetensors file; for readers and operators."""
        return (yield from self._get(rest.SUMS.format(round_id=round_id), limit_bytes=limit_bytes)).body

    def transcript(self, round_id: str) -> Flow[bytes]:
        """The file of an ended round's transcript, not replayed."""
        path = rest.TRANSCRIPT.format(round_id=round_id)
        return (yield from self._get(path, limit_bytes=rest.MAX_TRANSCRIPT_BYTES)).body

    def _get(
        self, path: str, after: int | None = None, limit_bytes: int = rest.MAX_MESSAGE_BYTES
    ) -> Flow[Response]:
        return self._call(Request("GET", path, limit_bytes=limit_bytes), after)

    def _send(
        self, method: str, path: str, body: bytes, after: int | None = None, digest: bytes = b""
    ) -> Flow[Response]:
        return self._call(Request(method, path, body, {"content-type": rest.OCTETS}, digest=digest), after)

    def _call(self, request: Request, after: int | None) -> Flow[Response]:
        if after is not None:
            params = {"after": str(after), "wait_s": f"{LONG_POLL_S:g}"}
            request = replace(request, params=params, wait_s=LONG_POLL_S)
        return self._caller.call(request)


class CoordinatorApi(Reads):
    """What a member asks beside that."""

    def invitation(self, cohort: str) -> Flow[Invitation]:
        """A cohort as it stands, with the newest roster and the study."""
        response = yield from self._get(rest.INVITATION.format(cohort=cohort))
        view = model_of(rest.InvitationView, response)
        roster, study = bytes.fromhex(view.roster), bytes.fromhex(view.study)
        return Invitation(view.cohort, Roster.from_bytes(roster), Study.from_bytes(study))

    def send_card(self, card: KeyCard, after: int | None = None) -> Flow[Cards | rest.CohortView]:
        """Hand this member's card in; the cohort as it is then, or with `after` as soon as enrolment ends or the long poll does.

        Returns:
            The manifest with the cards that the member needs, not yet checked, once the cohort is formed.
        """
        path = rest.CARD.format(cohort=card.cohort.hex(), member=card.member)
        response = yield from self._send("PUT", path, card.to_bytes(), after)
        if _is_json(response):
            return model_of(rest.CohortView, response)
        return Cards.from_bytes(response.body)

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

    def request(self, round_id: str, member: str, after: int | None = None) -> Flow[Asked]:
        """What the member has to answer now; or with `after`, as soon as it is asked anything newer or the long poll ends."""
        path = rest.REQUEST.format(round_id=round_id, member=member)
        return Asked.in_response((yield from self._get(path, after)))

    def announce(self, round_id: str, upload: Upload) -> Flow[rest.UploadView]:
        """Announce an upload, or ask what is missing of it: the same request."""
        path = rest.UPLOAD.format(round_id=round_id, member=upload.header.member)
        return model_of(rest.UploadView, (yield from self._send("PUT", path, upload.to_bytes())))

    def chunk(
        self, round_id: str, upload: Upload, index: int, packed: bytes, after: int | None = None
    ) -> Flow[Asked]:
        """Send one masked chunk of an announced upload; what the member has to answer, as `request`."""
        path = rest.CHUNK.format(round_id=round_id, member=upload.header.member, index=index)
        sent = self._send("PUT", path, packed, after, upload.chunk_digests[index])
        return Asked.in_response((yield from sent))

    def answer(self, round_id: str, message: Message, after: int) -> Flow[Asked]:
        """Answer a request by a receipt, vote, refusal, reveal or erasure report, and wait for the next one as `request`."""
        path = rest.ANSWERS.format(round_id=round_id)
        return Asked.in_response((yield from self._send("POST", path, message.to_bytes(), after)))

    def weights(self, round_id: str) -> Flow[bytes]:
        """The head's file, not yet verified."""
        return (yield from self._get(rest.WEIGHTS.format(round_id=round_id))).body

    def document(self, round_id: str, name: str) -> Flow[bytes]:
        """A document beside the head, not yet verified."""
        return (yield from self._get(rest.DOCUMENT.format(round_id=round_id, name=name))).body

    def evictions(self, round_id: str) -> Flow[Evictions]:
        """The proofs against survivors that the sum is without, not yet checked."""
        path = rest.EVICTIONS.format(round_id=round_id)
        return Evictions.from_bytes((yield from self._get(path)).body)

    def disclosure(self, round_id: str, member: str) -> Flow[Disclosure]:
        """What an indicator round was made of, not yet checked; for members alone."""
        path = rest.DISCLOSURE.format(round_id=round_id, member=member)
        response = yield from self._get(path, limit_bytes=rest.MAX_DISCLOSURE_BYTES)
        return Disclosure.from_bytes(response.body)


def _is_json(response: Response) -> bool:
    return response.headers.get("content-type", "").startswith("application/json")


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
