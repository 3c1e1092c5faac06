"""The coordinator's paths as flows: one method each, bytes and models in, checked models out (protocol.rest)."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol, Self, TypeAlias, TypeVar

from pydantic import RootModel, ValidationError

from client_sdk.effects import Flow, Request, Response
from client_sdk.errors import PeerFault
from client_sdk.retry import RetryingClient
from veilsum.protocol import rest
from veilsum.protocol.attempt import Closing
from veilsum.protocol.causes import Cause
from veilsum.protocol.forms import first_fault
from veilsum.protocol.messages import (
    Cards,
    Ciphertexts,
    Disclosure,
    Enrolment,
    Evictions,
    Manifest,
    Message,
    Opening,
    Pairing,
    Roster,
    Study,
    Upload,
    parse_message,
)
from veilsum.protocol.record import ResultRecord
from veilsum.study.canaries import PACK_BYTES_MAX
from veilsum.system.intervals import LONG_POLL_S


class Form(Protocol):
    """A JSON body, as `rest.Model` defines it."""

    MAX_BYTES: ClassVar[int]

    @classmethod
    def model_validate_json(cls, json_data: bytes, /) -> Self:
        """Parse a body."""


_Form = TypeVar("_Form", bound=Form)


ShownInCohort: TypeAlias = Cards | Ciphertexts | rest.CohortView
"""What the coordinator shows a member of a cohort that is forming."""


class StudyViews(RootModel[rest.Listed[rest.StudyView]]):
    """The studies of a federation."""

    MAX_BYTES: ClassVar[int] = rest.MAX_ANSWER_BYTES


@dataclass(frozen=True)
class Asked:
    """What a member has to answer in a round.

    Attributes:
        message: None if nothing is asked yet; the closing once the round has ended.
        version: pass it as `after` to wait for the next request.
        state: the round's state, unverified.
        roster: number of the federation's newest roster while the round collects uploads; 0 afterwards.
        record: the result's record, unverified, if it answers a reveal; otherwise None.
    """

    message: Message | None
    version: int
    state: str
    roster: int
    record: ResultRecord | None = None

    @classmethod
    def in_response(cls, response: Response) -> Self:
        """Read body and headers. Raises PeerFault(malformed)."""

        def read_number(header: str, without: str = "") -> int:
            value = response.headers.get(header, without)
            if not (value.isascii() and value.isdecimal()):
                raise PeerFault(Cause.MALFORMED, f"no number in the {header} header", ["coordinator"])
            return int(value[:18])

        message, record = None, None
        if response.status == 200 and _is_json(response):
            record = model_of(ResultRecord, response.body)
        elif response.status == 200:
            message = parse_message(response.body)
        state = response.headers.get(rest.STATE_HEADER, "")
        return cls(
            message, read_number(rest.VERSION_HEADER), state, read_number(rest.ROSTER_HEADER, "0"), record
        )


@dataclass(frozen=True)
class Invitation:
    """What a member sees of a cohort before it answers, unverified."""

    cohort: rest.CohortView
    roster: Roster
    study: Study
    card: bytes | None
    """The newest of this member's cards that the coordinator has."""


