"""A disk that forgets: what a folder holds after a power cut, given the calls that a process made.

Only what was synced stays: a file's bytes from fsync or fdatasync of the file on, a name from fsync of its folder on. That is what POSIX
promises and less than most file systems keep; `materialise` can also keep any part of the rest.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from random import Random
from typing import TypeAlias


@dataclass(eq=False)
class File:
    """Its synced bytes, and the changes since."""

    synced: bytearray = field(default_factory=bytearray)
    pending: list[Callable[[bytearray], None]] = field(default_factory=list)


@dataclass(eq=False)
class Folder:
    """Its names as processes see them, those that are synced, and the changes since: each from names to what they stand for, or None."""

    names: "dict[str, Node]" = field(default_factory=dict)
    synced: "dict[str, Node]" = field(default_factory=dict)
    pending: "list[dict[str, Node | None]]" = field(default_factory=list)


Node: TypeAlias = File | Folder


class Disk:
    """Everything under one folder, which itself is synced."""

    def __init__(self) -> None:
        self.top = Folder()

    def find(self, path: PurePosixPath) -> Node | None:
        """What stands there now."""
        node: Node | None = self.top
        for part in path.parts:
            node = node.names.get(part) if isinstance(node, Folder) else None
        return node

    def make(self, path: PurePosixPath, node: Node) -> Node:
        """A new name."""
        self._change(path.parent, {path.name: node})
        return node

    def move(self, old: PurePosixPath, new: PurePosixPath) -> None:
        """Within a folder in one step; the two steps of another move may be torn apart."""
        node = self.find(old)
        if old.parent == new.parent:
            self._change(old.parent, {old.name: None, new.name: node})
        else:
            self._change(new.parent, {new.name: node})
            self._change(old.parent, {old.name: None})

    def remove(self, path: PurePosixPath) -> None:
        """A name less."""
        self._change(path.parent, {path.name: None})

    def _change(self, where: PurePosixPath, change: "dict[str, Node | None]") -> None:
        folder = self.find(where)
        assert isinstance(folder, Folder), where
        folder.pending.append(change)
        _rename(folder.names, change)

    def materialise(self, into: Path, chance: Random | None = None) -> Path:
        """Write what a power cut now leaves.

        Args:
            into: a folder that is not there yet.
            chance: of every change that is not synced, whether it stays all the same; None where nothing does.
        """
        _write(self.top, into, chance)
        return into


def sync(node: Node, count: int) -> None:
    """The first so many changes are on the disk."""
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
