import pytest

from veilsum.protocol.errors import Misuse
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.messages import Vote
from veilsum.protocol.tags import Tag, hash_fields

KEY = SigningKey(b"\x0b" * 32)


def vote(**changes: bytes | str) -> Vote:
    return Vote.make(KEY, **{"context": b"\xc7" * 32, "member": "bob", "outcome": b"\x0c" * 32, **changes})


def test_a_signature_covers_tag_version_kind_and_all_other_fields() -> None:
    signed = vote()
    body = b"\x03\x0a" + b"\xc7" * 32 + b"\x03bob" + b"\x0c" * 32
    assert signed.digest == hash_fields(Tag.VOTE, body)
    assert signed.signature == KEY.sign(signed.digest)


def test_our_own_message_outside_its_domain_is_a_misuse() -> None:
    for change in ({"member": "../bob"}, {"context": bytes(31)}, {"outcome": bytes(33)}):
        with pytest.raises(Misuse):
            vote(**change)
