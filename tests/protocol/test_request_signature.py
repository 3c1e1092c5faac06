import base64
import hashlib
from datetime import UTC, datetime
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from http_message_signatures import (
    HTTPMessageSigner,
    HTTPMessageVerifier,
    HTTPSignatureKeyResolver,
    InvalidSignature,
    algorithms,
)

from tests.support.refusals import refused
from veilsum.protocol.errors import Misuse
from veilsum.protocol.identity import SigningKey, verify_signature
from veilsum.protocol.request_signature import (
    ADMIN_KEYID,
    MAX_TARGET,
    SIGNATURE_TAG,
    RequestSignature,
    Target,
    content_digest,
    digest_of,
    sign_request,
    signature_base,
)

KEY = SigningKey(bytes(range(32)))
PUT = Target("PUT", "sum.example.org", "/v1/rounds/0/uploads/ann", "")
GET = Target("GET", "sum.example.org:8443", "/v1/rounds/0/requests/ann", "after=1&wait_s=30")
LONG = Target("GET", "sum.example.org", "/", "q" * (MAX_TARGET - 15))
"""A character longer than may be."""
NOW = 1_700_000_000
NONCE = bytes(range(16))


def signed(target: Target = PUT, body: bytes = b"body", **changes: Any) -> dict[str, str]:
    values: dict[str, Any] = {"created_s": NOW, "nonce": NONCE, **changes}
    return sign_request(KEY, "ann", target, body, **values)


def parsed(headers: dict[str, str]) -> RequestSignature:
    return RequestSignature.parse(headers["signature-input"], headers["signature"])


def test_the_base_and_the_key_are_the_standard_s() -> None:
    """RFC 9421, B.1.4 and B.2.6."""
    seed = base64.urlsafe_b64decode("n4Ni-HpISpVObnQMW0wOhCKROaIKqKtW_2ZYb2p9KcU=")
    public = base64.urlsafe_b64decode("JrQLj5P_89iXES9-vFgrIy29clF9CC_oPPsw3c5D0bs=")
    components = {
        "date": "Tue, 20 Apr 2021 02:07:55 GMT",
        "@method": "POST",
        "@path": "/foo",
        "@authority": "example.com",
        "content-type": "application/json",
        "content-length": "18",
    }
    parameters = (
        '("date" "@method" "@path" "@authority" "content-type" "content-length")'
        ';created=1618884473;keyid="test-key-ed25519"'
    )
    value = base64.b64decode(
        "wqcAqbmYJ2ji2glfAMaRy4gruYYnx2nEFN2HN6jrnDnQCK1u02Gb04v9EDgwUPiu4A0w6vuQv5lIp5WPpBKRCw=="
    )
    base = signature_base(components, parameters)
    assert SigningKey(seed).public == public
    assert SigningKey(seed).sign(base) == value
    verify_signature(public, value, base, "test-key-ed25519")


@pytest.mark.parametrize(
    ("body", "digest"),
    [
        (b'{"hello": "world"}', "sha-256=:X48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPE=:"),
        (b'{"hello": "world"}\n', "sha-256=:RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg=:"),
    ],
)
def test_digests_are_the_standard_s(body: bytes, digest: str) -> None:
    """RFC 9530, appendices B and D."""
    assert content_digest(body) == digest
    assert digest_of(digest) == hashlib.sha256(body).digest()


class Resolver(HTTPSignatureKeyResolver):
    def resolve_public_key(self, key_id: str) -> Ed25519PublicKey:
        assert key_id == "ann"
        return Ed25519PublicKey.from_public_bytes(KEY.public)

    def resolve_private_key(self, key_id: str) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(KEY.seed)


class Sent:
    """A sent message in the form that the package expects."""

    def __init__(self, target: Target, headers: dict[str, str], body: bytes) -> None:
        query = f"?{target.query}" if target.query else ""
        self.method, self.url = target.method, f"https://{target.authority}{target.path}{query}"
        self.headers, self.body = headers, body


@pytest.mark.parametrize("target", [PUT, GET])
def test_another_implementation_takes_our_signatures(target: Target) -> None:
    now = datetime.now(UTC).timestamp()
    body = b"body" if target.has_body else b""
    message = Sent(target, signed(target, body, created_s=now), body)
    verifier = HTTPMessageVerifier(signature_algorithm=algorithms.ED25519, key_resolver=Resolver())
    [verified] = verifier.verify(message, max_age=None, body=body if target.has_body else None)
    assert verified.parameters["tag"] == SIGNATURE_TAG
    message.url += "x"
    with pytest.raises(InvalidSignature):
        verifier.verify(message, max_age=None, body=body if target.has_body else None)


@pytest.mark.parametrize("target", [PUT, GET])
def test_we_take_another_implementation_s(target: Target) -> None:
    body = b"body" if target.has_body else b""
    message = Sent(target, {}, body)
    covered = ("@query", "@path", "@authority", *(["content-digest"] if target.has_body else []), "@method")
    created = datetime.fromtimestamp(NOW, UTC)
    HTTPMessageSigner(signature_algorithm=algorithms.ED25519, key_resolver=Resolver()).sign(
        message,
        key_id="ann",
        created=created,
        expires=datetime.fromtimestamp(NOW + 60, UTC),
        nonce="n" * 22,
        tag=SIGNATURE_TAG,
        covered_component_ids=covered,
        body=body if target.has_body else None,
    )
    by_name = {name.lower(): value for name, value in message.headers.items()}
    signature = parsed(by_name)
    signature.verify(KEY.public, target, by_name.get("content-digest"))
    assert (signature.keyid, signature.nonce, signature.created_s) == ("ann", "n" * 22, NOW)
    assert signature.covered == covered


