"""Every metric of the coordinator; docs/operations.md explains each.

Metrics are per process: queries add up those of replicas, except for the number of rounds, which all replicas report. Labels come from
closed lists, so that clients can't create new ones.
"""

import asyncio
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Literal, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from veilsum.protocol.causes import Cause
from veilsum.protocol.rest import RoundView

REGISTRY = CollectorRegistry()
STATES: tuple[str, ...] = get_args(RoundView.model_fields["state"].annotation)
Operation = Literal["transaction", "put", "get", "delete"]

REFUSALS_COUNT = Counter(
    "veilsum_refusals_total", "Requests refused, by cause.", ["cause"], registry=REGISTRY
)
REQUEST_SECONDS = Histogram(
    "veilsum_request_seconds",
    "Seconds until a request was answered, by route template; long polls wait on purpose.",
    ["method", "route", "status"],
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
    registry=REGISTRY,
)
ROUNDS_GAUGE = Gauge(
    "veilsum_rounds", "Rounds that this coordinator keeps, by state.", ["state"], registry=REGISTRY
)
ROUNDS_ENDED = Counter(
    "veilsum_rounds_ended_total", "Rounds that ended, by state.", ["state"], registry=REGISTRY
)
UPLOAD_BYTES = Counter("veilsum_upload_bytes_total", "Bytes of chunks that were stored.", registry=REGISTRY)
JOB_FAILURES = Counter(
    "veilsum_job_failures_total", "Background jobs that failed and are retried.", registry=REGISTRY
)
DAMAGED_COUNT = Counter(
    "veilsum_storage_damaged_total",
    "Chunks, ranges of sums, rows, SQLite files, and published documents that storage returned changed.",
    ["what"],
    registry=REGISTRY,
)
CLOCK_DIFFERENCE = Gauge(
    "veilsum_clock_difference_seconds",
    "How far this machine's clock is ahead of the database's, by which deadlines pass.",
    registry=REGISTRY,
)
LOOP_LAG = Histogram(
    "veilsum_event_loop_lag_seconds",
    "Lateness of a one-second timer: how long every request waits for the event loop.",
    buckets=(0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0),
    registry=REGISTRY,
)
STORAGE_SECONDS = Histogram(
    "veilsum_storage_seconds",
    "Seconds of a database transaction, and of putting, getting or deleting a blob.",
    ["operation"],
    registry=REGISTRY,
)
AUDIT_ENTRIES = Gauge(
    "veilsum_audit_entries", "Entries that the audit log keeps, at most half a minute ago.", registry=REGISTRY
)
READY_GAUGE = Gauge("veilsum_ready", "1 if the last readiness check passed.", registry=REGISTRY)

# Counters start at 0 instead of being absent, so that rates work from the first event.
for _cause in Cause:
    REFUSALS_COUNT.labels(_cause.value)
for _state in STATES:
    ROUNDS_GAUGE.labels(_state)
    ROUNDS_ENDED.labels(_state)
for _what in ("chunk", "range", "row", "file", "document"):
    DAMAGED_COUNT.labels(_what)
for _operation in get_args(Operation):
    STORAGE_SECONDS.labels(_operation)

_LAG_EVERY_S = 1.0
EXPOSITION_CACHED_S = 1.0
"""How long the rendered text is cached."""


@contextmanager
def measure_operation(operation: Operation) -> Iterator[None]:
    """Measure one operation of storage, failed ones too."""
    with STORAGE_SECONDS.labels(operation).time():
        yield


def count_rounds(counts: Mapping[str, int]) -> None:
    """Set the number of rounds in each state."""
    for state in STATES:
        ROUNDS_GAUGE.labels(state).set(counts.get(state, 0))


class Exposition:
    """All metrics in Prometheus' text format, rendered in a thread at most once a second."""

    def __init__(self) -> None:
        self._lock, self._text, self._until_s = asyncio.Lock(), b"", -math.inf

    async def render_text(self) -> bytes:
        """The text, at most a second old."""
        async with self._lock:
            if time.monotonic() >= self._until_s:
                self._text = await asyncio.to_thread(generate_latest, REGISTRY)
                self._until_s = time.monotonic() + EXPOSITION_CACHED_S
            return self._text


async def watch_loop(every_s: float = _LAG_EVERY_S) -> None:
    """Measure the event loop's lag until cancelled."""
    while True:
        due = time.perf_counter() + every_s
        await asyncio.sleep(every_s)
        LOOP_LAG.observe(max(0.0, time.perf_counter() - due))
