"""Guards: each route names one, which says who may ask, by a request's headers and path alone."""

import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from fastapi import Request

from service.access.gate import Gate
from service.coordination.combining import stored_record
from service.coordination.coordinator import Coordinator
from service.http.callers import ANONYMOUS_CALLER, Caller
from service.storage.blobs import in_blob_thread
from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.forms import HEX32_PATTERN, MEMBER_PATTERN, ROUND_PATTERN
from veilsum.protocol.messages import Roster
from veilsum.protocol.record import CombinedRecord
from veilsum.protocol.request_signature import METHODS_WITH_BODY, SIGNATURE_INPUT_HEADER
from veilsum.protocol.rest import Scope
from veilsum.protocol.study import read_content

_TOKEN_SCHEME, _SIGNATURE_SCHEME = "OperatorToken", "RequestSignature"
SECURITY_SCHEMES: dict[str, dict[str, str]] = {
    _TOKEN_SCHEME: {
        "type": "http",
        "scheme": "bearer",
        "description": "an operator's token (docs/access.md)",
    },
    _SIGNATURE_SCHEME: {
        "type": "apiKey",
        "in": "header",
        "name": "Signature",
        "description": "an Ed25519 signature of the member, or the admin, over the request: RFC 9421 with Signature-Input and, in PUT "
        "and POST, Content-Digest (docs/access.md)",
    },
}
"""Security schemes of the API document. FastAPI's own would be resolved at each request."""
_SIGNATURE_CAUSES = (
    Cause.REQUEST_UNSIGNED,
    Cause.REQUEST_FORGED,
    Cause.CLOCK_SKEW,
    Cause.DIGEST_MISMATCH,
    Cause.FORBIDDEN,
)

_PATTERN_OF_PARAMETER = {
    "federation": HEX32_PATTERN,
    "cohort": HEX32_PATTERN,
    "round_id": ROUND_PATTERN,
    "combination": ROUND_PATTERN,
    "member": MEMBER_PATTERN,
}
REPORT_SKEW_MAX_S = 86_400.0
Admission = Callable[[Request], Awaitable[Caller]]
"""Authenticates a request by its headers alone. Raises PeerFault if the caller may not send it."""


@dataclass(frozen=True, eq=False)
class Guard:
    """Admits the callers of a route.

    Attributes:
        admit: lets callers in.
        schemes: names in `SECURITY_SCHEMES`.
        causes: of refusals.
        public: whether unauthenticated callers are admitted.
        limited: whether rate limits apply.
        single_use: whether a signed request is accepted once.
    """

    admit: Admission
    schemes: tuple[str, ...] = ()
    causes: tuple[Cause, ...] = ()
    public: bool = False
    limited: bool = True
    single_use: bool = False

    @property
    def openapi_security(self) -> dict[str, Any]:
        """For a route's `openapi_extra`."""
        needs = [dict[str, list[str]]({scheme: []}) for scheme in self.schemes]
        return {"security": [{}, *needs] if self.public else needs} if needs else {}


async def _admit_anyone(request: Request) -> Caller:  # noqa: ARG001 - an Admission
    return ANONYMOUS_CALLER


async def _admit_signer(request: Request, skew_s: float | None = None) -> Caller:
    """Admit a member of the round, cohort or federation that the path names, by its key in the newest roster.

    A round also takes answers by the key with which the member began it. Its clock may be off by `skew_s`; None for what the settings allow.
    """

    async def find_rosters() -> tuple[Roster, Roster]:
        own = await _find_roster(request)
        return own, await coordinator_of(request).federations.read_roster(own.federation.hex())

    ends = "round_id" in request.path_params and request.method in METHODS_WITH_BODY
    return await gate_of(request).verify_member(request, find_rosters, superseded=ends, skew_s=skew_s)


async def _admit_signer_or_anyone(request: Request) -> Caller:
    """Admit members by name, so that `LastHeard` sees them, and all other callers, bad signatures included."""
    if SIGNATURE_INPUT_HEADER in request.headers:
        with suppress(PeerFault):
            return await _admit_signer(request)
    return ANONYMOUS_CALLER


async def _admit_named_member(request: Request, skew_s: float | None = None) -> Caller:
    """Admit the member that the path names, or any member of the path's federation if it names none."""
    caller = await _admit_signer(request, skew_s)
    named = request.path_params.get("member", caller.name)
    if named != caller.name:
        raise PeerFault(
            Cause.FORBIDDEN, f"only {named} may do this, and {caller.name} signed the request", [caller.name]
        )
    return caller


async def _admit_reader(request: Request) -> Caller:
    """Admit a member that is a reader both in the round's roster and in the newest."""
    caller = await _admit_signer(request)
    newest = await coordinator_of(request).federations.read_roster(caller.federation)
    if not all(caller.name in roster.readers for roster in (await _find_roster(request), newest)):
        raise PeerFault(
            Cause.FORBIDDEN,
            f"{caller.name} may not read sums: have the admin sign a roster with --reader {caller.name}, before the round",
            [caller.name],
        )
    return caller


async def _admit_admin(request: Request) -> Caller:
    """Admit the admin of the path's federation."""
    return await gate_of(request).verify_admin(request, lambda: _find_federation(request))


def _admit_by_token(scope: Scope) -> Admission:
    """Admit an operator by a token with a scope."""

    async def admit(request: Request) -> Caller:
        caller = await gate_of(request).find_operator(request)
        if not caller.has_scope(scope):
            raise PeerFault(
                Cause.FORBIDDEN,
                f"token {caller.name} has the scopes {', '.join(sorted(caller.scopes)) or 'none'}: this needs '{scope}'",
            )
        await check_federation(request, caller)
        return caller

    return admit