OTHERS = (
    Target("POST", PUT.authority, PUT.path),
    Target("PUT", "sum.example.com", PUT.path),
    Target("PUT", PUT.authority, f"{PUT.path}/"),
    Target("PUT", PUT.authority, PUT.path, "x"),
    Target("PUT", PUT.authority, "/é"),
)


def test_every_bit_of_the_request_is_covered() -> None:
    headers = signed()
    signature, digest = parsed(headers), headers["content-digest"]
    signature.verify(KEY.public, PUT, digest)
    forged: list[tuple[RequestSignature, bytes, Target, str]] = [
        *((signature, KEY.public, other, digest) for other in OTHERS),
        (signature, KEY.public, PUT, content_digest(b"other")),
        (signature, SigningKey(bytes(32)).public, PUT, digest),
        (signature, bytes(32), PUT, digest),
    ]
    for old, new in (("created=17", "created=16"), ('nonce="AAEC', 'nonce="AAED'), ('"ann"', '"bob"')):
        changed = headers["signature-input"].replace(old, new)
        forged.append((RequestSignature.parse(changed, headers["signature"]), KEY.public, PUT, digest))
    for shown, public, target, said in forged:
        with refused("request-forged", ...) as caught:
            shown.verify(public, target, said)
        assert headers["signature"] not in caught.value.detail


@pytest.mark.parametrize(
    ("target", "body", "shown", "digest"),
    [
        (PUT, b"body", GET, None),
        (GET, b"", PUT, content_digest(b"")),
        (PUT, b"body", PUT, None),
        # what is signed has room in a log
        (LONG, b"", LONG, None),
    ],
)
def test_a_body_goes_with_its_method_and_a_target_has_its_limit(
    target: Target, body: bytes, shown: Target, digest: str | None
) -> None:
    with refused("request-unsigned", ...):
        parsed(signed(target, body)).verify(KEY.public, shown, digest)
    shorter = Target("GET", LONG.authority, "/", LONG.query[1:])
    parsed(signed(shorter, b"")).verify(KEY.public, shorter, None)


INPUT, EMPTY = signed()["signature-input"], content_digest(b"")
CLOSED = [
    "",
    "veilsum",
    INPUT + ", other=()",
    INPUT + ";extra=1",
    INPUT + ';tag="veilsum-request-1"',
    INPUT.replace(";created=1700000000", ""),
    INPUT.replace("created=1700000000", 'created="1700000000"'),
    INPUT.replace("created=1700000000", "created=-1"),
    INPUT.replace("created=1700000000", "created=17000000000000"),
    INPUT.replace("created=", "created= "),
    INPUT.replace("ed25519", "rsa-pss-sha512"),
    INPUT.replace(SIGNATURE_TAG, "other"),
    INPUT.replace('keyid="ann"', 'keyid="Ann"'),
    INPUT.replace('keyid="ann"', 'keyid=""'),
    INPUT.replace("AAECAwQFBgcICQoLDA0ODw", "short"),
    INPUT.replace("AAECAwQFBgcICQoLDA0ODw", "n" * 65),
    INPUT.replace('"@method" ', ""),
    INPUT.replace('"@method"', '"@method" "@method"'),
    INPUT.replace('"@method"', '"@method" "date"'),
    INPUT.replace('"@method"', '"@method";req'),
    INPUT.replace("veilsum=(", "veilsum=( "),
    INPUT.replace("veilsum=(", "VEIL=("),
    INPUT.replace("veilsum=(", "other=("),
    INPUT.replace("1700000000", "１７０００００００００"),
]


@pytest.mark.parametrize("text", CLOSED)
def test_the_profile_is_closed(text: str) -> None:
    assert text != INPUT
    with refused("request-unsigned", ...):
        RequestSignature.parse(text, signed()["signature"])


@pytest.mark.parametrize(
    "text", ["", "veilsum=:AAAA:", "veilsum=::", "other=:" + "A" * 86 + "==:", "veilsum=:" + "A" * 88 + ":"]
)
def test_a_signature_has_64_bytes(text: str) -> None:
    with refused("request-unsigned", ...):
        RequestSignature.parse(INPUT, text)


@pytest.mark.parametrize(
    "header",
    [
        *("", "sha-256", "sha-256=::", "sha-256=:!!!!:", "sha-512=:AAAA:", "sha-256=AAAA", "sha-256=:AAA:"),
        *("sha-256=:é:", f"md5=:AAAA:, {EMPTY}", f"{EMPTY}, {EMPTY}", f" {EMPTY}"),
    ],
)
def test_a_digest_header_that_is_none(header: str) -> None:
    with refused("request-unsigned", ...):
        digest_of(header)


def test_a_request_is_for_now() -> None:
    signature = parsed(signed(lifetime_s=300))
    for now in (NOW - 60, NOW, NOW + 300, NOW + 360):
        signature.check_time(now, 60)
    for now in (NOW - 61, NOW + 361):
        with refused("clock-skew", ...):
            signature.check_time(now, 60)
    for lifetime in (301, 0, -1):
        with refused("request-unsigned", ...):
            parsed(signed(lifetime_s=lifetime)).check_time(NOW, 60)


def test_what_cannot_be_signed_is_our_own_mistake() -> None:
    for target, keyid in ((Target("PUT", "é", "/"), "ann"), (PUT, "Ann")):
        with pytest.raises(Misuse, match="can't be signed"):
            sign_request(KEY, keyid, target, b"", created_s=NOW, nonce=NONCE)
    with pytest.raises(Misuse, match="can't be signed"):
        sign_request(KEY, ADMIN_KEYID, PUT, b"", created_s=NOW, nonce=b"short")
