"""Ids and keys from the command line, checked before they become part of a path or a request."""

import re
from functools import partial

from veilsum.protocol.errors import Misuse


def _hexadecimal(digits: int, what: str, source: str, text: str) -> str:
    """Normalise `text` of that many hex digits to lower case. Raises Misuse for any other text, including an empty one."""
    if not re.fullmatch(f"[0-9a-fA-F]{{{digits}}}", text):
        raise Misuse(f"invalid {what} {text!r}: expected {digits} hex digits; {source}")
    return text.lower()


federation_id = partial(_hexadecimal, 64, "federation id", "`veilsum admin new` prints it")
cohort_id = partial(_hexadecimal, 64, "cohort id", "`veilsum operator cohort open` prints it")
round_id = partial(_hexadecimal, 16, "round id", "`veilsum operator run` prints it")
public_key = partial(_hexadecimal, 64, "public key", "ask its owner for it")
digest = partial(_hexadecimal, 64, "digest", "copy all of it")
