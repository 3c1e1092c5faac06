"""Run `python -m veilsum` as on Windows, as far as Linux lets it: our packages find no POSIX module, and files have no modes."""

import builtins
from typing import Any

_POSIX_MODULES = {"fcntl", "grp", "pwd", "resource", "termios"}
_imported = builtins.__import__


def import_elsewhere(name: str, importer: Any = None, *rest: Any, **named: Any) -> Any:
    """Import a module, unless one of our packages asks for a POSIX one."""
    package = ((importer or {}).get("__name__") or "").partition(".")[0]
    if name in _POSIX_MODULES and package in {"client_sdk", "veilsum"}:
        raise ImportError(f"no module {name}")
    return _imported(name, importer, *rest, **named)


def main() -> None:
    """Run the command line."""
    builtins.__import__ = import_elsewhere  # type: ignore[assignment]
    from veilsum.system import files  # noqa: PLC0415 - only now

    files.IS_POSIX = False
    from veilsum.cli import main as run  # noqa: PLC0415 - as above

    run()


if __name__ == "__main__":
    main()
