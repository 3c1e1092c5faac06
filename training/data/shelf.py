"""Where published files lie: a folder that the user names, their checksums, and errors that say what to fetch."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Mapping

ENVIRONMENT = "VEILSUM_DATA"
_SHA256_HEX = 64


class DataError(ValueError):
    """Data that is missing, is not what its publisher shipped, or cannot be read."""


class Images(NamedTuple):
    """What a reader returns.

    Attributes:
        x: uint8 of shape (n, height, width) or (n, height, width, 3).
        y: labels, int64 of shape (n,).
        groups: the natural member of each record, int64 of shape (n,), or None.
        class_names: C names, or none.
        group_names: a name for each group, or none.
    """

    x: npt.NDArray[np.uint8]
    y: npt.NDArray[np.int64]
    groups: npt.NDArray[np.int64] | None = None
    class_names: tuple[str, ...] = ()
    group_names: tuple[str, ...] = ()

    def where(self, chosen: npt.NDArray[np.bool_]) -> Images:
        """The records that `chosen`, of shape (n,), marks."""
        groups = None if self.groups is None else self.groups[chosen]
        return self._replace(x=self.x[chosen], y=self.y[chosen], groups=groups)


@dataclass(frozen=True)
class Shelf:
    """One data set's place in the data folder.

    Attributes:
        root: the data folder.
        name: the data set's own folder in it.
        url: where the publisher offers it.
        side: the pixels that images of differing sizes are brought to.
        checksums: by file name, MD5 as published or SHA-256 of a pack.
    """

    root: Path
    name: str
    url: str
    side: int
    checksums: Mapping[str, str]

    @property
    def folder(self) -> Path:
        """The data set's own folder."""
        return self.root / self.name

    def one_of(self, *names: str) -> Path:
        """The first of these files that is there, once its checksum is the published one.

        Raises:
            DataError: if none is there, or the checksum differs.
        """
        for name in names:
            path = self.folder / name
            if path.is_file():
                self.verify(path)
                return path
        raise self.missing(" or ".join(names))

    def below(self, *names: str) -> Path:
        """The first of these folders that is there.

        Raises:
            DataError: if none is.
        """
        for name in names:
            if (self.folder / name).is_dir():
                return self.folder / name
        raise self.missing(" or ".join(f"{name}/" for name in names))

    def missing(self, what: str) -> DataError:
        """The error that says what to fetch, from where, to where."""
        return DataError(
            f"{what} is not in {self.folder}: get it from {self.url} and put it there (nothing is downloaded by itself)"
        )

    def broken(self, path: Path, why: str) -> DataError:
        """The error of a file that does not read as its publisher's format."""
        return DataError(f"{path} can't be read: {why}; fetch it again from {self.url}")

    def verify(self, path: Path) -> None:
        """Hold a file against the checksum that its name has, where it has one.

        Raises:
            DataError: it is another.
        """
        expected = self.checksums.get(path.name)
        if expected is None:
            return
        # MD5 is what publishers state; it tells a broken download, not a forgery.
        packed = len(expected) == _SHA256_HEX
        with path.open("rb") as file:
            found = hashlib.file_digest(
                file, hashlib.sha256 if packed else lambda: hashlib.md5(usedforsecurity=False)
            ).hexdigest()
        if found == expected:
            return
        if packed:
            raise DataError(
                f"{path} has SHA-256 {found}, the pack of that name {expected}: it is damaged, or another one; "
                "a pack of your own is read with data.checked=false"
            )
        raise DataError(
            f"{path} has MD5 {found}, the published file {expected}: fetch it again from {self.url}"
        )


def whole_numbers(values: npt.ArrayLike, what: str) -> npt.NDArray[np.int64]:
    """Labels, or the numbers of groups, as int64 of the shape that they have.

    Raises:
        ValueError: if they are anything but integers: 0.7 would else be class 0.
    """
    array = np.asarray(values)
    if array.size and array.dtype.kind not in "iu":
        raise ValueError(f"{what} are {array.dtype}, not integers")
    return array.astype(np.int64)


def data_folder(folder: Path | None) -> Path:
    """The data folder that was named by an argument or by VEILSUM_DATA.

    Raises:
        DataError: if none was, or there is no such folder.
    """
    named = folder or (Path(os.environ[ENVIRONMENT]) if os.environ.get(ENVIRONMENT) else None)
    if named is None:
        raise DataError(
            f"no data folder is named: set {ENVIRONMENT} or pass one (docs/training.md says how it is laid out)"
        )
    if not named.is_dir():
        raise DataError(f"the data folder {named} does not exist")
    return named
