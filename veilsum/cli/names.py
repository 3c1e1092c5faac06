"""Ids and keys from the command line, checked before they become part of a path or a request."""

import re
from functools import partial

from veilsum.protocol.errors import Misuse

ROUND_DIGITS = 16


def _parse_hex(digits: int, what: str, source: str, text: str) -> str:
    """Normalise `text` of that many hex digits to lower case. Raises Misuse for any other text, including an empty one."""
    if not re.fullmatch(f"[0-9a-fA-F]{{{digits}}}", text):
        raise Misuse(
            f"invalid {what} {text!r}: got {len(text)} characters, expected {digits} hex digits; {source}"
        )
    return text.lower()


federation_id = partial(_parse_hex, 64, "federation id", "`veilsum admin new` prints it")
cohort_id = partial(_parse_hex, 64, "cohort id", "`veilsum operator cohort open` prints it")
round_id = partial(_parse_hex, ROUND_DIGITS, "round id", "`veilsum operator run` prints it")
public_key = partial(_parse_hex, 64, "public key", "ask its owner for it")
approval_digest = partial(
    _parse_hex, 64, "approval digest", "`veilsum admin study sign` and `veilsum member join` show it"
)
digest = partial(_parse_hex, 64, "digest", "copy all of it")
_context = partial(_parse_hex, 64, "context", "copy all of it from the member's message")


def round_or_context(text: str) -> tuple[str, str | None]:
    """Read a round's id, or a whole context, which begins with it. Return the id, and the context if it was given."""
    if len(text) <= ROUND_DIGITS:
        return round_id(text), None
    context = _context(text)
    return context[:ROUND_DIGITS], context
