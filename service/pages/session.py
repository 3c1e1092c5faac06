"""Signed-in operators: a token, shown once, for a cookie that ends after eight hours, or with the token.

The cookie is signed under a key derived from the coordinator's, so that all replicas know it. It holds no token: only its id and a keyed
fingerprint, so that a token that is revoked, has expired or was replaced ends its sessions. For an issuer's token it holds the subject
and the scopes, and ends with the token, or when the issuer's setting changes.
"""

import hmac
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from fastapi import Depends, Request, Response
from itsdangerous import BadSignature, URLSafeSerializer

from service.access.guards import check_federation, coordinator_of, gate_of
from service.access.issuer import SUBJECT_PREFIX
from service.access.tokens import Tokens, unauthorised_fault
from service.http.callers import Caller, Role
from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.rest import Scope

SESSION_LIFETIME_S = 8 * 3600
COOKIE_NAME = "veilsum-session"
SECURE_COOKIE = "__Host-veilsum-session"
"""The name over TLS: browsers accept a `__Host-` cookie only from the host itself."""


@dataclass(frozen=True)
class SignedIn:
    """A signed-in operator.

    The form token is what this session's own forms carry. The caller is a token's id or an issuer's subject, with scopes.
    """

    form_token: str
    caller: Caller

    def has_scope(self, scope: str) -> bool:
        return self.caller.has_scope(Scope(scope))


async def load_session(request: Request) -> None:
    """Authenticate a page's viewer by the cookie, for `session_of`."""
    request.state.session = found = await _read_cookie(request)
    if found is not None:
        request.state.caller = found.caller


SIGNED_IN_OR_NOT = [Depends(load_session)]
"""Dependencies of the pages' routers. Each form checks its own sender."""


def session_of(request: Request) -> SignedIn | None:
    """Return the signed-in operator, if any."""
    found: SignedIn | None = getattr(request.state, "session", None)
    return found


async def _read_cookie(request: Request) -> SignedIn | None:
    """Read the cookie, if we signed it, it has not expired, and its token is valid."""
    try:
        name, scopes, mark, form_token, until_s = _cookie_serializer(request).loads(
            request.cookies.get(_cookie_name(request), "")
        )
        caller, proof = await _find_standing(request, name, scopes)
    except (BadSignature, ValueError, TypeError, PeerFault):
        return None
    known = hmac.compare_digest(str(mark), _session_mark(request, proof))
    return SignedIn(form_token, caller) if known and coordinator_of(request).now() < until_s else None


async def begin_session(request: Request, response: Response, token: str) -> None:
    """Set the cookie for an operator's token, of the coordinator or its issuer. Raises PeerFault: unauthorised, unavailable."""
    caller, ends_s = await gate_of(request).find_token(token)
    scopes = sorted(caller.scopes) if caller.name.startswith(SUBJECT_PREFIX) else []
    _, proof = await _find_standing(request, caller.name, scopes)
    now_s = coordinator_of(request).now()
    until_s = min(now_s + SESSION_LIFETIME_S, ends_s)
    content = (caller.name, scopes, _session_mark(request, proof), secrets.token_hex(16), until_s)
    signed = _cookie_serializer(request).dumps(content)
    request.state.caller = caller  # for the audit log
    response.set_cookie(_cookie_name(request), signed, max_age=int(until_s - now_s), **_cookie_flags(request))


async def _find_standing(request: Request, name: str, scopes: Iterable[str]) -> tuple[Caller, str]:
    """Return a caller and the proof that its session is bound to. Raises PeerFault(unauthorised) if the token is no longer valid."""
    if not name.startswith(SUBJECT_PREFIX):
        tokens: Tokens = request.app.state.tokens
        return await tokens.find_in_force(name)
    issuer = gate_of(request).issuer
    if issuer is None:
        raise unauthorised_fault()
    return Caller(Role.OPERATOR, name, scopes=frozenset(map(Scope, scopes))), issuer.terms


def end_session(request: Request, response: Response) -> None:
    response.delete_cookie(_cookie_name(request), **_cookie_flags(request))


def check_origin(request: Request) -> None:
    """Refuse a form that another site's page submits (unauthorised)."""
    # A proxy may change the host, but not the browser's Sec-Fetch-Site.
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin")
    if site is not None:
        foreign = site != "same-origin"
    else:
        foreign = origin is not None and origin.partition("://")[2] != request.headers.get("host")
    if foreign:
        raise PeerFault(
            Cause.UNAUTHORISED, "this form was sent from another site: open the page here and send it again"
        )


def check_form(request: Request, sent: str) -> None:
    """Refuse a form that this operator's own page did not send (unauthorised)."""
    check_origin(request)
    session = session_of(request)
    if session is None:
        raise PeerFault(Cause.UNAUTHORISED, "you are signed out: sign in and do it again")
    if not hmac.compare_digest(session.form_token.encode(), sent.encode()):
        raise PeerFault(Cause.UNAUTHORISED, "the form is of another session: load the page again")


async def check_scope(request: Request, scope: Scope) -> None:
    """Refuse viewers that are not signed in (unauthorised), or with a token without this scope or for another federation (forbidden)."""
    session = session_of(request)
    if session is None:
        raise PeerFault(Cause.UNAUTHORISED, "this is for operators: sign in")
    if not session.caller.has_scope(scope):
        raise PeerFault(
            Cause.FORBIDDEN,
            f"you are signed in by token {session.caller.name}, which lacks the scope '{scope}'",
        )
    await check_federation(request, session.caller)


def _derive_key(request: Request, use: bytes) -> bytes:
    return HKDF(SHA256(), 32, salt=None, info=b"veilsum/pages/" + use).derive(
        coordinator_of(request).key.seed
    )


def _cookie_serializer(request: Request) -> URLSafeSerializer:
    return URLSafeSerializer(_derive_key(request, b"session"), salt="veilsum-session")


def _session_mark(request: Request, proof: str) -> str:
    """Fingerprint what a session rests on, so that a cookie does not help to guess the token."""
    return hmac.new(_derive_key(request, b"token"), proof.encode(), "sha256").hexdigest()


def _cookie_name(request: Request) -> str:
    return SECURE_COOKIE if request.url.scheme == "https" else COOKIE_NAME


def _cookie_flags(request: Request) -> dict[str, Any]:
    return {"path": "/", "httponly": True, "samesite": "strict", "secure": request.url.scheme == "https"}