async def check_federation(request: Request, operator: Caller) -> None:
    """Refuse a token that is limited to another federation than the path's. Raises PeerFault: forbidden, not-found."""
    if not operator.federation:
        return
    path = _check_path(request)
    named = path["federation"] if "federation" in path else (await _find_roster(request)).federation.hex()
    if named != operator.federation:
        raise PeerFault(
            Cause.FORBIDDEN, f"token {operator.name} works for federation {operator.federation} only"
        )


def _admit_by_signature_or_token(signed: Admission, scope: Scope, *, public_heads: bool = False) -> Admission:
    """Admit by signature if the request has one, else by token. Public heads need neither."""
    operator = _admit_by_token(scope)

    async def admit(request: Request) -> Caller:
        if SIGNATURE_INPUT_HEADER in request.headers:
            return await signed(request)
        if public_heads and "authorization" not in request.headers and await _has_public_head(request):
            return ANONYMOUS_CALLER
        return await operator(request)

    return admit


_BOTH_SCHEMES, _LOOKUP_CAUSES = (_TOKEN_SCHEME, _SIGNATURE_SCHEME), (*_SIGNATURE_CAUSES, Cause.NOT_FOUND)
EVERYONE_GUARD = Guard(_admit_anyone, public=True)
MACHINES_GUARD = Guard(_admit_anyone, public=True, limited=False)
"""Health probes. A refusal would look like a dead process."""
WAITING_GUARD = Guard(_admit_signer_or_anyone, (_SIGNATURE_SCHEME,), public=True)
MEMBER_GUARD = Guard(_admit_named_member, (_SIGNATURE_SCHEME,), _LOOKUP_CAUSES)
SITES_GUARD = Guard(
    partial(_admit_named_member, skew_s=REPORT_SKEW_MAX_S), (_SIGNATURE_SCHEME,), _LOOKUP_CAUSES
)
"""A site reports its clock: it may be far off."""
AUDIT_GUARD, ROUNDS_GUARD, ADMIN_GUARD = (
    Guard(_admit_by_token(scope), (_TOKEN_SCHEME,), (Cause.UNAUTHORISED, Cause.FORBIDDEN))
    for scope in (Scope.AUDIT, Scope.ROUNDS, Scope.ADMIN)
)
READERS_GUARD = Guard(
    _admit_by_signature_or_token(_admit_reader, Scope.SUMS),
    _BOTH_SCHEMES,
    (Cause.UNAUTHORISED, *_LOOKUP_CAUSES, Cause.REQUEST_REPLAYED),
    single_use=True,
)
"""The audit log names who downloaded a sum: whoever repeats a reader's request must not look like the reader."""
HEADS_GUARD = Guard(
    _admit_by_signature_or_token(_admit_signer, Scope.SUMS, public_heads=True),
    _BOTH_SCHEMES,
    (Cause.UNAUTHORISED, *_LOOKUP_CAUSES),
)
DOCUMENTS_GUARD = Guard(
    _admit_by_signature_or_token(_admit_named_member, Scope.SUMS),
    _BOTH_SCHEMES,
    (Cause.UNAUTHORISED, *_LOOKUP_CAUSES),
)
PUBLISHING_GUARD, CLOSING_GUARD = (
    Guard(
        _admit_by_signature_or_token(_admit_admin, scope),
        _BOTH_SCHEMES,
        (Cause.UNAUTHORISED, *_SIGNATURE_CAUSES),
    )
    for scope in (Scope.FEDERATIONS, Scope.ROUNDS)
)
"""The admin, or an operator that passes on a document that the admin signed."""


def gate_of(request: Request) -> Gate:
    gate: Gate = request.app.state.gate
    return gate


def coordinator_of(request: Request) -> Coordinator:
    coordinator: Coordinator = request.app.state.coordinator
    return coordinator


async def _find_roster(request: Request) -> Roster:
    """Find the roster of the path's round or cohort, or the federation's newest one. Raises PeerFault(not-found)."""
    here, path = coordinator_of(request), _check_path(request)
    if "round_id" in path:
        found: Roster = (await here.catalogue.find_round(path["round_id"])).attempt.roster
        return found
    if "cohort" in path:
        return (await here.catalogue.find_cohort(path["cohort"])).roster
    if "combination" in path:
        return await here.federations.read_roster((await _find_combination(request)).federation)
    return await here.federations.read_roster(path["federation"])


async def _find_combination(request: Request) -> CombinedRecord:
    return await in_blob_thread(
        stored_record,
        _check_path(request)["combination"],
        coordinator_of(request).blobs,
        coordinator_of(request).key.public,
    )


async def _has_public_head(request: Request) -> bool:
    """Whether the head of the path's round or combination is public. Raises PeerFault(not-found)."""
    here, path = coordinator_of(request), _check_path(request)
    if "round_id" in path:
        content = (await here.catalogue.find_round(path["round_id"])).attempt.content
    else:
        record = await _find_combination(request)
        content = read_content((await here.federations.read_study(record.federation, record.study)).content)
    return content.after.readers == "anyone"


async def _find_federation(request: Request) -> str:
    """Find the federation of the path or of its round. Raises PeerFault: unauthorised, not-found."""
    named = _check_path(request).get("federation")
    if named is None:
        return (await _find_roster(request)).federation.hex()
    await coordinator_of(request).federations.check_known(named)
    return named


def _check_path(request: Request) -> dict[str, str]:
    """Check the names in the path. Raises PeerFault(malformed-request)."""
    for name, value in request.path_params.items():
        if name in _PATTERN_OF_PARAMETER and not re.fullmatch(_PATTERN_OF_PARAMETER[name], value):
            raise PeerFault(Cause.MALFORMED_REQUEST, f"path.{name}: must match {_PATTERN_OF_PARAMETER[name]}")
    return request.path_params
