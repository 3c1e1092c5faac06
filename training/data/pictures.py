"""Data sets with one file per image: TinyImageNet, CINIC-10, PACS, Office-Home, HAM10000."""

from __future__ import annotations

import csv
import io
import zipfile
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from training.data.folder import DataError, DataFolder, Images

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

_SUFFIXES = {".jpg", ".jpeg", ".png"}
_TEST_SEED = 0
_HAM_TEST_SHARE = 0.2
_CINIC10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


class _Place(Protocol):
    """A folder, or a folder in a zip archive."""

    @property
    def name(self) -> str: ...
    def __truediv__(self, name: str) -> _Place: ...
    def iterdir(self) -> Iterable[_Place]: ...
    def read_bytes(self) -> bytes: ...


@dataclass(frozen=True)
class _Zipped:
    """A file or folder in an archive, with names grouped by folder: `zipfile.Path` would scan all names for each folder."""

    archive: zipfile.ZipFile
    inside: Mapping[str, Sequence[str]]
    path: str

    @classmethod
    def open_archive(cls, file: Path, folder: str) -> _Zipped:
        archive = zipfile.ZipFile(file)
        inside = defaultdict(list)
        for name in archive.namelist():
            if not name.endswith("/"):
                inside[name.rpartition("/")[0]].append(name)
        return cls(archive, inside, folder)

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    def __truediv__(self, name: str) -> _Zipped:
        return replace(self, path=f"{self.path}/{name}")

    def iterdir(self) -> Iterable[_Zipped]:
        """Iterate over files, without folders."""
        return (replace(self, path=name) for name in self.inside.get(self.path, ()))

    def read_bytes(self) -> bytes:
        return self.archive.read(self.path)


def read_tinyimagenet(folder: DataFolder) -> tuple[Images, Images]:
    """Read tiny-imagenet-200.zip, or the folder it unpacks to; the validation images are the test set.

    Classes are numbered in the order of `wnids.txt` and named by their WordNet ids.
    """
    root: _Place
    if (folder.path / "tiny-imagenet-200").is_dir():
        root = folder.path / "tiny-imagenet-200"
    else:
        path = folder.one_of("tiny-imagenet-200.zip")
        with folder.reword_errors(path):
            root = _Zipped.open_archive(path, "tiny-imagenet-200")
    with folder.reword_errors(folder.path):
        names = (root / "wnids.txt").read_bytes().decode().split()
        label = {name: i for i, name in enumerate(names)}
        found = {name: _list_pictures(root / "train" / name / "images") for name in names}
        lines = (root / "val" / "val_annotations.txt").read_bytes().decode().splitlines()
        held = [line.split("\t")[:2] for line in lines if line]
        train = _read_images(
            [file for files in found.values() for file in files],
            [label[name] for name, files in found.items() for _ in files],
            folder.side,
        )
        test = _read_images(
            [root / "val" / "images" / file for file, _ in held],
            [label[name] for _, name in held],
            folder.side,
        )
    return train._replace(class_names=tuple(names)), test._replace(class_names=tuple(names))


def read_cinic10(folder: DataFolder) -> tuple[Images, Images]:
    """Read `train/CLASS/*.png` and `test/CLASS/*.png`, as CINIC-10.tar.gz unpacks; `valid` is unused.

    Raises:
        DataError: if a part is missing or its folders are not the ten classes, which would change their numbers.
    """
    train, test = (
        _by_class(folder, folder.find_folder(part), _CINIC10_CLASSES) for part in ("train", "test")
    )
    return train, test


def read_pacs(folder: DataFolder) -> tuple[Images, Images]:
    """Read `DOMAIN/CLASS/*` of art_painting, cartoon, photo and sketch; hold out 40 of each class and domain.

    FedUV holds out as many at random (Son et al. 2024, §4.1); here a fixed seed draws them.
    """
    return _read_domains(folder, ("art_painting", "cartoon", "photo", "sketch"), 40)


def read_office_home(folder: DataFolder) -> tuple[Images, Images]:
    """Read `DOMAIN/CLASS/*` of Art, Clipart, Product and Real World; hold out 7 of each class and domain, as FedUV does."""
    return _read_domains(folder, ("Art", "Clipart", "Product", "Real World"), 7)


