"""Progress events: each wait reports the awaited members, a count and a deadline."""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class Step(StrEnum):
    """What a member is doing."""

    ENROLLING = "enrolling"
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
        done: chunks masked or uploaded, or members that are there.
        total: of how many; 0 where nothing is counted.
        waiting_for: ids of the members that have not answered.
        until_s: Unix time in seconds at which the wait ends by itself; None if it does not.
        detail: one sentence for people, or "".
    """

    step: Step
    phase: str = ""
    done: int = 0
    total: int = 0
    waiting_for: tuple[str, ...] = ()
    until_s: float | None = None
    detail: str = ""


Watcher = Callable[[Progress], None]


def logged(event: Progress) -> None:
    """Log what an event says in words, as a warning if the member waits."""
    if event.detail:
        level = logging.WARNING if event.step is Step.WAITING else logging.INFO
        logging.getLogger("veilsum").log(level, event.detail)


class Reporter:
    """Passes events on, one at a time, whichever thread they come from, and none twice in a row."""

    def __init__(self, watcher: Watcher | None) -> None:
        self._watcher, self._lock = watcher or logged, threading.Lock()
        self._last: Progress | None = None

    def __call__(self, event: Progress) -> None:
        """Hand an event to the watcher, unless the last one said the same."""
        with self._lock:
            if event != self._last:
                self._last = event
                self._watcher(event)


class Counter:
    """Counts finished chunks, whichever lane they were finished in."""

    def __init__(self, report: Reporter, step: Step, done: int, total: int) -> None:
        self._report, self._step, self._done, self._total = report, step, done, total
        self._lock = threading.Lock()

    def __call__(self) -> None:
        """Count one more chunk, and report how many there are."""
        with self._lock:
            self._done += 1
            self._report(Progress(self._step, done=self._done, total=self._total))
