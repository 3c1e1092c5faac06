"""The bytes that a request's signature covers, and the headers that carry it: a closed profile of RFC 9421 and RFC 9530.

    Content-Digest:  sha-256=:BASE64:                                         where the method has a body
    Signature-Input: veilsum=("@method" "@authority" "@path" "@query" "content-digest");created=…;expires=…;
                     nonce="…";keyid="hospital-a";alg="ed25519";tag="veilsum-request-1"
    Signature:       veilsum=:BASE64:

A request has one signature. It covers exactly these components, in any order, with exactly these parameters, in any order;
`content-digest` is covered where the method is PUT or POST, an empty body's too, and nowhere else (docs/access.md).
"""

import base64
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from protocol.causes import Cause
from protocol.codec import NAME_PATTERN
from protocol.errors import Misuse, PeerFault
from protocol.identity import SigningKey, verify_signature

TAG = "veilsum-request-1"
ALGORITHM = "ed25519"
LABEL = "veilsum"
CONTENT_DIGEST, SIGNATURE_INPUT, SIGNATURE = "content-digest", "signature-input", "signature"
DERIVED = ("@method", "@authority", "@path", "@query")
WITH_BODY = frozenset({"PUT", "POST"})
ADMIN = "admin"
"""The federation's admin as `keyid`: its key is the federation's name. No member can be called so."""
LIFETIME_S = 60
"""Seconds between `created` and `expires` as this release signs."""
MAX_LIFETIME_S = 300
"""The longest that is taken: nonces are remembered for as long."""
MAX_TARGET = 1024
"""Characters of authority, path and query together, so that whatever was signed has room in a log."""
_NONCE = r"[0-9A-Za-z_-]{16,64}"
_VALUES = {
    "created": r"[0-9]{1,12}",
    "expires": r"[0-9]{1,12}",
    "nonce": f'"{_NONCE}"',
    "keyid": f'"{NAME_PATTERN}"',
    "alg": f'"{ALGORITHM}"',
    "tag": f'"{TAG}"',
}
_ONE = r';([a-z]+)=([0-9]{1,15}|"[ !#-\[\]-~]*")'
_INPUT = re.compile(
    r'([a-z*][a-z0-9_*.-]{0,63})=(\(("[@a-z-]+"(?: "[@a-z-]+")*)\)((?:' + _ONE.replace("(", "(?:") + ")+))"
)
_SIGNATURE = re.compile(r"([a-z*][a-z0-9_*.-]{0,63})=:([A-Za-z0-9+/]{86}==):")
_DIGEST = re.compile(r"sha-256=:([A-Za-z0-9+/]{43}=):")


@dataclass(frozen=True)
class Target:
    """What a request asks of whom, as it stands on the wire.

    Attributes:
        method: in upper case.
        authority: host and port as the Host header has them: in lower case, without the scheme's default port.
        path: percent-encoded, never empty.
        query: percent-encoded, without its question mark; empty where there is none.
    """

    method: str
    authority: str
    path: str
    query: str = ""

    @property
    def components(self) -> dict[str, str]:
        """The derived components (RFC 9421 §2.2)."""
        return dict(zip(DERIVED, (self.method, self.authority, self.path, f"?{self.query}"), strict=True))

    @property
    def has_body(self) -> bool:
        """Whether its signature covers a digest."""
        return self.method in WITH_BODY


def signature_base(components: Mapping[str, str], parameters: str) -> bytes:
    """What is signed (RFC 9421 §2.5): one line for each component, then the parameters as the header has them."""
    lines = [f'"{name}": {value}' for name, value in components.items()]
    return "\n".join([*lines, f'"@signature-params": {parameters}']).encode("ascii")


def content_digest(body: bytes) -> str:
    """The Content-Digest header of a body (RFC 9530 §2)."""
    return f"sha-256=:{base64.b64encode(hashlib.sha256(body).digest()).decode('ascii')}:"


def digest_of(header: str) -> bytes:
    """The SHA-256 that a Content-Digest header holds, and nothing else; PeerFault(request-unsigned) for any other."""
    match = _DIGEST.fullmatch(header)
    if match is None:
        raise _unsigned("content-digest holds one sha-256=:BASE64: (RFC 9530), and nothing else")
    return base64.b64decode(match[1])


def sign_request(
    key: SigningKey,
    keyid: str,
    target: Target,
    body: bytes,
    *,
    created_s: float,
    nonce: bytes,
    lifetime_s: int = LIFETIME_S,
) -> dict[str, str]:
    """The headers that sign a request.

    Args:
        key: of the member, or of the federation's admin.
        keyid: the member's id, or `ADMIN`.
        target: the request.
        body: its body; nothing is covered of it where the method has none.
        created_s: Unix time in seconds.
        nonce: 12 random bytes or more, fresh for every request that is sent.
        lifetime_s: seconds for which the request is to be taken.

    Raises:
        Misuse: the target can't be written in ASCII, or a parameter is outside the profile.
    """
    headers = {CONTENT_DIGEST: content_digest(body)} if target.has_body else {}
    components = {**target.components, **headers}
    named = " ".join(f'"{name}"' for name in components)
    text = base64.urlsafe_b64encode(nonce).rstrip(b"=").decode("ascii")
    created = int(created_s)
    parameters = (
        f"({named});created={created};expires={created + lifetime_s}"
        f';nonce="{text}";keyid="{keyid}";alg="{ALGORITHM}";tag="{TAG}"'
    )
    try:
        signature = key.sign(signature_base(components, parameters))
        RequestSignature.parse(f"{LABEL}={parameters}", _field(signature))
    except (UnicodeError, PeerFault) as error:
        raise Misuse(f"a request to {target.authority!r} by {keyid!r} can't be signed: {error}") from error
    return {**headers, SIGNATURE_INPUT: f"{LABEL}={parameters}", SIGNATURE: _field(signature)}


