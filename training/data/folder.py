"""The user's data folder: published files, their checksums, and errors that say what to fetch."""

import hashlib
import os
import pickle
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

FOLDER_VARIABLE = "VEILSUM_DATA"
_SHA256_HEX = 64
# What readers raise on files that are empty, cut off or something else.
DAMAGED_FILE_ERRORS = (
    *(OSError, EOFError, KeyError, ValueError, TypeError, IndexError, AttributeError),
    *(pickle.UnpicklingError, tarfile.TarError, zipfile.BadZipFile, zlib.error),
)


class DataError(ValueError):
    """Data that is missing, damaged, or not what its publisher shipped."""


class Images(NamedTuple):
    """What a reader returns.

    Attributes:
        x: uint8 of shape (n, height, width) or (n, height, width, 3).
        y: labels, int64 of shape (n,).
        groups: the natural member of each record, int64 of shape (n,), or None.
        group_names: a name for each group, or none.
    """

    x: npt.NDArray[np.uint8]
    y: npt.NDArray[np.int64]
    groups: npt.NDArray[np.int64] | None = None
    class_names: tuple[str, ...] = ()
    group_names: tuple[str, ...] = ()

    def select_records(self, chosen: npt.NDArray[np.bool_]) -> Self:
        """Return the records that the mask `chosen`, of shape (n,), selects."""
        groups = None if self.groups is None else self.groups[chosen]
        return self._replace(x=self.x[chosen], y=self.y[chosen], groups=groups)


@dataclass(frozen=True)
class DataFolder:
    """One data set's place in the data folder.

    Attributes:
        name: the data set's own folder in the data folder, `root`.
        side: pixels to which images of differing sizes are resized.
        checksums: by file name, MD5 as published or SHA-256 of a pack.
    """

    root: Path
    name: str
    url: str
    side: int
    checksums: Mapping[str, str]

    @property
    def path(self) -> Path:
        return self.root / self.name

    def one_of(self, *names: str) -> Path:
        """Return the first of these files that exists, after checking its checksum.

        Raises:
            DataError: if none exists, or the checksum differs.
        """
        for name in names:
            path = self.path / name
            if path.is_file():
                self.verify_checksum(path)
                return path
        raise self.missing_error(" or ".join(names))

    def find_folder(self, *names: str) -> Path:
        """Return the first of these folders that exists. Raises DataError if none does."""
        for name in names:
            if (self.path / name).is_dir():
                return self.path / name
        raise self.missing_error(" or ".join(f"{name}/" for name in names))

    @contextmanager
    def reword_errors(self, path: Path) -> Iterator[None]:
        """Turn what a reader raises on a damaged file into a DataError that says where to fetch it."""
        try:
            yield
        except DataError:
            raise
        except DAMAGED_FILE_ERRORS as error:
            raise self.broken_error(path, f"{type(error).__name__}: {error}") from error

    def missing_error(self, what: str) -> DataError:
        """Make the error that says what to fetch, from where, and where to put it."""
        return DataError(
            f"{what} is not in {self.path}: get it from {self.url} and put it there (nothing is downloaded by itself)"
        )

    def broken_error(self, path: Path, why: str) -> DataError:
        """Make the error for a file that is not in its publisher's format."""
        return DataError(f"{path} can't be read: {why}; fetch it again from {self.url}")

    def verify_checksum(self, path: Path) -> None:
        """Check a file against the checksum of its name, if there is one. Raises DataError if it differs."""
        expected = self.checksums.get(path.name)
        if expected is None:
            return
        # Publishers state MD5, which detects a broken download, not a forgery.
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
                "read your own files by an import path (docs/training.md)"
            )
        raise DataError(
            f"{path} has MD5 {found}, the published file {expected}: fetch it again from {self.url}"
        )


def whole_numbers(values: npt.ArrayLike, what: str) -> npt.NDArray[np.int64]:
    """Convert labels or group numbers to int64. Raises ValueError unless they are integers: 0.7 would become class 0."""
    array = np.asarray(values)
    if array.size and array.dtype.kind not in "iu":
        raise ValueError(f"{what} are {array.dtype}, not integers")
    return array.astype(np.int64)


def data_folder(folder: Path | None) -> Path:
    """Return the data folder: the argument, or VEILSUM_DATA's. Raises DataError if neither names a folder."""
    named = folder or (Path(os.environ[FOLDER_VARIABLE]) if os.environ.get(FOLDER_VARIABLE) else None)
    if named is None:
        raise DataError(
            f"no data folder is named: set {FOLDER_VARIABLE} or pass one (docs/training.md says how it is laid out)"
        )
    if not named.is_dir():
        raise DataError(f"the data folder {named} does not exist")
    return named
