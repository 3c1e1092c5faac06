"""What an operator can set, each by an environment variable `VEILSUM_…` or a file in a secrets folder."""

from pathlib import Path

from pydantic import SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """The coordinator's settings; the defaults start it on a laptop.

    Attributes:
        data_dir: folder of the database, the uploads and the coordinator's key; made with mode 0700.
        operator_token: bearer token that opens federations, cohorts and rounds. Where it is not set, one is drawn at
            first start, printed once, and kept only as a hash.
        max_wait_s: longest time that a long-poll is held.
    """

    model_config = SettingsConfigDict(env_prefix="VEILSUM_", extra="ignore")

    data_dir: Path = Path("veilsum-data")
    operator_token: SecretStr | None = None
    max_wait_s: float = 30.0