class Reads:
    """What both members and operators may read. All methods raise as `RetryingClient.send_with_retries`, and return unverified documents.

    Ids of federations, studies, cohorts and rounds are hexadecimal. With `after`, the version that was last shown, a call waits for a later
    one, for at most a long poll.

    Malformed answers raise PeerFault naming "coordinator".
    """

    def __init__(self, caller: RetryingClient) -> None:
        self._caller = caller

    def fetch_roster(self, federation: str) -> Flow[Roster]:
        return Roster.from_bytes((yield from self._get_body(rest.ROSTER_PATH.format(federation=federation))))

    def fetch_study(self, federation: str, study: str) -> Flow[Study]:
        path = rest.STUDY_PATH.format(federation=federation, study=study)
        return Study.from_bytes((yield from self._get_body(path)))

    def fetch_studies(self, federation: str) -> Flow[tuple[rest.StudyView, ...]]:
        path = rest.STUDIES_PATH.format(federation=federation)
        return (yield from self._get_model(StudyViews, path)).root

    def fetch_canaries(self, federation: str, pack: str) -> Flow[bytes]:
        """Fetch the canary pack of this SHA-256, unverified."""
        path = rest.CANARIES_PATH.format(federation=federation, pack=pack)
        return self._get_body(path, limit_bytes=PACK_BYTES_MAX)

    def fetch_runs(self, federation: str, after: int | None = None) -> Flow[rest.RunsView]:
        """Fetch the federation's runs; their version is `revision`."""
        return self._get_model(rest.RunsView, rest.RUNS_PATH.format(federation=federation), after)

    def fetch_cohort(self, cohort: str, after: int | None = None) -> Flow[rest.CohortView]:
        return self._get_model(rest.CohortView, rest.COHORT_PATH.format(cohort=cohort), after)

    def fetch_manifest(self, cohort: str) -> Flow[Manifest]:
        """Fetch a formed cohort's members and quorum."""
        return Manifest.from_bytes((yield from self._get_body(rest.MANIFEST_PATH.format(cohort=cohort))))

    def fetch_round(self, round_id: str, after: int | None = None) -> Flow[rest.RoundView]:
        return self._get_model(rest.RoundView, rest.ROUND_PATH.format(round_id=round_id), after)

    def fetch_opening(self, round_id: str) -> Flow[Opening]:
        return Opening.from_bytes((yield from self._get_body(rest.OPENING_PATH.format(round_id=round_id))))

    def fetch_material(self, round_id: str, limit_bytes: int = rest.MAX_MESSAGE_BYTES) -> Flow[bytes]:
        """Fetch the step's input from earlier steps."""
        return self._get_body(rest.MATERIAL_PATH.format(round_id=round_id), limit_bytes=limit_bytes)

    def fetch_record(self, round_id: str) -> Flow[ResultRecord]:
        """Fetch a result's signed record."""
        return self._get_model(ResultRecord, rest.RESULT_PATH.format(round_id=round_id))

    def fetch_weights(self, round_id: str, limit_bytes: int = rest.MAX_MESSAGE_BYTES) -> Flow[bytes]:
        """Fetch the head's file, unverified."""
        return self._get_body(rest.WEIGHTS_PATH.format(round_id=round_id), limit_bytes=limit_bytes)

    def fetch_document(
        self, round_id: str, name: str, limit_bytes: int = rest.MAX_MESSAGE_BYTES
    ) -> Flow[bytes]:
        """Fetch a document published with the head, unverified."""
        path = rest.DOCUMENT_PATH.format(round_id=round_id, name=name)
        return self._get_body(path, limit_bytes=limit_bytes)

    def fetch_sums(self, round_id: str, limit_bytes: int = 1 << 33) -> Flow[bytes]:
        """Fetch the sum itself, a safetensors file; for readers and operators."""
        return self._get_body(rest.SUMS_PATH.format(round_id=round_id), limit_bytes=limit_bytes)

    def fetch_transcript(self, round_id: str) -> Flow[bytes]:
        """Fetch an ended round's transcript, without replaying it."""
        path = rest.TRANSCRIPT_PATH.format(round_id=round_id)
        return self._get_body(path, limit_bytes=rest.MAX_TRANSCRIPT_BYTES)

    def _get_model(self, form: type[_Form], path: str, after: int | None = None) -> Flow[_Form]:
        return model_of(form, (yield from self._get_body(path, after, form.MAX_BYTES)))

    def _get_body(
        self, path: str, after: int | None = None, limit_bytes: int = rest.MAX_MESSAGE_BYTES
    ) -> Flow[bytes]:
        return (yield from self._call_api(Request("GET", path, limit_bytes=limit_bytes), after)).body

    def _call_api(self, request: Request, after: int | None = None, *, wait: bool = False) -> Flow[Response]:
        if wait or after is not None:
            params = {**request.params, "wait_s": f"{LONG_POLL_S:g}"}
            if after is not None:
                params["after"] = str(after)
            request = replace(request, params=params, wait_s=LONG_POLL_S)
        return self._caller.send_with_retries(request)


