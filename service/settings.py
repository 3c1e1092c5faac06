"""The operator's settings: environment variables `VEILSUM_…`, or files `veilsum_…` in /run/secrets or `VEILSUM_SECRETS_DIR`."""

import json
import os
import re
from contextlib import suppress
from difflib import get_close_matches
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    FilePath,
    SecretStr,
    ValidationError,
)
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from service.http.callers import ADDRESS_ALLOWANCE, CALLER_ALLOWANCE
from veilsum.protocol.errors import Misuse
from veilsum.protocol.forms import in_words
from veilsum.protocol.rest import MAX_WAIT_S, Scope
from veilsum.protocol.study import DAY_S
from veilsum.system.exposure import refuse_loose_mode
from veilsum.system.intervals import LONG_POLL_S

SECRETS_DIR = "VEILSUM_SECRETS_DIR"
"""Environment variable for another folder of secrets, for clusters that use /run/secrets themselves."""
_SECRETS_FOLDER = Path(os.environ.get(SECRETS_DIR) or "/run/secrets")
_VARIABLE_PREFIX = "VEILSUM_"
REQUESTS_PER_S_MAX = 1e6
"""Highest rate that a caller or an address may be given: more than a process answers."""
AUDIT_DAYS_MAX = 36_500
_MISSPELT_SIMILARITY = 0.9
"""`difflib` similarity, prefix included, from which on an unknown name counts as a misspelt setting."""


def _check_issuer(url: str) -> str:
    if not re.fullmatch(r"(https://|http://(127\.0\.0\.1|localhost|\[::1\])[:/])[^?#]+", url):
        raise ValueError("expected https://HOST or https://HOST/PATH (http:// only on this machine)")
    return url


class OpenIDConnect(BaseModel):
    """An issuer of operators' tokens.

    Attributes:
        issuer: its address, as its tokens have it in `iss`.
        audience: this coordinator's name there, which must be in a token's `aud`.
        claim: the claim that says what an operator may do: a word, or a list of words.
        scopes: what each word allows.
        jwks: file of its keys, read again where a token names another; None asks the issuer, by OpenID Connect Discovery.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    issuer: Annotated[str, AfterValidator(_check_issuer)]
    audience: Annotated[str, Field(min_length=1)]
    claim: Annotated[str, Field(min_length=1)] = "groups"
    scopes: Annotated[dict[str, frozenset[Scope]], Field(min_length=1)]
    jwks: FilePath | None = None


def _parse_json(given: object) -> object:
    """Decode JSON. Other text is left for validation to refuse, because pydantic's own decoding of a file of secrets names no setting."""
    if isinstance(given, str):
        with suppress(ValueError):
            return json.loads(given)
    return given


def _check_address(url: str) -> str:
    if not re.fullmatch(r"https?://[^/?#@\s]+(/[^?#\s]*)?", url):
        raise ValueError("expected https://HOST or https://HOST/PATH")
    try:
        urlsplit(url).port  # noqa: B018 - raises for one that isn't a port
    except ValueError:
        raise ValueError("expected a port from 0 to 65535 after the host's colon") from None
    return url


def _check_networks(listed: str) -> str:
    for each in listed.split(",") if listed not in {"", "*"} else ():
        ip_network(each.strip())
    return listed


