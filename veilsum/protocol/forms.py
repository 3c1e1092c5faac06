"""Patterns for text in JSON, and descriptions of invalid JSON."""

import re
from collections.abc import Container
from typing import TYPE_CHECKING, Annotated

from pydantic import BeforeValidator, Field, PlainSerializer, ValidationInfo, WithJsonSchema

from veilsum.protocol.codec import CONTROL_CHARACTERS, NAME_PATTERN

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

HEX32_PATTERN = "^[0-9a-f]{64}$"
ROUND_PATTERN = "^[0-9a-f]{16}$"
SHORT_ID_PATTERN = "^[0-9a-f]{8}$"
MEMBER_PATTERN = f"^{NAME_PATTERN}$"
LABEL_PATTERN = "^[A-Za-z0-9][A-Za-z0-9 ._@-]{0,63}$"
CLASS_PATTERN = "^[\x21-\x7e]([\x20-\x7e]{0,62}[\x21-\x7e])?$"
TEXT_PATTERN, LINE_PATTERN = f"^[^{CONTROL_CHARACTERS}]*$", f"^[^{CONTROL_CHARACTERS}]+$"
"""Text for people: any text, and non-empty text. Neither allows control characters, line breaks or characters that reorder text."""
COLUMN_PATTERN = rf"^[^{CONTROL_CHARACTERS}\s]([^{CONTROL_CHARACTERS}]*[^{CONTROL_CHARACTERS}\s])?$"
"""A column's name: non-empty text without white space at either end."""
Hex32 = Annotated[str, Field(pattern=HEX32_PATTERN)]
U64_PATTERN = "^(0|[1-9][0-9]{0,19})$"


def count_noun(count: int, noun: str, plural: str = "") -> str:
    """Write a number and its noun, such as "1 member" or "2,000 members"."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def _read_u64(value: object, info: ValidationInfo) -> object:
    if isinstance(value, str):
        if re.match(U64_PATTERN, value) is None:
            raise ValueError("expected a string of decimal digits")
        return int(value)
    if info.mode == "json":
        raise ValueError("expected a string of decimal digits, got a number")
    return value


U64Text = Annotated[
    int,
    BeforeValidator(_read_u64),
    Field(ge=0, lt=1 << 64),
    PlainSerializer(str, return_type=str, when_used="json"),
    WithJsonSchema(
        {"type": "string", "pattern": U64_PATTERN, "description": "a 64-bit number, in decimal digits"}
    ),
]
"""A 64-bit number, which is a string in JSON: many readers round numbers from 2^53 on."""
_EXPECTED_FORMS = {
    HEX32_PATTERN: "64 lower-case hex digits",
    ROUND_PATTERN: "16 lower-case hex digits",
    MEMBER_PATTERN: "1 to 64 of a-z, 0-9 and '-'",
    LABEL_PATTERN: "1 to 64 letters, digits, spaces and ._@- that begin with a letter or digit",
    CLASS_PATTERN: "1 to 64 printable ASCII characters without a space at either end (notes.display takes any letters)",
    TEXT_PATTERN: "text on one line without control characters",
    COLUMN_PATTERN: "text on one line without control characters, and without white space at either end",
    LINE_PATTERN: "at least one character, and no control characters or line breaks",
}


def in_words(error: "ErrorDetails") -> str:
    """Describe what is wrong with a value, without quoting it."""
    facts = error.get("ctx", {})
    if error["type"] == "string_pattern_mismatch":
        return f"expected {_EXPECTED_FORMS.get(facts['pattern'], 'text of another form')}"
    if error["type"] == "too_short":
        return f"expected at least {facts['min_length']}, got {facts['actual_length']}"
    return error["msg"].removeprefix("Value error, ")


def first_fault(error: "ValidationError", whole: str = "", *, unnamed: Container[str | int] = ()) -> str:
    """Describe where and how JSON first breaks the model, without quoting its values.

    Args:
        error: the model's error.
        whole: the place to name if the document as a whole is wrong.
        unnamed: parts of a place to leave out.
    """
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"] if part not in unnamed) or whole
    return f"{where}: {in_words(first)}" if where else in_words(first)
