"""Files of what follows from one's own records: whole, or not there, and nobody else's to read."""

from pathlib import Path

from client_sdk.files import write_durably


def save_to(output: Path, content: bytes) -> None:
    """Replace a file, or what a link leads to, by one of mode 0600, and make the folders above it; write into a pipe or device.

    Raises:
        OSError: the disk is full, or refuses.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    target = output.resolve()
    if target.exists() and not target.is_file():
        target.write_bytes(content)
    else:
        write_durably(target, content)
