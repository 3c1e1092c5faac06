"""End a run whose teardown hangs, and choose the tests that run untraced: tracing doubles their time, and quicker tests reach the same code."""

import faulthandler
import gc
import os
import signal
from collections.abc import Generator
from pathlib import Path

import pytest
from coverage import Coverage
from hypothesis import settings

HERE = Path(__file__).parent

UNMEASURED = (
    "assurance/",
    "tests/client_sdk/test_conversation.py",
    "tests/client_sdk/test_crash.py",
    "tests/research/",
    "tests/service/test_app.py",
    "tests/service/coordination/test_combining.py",
    "tests/service/coordination/test_ends.py",
    "tests/service/coordination/test_forgetting.py",
    "tests/service/coordination/test_late.py",
    "tests/service/coordination/test_noise.py",
    "tests/service/coordination/test_rare.py",
    "tests/service/coordination/test_replicas.py",
    "tests/service/coordination/test_restart.py",
    "tests/service/coordination/test_summing.py",
    "tests/service/coordination/test_transcripts.py",
)
MEASURED = (
    "assurance/attacks/test_catalogue.py",
    "assurance/attacks/test_study_approval.py",
    "assurance/vectors/",
)
"""Tests of `UNMEASURED` folders that are the only ones to reach some refusals of the protocol."""

TEARDOWN_S = 240.0
STDERR = pytest.StashKey[int]()

# The same examples every time, no failure by the clock of a busy machine: to search is for the slow targets.
settings.register_profile("suite", derandomize=True, deadline=None, database=None)
settings.load_profile("suite")


def is_unmeasured(item: pytest.Item) -> bool:
    """Whether the test is in a folder or file of `UNMEASURED` and not of `MEASURED`."""
    place = item.path.relative_to(HERE).as_posix()
    return place.startswith(UNMEASURED) and not place.startswith(MEASURED)


def pytest_configure(config: pytest.Config) -> None:
    """Keep the real standard error for what a hanging teardown prints, and let Ctrl-C reach child processes."""
    config.stash[STDERR] = os.dup(2)  # before pytest captures it
    # A shell starts background jobs with SIGINT ignored, and their children inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Import and collect without the collector of cycles, a fifth of that time, and spare it all that was made."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """Say where a teardown hangs and end the process: `timeout` interrupts a test once, and its teardown no more."""
    faulthandler.dump_traceback_later(TEARDOWN_S, exit=True, file=item.config.stash[STDERR])
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Stop tracing for the time of an unmeasured test and what it sets up; not where it is asked which test reaches a line."""
    stopped: list[Coverage] = []  # in a worker what traces tests, and what traces any process
    by_test = item.config.getoption("cov_context", None) == "test"
    while not by_test and is_unmeasured(item) and (tracing := Coverage.current()) is not None:
        tracing.stop()
        stopped.append(tracing)
    try:
        return (yield)
    finally:
        for tracing in reversed(stopped):
            tracing.start()