class CoordinatorApi(Reads):
    """The member's requests."""

    def fetch_invitation(self, cohort: str) -> Flow[Invitation]:
        """Fetch a cohort with the newest roster and its study."""
        view = yield from self._get_model(rest.InvitationView, rest.INVITATION_PATH.format(cohort=cohort))
        roster, study = bytes.fromhex(view.roster), bytes.fromhex(view.study)
        card = None if view.card is None else bytes.fromhex(view.card)
        return Invitation(view.cohort, Roster.from_bytes(roster), Study.from_bytes(study), card)

    def send_probe(self, federation: str, size_bytes: int) -> Flow[None]:
        """Send bytes that the coordinator forgets."""
        path = rest.PROBE_PATH.format(federation=federation)
        yield from self._call_api(Request("POST", path, bytes(size_bytes)))

    def send_site_report(self, cohort: bytes, member: str, report: rest.SiteReport) -> Flow[None]:
        """Tell the operator of a rehearsal how this member's site does."""
        path = rest.SITE_PATH.format(cohort=cohort.hex(), member=member)
        content = report.model_dump_json().encode()
        yield from self._call_api(Request("PUT", path, content, "application/json"))

    def send_card(self, enrolment: Enrolment, after: int | None = None) -> Flow[Cards | rest.CohortView]:
        """Send this member's card. With `after`, wait until enrolment ends, for at most a long poll.

        Returns:
            The manifest with the cards that the member needs, unverified, once there is one; before, the cohort.
        """
        card = enrolment.card
        path = rest.CARD_PATH.format(cohort=card.cohort.hex(), member=card.member)
        response = yield from self._call_api(Request("PUT", path, enrolment.to_bytes()), after)
        if _is_json(response):
            return model_of(rest.CohortView, response.body)
        return Cards.from_bytes(response.body)

    def send_pairing(self, cohort: bytes, pairing: Pairing, *, wait: bool) -> Flow[ShownInCohort]:
        """Send this member's pairing. With `wait`, wait until the others have paired, for at most a long poll.

        Returns:
            The others' ciphertexts, unverified, once the cohort is formed; the cards of a newer manifest; or the cohort.
        """
        path = rest.PAIRING_PATH.format(cohort=cohort.hex(), member=pairing.member)
        request = Request("PUT", path, pairing.to_bytes())
        return _shown_in_cohort((yield from self._call_api(request, wait=wait)))

    def fetch_ciphertexts(
        self, cohort: bytes, member: str, manifest: bytes, *, wait: bool
    ) -> Flow[ShownInCohort]:
        """Fetch what `send_pairing` returns, for a member that has paired under the manifest of this hash."""
        path = rest.PAIRING_PATH.format(cohort=cohort.hex(), member=member)
        request = Request("GET", path, params={"manifest": manifest.hex()})
        return _shown_in_cohort((yield from self._call_api(request, wait=wait)))

    def fetch_cards(self, cohort: bytes, member: str) -> Flow[Cards]:
        """Fetch the newest manifest with the cards that a member needs, unverified."""
        path = rest.CARDS_PATH.format(cohort=cohort.hex(), member=member)
        return Cards.from_bytes((yield from self._get_body(path)))

    def fetch_closing(self, context: bytes, federation: str) -> Flow[Closing]:
        """Fetch how an attempt was closed, unverified: also by the federation's admin alone, if the coordinator does not know it."""
        request = Request(
            "GET", rest.CLOSING_PATH.format(context=context.hex()), params={"federation": federation}
        )
        message = parse_message((yield from self._call_api(request)).body)
        if not isinstance(message, Closing):
            raise PeerFault(
                Cause.UNKNOWN_MESSAGE, f"a {type(message).__name__} closes no attempt", ["coordinator"]
            )
        return message

    def fetch_request(self, round_id: str, member: str, after: int | None = None) -> Flow[Asked]:
        """Fetch what the member has to answer. With `after`, wait for a newer request, for at most a long poll."""
        path = rest.REQUEST_PATH.format(round_id=round_id, member=member)
        return Asked.in_response((yield from self._call_api(Request("GET", path), after)))

    def announce_upload(self, round_id: str, upload: Upload) -> Flow[rest.UploadView]:
        """Announce an upload, and return its missing chunks. A repeated call only asks what is missing."""
        path = rest.UPLOAD_PATH.format(round_id=round_id, member=upload.header.member)
        request = Request("PUT", path, upload.to_bytes(), limit_bytes=rest.UploadView.MAX_BYTES)
        return model_of(rest.UploadView, (yield from self._call_api(request)).body)

    def send_chunk(
        self,
        round_id: str,
        upload: Upload,
        index: int,
        packed: bytes,
        after: int | None = None,
        on_too_large: Callable[[int, str], Flow[None]] | None = None,
    ) -> Flow[Asked]:
        """Send one masked chunk of an announced upload. Returns the next request, as `fetch_request`; `on_too_large` is that of `Request`."""
        path = rest.CHUNK_PATH.format(round_id=round_id, member=upload.header.member, index=index)
        digest = upload.chunk_digests[index]
        request = Request("PUT", path, packed, digest=digest, on_too_large=on_too_large)
        return Asked.in_response((yield from self._call_api(request, after)))

    def send_answer(self, round_id: str, message: Message, after: int) -> Flow[Asked]:
        """Send a receipt, vote, refusal, reveal or erasure report. Returns the next request, as `fetch_request`."""
        path = rest.ANSWERS_PATH.format(round_id=round_id)
        return Asked.in_response(
            (yield from self._call_api(Request("POST", path, message.to_bytes()), after))
        )

    def fetch_evictions(self, round_id: str) -> Flow[Evictions]:
        """Fetch the proofs against evicted survivors, unverified."""
        path = rest.EVICTIONS_PATH.format(round_id=round_id)
        return Evictions.from_bytes((yield from self._get_body(path)))

    def fetch_disclosure(self, round_id: str, member: str) -> Flow[Disclosure]:
        """Fetch a count's disclosure, unverified; for members only."""
        path = rest.DISCLOSURE_PATH.format(round_id=round_id, member=member)
        return Disclosure.from_bytes((yield from self._get_body(path, limit_bytes=rest.MAX_DISCLOSURE_BYTES)))


