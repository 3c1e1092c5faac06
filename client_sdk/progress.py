"""Progress events: each wait reports the awaited members, a count and a deadline."""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class Step(StrEnum):
    """What a member is doing."""

    ENROLLING = "enrolling"
    PAIRING = "pairing"
    MASKING = "masking"
    UPLOADING = "uploading"
    WAITING = "waiting"
    COUNTING = "counting"
    ANSWERING = "answering"
    VERIFYING = "verifying"
    RETRYING = "retrying"
    DONE = "done"


@dataclass(frozen=True)
class Progress:
    """One event.

    Attributes:
        step: what the member does now.
        phase: the coordinator's phase that the member waits for, or "".
        done: chunks masked or uploaded, or members that have answered.
        total: the number that `done` counts towards; 0 if nothing is counted.
        waiting_for: ids of the members that have not answered.
        until_s: deadline of the wait, Unix time in seconds; None without one.
        detail: one sentence to show, or "".
    """

    step: Step
    phase: str = ""
    done: int = 0
    total: int = 0
    waiting_for: tuple[str, ...] = ()
    until_s: float | None = None
    detail: str = ""


Watcher = Callable[[Progress], None]


def log_progress(event: Progress) -> None:
    """Log an event's sentence, as a warning if the member waits."""
    if event.detail:
        level = logging.WARNING if event.step is Step.WAITING else logging.INFO
        logging.getLogger("veilsum").log(level, event.detail)


class Reporter:
    """Passes events from any thread to the watcher, one at a time, without repeats."""

    def __init__(self, watcher: Watcher | None) -> None:
        self._watcher, self._lock = watcher or log_progress, threading.Lock()
        self._last: Progress | None = None

    def __call__(self, event: Progress) -> None:
        """Pass an event on, unless it equals the last one."""
        with self._lock:
            if event != self._last:
                self._last = event
                self._watcher(event)


class Counter:
    """Counts finished chunks across lanes."""

    def __init__(self, report: Reporter, step: Step, done: int, total: int) -> None:
        self._report, self._step, self._done, self._total = report, step, done, total
        self._lock = threading.Lock()

    def __call__(self) -> None:
        """Count one more chunk and report."""
        with self._lock:
            self._done += 1
            self._report(Progress(self._step, done=self._done, total=self._total))
