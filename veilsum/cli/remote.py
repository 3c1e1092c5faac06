"""Connections from commands to the coordinator: address, certificates, tokens and long polls."""

import ssl
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from client_sdk.errors import Unreachable
from client_sdk.identity import Identity
from client_sdk.operator import Operator
from client_sdk.progress import Progress, Step
from client_sdk.transport import ClientCertificate, PlainHttpWarning
from veilsum.cli.console import CLIENT_CERTIFICATE, note_printer, print_note
from veilsum.protocol.errors import Misuse
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.rest import CohortView, RoundView
from veilsum.system.intervals import COMMAND_RETRY_S, POLL_MIN_S, ChangePacer

if TYPE_CHECKING:
    from client_sdk import Member, Policy

View = TypeVar("View", CohortView, RoundView)


@contextmanager
def open_operator(
    url: str,
    token: str | None = None,
    ca: Path | None = None,
    *,
    admin: SigningKey | None = None,
    member: Identity | None = None,
    patience_s: float = COMMAND_RETRY_S,
) -> Iterator[Operator]:
    """Open a client that authenticates with an operator's token, or a signature of the admin or a member. Retries are reported on stderr."""

    def print_retry(event: Progress) -> None:
        if event.step is Step.RETRYING:
            print_note(f"No answer from {shown_address(url)}: {event.detail}")

    with (
        name_address(url),
        Operator(
            url,
            _clean_token(token),
            admin=admin,
            member=member,
            progress=print_retry,
            patience_s=patience_s,
            verify=verify_argument(ca),
            cert=client_certificate(),
        ) as client,
    ):
        yield client


@contextmanager
def open_member(
    url: str, ca: Path | None, identity: Identity, policy: "Policy", **options: Any
) -> Iterator["Member"]:
    """Open a member's client, with further options of `Member`."""
    from client_sdk import Member  # noqa: PLC0415 - operators' commands start sooner without it

    with (
        name_address(url),
        Member(
            url, identity, policy, verify=verify_argument(ca), cert=client_certificate(), **options
        ) as member,
    ):
        yield member


@contextmanager
def name_address(url: str) -> Iterator[None]:
    """Add the coordinator's address to `Unreachable`, and print the SDK's warnings. Raises Misuse for an invalid address."""
    where, tell = shown_address(url), note_printer()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", PlainHttpWarning)
            warnings.showwarning = lambda message, *_, **__: tell(f"WARNING: {message}")
            yield
    except Unreachable as error:
        raise Unreachable(f"{where}: {error}") from error


def shown_address(url: str) -> str:
    """Format an address for people, without credentials. Raises Misuse for an invalid address."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host = None
    if not host or parts.scheme not in {"http", "https"}:
        raise Misuse("invalid --url: expected https://HOST[:PORT]")
    host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{host}" + (f":{port}" if port is not None else "")


def verify_argument(ca: Path | None) -> bool | str:
    """Return the SDK's `verify` argument: the system's CAs, or the CAs in a PEM file. Raises Misuse for an unreadable file."""
    if ca is None:
        return True
    try:
        ssl.create_default_context(cafile=ca)
    except OSError as error:  # ssl.SSLError does not name the file
        raise Misuse(f"--ca {ca} is not a readable PEM file of certificates: {error}") from error
    return str(ca)


def client_certificate() -> ClientCertificate | None:
    """Return the SDK's `cert` argument: the client certificate from `veilsum --client-cert`. Raises Misuse if it can't be used."""
    certificate, key = CLIENT_CERTIFICATE.get()
    if certificate is None:
        if key is not None:
            raise Misuse("--client-key goes with --client-cert")
        return None
    try:
        ssl.create_default_context().load_cert_chain(certificate, key)
    except OSError as error:
        files = f"--client-cert {certificate}" + (f" with --client-key {key}" if key else "")
        raise Misuse(f"{files} can't be used: {error}") from error
    return str(certificate) if key is None else (str(certificate), str(key))


def watch_changes(look: Callable[[int | None], View], pause_s: float = POLL_MIN_S) -> Iterator[View]:
    """Yield a view now, and again after each change of its version.

    Args:
        look: fetches the view. Given a version, it waits until the version changes or the long poll ends.
        pause_s: after a poll that was not held.
    """
    view, pacer = look(None), ChangePacer()
    while True:
        yield view
        seen = view.version
        while view.version == seen:
            asked_s = time.monotonic()
            view = look(seen)
            at_once = pacer.follow_at_once(asked_s) and view.version != seen
            if not at_once and time.monotonic() - asked_s < pause_s:
                time.sleep(pause_s)


def _clean_token(token: str | None) -> str | None:
    """Strip whitespace from a token, because a file often ends in a newline. Raises Misuse for invalid characters."""
    stripped = token.strip() if token else None
    if stripped and not (stripped.isascii() and stripped.isprintable()):
        raise Misuse("the operator's token holds invalid characters: copy it again")
    return stripped or None
