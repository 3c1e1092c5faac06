"""A coordinator process's system calls from strace: writes, syncs, renames, incoming requests and outgoing answers.

strace's lines ──▶ Call, begun and ended ──▶ Replay: a `Disk` updated call by call, and each answer with the disk's state when it left
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from assurance.durability.disk import Disk, File, Folder, Node, sync
from veilsum.protocol import rest

TRACED = (
    "open,openat,creat,close,write,pwrite64,writev,pwritev,ftruncate,truncate,fallocate,lseek,rename,renameat,renameat2,link,linkat,"
    "symlink,symlinkat,unlink,unlinkat,rmdir,mkdir,mkdirat,fsync,fdatasync,sendto,sendmsg,recvfrom"
)
_LINE = re.compile(r"(\d+) +(?:<\.\.\. )?(\w+)(?: resumed>|\()(.*)")
_RESULT = re.compile(r"(.*)\) += (-?\d+)(?: .*)?")
_STRING = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
_UNFINISHED = " <unfinished ...>"


def command(output: Path) -> tuple[str, ...]:
    """Return a command prefix that writes a process's calls to a file."""
    return (
        *("strace", "--follow-forks", "--seccomp-bpf", "--quiet=all", "-xx", "-s", str(1 << 20)),
        *("-e", f"trace={TRACED}", "-o", str(output)),
    )


@dataclass(frozen=True)
class Call:
    """A system call: its arguments as strace writes them, its strings' bytes, and its result; None while it runs."""

    pid: int
    name: str
    arguments: str
    result: int | None = None

    @property
    def strings(self) -> list[bytes]:
        return [bytes.fromhex(text.replace("\\x", "")) for text in _STRING.findall(self.arguments)]

    @property
    def data(self) -> bytes:
        return b"".join(self.strings)

    @property
    def numbers(self) -> list[str]:
        """The arguments that aren't strings."""
        return [each.strip() for each in _STRING.sub("", self.arguments).split(",")]

    @property
    def descriptor(self) -> int:
        return int(self.numbers[0])


def calls(lines: Iterator[str]) -> Iterator[Call]:
    """Yield each successful call twice: at its start without a result, and at its end."""
    begun: dict[int, str] = {}
    for line in lines:
        matched = _LINE.match(line.rstrip("\n"))
        if matched is None:
            continue  # a signal or the process's end
        pid, name, said = int(matched[1]), matched[2], matched[3]
        if said.endswith(_UNFINISHED):
            begun[pid] = said.removesuffix(_UNFINISHED)
            yield Call(pid, name, begun[pid])
            continue
        ended = _RESULT.match(said)
        if ended is None:
            begun.pop(pid, None)
            continue
        earlier, result = begun.pop(pid, None), int(ended[2])
        arguments = (earlier or "") + ended[1]
        if earlier is None:
            yield Call(pid, name, arguments)
        if result >= 0:
            yield Call(pid, name, arguments, result)


@dataclass
class Answer:
    """An answer when it left.

    Attributes:
        method: of its request.
        path: of its request.
        status: the HTTP status.
        head, body: the parts sent so far.
    """

    method: str
    path: str
    status: int
    head: bytes = b""
    body: bytes = b""

    @property
    def version(self) -> int:
        """The round's version in the answer's header."""
        found = re.search(rb"(?i)\r\n%b: *(\d+)" % rest.VERSION_HEADER.encode(), self.head)
        assert found is not None, self
        return int(found[1])


