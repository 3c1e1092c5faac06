"""The one encoding of what is signed or hashed as JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from calibration.errors import CalibrationError


def encoded(content: Mapping[str, Any]) -> bytes:
    """ASCII JSON, keys sorted, no spaces; floats come back to the last bit."""
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode("ascii")


def decoded(octets: bytes, what: str, fault: type[CalibrationError]) -> Any:
    """The JSON value in `octets`; whether they are its one encoding is for the caller to ask.

    Raises:
        fault: they are not ASCII JSON; `what` names them in its text.
    """
    try:
        return json.loads(octets.decode("ascii"))
    except (ValueError, RecursionError) as error:
        raise fault(f"the {what} is not ASCII JSON: {error}") from error
