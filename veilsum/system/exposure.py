"""Refuse exposed secrets: loose file modes; and detect requests without TLS."""

import os
import shlex
import stat
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from veilsum.protocol.errors import Misuse
from veilsum.system.files import IS_POSIX


def refuse_loose_mode(path: Path, *, group_may: bool = False) -> None:
    """Raise Misuse for a secret file or folder that others may read or change, with the command that fixes it.

    `group_may` allows access by the group, as orchestrators mount secrets and volumes for non-root users. Without modes, on Windows, it
    refuses nothing: who may read a file there is in its access list.
    """
    if not IS_POSIX:
        return
    found = path.stat()
    folder, mode = stat.S_ISDIR(found.st_mode), stat.S_IMODE(found.st_mode)
    loose = mode & (0o007 if group_may else 0o077)
    if not loose:
        return
    deed = "change" if loose & 0o022 else "read"
    remedy = f"run chmod {700 if folder else 600} {shlex.quote(str(path))}"
    if found.st_uid != os.geteuid():
        remedy += ", or name a folder inside it" if folder else ", or mount it with mode 0440"
    raise Misuse(f"others may {deed} {path} (mode {mode:04o}): {remedy}")


def in_the_clear(url: str) -> bool:
    """Whether an http:// or https:// address is reached over a network without encryption."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        here = ip_address(host).is_loopback
    except ValueError:
        here = host == "localhost"
    return parts.scheme == "http" and not here
