"""The coordinator's own key: one for all replicas; its public half stands in the database."""

import re
import secrets
from pathlib import Path

from sqlalchemy import Connection, insert, select

from service.settings import Settings
from service.storage.folder import DATABASE
from service.storage.tables import coordinator
from veilsum.exposure import loose_mode
from veilsum.files import make_durably
from veilsum.protocol.errors import Misuse
from veilsum.protocol.identity import SigningKey

_SEED = re.compile(r"[0-9a-f]{64}")


def key_of(settings: Settings) -> SigningKey:
    """The key from the settings, or from the data folder's file, which is made at first start.

    Raises:
        Misuse: it is none, or others can read its file.
    """
    given = settings.coordinator_key
    if given is None or not given.get_secret_value().strip():
        return load_key(settings.data_dir / "coordinator.key")
    text = given.get_secret_value().strip().lower()
    if not _SEED.fullmatch(text):
        raise Misuse(
            "VEILSUM_COORDINATOR_KEY: expected 64 hexadecimal digits: `xxd -p -c 64 coordinator.key` prints a file's"
        )
    return SigningKey(bytes.fromhex(text))


def load_key(path: Path) -> SigningKey:
    """The coordinator's signing key; made at first start, readable by its owner alone.

    Raises:
        Misuse: others may read the file, or it is not a key.
    """
    if not path.exists():
        if path.with_name(DATABASE).exists():
            raise Misuse(
                f"{path} is missing, and {DATABASE} beside it is its coordinator's: restore the file"
            )
        # Whole or not at all, and never in the place of another's: rosters will name this key.
        make_durably(path, secrets.token_bytes(32))
    if (why := loose_mode(path)) is not None:
        raise Misuse(why)
    seed = path.read_bytes()
    if len(seed) != 32:
        raise Misuse(f"{path} is not a coordinator's key: it has {len(seed)} bytes, not 32; restore it")
    return SigningKey(seed)


def claim(key: SigningKey, connection: Connection) -> None:
    """Make the database this key's, or see that it is.

    Raises:
        Misuse: it is another's. Members have pinned that one, and would refuse what this one signs.
    """
    known = connection.execute(select(coordinator.c.public_key)).scalar_one_or_none()
    if known is None:
        connection.execute(insert(coordinator).values(number=0, public_key=key.public.hex()))
    elif known != key.public.hex():
        raise Misuse(
            f"the database is of the coordinator with the key {known}, and this replica's is {key.public.hex()}: give every "
            "replica the same key, by VEILSUM_COORDINATOR_KEY or a copy of coordinator.key in its data folder"
        )
