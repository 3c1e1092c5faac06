"""Operators known to an issuer: a real issuer on this machine, its tokens, and forgeries of them."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from service.access import issuer as issuer_module
from service.access.issuer import Issuer
from service.settings import Settings
from tests.service.access.provider import OTHER, RSA, SCOPES, SHARED, Provider, encoded, public
from tests.support.serving import Clock, Server, running
from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import Misuse, PeerFault
from veilsum.protocol.rest import Scope


async def status(server: Server, token: str, path: str = "cohorts") -> tuple[int, str, str]:
    """Return the status of opening a cohort in an unknown federation."""
    where = "/v1/tokens" if path == "tokens" else f"/v1/federations/{'0' * 64}/cohorts"
    body = (
        {"name": "x", "scopes": ["audit"], "lifetime_s": 3600}
        if path == "tokens"
        else {"study": "0" * 64, "period": "p"}
    )
    async with server.anonymous() as client:
        answer = await client.post(where, json=body, headers={"authorization": f"Bearer {token}"})
    return answer.status_code, answer.json()["cause"], answer.json()["detail"]


async def test_who_may_do_what_follows_from_the_claim(tmp_path: Path, provider: Provider) -> None:
    async with running(tmp_path, oidc=provider.trust()) as server:
        for kid in ("rsa", "ec"):
            assert (await status(server, provider.token(kid)))[:2] == (404, "not-found")
        assert (await status(server, provider.token(aud="veilsum", groups="operators")))[0] == 404
        for groups in (["auditors"], "auditors", "staff", [], None, 7, [["operators"], 7]):
            code, cause, detail = await status(server, provider.token(groups=groups))
            assert (code, cause, "oidc:alice" in detail) == (403, "forbidden", True), groups
        assert (await status(server, provider.token(), "tokens"))[:2] == (403, "forbidden")
        assert provider.asked == ["/realm/.well-known/openid-configuration", "/realm/keys"]
        log = (await server.client.get("/v1/audit")).json()["entries"]
        assert {entry["who"] for entry in log} == {"operator oidc:alice"}
        # The coordinator's own tokens stay valid with any issuer.
        assert (await server.client.get("/v1/tokens")).status_code == 200


def forged(header: dict[str, Any], claims: dict[str, Any], secret: bytes | None) -> str:
    """Make a token with an HMAC, or without a signature."""
    signed = ".".join(encoded(json.dumps(part).encode()) for part in (header, claims))
    mac = hmac.new(secret, signed.encode(), hashlib.sha256).digest() if secret is not None else b""
    return f"{signed}.{encoded(mac)}"


def pem(key: rsa.RSAPrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def altered(token: str) -> str:
    """Make a token with the same signature over more claims."""
    head, claims, signature = token.split(".")
    more = json.loads(base64.urlsafe_b64decode(claims + "==")) | {"groups": ["operators", "more"]}
    return f"{head}.{encoded(json.dumps(more).encode())}.{signature}"


def typed(typ: object, provider: Provider) -> str:
    """Make a token whose header names a type."""
    return jwt.encode(provider.claims(), RSA, "RS256", {"kid": "rsa", "typ": typ})


NOW = int(time.time())
FALSE: dict[str, Callable[[Provider], str]] = {
    "another issuer": lambda p: p.token(iss="https://id.example.org"),
    "an issuer with a slash": lambda p: p.token(iss=p.url + "/"),
    "no issuer": lambda p: p.token(iss=None),
    "another audience": lambda p: p.token(aud="other"),
    "no audience": lambda p: p.token(aud=None),
    "expired": lambda p: p.token(iat=NOW - 7200, exp=NOW - 120),
    "without an end": lambda p: p.token(exp=None),
    "without a beginning": lambda p: p.token(iat=None),
    "of tomorrow": lambda p: p.token(nbf=NOW + 86_400),
    "made tomorrow": lambda p: p.token(iat=NOW + 86_400, exp=NOW + 90_000),
    "nobody's": lambda p: p.token(sub=None),
    "an empty subject": lambda p: p.token(sub=""),
    "a subject of two lines": lambda p: p.token(sub="alice\nbob"),
    "a long subject": lambda p: p.token(sub="a" * 256),
    "no algorithm": lambda p: forged({"alg": "none", "kid": "rsa"}, p.claims(), None),
    "no algorithm, in capitals": lambda p: forged({"alg": "NONE", "kid": "rsa"}, p.claims(), None),
    "the public key as a secret": lambda p: forged({"alg": "HS256", "kid": "rsa"}, p.claims(), pem(RSA)),
    "a shared secret of the set": lambda p: forged({"alg": "HS256", "kid": "oct"}, p.claims(), SHARED),
    "a shared secret called RS256": lambda p: forged({"alg": "RS256", "kid": "oct"}, p.claims(), SHARED),
    "another algorithm of the key": lambda p: p.token(algorithm="RS384"),
    "PSS": lambda p: p.token(algorithm="PS256"),
    "a key that is not the kid's": lambda p: p.token("ec", RSA),
    "a stranger's key": lambda p: p.token("rsa", OTHER),
    "an unknown kid": lambda p: p.token("new", OTHER),
    "no kid": lambda p: jwt.encode(p.claims(), RSA, "RS256"),
    "a kid that is a number": lambda p: forged({"alg": "RS256", "kid": 7}, p.claims(), b""),
    "a key of its own": lambda p: jwt.encode(
        p.claims(), OTHER, "RS256", {"kid": "rsa", "jwk": public("rsa", OTHER), "jku": "http://127.0.0.1:1/"}
    ),
    "other claims": lambda p: altered(p.token()),
    "no signature": lambda p: p.token().rpartition(".")[0] + ".",
    "an algorithm that is a list": lambda p: forged({"alg": ["RS256"], "kid": "rsa"}, p.claims(), b""),
    "an algorithm that is none at all": lambda p: forged({"kid": "rsa"}, p.claims(), b""),
    "claims apart": lambda p: forged({"alg": "RS256", "kid": "rsa", "b64": False}, p.claims(), b""),
    "what must be understood": lambda p: forged(
        {"alg": "RS256", "kid": "rsa", "crit": ["x"]}, p.claims(), b""
    ),
    "a header that is text": lambda _: encoded(b'"RS256"') + ".e30.e30",
    "bytes that are no text": lambda _: encoded(b"\xff{}") + ".e30.e30",
    "no claims": lambda p: forged({"alg": "RS256", "kid": "rsa"}, {}, b""),
    "no JSON": lambda _: "a.b.c",
    "dots": lambda _: "..",
    "an end that is no number": lambda p: p.token(exp=float("nan")),
    "an end beyond every clock": lambda p: p.token(exp=10**400),
    "an infinite end": lambda p: p.token(exp=float("inf")),
    "an end in the year 10000": lambda p: p.token(exp=253402300800),
    "a beginning before all clocks": lambda p: p.token(iat=-1),
    "an end that is true": lambda p: p.token(exp=True),
    "a number in words": lambda p: p.token(exp=str(NOW + 600)),
    **{
        f"the type {typ}": partial(typed, typ)
        for typ in ("secevent+jwt", "logout+jwt", "application/dpop+jwt", "x", 7)
    },
    "an end of words": lambda p: p.token(exp="tomorrow"),
    "a beginning that is a list": lambda p: p.token(nbf=[]),
    "JSON without end": lambda _: encoded(b"[" * 20_000) + ".e30.e30",
}


async def test_what_does_not_hold_is_refused(
    tmp_path: Path, provider: Provider, capsys: pytest.CaptureFixture[str]
) -> None:
    async with running(tmp_path, oidc=provider.trust()) as server:
        assert (await status(server, provider.token()))[0] == 404
        for name, make in FALSE.items():
            token = make(provider)
            code, cause, detail = await status(server, token)
            assert (code, cause) == (401, "unauthorised"), (name, detail)
            for part in token.split("."):
                assert len(part) < 4 or part not in detail + capsys.readouterr().out, name
        assert len(provider.asked) <= 4  # once at first, once for the first unknown kid
        assert (await status(server, provider.token()))[0] == 404


@pytest.mark.parametrize("ahead_s", [-7200.0, 7200.0])
async def test_a_token_s_times_are_judged_by_the_database_s_clock(
    tmp_path: Path, provider: Provider, ahead_s: float
) -> None:
    """If the machine's clock is two hours off, current tokens don't expire and old ones don't become valid."""
    clock = Clock()
    clock.ahead_s = ahead_s
    then = int(time.time() + ahead_s)
    async with running(tmp_path, clock, oidc=provider.trust()) as server:
        for token, code in (
            (provider.token(iat=then, nbf=then, exp=then + 600), 404),
            (provider.token(), 401),
            (provider.token(iat=then - 600, exp=then - 120), 401),
            (provider.token(iat=then + 300, exp=then + 600), 401),
            (provider.token(iat=then, nbf=then + 300, exp=then + 600), 401),
        ):
            assert (await status(server, token))[0] == code


