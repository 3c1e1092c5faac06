"""The tables of docs/protocol.md §3 match the code: every field, limit and order."""

import re
import tracemalloc
from pathlib import Path

import pytest

from tests.protocol.messages.forms import lengths, named, sample, shown, structs
from veilsum.protocol.codec import Many, Struct
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.messages import Message, parse_message

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

FORMS = list(Message.forms.values())


def types(row: str) -> list[str]:
    """Return the types in a row of the page."""
    found = []
    for field in row.split(" · "):
        words = field.partition(" (the fields of ")[2].rstrip(")") or field.partition(" (")[0]
        words = words.strip().replace("2^20", f"{1 << 20:,}")
        match = TYPE.search("signature B64" if words == "signature" else words)
        assert match is not None, field
        found.append(match[1])
    return found


def fields(form: type[Struct]) -> list[str]:
    return [shown(codec) for _, codec in form.codecs.items()]


SHORT = {
    "X25519_key": "x25519_key",
    "ML-KEM_key": "mlkem_key",
    "ML-KEM_key_hash": "mlkem_key_hash",
    "a_D": "decryptor_colluders",
    "n_min": "survivors_min",
    "t": "threshold",
    "k": "degree",
    "D_max": "window_dropped_max",
    "expires": "expires_s",
    "latest_end": "latest_end_s",
}
"""Names that differ on the page."""


def names(row: str) -> list[str]:
    """Return the fields' names in a row of the page; "" where it gives none."""
    written = [field.partition(" (the fields of ")[0].partition(" (")[0] for field in row.split(" · ")]
    found = [TYPE.sub("", field.replace("2^20", "1")).strip().replace(" ", "_") for field in written]
    return [SHORT.get(name, name) for name in found]


def named_form(form: type[Message]) -> str:
    return named(form)


def test_the_page_and_the_code_know_the_same_messages() -> None:
    assert {named(form): form.kind for form in FORMS} == {name: kind for name, (kind, _) in KINDS.items()}
    assert len(KINDS) == len(FORMS)


@pytest.mark.parametrize("form", FORMS, ids=named_form)
def test_a_message_has_the_page_s_fields(form: type[Message]) -> None:
    row = KINDS[named(form)][1]
    assert fields(form) == types(row)
    assert all(page in {"", name} for page, (name, _) in zip(names(row), form.codecs.items(), strict=True))
    if tag := re.search(r'signature \(.*?"([a-z]+)"', row):
        assert form.__dict__["tag"].value == f"veilsum/4/{tag[1]}\0".encode()


def test_the_structs_have_the_page_s_fields() -> None:
    inner = {named(form): form for form in structs() if not issubclass(form, Message)}
    assert {name: fields(form) for name, form in inner.items()} == {
        name: types(row) for name, row in STRUCTS.items()
    }
    for name, form in inner.items():
        assert names(STRUCTS[name]) == [field for field, _ in form.codecs.items()]


@pytest.mark.parametrize("form", FORMS, ids=named_form)
def test_one_of_each_decodes_to_itself_and_from_no_other_bytes(form: type[Message]) -> None:
    message = sample(form)
    wire = message.to_bytes()
    assert wire[:2] == bytes((4, form.kind))
    assert wire[2:] == message.encode()
    assert form.from_bytes(wire) == parse_message(memoryview(wire)) == message
    for length in range(len(wire)):
        for decode in (form.from_bytes, parse_message):
            with pytest.raises(PeerFault, match=r"^truncated:"):
                decode(wire[:length])
    with pytest.raises(PeerFault, match=r"^left-over-bytes: 1 bytes"):
        parse_message(wire + b"\0")
    with pytest.raises(PeerFault, match=r"^unknown-version: version 5, this side speaks 4"):
        form.from_bytes(b"\x05" + wire[1:])
    with pytest.raises(PeerFault, match=r"^unknown-message: kind 99"):
        form.from_bytes(wire[:1] + b"\x63" + wire[2:])


@pytest.mark.parametrize("form", FORMS, ids=named_form)
def test_a_length_above_its_limit_is_refused_before_anything_is_read(form: type[Message]) -> None:
    message = sample(form)
    wire = message.to_bytes()
    for at, codec, _ in lengths(message):
        for claim in (codec.limit + 1, (1 << 32) - 1):
            with pytest.raises(PeerFault, match=rf"^oversized: .*{claim} "):
                parse_message(wire[:at] + claim.to_bytes(4, "little"))


@pytest.mark.parametrize("form", FORMS, ids=named_form)
def test_a_length_allocates_nothing_that_is_not_there(form: type[Message]) -> None:
    message = sample(form)
    wire = message.to_bytes()
    parse_message(wire)
    for at, codec, _ in lengths(message):
        cut = wire[:at] + codec.limit.to_bytes(4, "little")
        tracemalloc.start()
        with pytest.raises(PeerFault, match=r"^truncated:"):
            parse_message(cut)
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
                parse_message(wire[:at] + b"\x02\0\0\0" + item + item + after)
