"""The inputs of hashes and signatures (wire: Hashes), written out by hand."""

import hashlib
from dataclasses import replace
from typing import Any

import pytest

from tests.protocol.messages.forms import sample
from tests.support.forging import again
from tests.support.refusals import refused
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.messages.base import Message, Signed

KEY = SigningKey(b"\x0a" * 32)
SIGNED = [form for form in Message.forms.values() if issubclass(form, Signed)]
ROOTED = {"Pairing", "Reveal", "RevealSummary"}
"""Messages that are signed over the roots of their lists."""


def h(tag: bytes, *fields: bytes) -> bytes:
    """Compute H(tag, fields) by hand."""
    return hashlib.sha256(
        b"veilsum/4/" + tag + b"\0" + b"".join(len(f).to_bytes(8, "little") + f for f in fields)
    ).digest()


def other(value: Any) -> Any:
    """Return another value of the same type."""
    match value:
        case bytes():
            return bytes(len(value)) if any(value) else b"\x01" * len(value)
        case str():
            return "b"
        case int():
            return value + 1
        case tuple():
            return ()
    return replace(value, latest_end_s=2)


@pytest.mark.parametrize("form", SIGNED, ids=lambda form: form.__name__)
def test_every_field_is_signed(form: type[Signed]) -> None:
    made = again(sample(form), KEY)
    made.verify(KEY.public, "the signer")
    if form.__name__ not in ROOTED:
        tag = form.tag.removeprefix(b"veilsum/4/").removesuffix(b"\0")
        assert made.digest == h(tag, made.to_bytes()[:-64])
    for name in form.codecs:
        if name != "signature":
            changed: dict[str, Any] = {name: other(getattr(made, name))}
            with refused("bad-signature", "the signer"):
                replace(made, **changed).verify(KEY.public, "the signer")
