"""The tables of docs/protocol.md §3 against the code: every field, every limit, every order."""

import re
import tracemalloc
from pathlib import Path

import pytest

from protocol.codec import Many, Struct
from protocol.errors import PeerFault
from protocol.messages import Kind, Message, parse
from protocol.messages.parse import MESSAGES
from tests.protocol.messages.forms import lengths, named, sample, shown, structs

PAGE = (Path(__file__).parents[3] / "docs" / "protocol.md").read_text("utf-8")
TABLES = PAGE.partition("\n## 3. Encoding\n")[2].partition("\n## 4. ")[0]
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in TABLES.splitlines()
    if line.startswith("| ") and not line.startswith(("| kind |", "| struct |"))
]
KINDS = {row[1]: (int(row[0]), row[2]) for row in ROWS if len(row) == 3}
STRUCTS = {row[0]: row[1] for row in ROWS if len(row) == 2}
TYPE = re.compile(r"(?:^| )(u8|u32|u64|f64|B\d+|id|(?:bytes|text)≤\S+|list≤\S+ .+|[A-Z]\w+)$")

FORMS = list(MESSAGES.values())


def types(row: str) -> list[str]:
    """The types in a row of the page."""
    found = []
    for field in row.split(" · "):
        words = field.partition(" (the fields of ")[2].rstrip(")") or field.partition(" (")[0]
        words = words.strip().replace("2^20", f"{1 << 20:,}")
        match = TYPE.search("signature B64" if words == "signature" else words)
        assert match is not None, field
        found.append(match[1])
    return found


def fields(form: type[Struct]) -> list[str]:
    return [shown(codec) for _, codec in form.codecs()]


def named_form(form: type[Message]) -> str:
    return named(form)


def test_the_page_and_the_code_know_the_same_messages() -> None:
    assert {named(form): form.kind for form in FORMS} == {name: kind for name, (kind, _) in KINDS.items()}
    assert sorted(kind for kind, _ in KINDS.values()) == sorted(Kind)


@pytest.mark.parametrize("form", FORMS, ids=named_form)
def test_a_message_has_the_page_s_fields(form: type[Message]) -> None:
    row = KINDS[named(form)][1]
    assert fields(form) == types(row)
    if tag := re.search(r'signature \(.*?"([a-z]+)"', row):
        assert form.__dict__["tag"].value == f"veilsum/3/{tag[1]}\0".encode()


def test_the_structs_have_the_page_s_fields() -> None:
    assert {named(form): fields(form) for form in structs() if not issubclass(form, Message)} == {
        name: types(row) for name, row in STRUCTS.items()
    }


@pytest.mark.parametrize("form", FORMS, ids=named_form)
def test_one_of_each_decodes_to_itself(form: type[Message]) -> None:
    message = sample(form)
    assert parse(message.to_bytes()) == message


@pytest.mark.parametrize("form", FORMS, ids=named_form)
def test_a_length_above_its_limit_is_refused_before_anything_is_read(form: type[Message]) -> None:
    message = sample(form)
    wire = message.to_bytes()
    for at, codec, _ in lengths(message):
        for claim in (codec.limit + 1, (1 << 32) - 1):
            with pytest.raises(PeerFault, match=rf"^oversized: .*{claim} "):
                parse(wire[:at] + claim.to_bytes(4, "little"))


@pytest.mark.parametrize("form", FORMS, ids=named_form)
def test_a_length_allocates_nothing_that_is_not_there(form: type[Message]) -> None:
    message = sample(form)
    wire = message.to_bytes()
    parse(wire)
    for at, codec, _ in lengths(message):
        cut = wire[:at] + codec.limit.to_bytes(4, "little")
        tracemalloc.start()
        with pytest.raises(PeerFault, match=r"^truncated:"):
            parse(cut)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 50_000


@pytest.mark.parametrize("form", FORMS, ids=named_form)
def test_an_item_that_stands_twice_is_refused_wherever_a_list_ascends(form: type[Message]) -> None:
    message = sample(form)
    wire = message.to_bytes()
    for at, codec, held in lengths(message):
        if isinstance(codec, Many) and codec.ascending:
            item = codec.item.encode(held[0])
            after = wire[at + 4 + len(item) :]
            with pytest.raises(PeerFault, match=r"^malformed: a list is not in ascending order"):
                parse(wire[:at] + b"\x02\0\0\0" + item + item + after)
