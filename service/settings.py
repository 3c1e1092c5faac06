"""What an operator can set, each by an environment variable `VEILSUM_…` or a file `/run/secrets/veilsum_…`, or of `VEILSUM_SECRETS_DIR`."""

import os
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, FilePath, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from protocol.access import Scope
from protocol.rest import MAX_WAIT_S

SECRETS_DIR = "VEILSUM_SECRETS_DIR"
"""The variable that names another folder of secrets: where a cluster has its own below /run/secrets."""
_SECRETS = Path(os.environ.get(SECRETS_DIR) or "/run/secrets")


class OpenIDConnect(BaseModel):
    """An issuer whose tokens operators may show.

    Attributes:
        issuer: its address, as its tokens have it in `iss`.
        audience: this coordinator's name there, which must be in a token's `aud`.
        claim: which claim says what somebody may do: a word, or a list of them.
        scopes: what follows from each word.
        jwks: file of its keys, read again where a token names another; None asks the issuer, by OpenID Connect Discovery.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    issuer: Annotated[str, Field(pattern=r"^(https://|http://(127\.0\.0\.1|localhost|\[::1\])[:/])[^?#]+$")]
    audience: Annotated[str, Field(min_length=1)]
    claim: Annotated[str, Field(min_length=1)] = "groups"
    scopes: Annotated[dict[str, frozenset[Scope]], Field(min_length=1)]
    jwks: FilePath | None = None


class Settings(BaseSettings):
    """The coordinator's settings; the defaults start it on a laptop.

    Attributes:
        data_dir: folder of the database, the uploads and the coordinator's key; made with mode 0700.
        database_url: `postgresql://user:password@host:port/database`, for several replicas; None keeps SQLite in the data folder.
        blobs_url: `s3://bucket/prefix` for uploads and results, so that all replicas see them; None keeps files in the data folder.
            Region and credentials come from `AWS_…`; the bucket's versions must be off, or deleted uploads stay.
        blobs_endpoint: where the bucket is not Amazon's.
        coordinator_key: the coordinator's signing key, 64 hexadecimal digits, the same for all replicas; None reads
            `coordinator.key` in the data folder, and makes it at first start.
        operator_token: a bearer token that may do everything. Where it is not set, or empty, one is drawn at first start,
            shown once, at a terminal or by a file in `data_dir`, and kept only as a hash; more are made with it, by `veilsum operator token new`.
        max_wait_s: longest time that a long-poll is held.
        resume_grace_s: seconds after a start in which no deadline passes: members could not be heard while no
            coordinator ran.
        public_url: the address by which members reach the coordinator, where a proxy changes the Host header or the path:
            https://sum.example.org or https://example.org/sum. Requests are signed for it.
        oidc: an issuer whose tokens operators may show, as JSON; None where there are only the coordinator's own.
        clock_skew_s: how far a signer's clock, or an issuer's, may be from this one.
        caller_requests_per_s: requests a second that a member, an admin or an operator's token may send in the long run, to one process.
        caller_burst: how many of them may come at once before that counts.
        caller_at_once: how many may be under way at the same time.
        address_requests_per_s: the same for all at one address who are none of those.
        address_burst: as `caller_burst`.
        address_at_once: as `caller_at_once`.
        address_streams: how many of those may be streams of events.
        body_grace_s: how long a request's body may take beside what `body_bytes_per_s` gives it.
        body_bytes_per_s: least rate at which a body must come, on average.
        body_room_bytes: how much of bodies of more than 64 KiB is in memory at once, in one process; the others wait.
        connections: how many `veilsum serve` keeps open; whoever comes beyond that is sent away.
    """

    model_config = SettingsConfigDict(
        env_prefix="VEILSUM_", extra="ignore", secrets_dir=_SECRETS if _SECRETS.is_dir() else None
    )

    data_dir: Path = Path("veilsum-data")
    database_url: SecretStr | None = None
    blobs_url: str | None = None
    blobs_endpoint: str | None = None
    coordinator_key: SecretStr | None = None
    operator_token: SecretStr | None = None
    max_wait_s: Annotated[float, Field(ge=0, le=MAX_WAIT_S)] = 30.0
    resume_grace_s: Annotated[float, Field(ge=0)] = 30.0
    public_url: Annotated[str, Field(pattern=r"^https?://[^/?#@]+(/[^?#]*)?$")] | None = None
    oidc: OpenIDConnect | None = None
    clock_skew_s: Annotated[float, Field(ge=0, le=3600)] = 60.0
    caller_requests_per_s: Annotated[float, Field(gt=0)] = 100.0
    caller_burst: Annotated[int, Field(ge=1)] = 2000
    caller_at_once: Annotated[int, Field(ge=1)] = 64
    address_requests_per_s: Annotated[float, Field(gt=0)] = 200.0
    address_burst: Annotated[int, Field(ge=1)] = 20_000
    address_at_once: Annotated[int, Field(ge=1)] = 1024
    address_streams: Annotated[int, Field(ge=0)] = 100
    body_grace_s: Annotated[float, Field(gt=0)] = 20.0
    body_bytes_per_s: Annotated[float, Field(gt=0)] = 8192.0
    body_room_bytes: Annotated[int, Field(ge=1)] = 16 << 20
    connections: Annotated[int, Field(ge=1)] = 4096