async def test_without_an_issuer_its_tokens_are_nobody_s(tmp_path: Path, provider: Provider) -> None:
    async with running(tmp_path) as server:
        assert (await status(server, provider.token()))[:2] == (401, "unauthorised")
    assert provider.asked == []


async def cause_of(issuer: Issuer, token: str) -> Cause | None:
    try:
        await issuer.authenticate_token(token)
    except PeerFault as fault:
        return fault.cause
    return None


async def test_keys_are_rotated(provider: Provider) -> None:
    issuer = Issuer(provider.trust(), time.time, 60.0, again_s=0.0)
    old = provider.token()
    for typ in ("at+jwt", "application/at+JWT", "jwt", None):
        assert await cause_of(issuer, typed(typ, provider)) is None
    caller, ends_s = await issuer.authenticate_token(old)
    assert ends_s == jwt.decode(old, options={"verify_signature": False})["exp"]
    assert caller.name == "oidc:alice"
    assert caller.scopes == {Scope.ROUNDS, Scope.SUMS}
    provider.keys = {"rsa-2": OTHER}
    assert await cause_of(issuer, provider.token("rsa-2")) is None
    assert await cause_of(issuer, old) is Cause.UNAUTHORISED


async def test_a_flood_of_unknown_keys_is_fetched_for_once(provider: Provider) -> None:
    issuer = Issuer(provider.trust(), time.time, 60.0)
    for number in range(20):
        assert await cause_of(issuer, provider.token(f"new-{number}", OTHER)) is Cause.UNAUTHORISED
    assert provider.asked.count("/realm/keys") <= 2
    assert await cause_of(issuer, provider.token()) is None


