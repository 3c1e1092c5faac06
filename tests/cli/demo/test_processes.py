import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import until
from veilsum.cli.demo import processes
from veilsum.cli.demo.processes import Children, DemoError, unwind_on_signal

ROOT = Path(__file__).parents[3]
SLEEP = "import time; print('started', flush=True); time.sleep(600)"


class Family:
    def __init__(self, children: Children, folder: Path) -> None:
        self.children, self.folder = children, folder

    def start(self, name: str, code: str, *, lasting: bool = False) -> None:
        (self.folder / f"{name}.py").write_text(code)
        self.children.start_child(
            name,
            name,
            log=self.folder / f"{name}.log",
            environment=os.environ,
            folder=self.folder,
            lasting=lasting,
        )

    def pid(self, name: str) -> int:
        pid = self.children._children[name].process.pid
        assert pid is not None
        return pid

    def wait_for(self, name: str, text: str) -> None:
        until = time.monotonic() + 120
        while text not in (self.folder / f"{name}.log").read_text():
            assert time.monotonic() < until
            time.sleep(0.02)


@pytest.fixture
def family(tmp_path: Path) -> Iterator[Family]:
    with Children() as children:
        yield Family(children, tmp_path)


def running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def forever() -> None:
    threading.Event().wait(200)


def test_a_child_that_dies_is_told_at_once_with_its_error(family: Family) -> None:
    family.start("member-01", "import sys; print('x' * 9); sys.exit('no such folder')")
    began = time.monotonic()
    with pytest.raises(DemoError) as caught:
        family.children.call_watching(forever)
    assert time.monotonic() - began < 180
    assert re.match(r"member-01 .*\b1: no such folder", str(caught.value))
    assert str(family.folder / "member-01.log") in str(caught.value)


def test_a_pause_ends_when_a_child_has_died(family: Family) -> None:
    family.start("member-01", SLEEP)
    began = time.monotonic()
    family.children.sleep_watching(0.2)
    assert time.monotonic() - began >= 0.2
    family.start("the coordinator", "pass", lasting=True)
    with pytest.raises(DemoError, match="the coordinator ended"):
        family.children.sleep_watching(200)
    assert time.monotonic() - began < 180


def test_children_are_joined_and_their_output_goes_to_their_log(family: Family) -> None:
    family.start("member-01", "import sys; print('{}', flush=True); sys.stderr.write('note')")
    family.children.join_children(["member-01"], 120)
    assert (family.folder / "member-01.log").read_text() == "{}\nnote"


def test_a_child_that_takes_too_long_is_named(family: Family) -> None:
    family.start("member-01", "pass")
    family.start("member-02", SLEEP)
    family.children.join_children(["member-01"], 120)
    with pytest.raises(DemoError, match=r"^member-02: still running"):
        family.children.join_children(["member-01", "member-02"], 0.5)


def test_leaving_the_block_ends_every_child_even_a_stubborn_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "SHUTDOWN_TIMEOUT_S", 0.3)
    children = Children()
    family = Family(children, tmp_path)

    def interrupted() -> None:
        with children:
            family.start("polite", SLEEP)
            family.start("stubborn", f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEP}")
            family.wait_for("polite", "started")
            family.wait_for("stubborn", "started")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    codes = [child.over.result(120) for child in children._children.values()]
    assert codes == [-signal.SIGTERM, -signal.SIGKILL]
    assert not any(running(family.pid(name)) for name in ("polite", "stubborn"))


def test_a_request_to_terminate_unwinds(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    children = Children()
    family = Family(children, tmp_path)

    def terminated() -> None:
        with unwind_on_signal(), children:
            family.start("member-01", SLEEP)
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()
            children.call_watching(forever)

    with pytest.raises(SystemExit) as caught:
        terminated()
    assert caught.value.code == 128 + signal.SIGTERM
    assert not running(family.pid("member-01"))
    assert signal.getsignal(signal.SIGTERM) is before


PARENT = """
import time
from pathlib import Path
from veilsum.cli.demo import processes
processes.preload_modules = lambda: None  # they take seconds
with processes.Children() as children:
    children.start_child("member-01", "asleep", log=Path("log"), environment={}, folder=Path.cwd())
    while "started" not in Path("log").read_text():
        time.sleep(0.02)
    print(children._children["member-01"].process.pid, flush=True)
    time.sleep(600)
"""


def test_no_child_outlives_a_parent_that_was_killed(tmp_path: Path) -> None:
    (tmp_path / "asleep.py").write_text(SLEEP)
    words = [sys.executable, "-c", PARENT]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(words, cwd=tmp_path, env=environment, stdout=subprocess.PIPE) as parent:
        try:
            assert parent.stdout is not None
            pid = int(parent.stdout.readline())
        finally:
            parent.kill()
    until(lambda: not running(pid))
