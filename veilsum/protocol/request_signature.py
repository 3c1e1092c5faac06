"""HTTP request signatures: a closed profile of RFC 9421 and RFC 9530.

    Content-Digest:  sha-256=:BASE64:                                         if the method has a body
    Signature-Input: veilsum=("@method" "@authority" "@path" "@query" "content-digest");created=…;expires=…;
                     nonce="…";keyid="hospital-a";alg="ed25519";tag="veilsum-request-1"
    Signature:       veilsum=:BASE64:

A request has one signature. It covers exactly these components and has exactly these parameters, both in any order.
`content-digest` is covered for PUT and POST only, even if the body is empty (docs/access.md).
"""

import base64
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from veilsum.protocol.causes import Cause
from veilsum.protocol.codec import NAME_PATTERN
from veilsum.protocol.errors import Misuse, PeerFault
from veilsum.protocol.identity import SigningKey, verify_signature

SIGNATURE_TAG = "veilsum-request-1"
SIGNATURE_ALGORITHM = "ed25519"
SIGNATURE_LABEL = "veilsum"
CONTENT_DIGEST_HEADER, SIGNATURE_INPUT_HEADER, SIGNATURE_HEADER = (
    "content-digest",
    "signature-input",
    "signature",
)
DERIVED_COMPONENTS = ("@method", "@authority", "@path", "@query")
METHODS_WITH_BODY = frozenset({"PUT", "POST"})
ADMIN_KEYID = "admin"
"""`keyid` of the federation's admin, whose key names the federation; reserved, so no member has it."""
SIGNATURE_LIFETIME_S = 60
"""Seconds between `created` and `expires` in signatures made here."""
SIGNATURE_LIFETIME_MAX_S = 300
"""Longest accepted lifetime."""
MAX_TARGET = 1024
"""Maximum characters of authority, path and query together, so that they fit in a log."""
_NONCE_PATTERN = r"[0-9A-Za-z_-]{16,64}"
_PARAMETER_VALUES = {
    "created": r"[0-9]{1,12}",
    "expires": r"[0-9]{1,12}",
    "nonce": f'"{_NONCE_PATTERN}"',
    "keyid": f'"{NAME_PATTERN}"',
    "alg": f'"{SIGNATURE_ALGORITHM}"',
    "tag": f'"{SIGNATURE_TAG}"',
}
_PARAMETER_PATTERN = r';([a-z]+)=([0-9]{1,15}|"[ !#-\[\]-~]*")'
_INPUT_PATTERN = re.compile(
    r'([a-z*][a-z0-9_*.-]{0,63})=(\(("[@a-z-]+"(?: "[@a-z-]+")*)\)((?:'
    + _PARAMETER_PATTERN.replace("(", "(?:")
    + ")+))"
)
_SIGNATURE_PATTERN = re.compile(r"([a-z*][a-z0-9_*.-]{0,63})=:([A-Za-z0-9+/]{86}==):")
_DIGEST_PATTERN = re.compile(r"sha-256=:([A-Za-z0-9+/]{43}=):")


@dataclass(frozen=True)
class Target:
    """The method and address of a request, as on the wire.

    Attributes:
        method: in upper case.
        authority: host and port as in the Host header: lower case, without the scheme's default port.
        path: percent-encoded, never empty.
        query: percent-encoded, without its question mark; may be empty.
    """

    method: str
    authority: str
    path: str
    query: str = ""

    @property
    def components(self) -> dict[str, str]:
        """The derived components (RFC 9421 §2.2)."""
        return dict(
            zip(DERIVED_COMPONENTS, (self.method, self.authority, self.path, f"?{self.query}"), strict=True)
        )

    @property
    def has_body(self) -> bool:
        """Whether the signature covers a digest."""
        return self.method in METHODS_WITH_BODY


def signature_base(components: Mapping[str, str], parameters: str) -> bytes:
    """Build the signed bytes (RFC 9421 §2.5): one line per component, then the parameters as in the header."""
    lines = [f'"{name}": {value}' for name, value in components.items()]
    return "\n".join([*lines, f'"@signature-params": {parameters}']).encode("ascii")


def content_digest(body: bytes, digest: bytes = b"") -> str:
    """Format the Content-Digest header of a body (RFC 9530 §2); `digest` is its SHA-256, if known."""
    digest = digest or hashlib.sha256(body).digest()
    return f"sha-256=:{base64.b64encode(digest).decode('ascii')}:"


def digest_of(header: str) -> bytes:
    """Parse a Content-Digest header with a single SHA-256. Raises PeerFault(request-unsigned) for any other."""
    match = _DIGEST_PATTERN.fullmatch(header)
    if match is None:
        raise _unsigned_fault("content-digest holds one sha-256=:BASE64: (RFC 9530), and nothing else")
    return base64.b64decode(match[1])


