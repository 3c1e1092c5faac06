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
    "tests/cli/demo/",
    "tests/cli/test_running.py",
    "tests/cli/test_serve.py",
    "tests/cli/test_story.py",
    "tests/client_sdk/test_agent.py",
    "tests/client_sdk/test_conversation.py",
    "tests/client_sdk/test_conversation_ends.py",
    "tests/client_sdk/test_counting.py",
    "tests/client_sdk/test_crash.py",
    "tests/client_sdk/test_expired_keys.py",
    "tests/client_sdk/test_lost_contexts.py",
    "tests/client_sdk/test_records_stay_free.py",
    "tests/client_sdk/test_repeats.py",
    "tests/client_sdk/test_restored.py",
    "tests/client_sdk/test_rollback.py",
    "tests/deploy/",
    "tests/docs/test_transcript.py",
    "tests/research/",
    "tests/service/test_app.py",
    "tests/service/test_states.py",
    "tests/service/coordination/test_combining.py",
    "tests/service/coordination/test_damage.py",
    "tests/service/coordination/test_ends.py",
    "tests/service/coordination/test_exits.py",
    "tests/service/coordination/test_forgetting.py",
    "tests/service/coordination/test_late.py",
    "tests/service/coordination/test_late_answers.py",
    "tests/service/coordination/test_liveness.py",
    "tests/service/coordination/test_noise.py",
    "tests/service/coordination/test_pairing.py",
    "tests/service/coordination/test_rare.py",
    "tests/service/coordination/test_replicas.py",
    "tests/service/coordination/test_restart.py",
    "tests/service/coordination/test_summing.py",
    "tests/service/coordination/test_sums.py",
    "tests/service/coordination/test_transcripts.py",
    "tests/test_house.py",
)
"""Tests whose lines the others reach too: without them 92 % or more of each package is."""
MEASURED = (
    "assurance/attacks/test_catalogue.py",
    "assurance/attacks/test_study_approval.py",
    "assurance/vectors/",
)
"""Tests of `UNMEASURED` folders that are the only ones to reach some refusals of the protocol."""

PROCESS_CONFIG = "COVERAGE_PROCESS_CONFIG"
"""What has coverage trace a new process."""
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
    """Import and collect without the collector of cycles, a fifth of that time, and spare it all that was made. Then it comes seldom."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(20_000, 20, 100)
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
    """Trace neither an unmeasured test nor the processes that it starts; not where it is asked which test reaches a line."""
    if not is_unmeasured(item) or item.config.getoption("cov_context", None) == "test":
        return (yield)
    stopped: list[Coverage] = []  # in a worker what traces tests, and what traces any process
    for_processes = os.environ.pop(PROCESS_CONFIG, None)
    while (tracing := Coverage.current()) is not None:
        tracing.stop()
        stopped.append(tracing)
    try:
        return (yield)
    finally:
        if for_processes is not None:
            os.environ[PROCESS_CONFIG] = for_processes
        for tracing in reversed(stopped):
            tracing.start()