def _shown_in_cohort(response: Response) -> ShownInCohort:
    if _is_json(response):
        return model_of(rest.CohortView, response.body)
    message = parse_message(response.body)
    if not isinstance(message, Cards | Ciphertexts):
        raise PeerFault(
            Cause.UNKNOWN_MESSAGE, f"a {type(message).__name__} answers no pairing", ["coordinator"]
        )
    return message


def _is_json(response: Response) -> bool:
    return response.headers.get("content-type", "").startswith("application/json")


def model_of(form: type[_Form], body: bytes) -> _Form:
    """Parse an answer's body.

    Raises:
        PeerFault: malformed, naming the coordinator and the field; oversized, without parsing it.
    """
    if len(body) > form.MAX_BYTES or body.count(b",") > rest.MAX_ANSWER_VALUES:
        raise PeerFault(
            Cause.OVERSIZED,
            f"the coordinator's {form.__name__}: more than {form.MAX_BYTES:,} bytes or {rest.MAX_ANSWER_VALUES:,} values",
            ["coordinator"],
        )
    try:
        return form.model_validate_json(body)
    except ValidationError as error:
        raise PeerFault(
            Cause.MALFORMED,
            f"the coordinator's {form.__name__}: {first_fault(error, 'the body')}",
            ["coordinator"],
        ) from error
