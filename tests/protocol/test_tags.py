import hashlib
import re
from itertools import permutations
from pathlib import Path

from veilsum.protocol.tags import PROTOCOL_VERSION, Tag, hash_fields, info


def test_tags_are_unique() -> None:
    assert len({tag.value for tag in Tag}) == len(Tag.__members__)


def test_no_tag_begins_another() -> None:
    assert not any(other.value.startswith(tag.value) for tag, other in permutations(Tag, 2))


def test_every_tag_names_the_protocols_version() -> None:
    assert all(tag.value.startswith(f"veilsum/{PROTOCOL_VERSION}/".encode()) for tag in Tag)


def test_the_page_s_tags_are_in_the_table() -> None:
    page = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text("utf-8")
    said = set(re.findall(r'(?:(?<=H\()|(?<=info\()|(?<=tag )|(?<=" or ))"([a-z-]+)"', page))
    assert {"ctx", "roster", "pair-mask", "pair-box", "merkle-root", "transcript"} <= said
    assert {f"veilsum/3/{name}\0".encode() for name in said} <= {tag.value for tag in Tag}


def test_a_hash_is_sha256_over_tag_and_fields_behind_their_lengths() -> None:
    preimage = b"veilsum/3/card\0" + b"\x02\0\0\0\0\0\0\0hi" + bytes(8) + b"\x01\0\0\0\0\0\0\0!"
    assert hash_fields(Tag.CARD, b"hi", b"", b"!") == hashlib.sha256(preimage).digest()
    assert hash_fields(Tag.CARD, b"hi").hex() == (
        "31ab1c8581fc81a8a0d895807be5464f10549c6c089aefbaa03bac75cb844178"
    )


def test_where_one_field_ends_matters() -> None:
    splits = {
        hash_fields(Tag.CARD, *fields) for fields in ([b"ab"], [b"a", b"b"], [b"ab", b""], [b"", b"ab"])
    }
    assert len(splits) == 4


def test_an_info_is_the_hashs_preimage() -> None:
    assert hashlib.sha256(info(Tag.LINK, b"x", b"yz")).digest() == hash_fields(Tag.LINK, b"x", b"yz")
