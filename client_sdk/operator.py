"""The operator's side of the same wire: federations, cohorts and rounds, by the operator's token."""

from dataclasses import replace
from typing import Self, TypeVar

from pydantic import BaseModel

from client_sdk.api import LONG_POLL_S, model_of
from client_sdk.effects import Request, Response
from client_sdk.progress import Reporter, Watcher
from client_sdk.retry import Caller
from client_sdk.signing import Signer
from client_sdk.surroundings import THIS_MACHINE, Surroundings
from client_sdk.transport import BlockingDriver, ClientCertificate
from protocol import published, rest
from protocol.access import NewToken, TokenList, TokenRequest, TokenView
from protocol.audit import AuditPage
from protocol.identity import SigningKey
from protocol.messages import Ledger, Lost, Manifest, Opening, Roster
from protocol.preflight import PreflightView
from protocol.request_signature import ADMIN

_Model = TypeVar("_Model", bound=BaseModel)

# Where what may have been created shows.
_COHORTS = "the cohorts on the federation's page (Operator.federation)"
_ROUNDS = "the rounds on the federation's page (Operator.federation)"
_TOKENS = "`veilsum operator token list` (Operator.tokens), and revoke what nobody holds"


class Operator:
    """Opens and watches what members take part in; blocking.

    Args:
        url: the coordinator's address.
        token: the operator's token; None for what everybody may read, and for an admin.
        admin: the federation's admin key, which signs what needs no operator: later rosters, and the end of a lost round.
        progress: is told when the coordinator is out of reach and tried again.
        patience_s: seconds for which an unreachable coordinator is tried again.
        verify: True to trust the system's authorities, a PEM file's path to trust those, False for none.
        cert: this client's certificate where the coordinator asks for one.

    Every method raises PeerFault with the coordinator's cause where it refuses. What creates something at each call, such as
    a token, is asked again only where the coordinator surely has not made it: else Unreachable says where to look for it.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        admin: SigningKey | None = None,
        progress: Watcher | None = None,
        patience_s: float = 30.0,
        verify: bool | str = True,
        cert: ClientCertificate | None = None,
        surroundings: Surroundings = THIS_MACHINE,
        driver: BlockingDriver | None = None,
    ) -> None:
        self._driver = driver or BlockingDriver(url, verify=verify, cert=cert)
        signer = Signer(ADMIN, admin, surroundings) if admin is not None and token is None else None
        self._caller = Caller(patience_s, surroundings, Reporter(progress), signer)
        self._headers = {"authorization": f"Bearer {token}"} if token else {}

    def coordinator(self) -> rest.CoordinatorView:
        """The coordinator's key, for the roster."""
        return self._model(rest.CoordinatorView, Request("GET", rest.COORDINATOR))

    def publish(self, roster: Roster) -> rest.FederationView:
        """Store a roster that the admin signed."""
        path = rest.ROSTER.format(federation=roster.federation.hex())
        headers = {"content-type": rest.OCTETS}
        return self._model(rest.FederationView, Request("PUT", path, roster.to_bytes(), headers))

    def federation(self, federation: str) -> rest.FederationView:
        """A federation's members, and the ids of its cohorts and rounds."""
        return self._model(rest.FederationView, Request("GET", rest.FEDERATION.format(federation=federation)))

    def roster(self, federation: str) -> Roster:
        """The newest roster, not verified."""
        return Roster.from_bytes(self._call(Request("GET", rest.ROSTER.format(federation=federation))).body)

    def open_cohort(self, federation: str, request: rest.CohortRequest) -> rest.CohortView:
        """Open a cohort, which members join by their cards until it is full or its time is up."""
        return self._post(rest.CohortView, rest.COHORTS.format(federation=federation), request, _COHORTS)

    def cohort(self, cohort: str, after: int | None = None) -> rest.CohortView:
        """The cohort now; or with `after`, once its version is above it or the long poll ends."""
        return self._model(rest.CohortView, _poll(rest.COHORT.format(cohort=cohort), after))

    def close_cohort(self, cohort: str) -> rest.CohortView:
        """End enrolment with the cards that came."""
        return self._post(rest.CohortView, rest.CLOSE.format(cohort=cohort))

    def open_round(self, cohort: str, request: rest.RoundRequest) -> rest.RoundView:
        """Open a round, or the next attempt of a voided one."""
        return self._post(rest.RoundView, rest.ROUNDS.format(cohort=cohort), request, _ROUNDS)

    def preflight(self, cohort: str, request: rest.RoundRequest) -> PreflightView:
        """What `open_round` would open now; nothing is opened."""
        return self._post(PreflightView, rest.PREFLIGHT.format(cohort=cohort), request)

    def round(self, round_id: str, after: int | None = None) -> rest.RoundView:
        """The round now; or with `after`, once its version is above it or the long poll ends."""
        return self._model(rest.RoundView, _poll(rest.ROUND.format(round_id=round_id), after))

    def manifest(self, cohort: str) -> Manifest:
        """A formed cohort's members and numbers, not checked."""
        return Manifest.from_bytes(self._call(Request("GET", rest.MANIFEST.format(cohort=cohort))).body)

    def opening(self, round_id: str) -> Opening:
        """A round's opening, not checked."""
        return Opening.from_bytes(self._call(Request("GET", rest.OPENING.format(round_id=round_id))).body)

    def ledger(self, federation: str) -> Ledger:
        """Every closed attempt and the sets it opened, not checked."""
        return Ledger.from_bytes(self._call(Request("GET", rest.LEDGER.format(federation=federation))).body)

    def close_lost(self, round_id: str, lost: Lost) -> rest.RoundView:
        """Close an erasing round with the admin's signature."""
        headers = {"content-type": rest.OCTETS}
        path = rest.LOST.format(round_id=round_id)
        return self._model(rest.RoundView, Request("POST", path, lost.to_bytes(), headers))

    def combine(self, federation: str, request: published.CombineRequest) -> published.CombinedRecord:
        """Add up the sums of finished rounds and solve again."""
        return self._post(published.CombinedRecord, rest.COMBINATIONS.format(federation=federation), request)

    def combination(self, combination: str) -> tuple[published.CombinedRecord, bytes]:
        """A combination's signed record and its weights file, not verified."""
        path = rest.COMBINATION.format(combination=combination)
        record = self._model(published.CombinedRecord, Request("GET", path))
        return record, self._call(Request("GET", rest.COMBINED_WEIGHTS.format(combination=combination))).body

    def cancel(self, round_id: str, reason: str) -> rest.RoundView:
        """Give a round up; `reason` is shown to everybody."""
        request = rest.CancelRequest(reason=reason)
        return self._post(rest.RoundView, rest.CANCEL.format(round_id=round_id), request)

    def extend(self, round_id: str, deadline_s: float) -> rest.RoundView:
        """Give the phase that a round is in time until `deadline_s`, in Unix time."""
        request = rest.ExtendRequest(deadline_s=deadline_s)
        return self._post(rest.RoundView, rest.EXTEND.format(round_id=round_id), request)

    def new_token(self, request: TokenRequest) -> NewToken:
        """Make a token; its secret is shown this once."""
        return self._post(NewToken, rest.TOKENS, request, _TOKENS)

    def tokens(self) -> TokenList:
        """Every token that was ever made, without its secret."""
        return self._model(TokenList, Request("GET", rest.TOKENS))

    def revoke_token(self, token: str) -> TokenView:
        """Have the coordinator take a token no more, from now on."""
        return self._post(TokenView, rest.REVOKE.format(token=token))

    def audit(self, after: int = 0) -> AuditPage:
        """A page of the audit log after an entry's number, not checked."""
        return self._model(AuditPage, Request("GET", rest.AUDIT, params={"after": str(after)}))

    def result(self, round_id: str) -> published.ResultRecord:
        """The signed record, not verified."""
        return self._model(published.ResultRecord, Request("GET", rest.RESULT.format(round_id=round_id)))

    def transcript(self, round_id: str) -> bytes:
        """The file of an ended round's transcript, not replayed."""
        path = rest.TRANSCRIPT.format(round_id=round_id)
        return self._call(Request("GET", path, limit_bytes=rest.MAX_TRANSCRIPT_BYTES)).body

    def sums(self, round_id: str) -> bytes:
        """The sum itself, a safetensors file."""
        return self._call(Request("GET", rest.SUMS.format(round_id=round_id), limit_bytes=1 << 33)).body

    def close(self) -> None:
        """Close the connections."""
        self._driver.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _post(
        self, form: type[_Model], path: str, body: rest.Model | None = None, shown_in: str = ""
    ) -> _Model:
        content = body.model_dump_json().encode() if body is not None else b""
        headers = {"content-type": "application/json"} if body is not None else {}
        return self._model(form, Request("POST", path, content, headers, shown_in=shown_in))

    def _model(self, form: type[_Model], request: Request) -> _Model:
        return model_of(form, self._call(request))

    def _call(self, request: Request) -> Response:
        authorised = replace(request, headers={**request.headers, **self._headers})
        return self._driver.run(self._caller.call(authorised))


def _poll(path: str, after: int | None) -> Request:
    if after is None:
        return Request("GET", path)
    return Request(
        "GET", path, params={"after": str(after), "wait_s": f"{LONG_POLL_S:g}"}, wait_s=LONG_POLL_S
    )
