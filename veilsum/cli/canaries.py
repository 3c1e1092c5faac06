"""Make canary packs of files, and write their inputs for a pipeline."""

import csv
import importlib
import io
import sys
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from client_sdk.records import is_canary_id, normalise_id
from veilsum.cli.features import read_table
from veilsum.cli.moments import Moments
from veilsum.cli.tables import Array, Table, TableFormat
from veilsum.protocol.errors import Misuse
from veilsum.study.canaries import CANARY_PREFIX, CanaryPack
from veilsum.study.canary_check import measure_slips, suggest_tolerance
from veilsum.study.canary_slips import PAIR_MARK, SAME_MAX, image_slips
from veilsum.system.files import write_durably

LIST_FILE, TABLE_FILE = "labels.csv", "canaries.csv"
"""Names of the list of ids and labels beside inputs, and of a pack's input that is a table."""


def pack_of_features(
    features: Path, form: TableFormat, *, inputs: Path | None, slips: Sequence[str], standardise: Path | None
) -> CanaryPack:
    """Make a pack of reference features in a file, whose ids name the inputs' files.

    Args:
        features: as members' files of features; its ids become the canaries', after `canary-`.
        form: of the file.
        inputs: folder of the public inputs; None if the file is a table, which is the input itself.
        slips: NAME=FILE, features of the same ids under a slip.
        standardise: a file of moments for the features and the slips' features.

    Raises:
        Misuse: files that don't fit each other.
    """
    table = read_table(features, form)
    ids = _canary_ids(features, table)
    if inputs is not None:
        files = _inputs_named(inputs, ids)
    elif table.columns:
        files = {TABLE_FILE: _table_text(ids, table)}
    else:
        raise Misuse(f"{features} is not a table: pass the inputs' folder with --inputs")

    moments = None if standardise is None else Moments.load_moments(standardise)

    def standardise_given(given: Table) -> Table:
        return given if moments is None else moments.standardise_table(given)

    reference, changed = standardise_given(table), dict[str, Array]()
    for name, file in map(_split_slip, slips):
        slip = standardise_given(_order_rows(Path(file), read_table(Path(file), form), ids))
        changed[name] = slip.order_columns(reference.columns, "those of the reference").features
    labels = [str(label).strip() for label in table.labels.tolist()]
    made = CanaryPack(ids, labels, reference.features, reference.columns, changed, files)
    if same := [name for name, change in measure_slips(made).items() if change <= SAME_MAX]:
        raise Misuse(
            f"--slip {same[0]}: its features are those of {features}, so no tolerance would find the slip; pass the features that it gives"
        )
    return made


def pack_of_images(
    inputs: Path, extractor: str, size: tuple[int, int] | None, slips: Sequence[str]
) -> CanaryPack:
    """Make a pack of images, with the features that a function gives them and their slips.

    Args:
        inputs: a folder with a folder of images for each class, by its key.
        extractor: MODULE:FUNCTION, which takes a list of images, (height, width) or (height, width, 3) uint8, and returns (n, dim).
        size: (height, width) to which the function resizes them.
        slips: NAME=MODULE:FUNCTION, the extractor with one step left out or changed.
    """
    extract, files = _import_function(extractor), sorted(inputs.glob("*/*"))
    variants = {name: _import_function(path) for name, path in map(_split_slip, slips)}
    if not files:
        raise Misuse(f"{inputs} has no images: expected a folder for each class, with images in it")
    ids = [f"{CANARY_PREFIX}{number:04}" for number in range(1, len(files) + 1)]
    reference, changed = image_slips(
        extract, [_read_image(each) for each in files], size=size, variants=variants
    )
    named = {f"{each}{file.suffix.lower()}": file.read_bytes() for each, file in zip(ids, files, strict=True)}
    return CanaryPack(ids, [file.parent.name for file in files], reference, slips=changed, inputs=named)


def read_pack(path: Path) -> CanaryPack:
    """Read a pack. Raises Misuse for any other file."""
    try:
        return CanaryPack.from_bytes(path.read_bytes())
    except Misuse as error:
        raise Misuse(f"{path}: {error}") from error


def pack_fields(pack: CanaryPack | None) -> dict[str, Any]:
    """Return the arguments of `draft_template` for a pack."""
    if pack is None:
        return {}
    return {"pack": pack.digest, "tolerance": suggest_tolerance(pack), "columns": pack.columns}


def is_archive(path: Path) -> bool:
    """Whether a file is a ZIP archive, as packs are."""
    return path.is_file() and zipfile.is_zipfile(path)


