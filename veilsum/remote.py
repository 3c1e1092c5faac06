"""The operator's client as commands open it."""

from pathlib import Path

from client_sdk.operator import Operator
from client_sdk.progress import Progress, Step
from veilsum.console import note


def operator(url: str, token: str | None = None, ca: Path | None = None) -> Operator:
    """A client of the coordinator at `url`; retries are told on stderr."""
    return Operator(url, token, progress=_retries, verify=str(ca) if ca else True)


def _retries(event: Progress) -> None:
    if event.step is Step.RETRYING:
        note(f"The coordinator does not answer: {event.detail}")
