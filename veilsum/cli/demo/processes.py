"""Child processes: none is left behind, and a failure is reported at once with the last line of its log."""

import multiprocessing
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import wait as wait_ready
from multiprocessing.context import ForkServerProcess
from multiprocessing.forkserver import ensure_running
from pathlib import Path
from types import FrameType
from typing import Any, Self, TypeVar

from veilsum.protocol.errors import Misuse
from veilsum.system.intervals import SHUTDOWN_TIMEOUT_S
from veilsum.system.processes import run_command


class DemoError(Misuse):
    """The demo can't go on."""


T = TypeVar("T")

_HANDLED_SIGNALS = (signal.SIGTERM, signal.SIGHUP)

_CONTEXT = multiprocessing.get_context("forkserver")


@dataclass(eq=False)
class Child:
    """A process, from its start to its exit code.

    Attributes:
        lasting: it runs until it is stopped; ending by itself is a failure.
        over: its exit code, once there is one.
        expected: its end was asked for.
    """

    name: str
    process: ForkServerProcess
    log: Path
    lasting: bool
    over: Future[int] = field(default_factory=Future)
    expected: bool = False

    def last_line(self) -> str:
        """Its error, if it ended with one."""
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "(none)"


def preload_modules() -> None:
    """Start a process that loads what children need, so that they can be forked from it: loading takes longer than a member's part in a short run."""
    commands = (f"veilsum.cli.{name}" for name in ("app", "explanation", "features", "read_report", "remote"))
    _CONTEXT.set_forkserver_preload([*commands, "client_sdk.agent", "client_sdk.member", "uvicorn"])
    ensure_running()


class Children:
    """The demo's processes. Leaving the block ends all that still run."""

    def __init__(self) -> None:
        preload_modules()
        self._children: dict[str, Child] = {}
        self._failure: Future[None] = Future()
        self._lock = threading.Lock()

    def start_child(
        self,
        name: str,
        module: str,
        *words: str | Path,
        log: Path,
        environment: Mapping[str, str],
        folder: Path,
        lasting: bool = False,
    ) -> None:
        """Start `python -m module words` under a unique name, as `run_command` describes."""
        log.parent.mkdir(exist_ok=True)
        log.write_bytes(b"")
        given = (module, [str(word) for word in words], log, dict(environment), folder)
        process = _CONTEXT.Process(target=run_command, args=given, name=name)
        with self._lock:
            process.start()
        child = self._children[name] = Child(name, process, log, lasting)
        threading.Thread(target=self._watch_child, args=(child,), daemon=True, name=f"watch {name}").start()

    def kill_child(self, name: str) -> None:
        """Send SIGKILL, and wait for the end of the process."""
        child = self._children[name]
        child.expected = True
        child.process.kill()
        child.over.result()

    def call_watching(self, work: Callable[[], T]) -> T:
        """Call a function that waits, and stop waiting if a child fails."""
        done: Future[T] = Future()
        threading.Thread(target=_fulfil_future, args=(done, work), daemon=True).start()
        either: tuple[Future[Any], ...] = (done, self._failure)
        wait(either, return_when=FIRST_COMPLETED)
        if self._failure.done():
            self._failure.result()
        return done.result()

    def sleep_watching(self, seconds: float) -> None:
        """Sleep until a child fails."""
        wait([self._failure], seconds)
        if self._failure.done():
            self._failure.result()

    def join_children(self, names: Iterable[str], timeout_s: float) -> None:
        """Wait until these have ended well, for `timeout_s` seconds at most."""
        endings = {name: self._children[name].over for name in names}
        running = self.call_watching(lambda: wait(endings.values(), timeout_s).not_done)
        if running:
            late = ", ".join(name for name, over in endings.items() if over in running)
            raise DemoError(f"{late}: still running {timeout_s:.0f} s after the round's end")

    def stop_all(self) -> None:
        """End all that run: SIGTERM, and SIGKILL to what is left after `SHUTDOWN_TIMEOUT_S` seconds."""
        with self._lock:
            for child in self._children.values():
                child.expected = True
        endings = [child.over for child in self._children.values()]
        try:
            for child in self._children.values():
                child.process.terminate()
            wait(endings, SHUTDOWN_TIMEOUT_S)
        finally:  # also where an impatient user presses Ctrl-C again
            for child in self._children.values():
                child.process.kill()
            wait(endings, SHUTDOWN_TIMEOUT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop_all()

    def _watch_child(self, child: Child) -> None:
        wait_ready([child.process.sentinel])
        # Starting a process looks for the ends of all others, and the exit code can be read only once.
        with self._lock:
            child.process.join()
            code = child.process.exitcode
            assert code is not None
            failed = not child.expected and (child.lasting or code != 0)
            if failed and not self._failure.done():
                self._failure.set_exception(
                    DemoError(f"{child.name} {_describe_exit(code)}: {child.last_line()} (log: {child.log})")
                )
        child.over.set_result(code)


@contextmanager
def unwind_on_signal() -> Iterator[None]:
    """Within the block a request to terminate unwinds like Ctrl-C does, so that children are ended first."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are the main thread's business
        return
    before = {number: signal.signal(number, _exit_on_signal) for number in _HANDLED_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _exit_on_signal(number: int, frame: FrameType | None) -> None:
    del frame
    raise SystemExit(128 + number)


def _fulfil_future(done: Future[T], work: Callable[[], T]) -> None:
    try:
        done.set_result(work())
    except BaseException as error:  # noqa: BLE001 - raised where it is awaited
        done.set_exception(error)


def _describe_exit(code: int) -> str:
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with exit code {code}"
