import re
from itertools import permutations
from pathlib import Path

from veilsum.protocol.tags import PROTOCOL_VERSION, Tag


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
