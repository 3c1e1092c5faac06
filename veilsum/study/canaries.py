"""Canary packs: public inputs with the features that a study's extractor gives them, and what a member's features differ by.

A pack is a ZIP archive of one form, so that equal contents have equal bytes: entries in this order, uncompressed and without dates.

    canaries.json   ids, class keys and column names; the names of slips and inputs
    features        (n, dim) float32, little-endian, row by row
    slips/NAME      the features under a known slip, or under two (`bgr--bicubic`), in the same form
    inputs/FILE     the public inputs; any unzip program takes them out

A study names the pack's SHA-256 and a tolerance (wire: Studies). Members run the inputs through their own pipeline, and compare.
"""

import hashlib
import io
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import Misuse, PeerFault
from veilsum.protocol.forms import CLASS_PATTERN, COLUMN_PATTERN, first_fault
from veilsum.protocol.study import DIM_MAX, Content, Question, canonical_json, study_fault
from veilsum.study.canary_slips import SLIP_NAME_LENGTH_MAX, SLIPS_MAX

PACK_BYTES_MAX = 64 << 20
CANARIES_MAX = 10_000
CANARY_PREFIX = "canary-"
"""An id that begins so is a canary's, in every file and study."""
_HEADER, _FEATURES, _SLIPS, _INPUTS = "canaries.json", "features", "slips/", "inputs/"
_ENTRY_DATE = (1980, 1, 1, 0, 0, 0)
_ITEM_BYTES = 4

CanaryId = Annotated[str, Field(pattern=r"^canary-[0-9A-Za-z._-]{1,100}$")]
SlipName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=SLIP_NAME_LENGTH_MAX)]
FileName = Annotated[str, Field(pattern=r"^[0-9A-Za-z][0-9A-Za-z._-]{0,127}$")]


class _Header(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    format: Literal["veilsum-canaries/1"] = "veilsum-canaries/1"
    dim: Annotated[int, Field(ge=2, le=DIM_MAX)]
    ids: Annotated[tuple[CanaryId, ...], Field(min_length=1, max_length=CANARIES_MAX)]
    labels: tuple[Annotated[str, Field(pattern=CLASS_PATTERN)], ...]
    columns: tuple[Annotated[str, Field(max_length=64, pattern=COLUMN_PATTERN)], ...]
    slips: Annotated[tuple[SlipName, ...], Field(max_length=SLIPS_MAX)]
    inputs: Annotated[tuple[FileName, ...], Field(max_length=CANARIES_MAX)]


@dataclass(frozen=True, repr=False, eq=False)
class CanaryPack:
    """Public inputs, the features that the extractor gives them, and those under known slips.

    Args:
        ids: each begins with `canary-`.
        labels: class keys, in the order of the ids.
        features: (n, dim), one row for each id, as the extractor gives them; kept as float32.
        columns: the features' names; may be empty.
        slips: features under known slips, (n, dim) each, such as those that `image_slips` computes.
        inputs: the public inputs: the content of files by name.

    Raises:
        Misuse: ids, labels, features or names don't fit each other.
    """

    ids: Sequence[str]
    labels: Sequence[str]
    features: Any
    columns: Sequence[str] = ()
    slips: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, bytes] = field(default_factory=dict)
    _header: _Header = field(init=False)

    def __post_init__(self) -> None:
        given = np.asarray(self.features)
        try:
            header = _Header(
                dim=given.shape[1] if given.ndim == 2 else 0,
                ids=tuple(self.ids),
                labels=tuple(self.labels),
                columns=tuple(self.columns),
                slips=tuple(sorted(self.slips)),
                inputs=tuple(sorted(self.inputs)),
            )
        except ValidationError as error:
            raise Misuse(f"canary pack: {first_fault(error)}") from error
        _check_header(header)
        arrays = {name: self.slips[name] for name in header.slips}
        # Frozen: fields are set only while it is being made.
        object.__setattr__(self, "features", _as_features(_FEATURES, given, header))
        object.__setattr__(
            self, "slips", {name: _as_features(name, each, header) for name, each in arrays.items()}
        )
        object.__setattr__(self, "_header", header)

    def to_bytes(self) -> bytes:
        """Encode as an archive; equal packs give equal bytes. Raises Misuse if it is larger than `PACK_BYTES_MAX`."""
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            for name, content in self._list_entries():
                entry = zipfile.ZipInfo(name, _ENTRY_DATE)
                entry.create_system, entry.external_attr = 3, 0o644 << 16
                archive.writestr(entry, content)
        if (size := file.tell()) > PACK_BYTES_MAX:
            raise Misuse(
                f"canary pack: {size:,} bytes, at most {PACK_BYTES_MAX:,}: take fewer or smaller inputs"
            )
        return file.getvalue()

    @property
    def digest(self) -> str:
        """The SHA-256 of the archive, by which a study names the pack."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Read a pack. Raises Misuse, which says what is wrong with it."""
        if len(data) > PACK_BYTES_MAX:
            raise Misuse(f"canary pack: {len(data):,} bytes, at most {PACK_BYTES_MAX:,}")
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                found = _read_entries(archive, len(data))
        except (
            zipfile.BadZipFile,
            EOFError,
            NotImplementedError,
            RuntimeError,
            ValueError,
            OSError,
        ) as error:
            raise Misuse(f"not a canary pack: {error}. `veilsum admin canaries` makes one") from error
        try:
            header = _Header.model_validate_json(found.pop(_HEADER, b""))
        except ValidationError as error:
            raise Misuse(f"canary pack: {_HEADER}: {first_fault(error)}") from error
        _check_header(header)

        def rows(name: str) -> npt.NDArray[np.float32]:
            content, expected = found.pop(name, b""), len(header.ids) * header.dim * _ITEM_BYTES
            if len(content) != expected:
                raise Misuse(f"canary pack: {name} has {len(content):,} bytes, expected {expected:,}")
            return np.frombuffer(content, "<f4").reshape(len(header.ids), header.dim).astype(np.float32)

        features = rows(_FEATURES)
        slips = {name: rows(_SLIPS + name) for name in header.slips}
        inputs = {name.removeprefix(_INPUTS): content for name, content in found.items()}
        if strange := sorted({*found} ^ {_INPUTS + name for name in header.inputs}):
            raise Misuse(f"canary pack: {strange[0]} is listed and not there, or there and not listed")
        return cls(header.ids, header.labels, features, header.columns, slips, inputs)

    def check_question(self, question: Question) -> None:
        """Raise Misuse if the pack does not fit a study's question."""
        if self.features.shape[1] != question.dim:
            raise Misuse(
                f"the canary pack has {self.features.shape[1]} features, and the study's extractor gives {question.dim}"
            )
        if strange := sorted({*self.labels} - {*question.classes}):
            raise Misuse(f"the canary pack has class {strange[0]!r}, which is no class of the study")
        if self.columns and question.columns and {*self.columns} != {*question.columns}:
            raise Misuse("the canary pack names other columns than the study")

    def _list_entries(self) -> Iterator[tuple[str, bytes]]:
        header = self._header
        yield _HEADER, canonical_json(header)
        yield _FEATURES, self.features.astype("<f4").tobytes()
        for name in header.slips:
            yield _SLIPS + name, self.slips[name].astype("<f4").tobytes()
        for name in header.inputs:
            yield _INPUTS + name, bytes(self.inputs[name])

    def __repr__(self) -> str:
        return f"<CanaryPack, {len(self.ids)} canaries>"


