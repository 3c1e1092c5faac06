"""Authenticate operators by the tokens of an OpenID Connect issuer (docs/access.md).

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

from service.http.callers import Caller, Role
from service.settings import OpenIDConnect
from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.rest import Scope

JWT_ALGORITHMS = ("RS256", "ES256")
"""The only accepted algorithms. None is symmetric."""
REQUIRED_CLAIMS = ("iss", "aud", "sub", "exp", "iat")
TOKEN_TYPES = frozenset({"jwt", "at+jwt"})
"""Types of ID tokens and access tokens (RFC 9068). A signed event or a logout token has another one."""
TIME_END_S = 253402300800
"""The end of the year 9999 in Unix time."""
FETCH_TIMEOUT_S = 5.0
REFETCH_PAUSE_S = 30.0
"""Pause between two fetches for unknown keys, and after a failed fetch."""
SUBJECT_PREFIX = "oidc:"
"""Prefix of the names of an issuer's operators; ids of the coordinator's own tokens have no colon."""
_SUBJECT = re.compile(r"[\x21-\x7e]{1,255}")


class Issuer:
    """Authenticates tokens of an issuer.

    Tokens begin and end by `now`, in Unix time; the issuer's clock may be off by `skew_s`. The clock gives monotonic seconds, and `again_s`
    is the pause between two fetches that only a caller's token asks for.
    """

    def __init__(
        self,
        trust: OpenIDConnect,
        now: Callable[[], float],
        skew_s: float,
        clock: Callable[[], float] = time.monotonic,
        again_s: float = REFETCH_PAUSE_S,
    ) -> None:
        self.name = trust.issuer
        self.terms = trust.model_dump_json()
        """The issuer's settings. Sessions end when they change."""
        self._trust, self._now, self._skew_s = trust, now, skew_s
        self._keys, self._one = _Keys(trust, clock, again_s), asyncio.Lock()

    async def authenticate_token(self, token: str) -> tuple[Caller, float]:
        """Return the token's owner and expiry in Unix time. Raises PeerFault: unauthorised, or unavailable without the issuer's keys."""
        try:
            claims = await self._verify_claims(token)
        except (PyJWTError, RecursionError) as error:  # JSON may be nested too deeply for Python
            # Without the error's words, which may quote the token.
            raise self._refused_fault(type(error).__name__) from error
        subject = claims["sub"]
        if not _SUBJECT.fullmatch(subject):
            raise self._refused_fault("its subject can't be shown in a log")
        said = claims.get(self._trust.claim)
        words = said if isinstance(said, list) else [said]
        known = [self._trust.scopes.get(word) for word in words if isinstance(word, str)]
        scopes = frozenset[Scope]().union(*filter(None, known))
        return Caller(Role.OPERATOR, f"{SUBJECT_PREFIX}{subject}", scopes=scopes), float(claims["exp"])

    async def _verify_claims(self, token: str) -> dict[str, Any]:
        header = jwt.get_unverified_header(token)
        kid, typ = header.get("kid"), header.get("typ", "JWT")
        if not isinstance(typ, str) or typ.lower().removeprefix("application/") not in TOKEN_TYPES:
            raise self._refused_fault("its header names the wrong type of token")
        if not isinstance(kid, str):
            raise self._refused_fault("its header names no key")
        claims: dict[str, Any] = jwt.decode(
            token,
            await self._find_key(kid),
            algorithms=JWT_ALGORITHMS,
            audience=self._trust.audience,
            issuer=self._trust.issuer,
            options={
                "require": list(REQUIRED_CLAIMS),
                # By the machine's clock: `_check_times` goes by the database's.
                "verify_exp": False,
                "verify_iat": False,
                "verify_nbf": False,
            },
        )
        self._check_times(claims)
        return claims

    def _check_times(self, claims: dict[str, Any]) -> None:
        """Refuse (unauthorised) a token that has expired or is not valid yet."""
        begins_s, ends_s = (
            max(self._check_time(claims["iat"]), self._check_time(claims.get("nbf", 0))),
            self._check_time(claims["exp"]),
        )
        now_s = self._now()
        if ends_s <= now_s - self._skew_s:
            raise self._refused_fault("it has expired")
        if begins_s > now_s + self._skew_s:
            raise self._refused_fault("it is not valid yet")

    def _check_time(self, at_s: object) -> float:
        """Return a Unix time in seconds. Raises PeerFault(unauthorised) for anything else, and beyond the year 9999."""
        if isinstance(at_s, bool) or not isinstance(at_s, int | float) or not 0 <= at_s < TIME_END_S:
            raise self._refused_fault("its times are not plausible")
        return at_s

    async def _find_key(self, kid: str) -> jwt.PyJWK:
        try:
            async with self._one:  # a slow issuer holds up one thread
                key = await asyncio.to_thread(self._keys.get_signing_key, kid)
        except (PyJWKClientConnectionError, PyJWKSetError, OSError, ValueError) as error:
            where = self._trust.jwks or self.name
            raise PeerFault(
                Cause.UNAVAILABLE, f"the keys of {where} cannot be fetched now; try again"
            ) from error
        if key.algorithm_name not in JWT_ALGORITHMS:
            raise self._refused_fault(f"its key is not for {' or '.join(JWT_ALGORITHMS)}")
        return key

    def _refused_fault(self, why: str) -> PeerFault:
        return PeerFault(
            Cause.UNAUTHORISED, f"the token of {self.name} is refused ({why}): get a new one there"
        )


class _Keys(PyJWKClient):
    """The issuer's keys, from a file or by discovery, cached for five minutes. A failed fetch is retried after a pause."""

    def __init__(self, trust: OpenIDConnect, clock: Callable[[], float], again_s: float) -> None:
        super().__init__(trust.issuer, timeout=FETCH_TIMEOUT_S, cooldown_duration=again_s)
        self._trust, self._clock, self._again_s = trust, clock, again_s
        self._failed_s = -again_s

    def fetch_data(self) -> Any:
        if self._clock() < self._failed_s + self._again_s:
            raise PyJWKClientConnectionError("the last fetch failed")
        try:
            if self._trust.jwks is not None:
                return json.loads(self._trust.jwks.read_text("utf-8"))
            return self._fetch_discovery()
        except (PyJWKClientError, OSError, ValueError) as error:
            # It is about the keys, and not about the token.
            self._failed_s = self._clock()
            raise PyJWKClientConnectionError(type(error).__name__) from error

    def _fetch_discovery(self) -> dict[str, Any]:
        """OpenID Connect Discovery 1.0, 4."""
        issuer = self._trust.issuer
        found = _fetch_json(issuer.rstrip("/") + "/.well-known/openid-configuration")
        if found.get("issuer") != issuer:
            raise PyJWKClientError(f"{issuer} names another issuer")
        uri = str(found.get("jwks_uri"))
        if issuer.startswith("https:") and not uri.startswith("https:"):
            raise PyJWKClientError(f"{issuer} shows its keys without TLS")
        return _fetch_json(uri)


def _fetch_json(uri: str) -> dict[str, Any]:
    found: dict[str, Any] = PyJWKClient(uri, cache_jwk_set=False, timeout=FETCH_TIMEOUT_S).fetch_data()
    return found