def write_inputs(pack: CanaryPack, folder: Path) -> None:
    """Write a pack's inputs, with a list of ids and labels. Raises Misuse if another file has one of their names."""
    rows = [("id", "label"), *zip(pack.ids, pack.labels, strict=True)]
    files = {folder / name: content for name, content in pack.inputs.items()}
    files[folder / LIST_FILE] = _csv_text(rows)
    for path, content in files.items():
        if path.exists() and path.read_bytes() != content:
            raise Misuse(f"{path} exists, and is another file: choose a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    for path, content in files.items():
        write_durably(path, content)


def describe_pack(pack: CanaryPack) -> dict[str, Any]:
    """Describe a pack's content, with the slip that differs least: a study's tolerance is below it."""
    single = sorted(name for name in pack.slips if PAIR_MARK not in name)
    least = min(measure_slips(pack).items(), key=lambda each: each[1], default=None)
    return {
        "canaries": len(pack.ids),
        "classes": sorted({*pack.labels}),
        "inputs": len(pack.inputs),
        "slips": single,
        "pairs_of_slips": len(pack.slips) - len(single),
        "smallest_slip": None if least is None else f"{least[0]}, {least[1]:.2g}",
    }


def _split_slip(text: str) -> tuple[str, str]:
    name, found, source = text.partition("=")
    if not found:
        raise Misuse(f"--slip {text}: expected NAME=FILE, or NAME=MODULE:FUNCTION beside --extractor")
    return name, source


def _canary_ids(path: Path, table: Table) -> list[str]:
    if table.ids is None:
        raise Misuse(f"{path} has no ids: give each row the name of its input")
    found = []
    for each in table.ids.tolist():
        text = normalise_id(each if isinstance(each, bytes) else str(each).encode()).decode(
            "utf-8", "replace"
        )
        found.append(text if is_canary_id(text) else f"{CANARY_PREFIX}{Path(text).stem}")
    return found


def _order_rows(path: Path, table: Table, ids: Sequence[str]) -> Table:
    """Return a slip's rows in the order of the reference's ids."""
    places = {each: place for place, each in enumerate(_canary_ids(path, table))}
    if missing := [each for each in ids if each not in places]:
        raise Misuse(f"{path} has no row for {missing[0]}: expected the same ids as in the reference")
    return table.take_rows([places[each] for each in ids])


def _inputs_named(folder: Path, ids: Sequence[str]) -> dict[str, bytes]:
    """Read the inputs of a folder under their canaries' ids. Raises Misuse unless each id has one."""
    files = dict[str, Path]()
    for each in sorted(filter(Path.is_file, folder.iterdir())):
        name = each.stem if is_canary_id(each.stem) else f"{CANARY_PREFIX}{each.stem}"
        if files.setdefault(name, each) != each and name in ids:
            raise Misuse(
                f"{folder} has several inputs for {name}: {files[name].name} and {each.name}; expected one"
            )
    if missing := [each for each in ids if each not in files]:
        raise Misuse(
            f"{folder} has no input for {missing[0]}: expected a file named by this id, with any ending"
        )
    return {f"{each}{files[each].suffix.lower()}": files[each].read_bytes() for each in ids}


def _table_text(ids: Sequence[str], table: Table) -> bytes:
    head = ("id", "label", *table.columns)
    rows = zip(ids, table.labels.tolist(), table.features.tolist(), strict=True)
    return _csv_text([head, *((each, label, *map(repr, values)) for each, label, values in rows)])


def _csv_text(rows: Sequence[Sequence[Any]]) -> bytes:
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(rows)
    return file.getvalue().encode()


def _read_image(path: Path) -> Any:
    try:
        from PIL import Image  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise Misuse("reading images needs an extra: pip install 'veilsum[training]'") from error
    try:
        with Image.open(path) as image:
            return np.asarray(image if image.mode == "L" else image.convert("RGB"))
    except (OSError, SyntaxError) as error:
        raise Misuse(f"{path} is not an image that can be read") from error


def _import_function(path: str) -> Callable[..., Any]:
    """Import MODULE:FUNCTION, also from the working folder. Raises Misuse if it can't be found."""
    module, _, name = path.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise Misuse(f"{path}: expected MODULE:FUNCTION that can be imported ({error})") from error
    finally:
        sys.path.remove(str(Path.cwd()))
    if not callable(found):
        raise Misuse(f"{path} is not a function")
    function: Callable[..., Any] = found
    return function
