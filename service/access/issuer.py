"""Operators whom an issuer knows: its tokens, by OpenID Connect (docs/access.md).

Authorization: Bearer JWT ──▶ kid ──▶ the issuer's key ──▶ signature, issuer, audience, times ──▶ claim ──▶ scopes
"""

import asyncio
import json
import re
import time
from collections.abc import Callable
from typing import Any

import jwt
from jwt import PyJWKClient, PyJWKClientConnectionError, PyJWKClientError, PyJWKSetError, PyJWTError

from protocol.access import Scope
from protocol.causes import Cause
from protocol.errors import PeerFault
from service.access.callers import Caller, Kind
from service.settings import OpenIDConnect

ALGORITHMS = ("RS256", "ES256")
"""No other, whatever a token or a key says: none of them is symmetric."""
REQUIRED = ("iss", "aud", "sub", "exp", "iat")
FETCH_S = 5.0
AGAIN_S = 30.0
"""Between two fetches for keys that nobody has heard of, or after one that failed."""
KNOWN_S = 300.0
"""For which a key that was seen at the issuer is believed in while the issuer is away."""
SUBJECT = "oidc:"
"""Before the name of whoever an issuer knows; the coordinator's own tokens have ids without a colon."""
_SUBJECT = re.compile(r"[\x21-\x7e]{1,255}")


class Issuer:
    """Tells who an issuer's token is from.

    Args:
        trust: whom to believe, and what follows.
        skew_s: how far its clock may be off.
        clock: seconds that only ever grow.
        again_s: between two fetches that nobody but a caller gives reason for.
    """

    def __init__(
        self,
        trust: OpenIDConnect,
        skew_s: float,
        clock: Callable[[], float] = time.monotonic,
        again_s: float = AGAIN_S,
    ) -> None:
        self._trust, self._skew_s, self._clock, self._again_s = trust, skew_s, clock, again_s
        self._keys, self._one = _Keys(trust, again_s), asyncio.Lock()
        self._failed_s = -again_s
        self._known: dict[str, tuple[jwt.PyJWK, float]] = {}

    @property
    def name(self) -> str:
        """Its address."""
        return self._trust.issuer

    @property
    def terms(self) -> str:
        """Whom is believed here and what follows: where this changes, what was allowed by it ends."""
        return self._trust.model_dump_json()

    async def caller(self, token: str) -> tuple[Caller, float]:
        """Whose token this is, and the Unix time at which it ends; PeerFault: unauthorised, unavailable where the issuer's keys cannot be had."""
        try:
            claims = await self._claims(token)
        except (PyJWTError, RecursionError) as error:  # JSON may be deeper than Python counts
            # Without its words, which may quote the token.
            raise self._refused(type(error).__name__) from error
        subject = claims["sub"]
        if not _SUBJECT.fullmatch(subject):
            raise self._refused("its subject is none that a log can show")
        said = claims.get(self._trust.claim)
        words = said if isinstance(said, list) else [said]
        known = [self._trust.scopes.get(word) for word in words if isinstance(word, str)]
        scopes = frozenset[Scope]().union(*filter(None, known))
        return Caller(Kind.OPERATOR, f"{SUBJECT}{subject}", scopes=scopes), float(claims["exp"])

    async def _claims(self, token: str) -> dict[str, Any]:
        kid = jwt.get_unverified_header(token).get("kid")
        if not isinstance(kid, str):
            raise self._refused("its header names no key")
        key = await self._key(kid)
        claims: dict[str, Any] = jwt.decode(
            token,
            key,
            algorithms=ALGORITHMS,
            audience=self._trust.audience,
            issuer=self._trust.issuer,
            leeway=self._skew_s,
            options={"require": list(REQUIRED)},
        )
        return claims

    async def _key(self, kid: str) -> jwt.PyJWK:
        async with self._one:  # a slow issuer holds up one thread
            if self._clock() < self._failed_s + self._again_s:
                # Whoever shows a token with a key that nobody knows keeps nobody else out.
                key, until_s = self._known.get(kid, (None, 0.0))
                if key is None or self._clock() > until_s:
                    raise _unreachable(self._trust)
            else:
                try:
                    key = await asyncio.to_thread(self._keys.get_signing_key, kid)
                except (PyJWKClientConnectionError, PyJWKSetError, OSError, ValueError) as error:
                    self._failed_s = self._clock()
                    raise _unreachable(self._trust) from error
                self._known[kid] = key, self._clock() + KNOWN_S
        if key.algorithm_name not in ALGORITHMS:
            raise self._refused(f"its key is none for {' or '.join(ALGORITHMS)}")
        return key

    def _refused(self, why: str) -> PeerFault:
        return PeerFault(
            Cause.UNAUTHORISED, f"the token of {self._trust.issuer} is refused ({why}): get a new one there"
        )


class _Keys(PyJWKClient):
    """The issuer's keys, from where they are."""

    def __init__(self, trust: OpenIDConnect, again_s: float) -> None:
        super().__init__(trust.issuer, timeout=FETCH_S, cooldown_duration=again_s)
        self._trust = trust

    def fetch_data(self) -> Any:
        """The key set, from the file or by discovery (OpenID Connect Discovery 1.0, 4)."""
        if self._trust.jwks is not None:
            return json.loads(self._trust.jwks.read_text("utf-8"))
        try:
            return self._discovered()
        except PyJWKClientError as error:  # of what was fetched, and not of the token
            raise PyJWKClientConnectionError(str(error)) from error

    def _discovered(self) -> dict[str, Any]:
        issuer = self._trust.issuer
        found = _fetched(issuer.rstrip("/") + "/.well-known/openid-configuration")
        if found.get("issuer") != issuer:
            raise PyJWKClientError(f"{issuer} says that it is another")
        uri = str(found.get("jwks_uri"))
        if issuer.startswith("https:") and not uri.startswith("https:"):
            raise PyJWKClientError(f"{issuer} shows its keys without TLS")
        return _fetched(uri)


def _fetched(uri: str) -> dict[str, Any]:
    found: dict[str, Any] = PyJWKClient(uri, cache_jwk_set=False, timeout=FETCH_S).fetch_data()
    return found


def _unreachable(trust: OpenIDConnect) -> PeerFault:
    return PeerFault(
        Cause.UNAVAILABLE, f"the keys of {trust.jwks or trust.issuer} cannot be fetched now; try again"
    )
