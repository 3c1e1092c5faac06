"""A member's identity: a long-term Ed25519 key and an id, in a folder of its own."""

import json
import os
import re
import secrets
from pathlib import Path
from typing import Self

from client_sdk.errors import IdentityError, Misuse
from client_sdk.files import FolderLock
from client_sdk.store import Store
from veilsum.protocol.codec import NAME_PATTERN
from veilsum.protocol.identity import SigningKey, fingerprint
from veilsum.system.exposure import refuse_loose_mode
from veilsum.system.files import make_durably, make_private, write_durably
from veilsum.system.key_files import IDENTITY_CARD, IDENTITY_KEY, parse_key

_CARD_FORMAT = "veilsum-identity/1"


class Identity:
    """A member's id, key and state folder.

    Attributes:
        folder: of mode 0700; holds the key (0600), the id, and all state under `state/`.
        member: the id that the admin puts into the roster.
        key: signs this member's messages.
    """

    def __init__(self, folder: Path, member: str, key: SigningKey) -> None:
        self.folder, self.member, self.key = folder, member, key

    @classmethod
    def create(
        cls,
        folder: str | os.PathLike[str],
        member: str,
        *,
        ledger: str | os.PathLike[str] | None = None,
        held_out: float | None = None,
    ) -> Self:
        """Draw a new key.

        Args:
            folder: created with mode 0700; may exist if it holds no identity.
            member: 1 to 64 of a-z, 0-9 and "-".
            ledger: folder of the identity that this one replaces, of the same member id. Its ledger moves here, so that no record is
                summed twice, and that identity becomes unusable.
            held_out: the share of records that are kept out of every count and sum, for life, to evaluate heads (`Member.judge`): at
                least 0 and below 1, a tenth by default. The state's secret draws them by their ids alone; data without ids has none.
                A ledger keeps its own share.

        Raises:
            Misuse: `member` is not an id; there is no ledger to carry over, or it is another member's; or `held_out` is no share, or
                given with `ledger`.
            IdentityError: the folder already holds an identity, which is never overwritten; or a member is using the other identity.
        """
        if not re.fullmatch(NAME_PATTERN, member):
            raise Misuse(f"invalid member id {member!r}: use 1 to 64 of a-z, 0-9 and '-'")
        home = Path(folder).expanduser()
        taken = IdentityError(
            f"{home} holds an identity already: load it with Identity.load, or choose another folder"
        )
        if (home / IDENTITY_KEY).exists() or (home / IDENTITY_CARD).exists():
            raise taken
        make_private(home)
        Store.create(home, member, None if ledger is None else Path(ledger).expanduser(), held_out)
        key = SigningKey(secrets.token_bytes(32))
        card = {"format": _CARD_FORMAT, "member": member, "public": key.public.hex()}
        if not make_durably(home / IDENTITY_KEY, f"{key.seed.hex()}\n".encode()):
            raise taken  # by another process since
        write_durably(home / IDENTITY_CARD, f"{json.dumps(card)}\n".encode())
        return cls(home, member, key)

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Self:
        """Read the identity that `create` wrote.

        Raises:
            IdentityError: there is no identity, others may read its key or enter its folder, or its files are damaged.
        """
        home = Path(folder).expanduser()
        path, card_path = home / IDENTITY_KEY, home / IDENTITY_CARD
        if path.exists() != card_path.exists():
            there, missing = (path, card_path) if path.exists() else (card_path, path)
            raise IdentityError(
                f"{there} exists, but {missing} does not: if its creation was interrupted, no other party has this key yet, so "
                f"remove {there} and make one with Identity.create; if it was in use, put {missing} back"
            )
        try:
            _refuse_access(path, home)
            key = parse_key(path.read_text("ascii"))
            card = json.loads(card_path.read_text("utf-8"))
            member, public = str(card["member"]), str(card["public"])
        except FileNotFoundError as error:
            raise IdentityError(
                f"no identity in {home}: make one with `veilsum member new` or Identity.create(folder, member)"
            ) from error
        except (ValueError, KeyError, TypeError, Misuse):
            # Not chained: what could not be read as a key may be most of one.
            raise IdentityError(
                f"the identity in {home} is damaged: restore {IDENTITY_KEY} and {IDENTITY_CARD}, which never change, from a backup; "
                "if there is none, make a new identity and give its public key to the admin"
            ) from None
        if public != key.public.hex() or not re.fullmatch(NAME_PATTERN, member):
            raise IdentityError(
                f"{card_path} does not belong to {path}: restore both, which never change, from a backup; if there is none, "
                "make a new identity and give its public key to the admin"
            )
        return cls(home, member, key)

    @property
    def public(self) -> bytes:
        """The 32-byte Ed25519 public key that the admin puts into the roster."""
        return self.key.public

    @property
    def fingerprint(self) -> str:
        """The public key for comparison by people: all of it, in groups of four hexadecimal digits."""
        return fingerprint(self.key.public)

    def lock(self) -> FolderLock:
        """Lock the folder for this process.

        Raises:
            IdentityError: another member is using it.
        """
        return FolderLock(self.folder)

    def __repr__(self) -> str:
        return f"<Identity {self.member} {self.public.hex()[:16]}>"


def _refuse_access(key: Path, home: Path) -> None:
    """Raise IdentityError if others may read the key, or enter its folder."""
    try:
        refuse_loose_mode(key)
        refuse_loose_mode(home, group_may=True)
    except Misuse as error:
        raise IdentityError(
            f"{error}, and replace this identity by a new one if another person had access"
        ) from error
