"""Packs: a whole data set in one .npz file.

An array pack holds `x` with `y`, and marks its test records by `is_test`; or holds `x_train`, `y_train`, `x_test` and
`y_test`. A JPEG pack holds the files' bytes: `body_train` with `offsets_train` of length n + 1, and `head_id_train`, the index of
the header in `heads` (cut at `head_offsets`) that precedes each record's body; likewise for `test`. Either may name its classes
(`class_names`) and its records' natural members (`domain` or `speaker`, with `domain_names` or `speaker_names`).
"""

import io
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from training.data.folder import DAMAGED_FILE_ERRORS, DataError, DataFolder, Images, whole_numbers

Arrays = Mapping[str, np.ndarray[Any, np.dtype[Any]]]

_GROUPS = ("domain", "speaker")
# Spoken digits: the publisher's test set is recordings 0 to 4 of each speaker and digit.
_FIRST_TRAINING_INDEX = 5


def read_pack(folder: DataFolder, name: str) -> tuple[Images, Images]:
    """Read the pack `name` from the data folder. Raises DataError if it is missing, damaged or has another checksum."""
    path = folder.root / name
    if not path.is_file():
        raise DataError(
            f"{name} is not in {folder.root}: name the folder that holds it, or read your own files by an import path (docs/training.md)"
        )
    folder.verify_checksum(path)
    try:
        # Arrays of objects would be pickles: they are refused.
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            arrays = dict(file)
        if "heads" in arrays:
            return _decode_jpegs(arrays, "train"), _decode_jpegs(arrays, "test")
        if "x_train" in arrays:
            return _read_images(arrays, "_train"), _read_images(arrays, "_test")
        whole = _read_images(arrays, "")
        held = _held_out_mask(arrays)
        return whole.select_records(~held), whole.select_records(held)
    except DAMAGED_FILE_ERRORS as error:
        raise DataError(
            f"{path} is not a pack: {type(error).__name__}: {error}; docs/training.md says what one holds"
        ) from error


def _held_out_mask(arrays: Arrays) -> np.ndarray[Any, np.dtype[np.bool_]]:
    if "is_test" in arrays:
        return arrays["is_test"].astype(bool)
    return np.asarray(arrays["index"] < _FIRST_TRAINING_INDEX)


def _read_images(arrays: Arrays, suffix: str) -> Images:
    x = arrays[f"x{suffix}"]
    if x.dtype != np.uint8 or x.ndim not in {3, 4}:
        raise ValueError(f"x{suffix} is {x.dtype} of {x.ndim} dimensions, not uint8 of 3 or 4")
    group = next((name for name in _GROUPS if name in arrays), None)
    return _of_one_length(
        x,
        whole_numbers(arrays[f"y{suffix}"], "labels"),
        None if group is None else whole_numbers(arrays[group], f"{group}s"),
        _read_names(arrays, "class_names"),
        _read_names(arrays, f"{group}_names"),
    )


def _decode_jpegs(arrays: Arrays, part: str) -> Images:
    from PIL import Image  # noqa: PLC0415 - worker processes need no Pillow

    cuts = arrays["head_offsets"]
    heads = [arrays["heads"][a:b].tobytes() for a, b in pairwise(cuts)]
    body, offsets = arrays[f"body_{part}"].tobytes(), arrays[f"offsets_{part}"]
    pictures = []
    for start, end, head in zip(offsets[:-1], offsets[1:], arrays[f"head_id_{part}"], strict=True):
        with Image.open(io.BytesIO(heads[head] + body[start:end])) as image:
            pictures.append(np.asarray(image.convert("RGB")))
    y = whole_numbers(arrays[f"y_{part}"], "labels")
    return _of_one_length(np.stack(pictures), y, None, _read_names(arrays, "class_names"))


def _of_one_length(
    x: np.ndarray[Any, np.dtype[np.uint8]],
    y: np.ndarray[Any, np.dtype[np.int64]],
    groups: np.ndarray[Any, np.dtype[np.int64]] | None,
    class_names: tuple[str, ...],
    group_names: tuple[str, ...] = (),
) -> Images:
    for name, own in (("labels", y), ("groups", groups)):
        if own is not None and own.shape != (len(x),):
            raise ValueError(f"{name} have shape {own.shape}, not ({len(x)},), one a record")
    return Images(x, y, groups, class_names, group_names)


def _read_names(arrays: Arrays, key: str) -> tuple[str, ...]:
    return tuple(map(str, arrays[key])) if key in arrays else ()
