"""Ids and keys from the command line, checked before they become part of a path or a request."""

import re

from veilsum.protocol.errors import Misuse


def federation_id(text: str) -> str:
    """Normalise a federation's id, 64 hex digits. Raises Misuse for anything else."""
    return _hexadecimal(text, 64, "federation id", "`veilsum admin new` prints it")


def cohort_id(text: str) -> str:
    """Normalise a cohort's id, 64 hex digits. Raises Misuse for anything else."""
    return _hexadecimal(text, 64, "cohort id", "`veilsum operator cohort open` prints it")


def round_id(text: str) -> str:
    """Normalise a round's id, 16 hex digits. Raises Misuse for anything else."""
    return _hexadecimal(text, 16, "round id", "`veilsum operator run` prints it")


def public_key(text: str) -> str:
    """Normalise a public key, 64 hex digits. Raises Misuse for anything else, an empty text included."""
    return _hexadecimal(text, 64, "public key", "ask its owner for it")


def digest(text: str) -> str:
    """Normalise a SHA-256 digest, 64 hex digits. Raises Misuse for anything else."""
    return _hexadecimal(text, 64, "digest", "copy all of it")


def _hexadecimal(text: str, digits: int, what: str, source: str) -> str:
    if not re.fullmatch(f"[0-9a-fA-F]{{{digits}}}", text):
        raise Misuse(f"invalid {what} {text!r}: expected {digits} hex digits; {source}")
    return text.lower()
