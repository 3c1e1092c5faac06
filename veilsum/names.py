"""Ids and keys as people type them: checked before they become part of a path or a request."""

import re

from protocol.errors import Misuse


def federation_id(text: str) -> str:
    """64 digits, lower case; Misuse for anything else."""
    return _hexadecimal(text, 64, "a federation's id: `veilsum admin new` prints it")


def cohort_id(text: str) -> str:
    """64 digits, lower case; Misuse for anything else."""
    return _hexadecimal(text, 64, "a cohort's id: `veilsum operator cohort open` prints it")


def round_id(text: str) -> str:
    """16 digits, lower case; Misuse for anything else."""
    return _hexadecimal(text, 16, "a round's id: `veilsum operator round open` prints it")


def admin_key(text: str) -> str:
    """64 digits, lower case; Misuse for anything else, an empty variable too: it would pin nothing."""
    return _hexadecimal(text, 64, "an admin's public key: get it from the admin")


def coordinator_key(text: str) -> str:
    """64 digits, lower case; Misuse for anything else."""
    return _hexadecimal(text, 64, "a coordinator's public key: rosters name it")


def extractor_digest(text: str) -> str:
    """64 digits, lower case; Misuse for anything else."""
    return _hexadecimal(text, 64, "an extractor's digest: the roster lists them")


def _hexadecimal(text: str, digits: int, what: str) -> str:
    if not re.fullmatch(f"[0-9a-fA-F]{{{digits}}}", text):
        raise Misuse(f"{text!r} is not {what}, {digits} hexadecimal digits")
    return text.lower()
