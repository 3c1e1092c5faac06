"""A disk that forgets unsynced data: what a folder contains after a power cut, given a process's system calls.

Only synced data stays: a file's bytes after fsync or fdatasync of the file, a name after fsync of its folder. POSIX promises this much, and
most file systems keep more; `materialise` can also keep any part of the rest.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from random import Random
from typing import TypeAlias


@dataclass(eq=False)
class File:
    """A file's synced bytes, and later changes."""

    synced: bytearray = field(default_factory=bytearray)
    pending: list[Callable[[bytearray], None]] = field(default_factory=list)


@dataclass(eq=False)
class Folder:
    """A folder's names as processes see them, its synced names, and the changes since, which map names to nodes or None."""

    names: "dict[str, Node]" = field(default_factory=dict)
    synced: "dict[str, Node]" = field(default_factory=dict)
    pending: "list[dict[str, Node | None]]" = field(default_factory=list)


Node: TypeAlias = File | Folder


class Disk:
    """A folder's whole tree. The folder itself is synced."""

    def __init__(self) -> None:
        self.top = Folder()

    def find(self, path: PurePosixPath) -> Node | None:
        """Return the current node at a path."""
        node: Node | None = self.top
        for part in path.parts:
            node = node.names.get(part) if isinstance(node, Folder) else None
        return node

    def make(self, path: PurePosixPath, node: Node) -> Node:
        """Add a name."""
        self._change(path.parent, {path.name: node})
        return node

    def move(self, old: PurePosixPath, new: PurePosixPath) -> None:
        """Rename a node: in one step within a folder; otherwise in two steps, which a power cut may separate."""
        node = self.find(old)
        if old.parent == new.parent:
            self._change(old.parent, {old.name: None, new.name: node})
        else:
            self._change(new.parent, {new.name: node})
            self._change(old.parent, {old.name: None})

    def remove(self, path: PurePosixPath) -> None:
        """Remove a name."""
        self._change(path.parent, {path.name: None})

    def _change(self, where: PurePosixPath, change: "dict[str, Node | None]") -> None:
        folder = self.find(where)
        assert isinstance(folder, Folder), where
        folder.pending.append(change)
        _rename(folder.names, change)

    def materialise(self, into: Path, chance: Random | None = None) -> Path:
        """Write what a power cut would leave now.

        Args:
            into: a new folder.
            chance: decides for each unsynced change whether it survives; None if none does.
        """
        _write(self.top, into, chance)
        return into


def sync(node: Node, count: int) -> None:
    """Sync the first `count` changes."""
    if isinstance(node, File):
        for altered in node.pending[:count]:
            altered(node.synced)
    else:
        for change in node.pending[:count]:
            _rename(node.synced, change)
    del node.pending[:count]


def _rename(names: "dict[str, Node]", change: "dict[str, Node | None]") -> None:
    for name, node in change.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


def _write(folder: Folder, into: Path, chance: Random | None) -> None:
    into.mkdir(mode=0o700)
    names = dict(folder.synced)
    for change in folder.pending:
        if chance is not None and chance.random() < 0.5:
            _rename(names, change)
    for name, node in names.items():
        if isinstance(node, Folder):
            _write(node, into / name, chance)
            continue
        data = bytearray(node.synced)
        for altered in node.pending:
            if chance is not None and chance.random() < 0.5:
                altered(data)
        (into / name).touch(mode=0o600)
        (into / name).write_bytes(data)