def read_ham10000(folder: DataFolder) -> tuple[Images, Images]:
    """Read HAM10000_metadata and the two folders of images (Tschandl et al. 2018); groups are the `dataset` column.

    About a fifth of each source is held out. Images of one lesion stay together.
    """
    path = folder.one_of("HAM10000_metadata", "HAM10000_metadata.csv", "HAM10000_metadata.tab")
    with folder.reword_errors(path):
        text = path.read_text("utf-8")
    rows = list(csv.DictReader(io.StringIO(text), delimiter="\t" if "\t" in text.partition("\n")[0] else ","))
    if not rows or not {"lesion_id", "image_id", "dx", "dataset"} <= rows[0].keys():
        raise folder.broken_error(
            path, "it lacks one of the columns lesion_id, image_id, dx, dataset (newer copies have them)"
        )
    if any(None in row.values() for row in rows):
        raise folder.broken_error(path, "it has a line that is cut off")
    places = [folder.find_folder(f"HAM10000_images_part_{part}") for part in (1, 2)]
    files = {file.stem: file for place in places for file in place.glob("*.jpg")}
    if absent := [row["image_id"] for row in rows if row["image_id"] not in files]:
        raise folder.missing_error(f"{absent[0]}.jpg (and {len(absent) - 1} more)")
    classes, sources = (sorted({row[key] for row in rows}) for key in ("dx", "dataset"))
    labels = [classes.index(row["dx"]) for row in rows]
    with folder.reword_errors(folder.path):
        images = _read_images([files[row["image_id"]] for row in rows], labels, folder.side)
    images = images._replace(
        groups=np.array([sources.index(row["dataset"]) for row in rows]),
        class_names=tuple(classes),
        group_names=tuple(sources),
    )
    held = _hold_lesions([row["lesion_id"] for row in rows], images.groups)
    return images.select_records(~held), images.select_records(held)


def _hold_lesions(lesions: Sequence[str], groups: npt.NDArray[np.int64] | None) -> npt.NDArray[np.bool_]:
    assert groups is not None
    rng, held = np.random.default_rng(_TEST_SEED), np.zeros(len(lesions), dtype=bool)
    names = np.array(lesions)
    for group in np.unique(groups):
        own = groups == group
        wanted = round(_HAM_TEST_SHARE * int(own.sum()))
        for lesion in rng.permutation(np.unique(names[own])):
            if int((held & own).sum()) >= wanted:
                break
            held |= own & (names == lesion)
    return held


def _read_domains(folder: DataFolder, domains: Sequence[str], held_out: int) -> tuple[Images, Images]:
    parts = [_by_class(folder, folder.find_folder(domain)) for domain in domains]
    names = parts[0].class_names
    for domain, part in zip(domains, parts, strict=True):
        if part.class_names != names:
            raise DataError(
                f"{folder.path / domain} has the classes {part.class_names}, {domains[0]} has {names}"
            )
    images = Images(
        np.concatenate([part.x for part in parts]),
        np.concatenate([part.y for part in parts]),
        np.concatenate([np.full(len(part.y), i) for i, part in enumerate(parts)]),
        names,
        tuple(domains),
    )
    assert images.groups is not None
    held = hold_out(images.y, images.groups, held_out)
    return images.select_records(~held), images.select_records(held)


def hold_out(y: npt.NDArray[np.int64], groups: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.bool_]:
    """Mark `count` records of each class in each group, drawn from a fixed seed, but at most half of them."""
    rng, held = np.random.default_rng(_TEST_SEED), np.zeros(len(y), dtype=bool)
    for group in np.unique(groups):
        for label in np.unique(y):
            cell = np.flatnonzero((groups == group) & (y == label))
            held[rng.permutation(cell)[: min(count, len(cell) // 2)]] = True
    return held


def _by_class(folder: DataFolder, place: Path, known: tuple[str, ...] | None = None) -> Images:
    names = sorted(entry.name for entry in place.iterdir() if entry.is_dir())
    if known is not None and names and (differ := set(names) ^ set(known)):
        raise folder.broken_error(
            place, f"its folders are not the {len(known)} classes: {', '.join(sorted(differ))}"
        )
    found = [(file, label) for label, name in enumerate(names) for file in _list_pictures(place / name)]
    if not found:
        raise folder.missing_error(f"{place.name}/CLASS/*.jpg or *.png")
    with folder.reword_errors(place):
        images = _read_images([file for file, _ in found], [label for _, label in found], folder.side)
    return images._replace(class_names=tuple(names))


def _list_pictures(folder: _Place) -> list[_Place]:
    inside = (entry for entry in folder.iterdir() if f".{entry.name.rpartition('.')[2].lower()}" in _SUFFIXES)
    return sorted(inside, key=lambda entry: entry.name)


def _read_images(files: Sequence[_Place], labels: Sequence[int], side: int) -> Images:
    from PIL import Image, UnidentifiedImageError  # noqa: PLC0415 - worker processes need no Pillow

    x = np.empty((len(files), side, side, 3), np.uint8)
    for row, file in zip(x, files, strict=True):
        try:
            with Image.open(io.BytesIO(file.read_bytes())) as image:
                colour = image.convert("RGB")
                if colour.size != (side, side):
                    colour = colour.resize((side, side), Image.Resampling.LANCZOS)
                row[:] = np.asarray(colour)
        except UnidentifiedImageError as error:
            raise ValueError(f"{file.name} is not an image") from error
        except OSError as error:
            raise ValueError(f"{file.name}: {error}") from error
    return Images(x, np.asarray(labels, np.int64))