async def test_an_issuer_that_is_away_is_not_asked_again_at_once(provider: Provider) -> None:
    now_s, token = [0.0], provider.token()
    issuer = Issuer(provider.trust(), time.time, 60.0, lambda: now_s[0])
    provider.says = {"issuer": "https://id.example.org"}  # as good as away
    for _ in range(3):
        assert await cause_of(issuer, token) is Cause.UNAVAILABLE
    assert provider.asked == ["/realm/.well-known/openid-configuration"]
    provider.says = {}
    now_s[0] += 31
    assert await cause_of(issuer, token) is None
    provider.stop()
    away = Issuer(provider.trust(), time.time, 60.0)
    assert await cause_of(away, jwt.encode(provider.claims(), RSA, "RS256")) is Cause.UNAUTHORISED
    assert await cause_of(away, token) is Cause.UNAVAILABLE


@pytest.mark.parametrize(
    "says", [{"jwks_uri": "file:///etc/passwd"}, {"jwks_uri": None}, {"keys": 1, "issuer": 7}]
)
async def test_a_discovery_that_leads_astray(provider: Provider, says: dict[str, Any]) -> None:
    provider.says = says
    issuer = Issuer(provider.trust(), time.time, 60.0)
    assert await cause_of(issuer, provider.token()) is Cause.UNAVAILABLE
    assert "/realm/keys" not in provider.asked


async def test_keys_without_tls_are_not_believed(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    url = "https://id.example.org"
    for keys, cause in ((f"{provider.url}/keys", Cause.UNAVAILABLE), (f"{url}/keys", None)):
        shown = {
            f"{url}/.well-known/openid-configuration": {"issuer": url, "jwks_uri": keys},
            keys: provider.document("/realm/keys"),
        }
        monkeypatch.setattr(issuer_module, "_fetch_json", shown.__getitem__)
        issuer = Issuer(provider.trust(issuer=url), time.time, 60.0)
        assert await cause_of(issuer, provider.token(iss=url)) is cause


async def test_keys_of_a_file(tmp_path: Path, provider: Provider) -> None:
    path = tmp_path / "keys.json"
    path.write_text(json.dumps(provider.document("/realm/keys")))
    issuer = Issuer(provider.trust(jwks=path), time.time, 60.0, again_s=0.0)
    assert await cause_of(issuer, provider.token()) is None
    provider.keys = {"rsa-2": OTHER}
    assert await cause_of(issuer, provider.token("rsa-2")) is Cause.UNAUTHORISED
    path.write_text(json.dumps(provider.document("/realm/keys")))
    assert await cause_of(issuer, provider.token("rsa-2")) is None
    path.write_text("{")
    assert await cause_of(issuer, provider.token("rsa-3", OTHER)) is Cause.UNAVAILABLE
    assert provider.asked == []


@pytest.mark.parametrize(
    "changes",
    [
        *({"issuer": f"http://{host}"} for host in ("id.example.org", "127.0.0.1.example.org")),
        *({"issuer": "https://id.example.org?x"}, {"audience": ""}, {"scopes": {}}),
        *({"scopes": {"operators": ["everything"]}}, {"jwks": "nowhere.json"}, {"secret": "x"}),
    ],
)
def test_settings_that_are_none(changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"issuer": "https://id.example.org", "audience": "veilsum", "scopes": SCOPES}
    monkeypatch.setenv("VEILSUM_OIDC", json.dumps(values))
    found = Settings().oidc
    assert found is not None
    assert found.scopes["auditors"] == {Scope.AUDIT}
    for text in (json.dumps({**values, **changes}), "{"):
        monkeypatch.setenv("VEILSUM_OIDC", text)
        with pytest.raises(Misuse, match=r"^VEILSUM_OIDC"):
            Settings()


async def test_a_key_of_nobody_s_keeps_nobody_out_while_the_issuer_is_away(provider: Provider) -> None:
    now_s = [0.0]
    issuer = Issuer(provider.trust(), time.time, 60.0, lambda: now_s[0])
    assert await cause_of(issuer, provider.token()) is None
    provider.stop()
    now_s[0] += 31
    assert await cause_of(issuer, provider.token("new", OTHER)) is Cause.UNAVAILABLE
    assert await cause_of(issuer, provider.token()) is None
    assert await cause_of(issuer, provider.token("new", OTHER)) is Cause.UNAVAILABLE
    issuer._keys.jwk_set_cache = None  # five minutes later
    assert await cause_of(issuer, provider.token()) is Cause.UNAVAILABLE
