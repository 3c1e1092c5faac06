"""What an operator can set, each by an environment variable `VEILSUM_…` or a file `/run/secrets/veilsum_…`."""

from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from protocol.rest import MAX_WAIT_S

_SECRETS = Path("/run/secrets")


class Settings(BaseSettings):
    """The coordinator's settings; the defaults start it on a laptop.

    Attributes:
        data_dir: folder of the database, the uploads and the coordinator's key; made with mode 0700.
        operator_token: bearer token that opens federations, cohorts and rounds. Where it is not set, or empty, one is
            drawn at first start, printed once, and kept only as a hash.
        max_wait_s: longest time that a long-poll is held.
        resume_grace_s: seconds after a start in which no deadline passes: members could not be heard while no
            coordinator ran.
    """

    model_config = SettingsConfigDict(
        env_prefix="VEILSUM_", extra="ignore", secrets_dir=_SECRETS if _SECRETS.is_dir() else None
    )

    data_dir: Path = Path("veilsum-data")
    operator_token: SecretStr | None = None
    max_wait_s: Annotated[float, Field(ge=0, le=MAX_WAIT_S)] = 30.0
    resume_grace_s: Annotated[float, Field(ge=0)] = 30.0