def sign_request(
    key: SigningKey,
    keyid: str,
    target: Target,
    body: bytes,
    *,
    created_s: float,
    nonce: bytes,
    lifetime_s: int = SIGNATURE_LIFETIME_S,
    digest: bytes = b"",
) -> dict[str, str]:
    """Make the headers that sign a request.

    `keyid` is the member's id, or `ADMIN_KEYID`; `created_s` is Unix time in seconds, `nonce` at least 12 random bytes, fresh for every request
    sent, and `digest` the body's SHA-256, if known. A method without a body ignores `body`.

    Raises:
        Misuse: the target can't be written in ASCII, or a parameter is outside the profile.
    """
    headers = {CONTENT_DIGEST_HEADER: content_digest(body, digest)} if target.has_body else {}
    components = {**target.components, **headers}
    named = " ".join(f'"{name}"' for name in components)
    text = base64.urlsafe_b64encode(nonce).rstrip(b"=").decode("ascii")
    created = int(created_s)
    parameters = (
        f"({named});created={created};expires={created + lifetime_s}"
        f';nonce="{text}";keyid="{keyid}";alg="{SIGNATURE_ALGORITHM}";tag="{SIGNATURE_TAG}"'
    )
    try:
        value = base64.b64encode(key.sign(signature_base(components, parameters))).decode("ascii")
        signed = {
            SIGNATURE_INPUT_HEADER: f"{SIGNATURE_LABEL}={parameters}",
            SIGNATURE_HEADER: f"{SIGNATURE_LABEL}=:{value}:",
        }
        RequestSignature.parse(signed[SIGNATURE_INPUT_HEADER], signed[SIGNATURE_HEADER])
    except (UnicodeError, PeerFault) as error:
        raise Misuse(f"a request to {target.authority!r} by {keyid!r} can't be signed: {error}") from error
    return {**headers, **signed}


@dataclass(frozen=True)
class RequestSignature:
    """A parsed but unverified signature.

    Attributes:
        nonce: 16 to 64 characters.
        covered: the components in signing order.
        parameters: the header's text after the label, also signed.
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
        """Parse the two headers. Raises PeerFault(request-unsigned) if they are outside the profile."""
        given, signed = _INPUT_PATTERN.fullmatch(signature_input), _SIGNATURE_PATTERN.fullmatch(signature)
        if not given or not signed or given[1] != signed[1]:
            raise _unsigned_fault("signature-input and signature must hold one signature, under one label")
        covered = tuple(given[3].replace('"', "").split(" "))
        if sorted(covered) not in (
            sorted(DERIVED_COMPONENTS),
            sorted((*DERIVED_COMPONENTS, CONTENT_DIGEST_HEADER)),
        ):
            raise _unsigned_fault(
                f"it covers {given[3]}: cover {' '.join(DERIVED_COMPONENTS)}, and content-digest in PUT and POST"
            )
        found = re.findall(_PARAMETER_PATTERN, given[4])
        if sorted(name for name, _ in found) != sorted(_PARAMETER_VALUES):
            raise _unsigned_fault(f"its parameters must be {', '.join(_PARAMETER_VALUES)}, each once")
        values = dict(found)
        for name, form in _PARAMETER_VALUES.items():
            if not re.fullmatch(form, values[name]):
                raise _unsigned_fault(f"its parameter {name} must be of the form {form}")
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
        """Refuse a signature that is not valid now, in Unix time; the clocks may differ by `skew_s` seconds.

        Raises:
            PeerFault: clock-skew; request-unsigned if the lifetime exceeds `SIGNATURE_LIFETIME_MAX_S` or is not positive.
        """
        if not 0 < self.expires_s - self.created_s <= SIGNATURE_LIFETIME_MAX_S:
            raise _unsigned_fault(f"expires must be 1 to {SIGNATURE_LIFETIME_MAX_S} seconds after created")
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
        """Verify the signature over this exact request, with its Content-Digest header if it has one.

        Raises:
            PeerFault: request-unsigned if the body's digest is not covered or the target exceeds `MAX_TARGET`; request-forged if the
                signature is invalid.
        """
        if len(target.authority) + len(target.path) + len(target.query) > MAX_TARGET:
            raise _unsigned_fault(f"host, path and query together: expected at most {MAX_TARGET} characters")
        if (CONTENT_DIGEST_HEADER in self.covered) != target.has_body or (target.has_body and digest is None):
            raise _unsigned_fault("PUT and POST carry content-digest and cover it, other methods don't")
        values = {**target.components, CONTENT_DIGEST_HEADER: digest or ""}
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


def _unsigned_fault(why: str) -> PeerFault:
    return PeerFault(
        Cause.REQUEST_UNSIGNED, f"this takes a request signed by a member's key (docs/access.md): {why}"
    )
