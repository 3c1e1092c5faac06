"""Authentication of a request by its headers alone, before any of its body is read."""

import hashlib
import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from urllib.parse import urlsplit

from fastapi import Request

from service.access.bodies import whole_body
from service.access.issuer import Issuer
from service.access.tokens import Tokens, unauthorised_fault
from service.http.callers import Caller, Role
from service.http.metering import in_thread
from service.storage.nonces import Nonce, Nonces
from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.messages import Roster
from veilsum.protocol.request_signature import (
    ADMIN_KEYID,
    CONTENT_DIGEST_HEADER,
    SIGNATURE_HEADER,
    SIGNATURE_INPUT_HEADER,
    RequestSignature,
    Target,
    digest_of,
)

_PORTS = {"http": ":80", "https": ":443"}
INLINE_HASH_BYTES = 1 << 16
"""Longest body that is hashed on the event loop: handing it to a thread costs as much."""


class Gate:
    """Authenticates requests.

    Args:
        nonces: of signed requests that are accepted once.
        tokens: operators' own.
        now: Unix time in seconds.
        skew_s: maximum error of a signer's clock.
        public_url: the address that members use, if a proxy changes it; None to use the Host header. Also an attribute.
        issuer: of further operators' tokens; also an attribute.
    """

    def __init__(
        self,
        nonces: Nonces,
        tokens: Tokens,
        now: Callable[[], float],
        skew_s: float,
        public_url: str | None,
        issuer: Issuer | None,
    ) -> None:
        self.public_url, self.issuer = public_url, issuer
        self._nonces, self._tokens, self._now, self._skew_s = nonces, tokens, now, skew_s
        parts = urlsplit(public_url or "")
        self._authority = _without_port(parts.netloc, parts.scheme) if public_url else None
        self._prefix = parts.path.rstrip("/")

    async def find_operator(self, request: Request) -> Caller:
        """Return the operator of a request's token, made here or by the issuer. Raises PeerFault: unauthorised, unavailable."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise unauthorised_fault()
        caller, _ = await self.find_token(token.strip())
        return caller

    async def find_token(self, token: str) -> tuple[Caller, float]:
        """Return the token's owner and, for an issuer's token, its end in Unix time. Raises PeerFault as `find_operator`."""
        try:
            return await self._tokens.authenticate_token(token), math.inf
        except PeerFault:
            if self.issuer is None or token.count(".") != 2:  # header, claims, signature
                raise
        return await self.issuer.authenticate_token(token)

    async def verify_member(
        self,
        request: Request,
        rosters: Callable[[], Awaitable[tuple[Roster, Roster]]],
        *,
        superseded: bool,
        skew_s: float | None = None,
    ) -> Caller:
        """Return the member that signed a request, by its key in the newest roster.

        Args:
            request: signed.
            rosters: finds the roster whose members may ask, and the newest; called once the signature's form and time are checked.
            superseded: also admit the key that only the first one lists, as a caller that is `superseded`.
            skew_s: maximum error of its clock; None for the gate's.

        Raises:
            PeerFault: request-unsigned, clock-skew, request-forged, forbidden; or as `rosters`.
        """
        signature = self._parse_signature(request, skew_s)
        own, newest = await rosters()
        member = signature.keyid
        try:
            first = own.key_of(member)
        except PeerFault as fault:
            raise PeerFault(
                Cause.FORBIDDEN, f"{fault.detail}: only its members may do this", [member]
            ) from fault
        current = None
        with suppress(PeerFault):
            current = newest.key_of(member)
        if current is not None:
            try:
                self._verify_signature(request, signature, current)
            except PeerFault:
                if first == current:
                    raise
            else:
                return Caller(Role.MEMBER, member, own.federation.hex())
        self._verify_signature(request, signature, first)
        if not superseded:
            what = "no longer lists" if current is None else "lists another key of"
            raise PeerFault(Cause.FORBIDDEN, f"roster {newest.number} {what} {member}", [member])
        return Caller(Role.MEMBER, member, own.federation.hex(), superseded=True)

    async def verify_admin(self, request: Request, federation: Callable[[], Awaitable[str]]) -> Caller:
        """Return the federation's admin if it signed the request. Raises PeerFault as `verify_member`."""
        signature = self._parse_signature(request)
        if signature.keyid != ADMIN_KEYID:
            raise PeerFault(
                Cause.FORBIDDEN,
                f"{signature.keyid} has signed this: only the admin may do it",
                [signature.keyid],
            )
        name = await federation()
        self._verify_signature(request, signature, bytes.fromhex(name))
        return Caller(Role.ADMIN, ADMIN_KEYID, name)

    def _parse_signature(self, request: Request, skew_s: float | None = None) -> RequestSignature:
        signature = RequestSignature.parse(
            _join_header(request, SIGNATURE_INPUT_HEADER), _join_header(request, SIGNATURE_HEADER)
        )
        signature.check_time(self._now(), self._skew_s if skew_s is None else skew_s)
        return signature

    async def take_nonce(self, request: Request, signer: Caller) -> None:
        """Accept a signed request this once. Raises PeerFault: request-replayed, clock-skew."""
        signature: RequestSignature = request.state.signature
        expires_s = signature.expires_s + self._skew_s
        await self._nonces.use_nonce(Nonce(f"{signer.federation}/{signer.name}", signature.nonce, expires_s))

    def _verify_signature(self, request: Request, signature: RequestSignature, public: bytes) -> None:
        digest = (
            _join_header(request, CONTENT_DIGEST_HEADER) if CONTENT_DIGEST_HEADER in request.headers else None
        )
        signature.verify(public, self.find_target(request), digest)
        request.state.signature = signature

    def find_target(self, request: Request) -> Target:
        """Return the request's target as its sender addressed it."""
        scope = request.scope
        return Target(
            method=request.method,
            authority=self._authority or _without_port(request.headers.get("host", ""), scope["scheme"]),
            path=self._prefix + scope["raw_path"].decode("ascii"),
            query=scope["query_string"].decode("ascii"),
        )


async def check_digest(request: Request) -> bytes:
    """Read a signed request's body and return its SHA-256; PeerFault: digest-mismatch, malformed-request without a length."""
    if "content-length" not in request.headers or "transfer-encoding" in request.headers:
        raise PeerFault(Cause.MALFORMED_REQUEST, "a signed body needs a Content-Length: send it in one piece")
    named, body = digest_of(_join_header(request, CONTENT_DIGEST_HEADER)), await whole_body(request)
    if len(body) > INLINE_HASH_BYTES:
        digest = await in_thread(lambda: hashlib.sha256(body).digest())
    else:
        digest = hashlib.sha256(body).digest()
    if digest != named:
        raise PeerFault(
            Cause.DIGEST_MISMATCH, f"the {len(body)} bytes received do not match the signed digest"
        )
    return digest


def headers_signed(request: Request, target: Target) -> str:
    """Return the components that a signature covers besides the method, as `name=value` pairs."""
    names = (CONTENT_DIGEST_HEADER, SIGNATURE_INPUT_HEADER, SIGNATURE_HEADER)
    path = f"{target.path}?{target.query}" if target.query else target.path
    signed = " ".join(f"{name}={_join_header(request, name)}" for name in names)
    return f"authority={target.authority} path={path} {signed}"


def _join_header(request: Request, name: str) -> str:
    """Join a header's lines (RFC 9421 §2.1)."""
    return ", ".join(value.strip() for value in request.headers.getlist(name))


def _without_port(host: str, scheme: str) -> str:
    return host.lower().removesuffix(_PORTS.get(scheme, "\0"))
