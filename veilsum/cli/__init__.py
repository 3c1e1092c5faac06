"""The `veilsum` command, and what only its subcommands use."""

import atexit
import gc
import io
import os
import sys

_COLLECT_AFTER = 200_000
"""Number of new objects between two garbage collections."""


def main() -> None:
    """Run the command line. Characters that the terminal can't encode are replaced."""
    # Searching imported modules for garbage takes a tenth of a short command's time, and they are never freed.
    gc.set_threshold(_COLLECT_AFTER)
    atexit.register(gc.freeze)  # skip the collection at exit as well
    # To find plugins, pydantic would read the metadata of every installed package. None are used.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")
    # None makes the import fail: httpx's command line would load click, rich and pygments, another tenth of the time.
    sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]  # as `sys.modules` has it (import's reference)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    from veilsum.cli.app import (
        app,  # after these settings, and not for modules that import others of this package
    )

    app()
