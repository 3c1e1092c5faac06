"""The operator's client: federations, cohorts and rounds, by an operator's token."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Self, TypeVar

from client_sdk.api import Form, Reads, model_of
from client_sdk.effects import Request
from client_sdk.environment import THIS_MACHINE, Environment
from client_sdk.identity import Identity
from client_sdk.progress import Reporter, Watcher
from client_sdk.retry import RetryingClient
from client_sdk.signing import Signer, Token
from client_sdk.transport import BlockingDriver, ClientCertificate, blocking_method
from veilsum.protocol import rest
from veilsum.protocol.audit import AuditPage
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.messages import Chain, Lost, Roster, Study
from veilsum.protocol.record import CombinedRecord, CombineRequest
from veilsum.protocol.request_signature import ADMIN_KEYID
from veilsum.protocol.rest import NewToken, PreflightView, TokenList, TokenRequest, TokenView
from veilsum.study.canaries import CanaryPack

_Form = TypeVar("_Form", bound=Form)

# Where to look for what may have been created.
_COHORTS_SHOWN_IN = "the cohorts on the federation's page (Operator.federation)"
_ROUNDS_SHOWN_IN = "the rounds on the federation's page (Operator.federation)"
_TOKENS_SHOWN_IN = "`veilsum operator token list` (Operator.tokens), and revoke unused ones"


class Operator:
    """Opens and watches cohorts and rounds. Its methods block.

    Args:
        url: the coordinator's address.
        token: the operator's token; None for public resources, and for an admin or a member.
        admin: the federation's admin key, which may publish later rosters and close a lost round without an operator.
        member: a member's identity, to read what members may read.
        progress: called when the coordinator is out of reach and retried.
        patience_s: how long to retry while the coordinator is unreachable, in seconds.
        verify: True to trust the system's authorities, a PEM file's path to trust those, False for none.
        cert: this client's certificate if the coordinator asks for one.

    Every method raises PeerFault with the coordinator's cause if the coordinator refuses. A request that creates something at each call,
    such as a token, is repeated only if the coordinator certainly has not carried it out; otherwise Unreachable says where to look.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        admin: SigningKey | None = None,
        member: Identity | None = None,
        progress: Watcher | None = None,
        patience_s: float = 30.0,
        verify: bool | str = True,
        cert: ClientCertificate | None = None,
        environment: Environment = THIS_MACHINE,
        driver: BlockingDriver | None = None,
    ) -> None:
        self._driver = driver or BlockingDriver(url, verify=verify, cert=cert)
        signer: Signer | Token | None = None
        if token is not None:
            signer = Token(token)
        elif admin is not None:
            signer = Signer(ADMIN_KEYID, admin, environment)
        elif member is not None:
            signer = Signer(member.member, member.key, environment)
        self._caller = RetryingClient(patience_s, environment, Reporter(progress), signer)
        self._flows = Reads(self._caller)

    # What members read too, documented at `client_sdk.api.Reads`

    roster = blocking_method(Reads.fetch_roster)
    study = blocking_method(Reads.fetch_study)
    studies = blocking_method(Reads.fetch_studies)
    canaries = blocking_method(Reads.fetch_canaries)
    runs = blocking_method(Reads.fetch_runs)
    cohort = blocking_method(Reads.fetch_cohort)
    manifest = blocking_method(Reads.fetch_manifest)
    round = blocking_method(Reads.fetch_round)
    opening = blocking_method(Reads.fetch_opening)
    material = blocking_method(Reads.fetch_material)
    result = blocking_method(Reads.fetch_record)
    weights = blocking_method(Reads.fetch_weights)
    document = blocking_method(Reads.fetch_document)
    sums = blocking_method(Reads.fetch_sums)
    transcript = blocking_method(Reads.fetch_transcript)

    # Only operators

    def coordinator(self) -> rest.CoordinatorView:
        """Fetch the coordinator's key, which rosters name, and its federations."""
        return self._request_model(rest.CoordinatorView, Request("GET", rest.COORDINATOR_PATH))

    def publish_roster(self, roster: Roster) -> rest.FederationView:
        """Store a roster that the admin signed."""
        path = rest.ROSTER_PATH.format(federation=roster.federation.hex())
        return self._request_model(rest.FederationView, Request("PUT", path, roster.to_bytes()))

    def publish_study(self, study: Study) -> rest.StudyView:
        """Store a study that the roster's study key signed."""
        path = rest.STUDY_PATH.format(federation=study.federation.hex(), study=study.hash.hex())
        return self._request_model(rest.StudyView, Request("PUT", path, study.to_bytes()))

    def publish_canaries(self, federation: str, pack: CanaryPack) -> str:
        """Store the canary pack that a published study names. Returns its SHA-256."""
        content = pack.to_bytes()
        digest = hashlib.sha256(content).hexdigest()
        path = rest.CANARIES_PATH.format(federation=federation, pack=digest)
        self._call_api(Request("PUT", path, content))
        return digest

    def federation(self, federation: str) -> rest.FederationView:
        """Fetch a federation's members, and the ids of its cohorts and rounds."""
        return self._request_model(
            rest.FederationView, Request("GET", rest.FEDERATION_PATH.format(federation=federation))
        )

    def open_cohort(
        self, federation: str, study: str, period: str, repeats: str | None = None
    ) -> rest.CohortView:
        """Open a cohort for one run of a study. Members enrol until it is full or its time is up.

        Args:
            federation: its id.
            study: hash of the study.
            period: which records the run sums, for example "2026-11".
            repeats: context of a certified attempt of the period, to sum its records again; None for fresh records.
        """
        request = rest.CohortRequest(study=study, period=period, repeats=repeats)
        return self._post_model(
            rest.CohortView, rest.COHORTS_PATH.format(federation=federation), request, _COHORTS_SHOWN_IN
        )

    def close_cohort(self, cohort: str) -> rest.CohortView:
        """End enrolment with the cards received so far."""
        return self._post_model(rest.CohortView, rest.CLOSE_PATH.format(cohort=cohort))

    def store_heads(self, cohort: str, content: bytes) -> str:
        """Store the heads that a judgement will show (`veilsum.study.judging.encode_shown`). Returns their SHA-256, for `open_round`."""
        digest = hashlib.sha256(content).hexdigest()
        path = rest.HEADS_PATH.format(cohort=cohort, heads=digest)
        self._call_api(Request("PUT", path, content))
        return digest

    def open_round(
        self,
        cohort: str,
        *,
        lifetime_s: float | None = None,
        heard_within_s: float | None = None,
        heads: str | None = None,
    ) -> rest.RoundView:
        """Open the run's next step, or the next attempt of a voided one.

        Args:
            cohort: its id.
            lifetime_s: seconds until the round's keys are erased; None for the coordinator's default.
            heard_within_s: open it only if enough members were heard from within so many seconds; None to open it in any case.
            heads: of a judgement, as `store_heads` returned it; None for any other step.
        """
        request = rest.RoundRequest(lifetime_s=lifetime_s, heard_within_s=heard_within_s, heads=heads)
        return self._post_model(
            rest.RoundView, rest.ROUNDS_PATH.format(cohort=cohort), request, _ROUNDS_SHOWN_IN
        )

    def preflight(
        self, cohort: str, *, lifetime_s: float | None = None, heard_within_s: float | None = None
    ) -> PreflightView:
        """Return what `open_round` would open, without opening it."""
        request = rest.RoundRequest(lifetime_s=lifetime_s, heard_within_s=heard_within_s)
        return self._post_model(PreflightView, rest.PREFLIGHT_PATH.format(cohort=cohort), request)

    def site_reports(self, cohort: str) -> rest.SitesView:
        """Fetch what the sites of a rehearsal reported last."""
        return self._request_model(rest.SitesView, Request("GET", rest.SITES_PATH.format(cohort=cohort)))

    def chain(self, federation: str) -> Chain:
        """Fetch all ended attempts, oldest first, unverified."""
        return Chain.from_bytes(self._call_api(Request("GET", rest.CHAIN_PATH.format(federation=federation))))

    def close_lost(self, round_id: str, lost: Lost) -> rest.RoundView:
        """Close an erasing round with the admin's signature."""
        return self._request_model(
            rest.RoundView, Request("POST", rest.LOST_PATH.format(round_id=round_id), lost.to_bytes())
        )

    def close_unknown(self, federation: str, lost: Lost) -> None:
        """Close an attempt that the coordinator does not know, with the admin's signature. Raises PeerFault(conflict) if it does."""
        self._call_api(Request("POST", rest.LOST_CONTEXTS.format(federation=federation), lost.to_bytes()))

    def combine(self, federation: str, rounds: Sequence[str]) -> CombinedRecord:
        """Add up the sums of finished rounds of several periods, and solve again."""
        request = CombineRequest(rounds=tuple(rounds))
        return self._post_model(CombinedRecord, rest.COMBINATIONS_PATH.format(federation=federation), request)

    def combination(self, combination: str) -> tuple[CombinedRecord, bytes]:
        """Fetch a combination's signed record and its head's file, unverified."""
        path = rest.COMBINATION_PATH.format(combination=combination)
        record = self._request_model(CombinedRecord, Request("GET", path))
        return record, self._call_api(
            Request("GET", rest.COMBINED_WEIGHTS_PATH.format(combination=combination))
        )

    def cancel(self, round_id: str, reason: str) -> rest.RoundView:
        """Cancel a round; `reason` is public."""
        request = rest.CancelRequest(reason=reason)
        return self._post_model(rest.RoundView, rest.CANCEL_PATH.format(round_id=round_id), request)

    def extend(self, round_id: str, deadline_s: float) -> rest.RoundView:
        """Move the deadline of a round's phase to `deadline_s`, in Unix time."""
        request = rest.ExtendRequest(deadline_s=deadline_s)
        return self._post_model(rest.RoundView, rest.EXTEND_PATH.format(round_id=round_id), request)

    def new_token(self, request: TokenRequest) -> NewToken:
        """Make a token; its secret is shown this once."""
        return self._post_model(NewToken, rest.TOKENS_PATH, request, _TOKENS_SHOWN_IN)

    def tokens(self) -> TokenList:
        """Fetch all tokens, revoked ones included, without their secrets."""
        return self._request_model(TokenList, Request("GET", rest.TOKENS_PATH))

    def revoke_token(self, token: str) -> TokenView:
        """Revoke a token, with immediate effect."""
        return self._post_model(TokenView, rest.REVOKE_PATH.format(token=token))

    def audit(self, after: int = 0) -> AuditPage:
        """Fetch the page of the audit log after an entry, unverified."""
        return self._request_model(AuditPage, Request("GET", rest.AUDIT_PATH, params={"after": str(after)}))

    def close(self) -> None:
        self._driver.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _post_model(
        self, form: type[_Form], path: str, body: rest.Model | None = None, shown_in: str = ""
    ) -> _Form:
        content = body.model_dump_json().encode() if body is not None else b""
        request = Request("POST", path, content, "application/json", shown_in=shown_in)
        return self._request_model(form, request)

    def _request_model(self, form: type[_Form], request: Request) -> _Form:
        return model_of(form, self._call_api(replace(request, limit_bytes=form.MAX_BYTES)))

    def _call_api(self, request: Request) -> bytes:
        return self._driver.run(self._caller.send_with_retries(request)).body