def fetched_pack(content: Content, data: bytes) -> CanaryPack:
    """Read the pack that a study names, as a coordinator shows it (CANARY-2, CANARY-3).

    Raises:
        PeerFault: malformed for other bytes than the study names; study-refused if they are no pack, or don't fit the study.
    """
    assert content.rehearsal is not None
    if hashlib.sha256(data).hexdigest() != content.rehearsal.pack:
        raise PeerFault(
            Cause.MALFORMED,
            f"the coordinator shows another canary pack than study {content.notes.name} names",
            ["coordinator"],
        )
    try:
        pack = CanaryPack.from_bytes(data)
        pack.check_question(content.question)
    except Misuse as error:
        raise study_fault(f"{content.notes.name}: {error}") from error
    return pack


def _check_header(header: _Header) -> None:
    """Raise Misuse if parts of a header don't fit each other."""
    if len(header.labels) != len(header.ids):
        raise Misuse(f"canary pack: {len(header.labels)} labels for {len(header.ids)} ids")
    if header.columns and len({*header.columns}) != header.dim:
        raise Misuse(
            f"canary pack: {len({*header.columns})} different names of columns for {header.dim} features"
        )
    for what in ("ids", "slips", "inputs"):
        names = getattr(header, what)
        if len({*names}) != len(names):
            raise Misuse(f"canary pack: a name occurs twice in {what}")


def _as_features(name: str, given: Any, header: _Header) -> npt.NDArray[np.float32]:
    """Return features as float32. Raises Misuse for another shape or type, and for NaN, infinity or a row of zeros."""
    rows = np.asarray(given)
    expected = (len(header.ids), header.dim)
    if rows.shape != expected or rows.dtype.kind not in "fiu":
        raise Misuse(
            f"canary pack: {name} are {rows.dtype} of shape {rows.shape}, expected numbers of shape {expected}"
        )
    found = rows.astype(np.float32)
    wrong = np.flatnonzero(~(np.isfinite(found).all(axis=1) & found.any(axis=1)))
    if wrong.size:
        raise Misuse(f"canary pack: {name} of {header.ids[wrong[0]]} hold NaN or infinity, or are all zeros")
    return found


def _read_entries(archive: zipfile.ZipFile, size: int) -> dict[str, bytes]:
    """Read all entries. Raises ValueError for compressed or overlapping ones, which may hold far more than the archive."""
    entries = archive.infolist()
    for entry in entries:
        if entry.compress_type != zipfile.ZIP_STORED:
            raise ValueError(f"{entry.filename} is compressed")
    if sum(entry.file_size for entry in entries) > size:
        raise ValueError("its entries overlap")
    return {entry.filename: archive.read(entry) for entry in entries}
