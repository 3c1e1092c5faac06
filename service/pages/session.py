"""An operator signed in: a token, once, for a cookie that dies with it, or after eight hours.

The cookie is signed under a key of its own, derived from the coordinator's, so that replicas know each other's. It holds no
token: only its id, and a keyed fingerprint, so that a token that is revoked, has expired or was replaced ends its sessions. Of an issuer's
token it holds the subject and the scopes; it ends with the token, and when the issuer's setting changes.
"""

import hmac
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from fastapi import Depends, Request, Response
from itsdangerous import BadSignature, URLSafeSerializer

from protocol.access import Scope
from protocol.causes import Cause
from protocol.errors import PeerFault
from service.access.callers import Caller, Kind
from service.access.guards import coordinator_of, gate_of
from service.access.issuer import SUBJECT
from service.access.tokens import Tokens, unauthorised
from service.routes.common import ANYBODY

LIFETIME_S = 8 * 3600
COOKIE = "veilsum-session"
SECURE_COOKIE = "__Host-veilsum-session"
"""Over TLS: a browser takes it from this very host alone."""


@dataclass(frozen=True)
class Session:
    """A signed-in operator.

    Attributes:
        form_token: what this session's own forms carry.
        caller: its token's id, or who an issuer says it is, and scopes.
    """

    form_token: str
    caller: Caller

    def may(self, scope: str) -> bool:
        """Whether its token has this scope."""
        return self.caller.may(Scope(scope))


async def load(request: Request) -> None:
    """Find out who looks at a page: `session_of` has it from then on."""
    request.state.session = found = await _found(request)
    if found is not None:
        request.state.caller = found.caller


SIGNED_IN_OR_NOT = [*ANYBODY.dependencies, Depends(load)]
"""For the pages' routers: a form says itself what it takes."""


def session_of(request: Request) -> Session | None:
    """Whoever is signed in, once `load` has looked."""
    found: Session | None = getattr(request.state, "session", None)
    return found


async def _found(request: Request) -> Session | None:
    """By the cookie, if it is ours, in time, and of a token in force."""
    try:
        name, scopes, fingerprint, form_token, until_s = _serializer(request).loads(
            request.cookies.get(_name(request), "")
        )
        caller, proof = await _standing(request, name, scopes)
    except (BadSignature, ValueError, TypeError, PeerFault):
        return None
    known = hmac.compare_digest(str(fingerprint), _fingerprint(request, proof))
    in_time = coordinator_of(request).now() < until_s
    return Session(form_token, caller) if known and in_time else None


async def begin(request: Request, response: Response, token: str) -> None:
    """Set the cookie of whoever shows an operator's token, of the coordinator's or of an issuer's; PeerFault(unauthorised) for any other.

    Raises:
        PeerFault: unavailable as well, where the issuer's keys cannot be had.
    """
    caller, ends_s = await gate_of(request).bearer(token)
    scopes = sorted(caller.scopes) if caller.name.startswith(SUBJECT) else []
    _, proof = await _standing(request, caller.name, scopes)
    now_s = coordinator_of(request).now()
    until_s = min(now_s + LIFETIME_S, ends_s)
    content = (caller.name, scopes, _fingerprint(request, proof), secrets.token_hex(16), until_s)
    signed = _serializer(request).dumps(content)
    response.set_cookie(_name(request), signed, max_age=int(until_s - now_s), **_flags(request))


async def _standing(request: Request, name: str, scopes: Iterable[str]) -> tuple[Caller, str]:
    """Whoever this is, and what their session rests on; PeerFault(unauthorised) where that is in force no more."""
    if not name.startswith(SUBJECT):
        tokens: Tokens = request.app.state.tokens
        return await tokens.standing(name)
    issuer = gate_of(request).issuer
    if issuer is None:
        raise unauthorised()
    return Caller(Kind.OPERATOR, name, scopes=frozenset(map(Scope, scopes))), issuer.terms


def end(request: Request, response: Response) -> None:
    """Take it back."""
    response.delete_cookie(_name(request), **_flags(request))


def check_origin(request: Request) -> None:
    """Refuse what another site's page has the browser send; PeerFault(unauthorised)."""
    origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site", "same-origin")
    # A proxy may change the host; what the browser itself says of the site it cannot.
    foreign = site != "same-origin" or (
        origin is not None
        and "sec-fetch-site" not in request.headers
        and urlsplit(origin).netloc != request.headers.get("host")
    )
    if foreign:
        raise PeerFault(
            Cause.UNAUTHORISED, "this form was sent from another site: open the page here and send it again"
        )


def check_form(request: Request, sent: str) -> Session:
    """The session of a form that its own page sent; PeerFault(unauthorised)."""
    check_origin(request)
    session = session_of(request)
    if session is None:
        raise PeerFault(Cause.UNAUTHORISED, "you are signed out: sign in and do it again")
    if not hmac.compare_digest(session.form_token.encode(), sent.encode()):
        raise PeerFault(Cause.UNAUTHORISED, "the form is of another session: load the page again")
    return session


def check_scope(request: Request, scope: Scope) -> None:
    """Refuse whoever is not signed in (unauthorised), or by a token without this scope (forbidden)."""
    session = session_of(request)
    if session is None:
        raise PeerFault(Cause.UNAUTHORISED, "this is for operators: sign in")
    if not session.caller.may(scope):
        raise PeerFault(
            Cause.FORBIDDEN,
            f"you are signed in by token {session.caller.name}, which lacks the scope '{scope}'",
        )


def _key(request: Request, use: bytes) -> bytes:
    return HKDF(SHA256(), 32, salt=None, info=b"veilsum/pages/" + use).derive(
        coordinator_of(request).key.seed
    )


def _serializer(request: Request) -> URLSafeSerializer:
    return URLSafeSerializer(_key(request, b"session"), salt="veilsum-session")


def _fingerprint(request: Request, proof: str) -> str:
    """Of what a session rests on: whoever reads a cookie can guess no token by it."""
    return hmac.new(_key(request, b"token"), proof.encode(), "sha256").hexdigest()


def _name(request: Request) -> str:
    return SECURE_COOKIE if request.url.scheme == "https" else COOKIE


def _flags(request: Request) -> dict[str, Any]:
    return {"path": "/", "httponly": True, "samesite": "strict", "secure": request.url.scheme == "https"}
