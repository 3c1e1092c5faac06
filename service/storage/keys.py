"""The coordinator's own key, which all replicas share. Its public half is in the database."""

import re
import secrets
from pathlib import Path

from sqlalchemy import Connection, insert, select

from service.settings import Settings
from service.storage.folder import DATABASE
from service.storage.tables import coordinator
from veilsum.protocol.errors import Misuse
from veilsum.protocol.identity import SigningKey
from veilsum.system.exposure import loose_mode
from veilsum.system.files import make_durably

_SEED = re.compile(r"[0-9a-f]{64}")


def key_of(settings: Settings) -> SigningKey:
    """Return the key from the settings, or from the data folder's file, which is created at the first start.

    Raises:
        Misuse: the key is malformed, or others can read its file.
    """
    given = settings.coordinator_key
    if given is None:
        return load_key(settings.data_dir / "coordinator.key")
    text = given.get_secret_value().strip().lower()
    if not _SEED.fullmatch(text):
        raise Misuse(
            "VEILSUM_COORDINATOR_KEY: expected 64 hexadecimal digits: `xxd -p -c 64 coordinator.key` prints a file's"
        )
    return SigningKey(bytes.fromhex(text))


def load_key(path: Path) -> SigningKey:
    """Load the coordinator's signing key; create it at the first start, readable by its owner only.

    Raises:
        Misuse: others may read the file, or it does not hold a key.
    """
    if not path.exists():
        if path.with_name(DATABASE).exists():
            raise Misuse(
                f"{path} is missing, and {DATABASE} beside it is its coordinator's: restore the file"
            )
        # Whole or not at all, and never over another key: rosters will name this one.
        make_durably(path, secrets.token_bytes(32))
    if (why := loose_mode(path)) is not None:
        raise Misuse(why)
    seed = path.read_bytes()
    if len(seed) != 32:
        raise Misuse(f"{path} is not a coordinator's key: it has {len(seed)} bytes, not 32; restore it")
    return SigningKey(seed)


def claim(key: SigningKey, connection: Connection) -> None:
    """Bind the database to this key, or check that it is bound to it.

    Raises:
        Misuse: it is bound to another key. Members have pinned that key, and would refuse what this one signs.
    """
    known = connection.execute(select(coordinator.c.public_key)).scalar_one_or_none()
    if known is None:
        connection.execute(insert(coordinator).values(number=0, public_key=key.public.hex()))
    elif known != key.public.hex():
        raise Misuse(
            f"the database is of the coordinator with the key {known}, and this replica's is {key.public.hex()}: give every "
            "replica the same key, by VEILSUM_COORDINATOR_KEY or a copy of coordinator.key in its data folder"
        )
