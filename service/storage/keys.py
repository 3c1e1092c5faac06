"""The coordinator's own key, which all replicas share. Its public half is in the database."""

from pathlib import Path

from sqlalchemy import Connection, insert, select

from service.settings import Settings
from service.storage.folder import DATABASE_FILE
from service.storage.tables import coordinator
from veilsum.protocol.errors import Misuse
from veilsum.protocol.identity import SigningKey
from veilsum.system.key_files import COORDINATOR_KEY, create_key, load_key, parse_key


def key_of(settings: Settings) -> SigningKey:
    """Return the key from the settings, or from the data folder's file, which is created at the first start.

    Raises:
        Misuse: the key is malformed, or others can read its file.
    """
    given = settings.coordinator_key
    if given is None:
        return load_or_create_key(settings.data_dir / COORDINATOR_KEY)
    try:
        return parse_key(given.get_secret_value())
    except Misuse as error:
        raise Misuse(
            f"VEILSUM_COORDINATOR_KEY: {error}: `xxd -p -c 64 {COORDINATOR_KEY}` prints a file's"
        ) from error


def load_or_create_key(path: Path) -> SigningKey:
    """Load the coordinator's key; create it at the first start. Raises Misuse as `load_key`, or if only the database is there."""
    if not path.exists():
        if path.with_name(DATABASE_FILE).exists():
            raise Misuse(f"{path} is missing, and {DATABASE_FILE} beside it needs it: restore the file")
        create_key(path)  # never over another key: rosters will name this one
    return load_key(path)


def claim_database(key: SigningKey, connection: Connection) -> None:
    """Bind the database to this key, or check that it is bound to it.

    Raises:
        Misuse: it is bound to another key. Members have pinned that key, and would refuse what this one signs.
    """
    known = connection.execute(select(coordinator.c.public_key)).scalar_one_or_none()
    if known is None:
        connection.execute(insert(coordinator).values(number=0, public_key=key.public.hex()))
    elif known != key.public.hex():
        raise Misuse(
            f"the database belongs to the coordinator with the key {known}, and this replica has {key.public.hex()}: give every "
            "replica the same key, by VEILSUM_COORDINATOR_KEY or a copy of "
            f"{COORDINATOR_KEY} in its data folder"
        )
