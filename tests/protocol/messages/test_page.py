"""The messages and structs of docs/protocol/protocol.json match the code: every field, limit and order."""

import re
import tracemalloc
from typing import Any

import pytest

from assurance.vectors.specification import SPECIFICATION
from tests.protocol.messages.forms import lengths, named, sample, shown, structs
from tests.support.refusals import refused
from veilsum.protocol.codec import Many, Struct
from veilsum.protocol.messages import Message, parse_message

Json = dict[str, Any]
KINDS: dict[str, Json] = {each["name"]: each for each in SPECIFICATION["messages"]}
STRUCTS: dict[str, Json] = {each["name"]: each for each in SPECIFICATION["structs"]}

FORMS = list(Message.forms.values())


def types(form: Json) -> list[str]:
    """Return the types of a form's fields in the specification."""
    return [each["type"].replace("2^20", f"{1 << 20:,}") for each in form["fields"]]


def fields(form: type[Struct]) -> list[str]:
    return [shown(codec) for _, codec in form.codecs.items()]


SHORT = {
    "X25519_key": "x25519_key",
    "ML-KEM_key": "mlkem_key",
    "ML-KEM_key_hash": "mlkem_key_hash",
    "a_D": "decryptor_colluders",
    "n_min": "survivors_min",
    "t": "threshold",
    "D_max": "window_dropped_max",
    "expires": "expires_s",
    "latest_end": "latest_end_s",
}
"""Names that differ in the specification."""


def names(form: Json) -> list[str]:
    """Return the names of a form's fields in the specification, as the product has them."""
    found = [each["name"].replace(" ", "_") for each in form["fields"]]
    return [SHORT.get(name, name) for name in found]


def named_form(form: type[Message]) -> str:
    return named(form)


def test_the_specification_and_the_code_know_the_same_messages() -> None:
    assert {named(form): form.kind for form in FORMS} == {name: each["kind"] for name, each in KINDS.items()}
    assert len(KINDS) == len(FORMS)


@pytest.mark.parametrize("form", FORMS, ids=named_form)
def test_a_message_has_the_specified_fields(form: type[Message]) -> None:
    said = KINDS[named(form)]
    assert fields(form) == types(said)
    assert names(said) == [name for name, _ in form.codecs.items()]
    if tag := re.search(r'"([a-z]+)"$', said["fields"][-1].get("note", "")):
        assert form.__dict__["tag"].value == f"veilsum/4/{tag[1]}\0".encode()


def test_the_structs_have_the_specified_fields() -> None:
    inner = {named(form): form for form in structs() if not issubclass(form, Message)}
    assert {name: fields(form) for name, form in inner.items()} == {
        name: types(each) for name, each in STRUCTS.items()
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
            with refused("truncated"):
                decode(wire[:length])
    with refused("left-over-bytes"):
        parse_message(wire + b"\0")
    with refused("unknown-version"):
        form.from_bytes(b"\x05" + wire[1:])
    with refused("unknown-message"):
        form.from_bytes(wire[:1] + b"\x63" + wire[2:])


@pytest.mark.parametrize("form", FORMS, ids=named_form)
def test_a_length_above_its_limit_is_refused_before_anything_is_read(form: type[Message]) -> None:
    message = sample(form)
    wire = message.to_bytes()
    for at, codec, _ in lengths(message):
        for claim in (codec.limit + 1, (1 << 32) - 1):
            with refused("oversized"):
                parse_message(wire[:at] + claim.to_bytes(4, "little"))


@pytest.mark.parametrize("form", FORMS, ids=named_form)
def test_a_length_allocates_nothing_that_is_not_there(form: type[Message]) -> None:
    message = sample(form)
    wire = message.to_bytes()
    parse_message(wire)
    for at, codec, _ in lengths(message):
        cut = wire[:at] + codec.limit.to_bytes(4, "little")
        tracemalloc.start()
        with refused("truncated"):
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
            with refused("malformed"):
                parse_message(wire[:at] + b"\x02\0\0\0" + item + item + after)
