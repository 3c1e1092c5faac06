"""A simulation's stores in a folder: what grows with the cohort is on disk, and memory holds only its location."""

import io
import pickle
import shutil
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any

from service.coordination.catalogue import FileShelf
from tests.support.storage import Chunks, Phases
from veilsum.protocol.codec import Struct
from veilsum.protocol.member import MemberPhase
from veilsum.protocol.messages import Certificate, Manifest, Opening, Roster, ShownCiphertext, Study

SHARED = (Roster, Study, Manifest, Opening, Certificate)


class Folder:
    """`tests.support.storage.Storage` in an empty folder."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def phases(self) -> Phases:
        return FolderPhases(_emptied(self._path / "phases"))

    def chunks(self) -> Chunks:
        return FolderChunks(_emptied(self._path / "chunks"))

    def shelf(self) -> FileShelf:
        return FileShelf(self._path)

    def mailbox(self) -> "FolderMailbox":
        return FolderMailbox(_emptied(self._path / "mailbox"))


def _emptied(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


class FolderPhases(MutableMapping[str, MemberPhase]):
    """Store a file for each member. What all members share, from roster to certificate, is kept once in memory and stored by number."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._members = folder, dict[str, None]()
        self._shared: list[Struct] = []
        self._last: tuple[str, MemberPhase] | None = None  # a member usually does several things in a row

    def beside(self, *alike: Struct) -> None:
        """Prepare for other processes that store phases: number the shared values, and read again what others have stored."""
        self._last = None
        self._shared += [value for value in alike if not any(value is known for known in self._shared)]

    def __getitem__(self, member: str) -> MemberPhase:
        if self._last is None or self._last[0] != member:
            if member not in self._members:
                raise KeyError(member)
            data = (self._folder / member).read_bytes()
            self._last = member, _Unpickler(data, self._shared).load()
        return self._last[1]

    def __setitem__(self, member: str, phase: MemberPhase) -> None:
        if self._last is not None and self._last[1] is phase:
            return
        buffer = io.BytesIO()
        _Pickler(buffer, self._shared).dump(phase)
        (self._folder / member).write_bytes(buffer.getbuffer())
        self._members[member], self._last = None, (member, phase)

    def __delitem__(self, member: str) -> None:
        del self._members[member]
        (self._folder / member).unlink()
        self._last = None

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._members))

    def __len__(self) -> int:
        return len(self._members)

    def clear(self) -> None:
        """Remove every file without reading it."""
        for member in self:
            del self[member]


class _Pickler(pickle.Pickler):
    """Pickle structs by their fields alone, since all else is derived, and shared structs by their number."""

    def __init__(self, file: io.BytesIO, shared: list[Struct]) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._shared = shared

    def persistent_id(self, value: Any) -> int | None:
        if not isinstance(value, SHARED):
            return None
        for number, known in enumerate(self._shared):
            if known is value:
                return number
        self._shared.append(value)
        return len(self._shared) - 1

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, Struct):
            return type(value), tuple(getattr(value, name) for name, _ in value.codecs.items())
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    def __init__(self, data: bytes, shared: list[Struct]) -> None:
        super().__init__(io.BytesIO(data))
        self._shared = shared

    def persistent_load(self, number: Any) -> Any:
        return self._shared[number]


class FolderChunks(MutableMapping[tuple[str, int], bytes]):
    """Store a file for each chunk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def _file(self, key: tuple[str, int]) -> Path:
        member, index = key
        return self._folder / f"{member}.{index}"

    def __getitem__(self, key: tuple[str, int]) -> bytes:
        try:
            return self._file(key).read_bytes()
        except FileNotFoundError as error:
            raise KeyError(key) from error

    def __setitem__(self, key: tuple[str, int], chunk: bytes) -> None:
        self._file(key).write_bytes(chunk)

    def __delitem__(self, key: tuple[str, int]) -> None:
        self._file(key).unlink()

    def __iter__(self) -> Iterator[tuple[str, int]]:
        for file in self._folder.iterdir():
            yield file.stem, int(file.suffix[1:])

    def __len__(self) -> int:
        return sum(1 for _ in self._folder.iterdir())


class FolderMailbox:
    """Append ciphertexts to a file for each recipient."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, recipient: str, shown: ShownCiphertext) -> None:
        with (self._folder / recipient).open("ab", buffering=0) as file:
            file.write(shown.encode())

    def take(self, recipient: str) -> tuple[ShownCiphertext, ...]:
        file = self._folder / recipient
        if not file.exists():
            return ()
        data, at = file.read_bytes(), 0
        file.unlink()
        taken = list[ShownCiphertext]()
        while at < len(data):
            shown, at = ShownCiphertext.decode(data, at)
            taken.append(shown)
        return tuple(taken)