class Settings(BaseSettings):
    """The coordinator's settings. The defaults start it on a laptop; docs/operations.md says more of each.

    Attributes:
        data_dir: folder of the database, the uploads and the coordinator's key; made with mode 0700.
        database_url: `postgresql://user:password@host:port/database`, for several replicas; None for SQLite in the data folder.
        blobs_url: `s3://bucket/prefix` for uploads and results, which all replicas see; None for files in the data folder.
        blobs_endpoint: address of a bucket that is not Amazon's.
        coordinator_key: the coordinator's signing key, 64 hexadecimal digits, the same for all replicas; None for `coordinator.key` in
            the data folder, made at first start.
        operator_token: a bearer token that may do everything; unset or empty, one is drawn at first start and shown once.
        max_wait_s: longest time that a long poll is held.
        resume_grace_s: seconds after a start in which no deadline passes.
        public_url: the address that members use, where a proxy changes the Host header or the path. Requests are signed for it.
        oidc: an issuer of operators' tokens, as JSON; None for the coordinator's own tokens only.
        clock_skew_s: how far a signer's clock, or an issuer's, may be off.
        caller_requests_per_s: requests a second, in the long run and to one process, of a member, an admin or an operator's token.
        address_requests_per_s: the same for all other requests from one address.
        trusted_proxies: addresses and networks of proxies whose X-Forwarded-For and X-Forwarded-Proto `veilsum serve` believes, with
            commas between, or `*` for every address; empty for none.
        body_room_bytes: memory of one process for bodies of more than 64 KiB; the others wait.
        connections: how many `veilsum serve` keeps open.
        audit_days: for how many days entries of the audit log are kept; None for ever.

    Raises:
        Misuse: a value is of another type, or out of its range, or the file that holds it can't be read; it names the variable or the file.
    """

    model_config = SettingsConfigDict(
        env_prefix=_VARIABLE_PREFIX,
        extra="ignore",
        allow_inf_nan=False,
        env_ignore_empty=True,
        secrets_dir=_SECRETS_FOLDER if _SECRETS_FOLDER.is_dir() else None,
    )

    def __init__(self, **given: Any) -> None:
        _check_files(Path(given.get("_secrets_dir") or _SECRETS_FOLDER))
        try:
            super().__init__(**given)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            name, *inner = map(str, first["loc"])
            where = ".".join((f"{_VARIABLE_PREFIX}{name}".upper(), *inner))
            not_json = first["type"] == "model_type"
            says = "expected a JSON object" if not_json else in_words(first)
            raise Misuse(f"{where}: {says}") from error

    data_dir: Path = Path("veilsum-data")
    database_url: SecretStr | None = None
    blobs_url: str | None = None
    blobs_endpoint: str | None = None
    coordinator_key: SecretStr | None = None
    operator_token: SecretStr | None = None
    max_wait_s: Annotated[float, Field(ge=0, le=MAX_WAIT_S)] = LONG_POLL_S
    resume_grace_s: Annotated[float, Field(ge=0, le=DAY_S)] = 30.0
    public_url: Annotated[str, AfterValidator(_check_address)] | None = None
    oidc: Annotated[OpenIDConnect | None, NoDecode, BeforeValidator(_parse_json)] = None
    clock_skew_s: Annotated[float, Field(ge=0, le=3600)] = 60.0
    caller_requests_per_s: Annotated[float, Field(gt=0, le=REQUESTS_PER_S_MAX)] = CALLER_ALLOWANCE.per_s
    address_requests_per_s: Annotated[float, Field(gt=0, le=REQUESTS_PER_S_MAX)] = ADDRESS_ALLOWANCE.per_s
    trusted_proxies: Annotated[str, AfterValidator(_check_networks)] = ""
    body_room_bytes: Annotated[int, Field(ge=1, le=1 << 40)] = 16 << 20
    connections: Annotated[int, Field(ge=1, le=1 << 20)] = 4096
    audit_days: Annotated[int, Field(ge=30, le=AUDIT_DAYS_MAX)] | None = None


def _check_files(folder: Path) -> None:
    """Raise Misuse for a setting's file that can't be read. Pydantic skips directories and links out of the folder with a mere warning."""
    names = {f"{_VARIABLE_PREFIX}{name}".upper() for name in Settings.model_fields}
    for path in folder.glob("*"):
        if path.name.upper() not in names:
            continue
        try:
            if not path.is_file():
                raise Misuse(f"{path} is not a file: expected one that holds the setting's value")
            if folder.resolve() not in path.resolve().parents:
                raise Misuse(f"{path} links to a file outside of {folder}: put the file itself there")
            path.read_text("utf-8")
        except UnicodeDecodeError as error:
            raise Misuse(f"{path} isn't UTF-8 text: write the setting's value as text") from error
        except OSError as error:
            raise Misuse(f"can't read {path}: {error.strerror}") from error


def check_given(folder: Path = _SECRETS_FOLDER) -> None:
    """Raise Misuse for a misspelt setting, a folder of secrets that is missing, and a file of our settings there that others may read.

    Other names with our prefix are left alone: commands have variables of their own, and Kubernetes makes some for a service called veilsum.
    """
    files = [path for path in folder.glob("*") if path.name.upper().startswith(_VARIABLE_PREFIX)]
    known = {f"{_VARIABLE_PREFIX}{name}".upper(): name for name in Settings.model_fields}
    known[SECRETS_DIR] = "secrets_dir"
    known |= {f"{_VARIABLE_PREFIX}oidc_{part}".upper(): "oidc" for part in OpenIDConnect.model_fields}
    for name in (*os.environ, *(path.name for path in files)):
        given = name.upper()
        near = (
            get_close_matches(given, known, 1, _MISSPELT_SIMILARITY)
            if given.startswith(_VARIABLE_PREFIX)
            else []
        )
        if near and (meant := f"{_VARIABLE_PREFIX}{known[near[0]]}".upper()) != given:
            raise Misuse(f"{name} is not a setting: did you mean {meant}? Rename it, or unset it")
    if os.environ.get(SECRETS_DIR) and not folder.is_dir():
        raise Misuse(f"{SECRETS_DIR}: {folder} is not a folder")
    for path in files:
        refuse_loose_mode(path, group_may=True)