@dataclass(frozen=True)
class RequestSignature:
    """A signature that has the profile's form; nothing of it is verified yet.

    Attributes:
        keyid: who is said to have signed.
        created_s: Unix time in seconds.
        expires_s: likewise.
        nonce: 16 to 64 characters.
        covered: the components in the order in which they were signed.
        parameters: the header's text after the label, which is signed too.
        value: 64 bytes.
    """

    keyid: str
    created_s: int
    expires_s: int
    nonce: str
    covered: tuple[str, ...]
    parameters: str
    value: bytes

    @classmethod
    def parse(cls, signature_input: str, signature: str) -> Self:
        """Read the two headers; PeerFault(request-unsigned) for anything outside the profile."""
        given, signed = _INPUT.fullmatch(signature_input), _SIGNATURE.fullmatch(signature)
        if not given or not signed or given[1] != signed[1]:
            raise _unsigned("signature-input and signature must hold one signature, under one label")
        covered = tuple(given[3].replace('"', "").split(" "))
        if sorted(covered) not in (sorted(DERIVED), sorted((*DERIVED, CONTENT_DIGEST))):
            raise _unsigned(
                f"it covers {given[3]}: cover {' '.join(DERIVED)}, and content-digest in PUT and POST"
            )
        found = re.findall(_ONE, given[4])
        if sorted(name for name, _ in found) != sorted(_VALUES):
            raise _unsigned(f"its parameters must be {', '.join(_VALUES)}, each once")
        values = dict(found)
        for name, form in _VALUES.items():
            if not re.fullmatch(form, values[name]):
                raise _unsigned(f"its parameter {name} must be of the form {form}")
        return cls(
            keyid=values["keyid"].strip('"'),
            created_s=int(values["created"]),
            expires_s=int(values["expires"]),
            nonce=values["nonce"].strip('"'),
            covered=covered,
            parameters=given[2],
            value=base64.b64decode(signed[2]),
        )

    def check_time(self, now_s: float, skew_s: float) -> None:
        """Refuse what was not signed for now.

        Args:
            now_s: Unix time in seconds.
            skew_s: how far the signer's clock may be from this one.

        Raises:
            PeerFault: clock-skew; request-unsigned where it asks for longer than `MAX_LIFETIME_S`, or for no time at all.
        """
        if not 0 < self.expires_s - self.created_s <= MAX_LIFETIME_S:
            raise _unsigned(f"expires lies 1 to {MAX_LIFETIME_S} seconds after created")
        early, late = self.created_s - now_s, now_s - self.expires_s
        if early > skew_s or late > skew_s:
            how = f"in {early:.0f} s" if early > 0 else f"{-early:.0f} s ago"
            raise PeerFault(
                Cause.CLOCK_SKEW,
                f"the request was signed {how} by this coordinator's clock, which says {now_s:.0f} (Unix time): "
                "set the signing machine's clock by NTP, then send it again",
                [self.keyid],
            )

    def verify(self, public: bytes, target: Target, digest: str | None) -> None:
        """Refuse a signature that was not made by this key over this very request.

        Args:
            public: the signer's Ed25519 key.
            target: the request as it arrived.
            digest: its Content-Digest header, None where it has none.

        Raises:
            PeerFault: request-unsigned where it covers no digest of its body, or more than `MAX_TARGET`; request-forged.
        """
        if len(target.authority) + len(target.path) + len(target.query) > MAX_TARGET:
            raise _unsigned(f"host, path and query have {MAX_TARGET} characters at the most")
        if (CONTENT_DIGEST in self.covered) != target.has_body or (target.has_body and digest is None):
            raise _unsigned("PUT and POST carry content-digest and cover it, other methods don't")
        values = {**target.components, CONTENT_DIGEST: digest or ""}
        try:
            base = signature_base({name: values[name] for name in self.covered}, self.parameters)
            verify_signature(public, self.value, base, self.keyid)
        except (PeerFault, UnicodeError) as error:
            raise PeerFault(
                Cause.REQUEST_FORGED,
                f"{self.keyid}'s key has not signed {target.method} {target.authority} {target.path}?{target.query} with "
                "these headers: is it the key in the roster? If a proxy rewrites host or path, its coordinator must be "
                "told the public address: VEILSUM_PUBLIC_URL",
                [self.keyid],
            ) from error


def _field(signature: bytes) -> str:
    return f"{LABEL}=:{base64.b64encode(signature).decode('ascii')}:"


def _unsigned(why: str) -> PeerFault:
    return PeerFault(
        Cause.REQUEST_UNSIGNED, f"this takes a request signed by a member's key (docs/access.md): {why}"
    )