@dataclass
class Replay:
    """Replay a trace call by call.

    Args:
        root: the data folder.
        deaf: names of sync calls, or "folders", that the disk ignores, as if a careless writer had left them out.
    """

    root: Path
    deaf: frozenset[str] = frozenset()
    disk: Disk = field(default_factory=Disk)
    _open: dict[int, tuple[Node, PurePosixPath]] = field(default_factory=dict)
    _offsets: dict[int, int] = field(default_factory=dict)
    _syncing: dict[int, tuple[Node, int]] = field(default_factory=dict)
    _asked: dict[int, tuple[str, str]] = field(default_factory=dict)
    _answering: dict[int, Answer] = field(default_factory=dict)

    def run(self, trace: Path) -> Iterator[Answer]:
        """Yield each answer just before it leaves, with `disk` in its state then. Its body is complete when the next answer is yielded."""
        with trace.open() as lines:
            for call in calls(lines):
                if call.result is None:
                    answer = self._begins(call)
                    if answer is not None:
                        yield answer
                else:
                    self._ends(call, call.result)

    def _begins(self, call: Call) -> Answer | None:
        if call.name in {"fsync", "fdatasync"} and call.descriptor in self._open:
            node, _ = self._open[call.descriptor]
            self._syncing[call.pid] = node, len(node.pending)
        if call.name == "sendto" and (found := re.match(rb"HTTP/1\.1 (\d{3}) ", call.data)):
            method, path = self._asked.get(call.descriptor, ("", ""))
            answer = Answer(method, path, int(found[1]))
            self._answering[call.descriptor] = answer
            return answer
        return None

    def _ends(self, call: Call, result: int) -> None:
        match call.name:
            case "recvfrom" | "sendto":
                self._passed(call)
            case "fsync" | "fdatasync":
                self._synced(call)
            case "close":
                self._open.pop(call.descriptor, None)
            case "open" | "openat" | "creat":
                self._opened(call, result)
            case "write" | "pwrite64":
                self._written(call, result)
            case "lseek":
                self._offsets[call.descriptor] = result
            case "ftruncate":
                self._truncated(call)
            case _:
                self._named(call)

    def _passed(self, call: Call) -> None:
        data, answer = call.data, self._answering.get(call.descriptor)
        if call.name == "recvfrom":
            if found := re.match(rb"([A-Z]+) (\S+) HTTP/1\.1\r\n", data):
                self._asked[call.descriptor] = found[1].decode(), found[2].decode()
        elif answer is not None:
            head, _, body = data.partition(b"\r\n\r\n") if data.startswith(b"HTTP/1.1 ") else (b"", b"", data)
            answer.head += head
            answer.body += body

    def _synced(self, call: Call) -> None:
        if call.pid in self._syncing:
            node, count = self._syncing.pop(call.pid)
            if ("folders" if isinstance(node, Folder) else call.name) not in self.deaf:
                sync(node, count)

    def _opened(self, call: Call, descriptor: int) -> None:
        self._open.pop(descriptor, None)
        if (path := self._path(call)) is None:
            return
        node = self.disk.find(path)
        if node is None:
            assert "O_CREAT" in call.arguments, call
            node = self.disk.make(path, File())
        if isinstance(node, File) and "O_TRUNC" in call.arguments:
            node.pending.append(bytearray.clear)
        self._open[descriptor], self._offsets[descriptor] = (node, path), 0

    def _written(self, call: Call, written: int) -> None:
        if call.descriptor not in self._open:
            return
        node, _ = self._open[call.descriptor]
        assert isinstance(node, File)
        data = call.data[:written]
        assert len(data) == written, "strace has cut it short"
        at = int(call.numbers[-1]) if call.name == "pwrite64" else self._offsets[call.descriptor]
        if call.name == "write":
            self._offsets[call.descriptor] = at + written

        def change(content: bytearray) -> None:
            content.extend(bytes(max(0, at - len(content))))
            content[at : at + written] = data

        node.pending.append(change)

    def _truncated(self, call: Call) -> None:
        if call.descriptor not in self._open:
            return
        node, _ = self._open[call.descriptor]
        assert isinstance(node, File)
        size = int(call.numbers[1])

        def change(content: bytearray) -> None:
            del content[size:]
            content.extend(bytes(size - len(content)))

        node.pending.append(change)

    def _named(self, call: Call) -> None:
        path = self._path(call)
        if path is None:
            return
        match call.name:
            case "mkdir" | "mkdirat":
                self.disk.make(path, Folder())
            case "unlink" | "unlinkat" | "rmdir":
                self.disk.remove(path)
            case "rename" | "renameat" | "renameat2":
                self.disk.move(path, self._second(call))
            case "link" | "linkat":
                node = self.disk.find(path)
                assert node is not None, call
                self.disk.make(self._second(call), node)
            case _:
                raise AssertionError(f"{call.name} of {path} is not modelled")

    def _second(self, call: Call) -> PurePosixPath:
        """Return the new name of a rename."""
        return PurePosixPath(call.strings[1].decode()).relative_to(self.root)

    def _path(self, call: Call) -> PurePosixPath | None:
        """Return a path relative to the root; None if it is outside."""
        if not call.strings:
            return None
        named = PurePosixPath(call.strings[0].decode())
        first = call.numbers[0]
        if not named.is_absolute():
            if not first.isdecimal() or int(first) not in self._open:
                return None
            return self._open[int(first)][1] / named
        return named.relative_to(self.root) if named.is_relative_to(self.root) else None
