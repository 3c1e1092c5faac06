"""What an experiment names by an import path, such as ``mypkg.nets:Net``."""

from importlib import import_module
from typing import Any


def is_import_path(name: object) -> bool:
    """Return whether a choice is an import path rather than one of our names, which have no colon."""
    return isinstance(name, str) and ":" in name


def import_object(path: str) -> Any:
    """Import the object that a path names.

    Raises:
        ValueError: the module cannot be imported, or has no such name.
    """
    module, _, name = path.partition(":")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(
            f"{path} cannot be imported: {error}; write it as package.module:name, and run from the folder that holds "
            "the package or install it"
        ) from error
