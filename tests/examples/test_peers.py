"""Examples for Flower and NVFLARE, each with its own interpreter; `make peers` builds both."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

from client_sdk import Identity, Result
from tests.support.cli import CLASSES, DIM, PATIENCE_S, TOKEN, CliConsortium
from tests.support.processes import listens, until
from tests.support.servers import lacking
from veilsum.cli.demo.coordinator import free_port

pytestmark = pytest.mark.slow  # their environments weigh gigabytes: `make peers`
ROOT = Path(__file__).parents[2]
FLOWER_S = 600.0
"""Time limit of a run: each message to a node starts a process that imports Flower."""
ASIDE = """
import json, sys
sys.path.insert(0, ".")
import numpy as np
from apps import client, new_network, one_head
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.supercore.task_identity import TaskIdentity

TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1

def said(ask):
    try:
        return str(ask())
    except Exception as error:
        return str(error)

def answer(digest, weight):
    arrays = ArrayRecord([np.full((2, 2), weight), np.zeros(2)])
    return RecordDict({"veilsum": ConfigRecord({"head": digest}), "arrays": arrays})

veilsum = ConfigRecord({"url": "http://127.0.0.1:9", "approve": "ef" * 32})
content = RecordDict({"veilsum": veilsum, "arrays": ArrayRecord(new_network(0))})
asked = Message(content, dst_node_id=1, message_type="query.calibrate")
node = Context(1, 1, json.load(open(sys.argv[1])), RecordDict(), {})
print(json.dumps({
    "asks": said(lambda: client(asked, node)),
    "one": said(lambda: one_head([answer("a", 1.0)] * 3)[0].sum()),
    "digests": said(lambda: one_head([answer("a", 1.0), answer("b", 1.0)])),
    "numbers": said(lambda: one_head([answer("a", 1.0), answer("a", 1.5)])),
}))
"""
"""What two apps of the example do where others are wrong."""


def python_of(name: str) -> Path:
    """Return the interpreter of an example's environment."""
    python = Path(
        os.environ.get(f"{name.upper()}_PYTHON", ROOT / "examples" / name / ".venv" / "bin" / "python")
    )
    if not python.exists():
        lacking(f"{name} has no environment here: make peers")
    return python


def example(name: str, script: str, settings: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return an example's last line of output."""
    python, home = python_of(name), ROOT / "examples" / name
    path = folder / f"{name}-{settings.get('approve', '')[:8]}.json"
    path.write_text(json.dumps(settings))
    run = subprocess.run(
        [python, script, path],
        cwd=home,
        env={**os.environ, "VEILSUM_OPERATOR_TOKEN": TOKEN, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    found: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return found


def digits(consortium: Callable[..., CliConsortium], dim: int, classes: int) -> CliConsortium:
    """A federation with a study of digits."""
    keys = ", ".join(f'"class-{index}"' for index in range(classes))
    own = ", ".join(f'"class-{index}"' for index in range(CLASSES))
    edits = {
        f"dim = {DIM} ": f"dim = {dim} ",
        f"classes = [{own}]": f"classes = [{keys}]",
        "least = 17 ": "least = 30 ",
    }
    return consortium(edits=edits)


def test_flower_trains_and_veilsum_calibrates(consortium: Callable[..., CliConsortium]) -> None:
    c = digits(consortium, 32, 10)
    x, y = load_digits(return_X_y=True)
    x = x / 16 - 0.5
    order = np.random.default_rng(0).permutation(len(x))
    held, train = order[:400], order[400:]
    np.savez(c.folder / "test.npz", x=x[held], y=y[held])
    files = {}
    for index, member in enumerate(c.members):
        mine = train[(y[train] * 3 // 10) == index]  # three or four classes each
        files[member] = c.folder / f"{member}-digits.npz"
        np.savez(files[member], x=x[mine], y=y[mine])
    own = {"url": c.cli.url, "admin-key": c.admin, "approve": c.approval}
    nodes = [own | {"identity": str(c.folder / each), "data": str(files[each])} for each in c.members]
    kept = c.folder / "calibrated.npz"
    settings = {
        "url": c.cli.url,
        "federation": c.admin,
        "study": "digits",
        "test": str(c.folder / "test.npz"),
        "output": str(kept),
    }
    outcome = flower_run(nodes, settings, c.folder)
    assert (outcome["heads"], outcome["counted"]) == (1, 3)
    assert outcome["calibrated"] > max(0.85, outcome["trained"])
    assert np.load(kept)["w2"].shape == (32, 10)


def flower_run(nodes: list[dict[str, str]], settings: dict[str, str], folder: Path) -> dict[str, Any]:
    """Run `flwr run` against a SuperLink and a SuperNode for each configuration, in separate processes; return the server app's output."""
    programs = python_of("flower").parent
    port = free_port()
    home = folder / "flower"
    home.mkdir()
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "local"\n[superlink.local]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
    )
    environment = {
        **os.environ,
        "VEILSUM_OPERATOR_TOKEN": TOKEN,
        "PYTHONPATH": str(ROOT),
        "PATH": f"{programs}:{os.environ['PATH']}",
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
    }
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, *words: str) -> None:
        with (home / f"{len(started)}.log").open("wb") as log:
            started.append(
                subprocess.Popen(
                    [programs / name, *words],
                    stdout=log,
                    stderr=log,
                    env=environment,
                    cwd=home,
                    start_new_session=True,
                )
            )

    try:
        start(
            "flower-superlink", "--insecure", "--port", str(port), "--disable-runtime-dependency-installation"
        )
        until(partial(listens, port))
        for node in nodes:
            config = " ".join(f"{key}={json.dumps(value)}" for key, value in node.items())
            address = f"127.0.0.1:{port}"
            words = (
                "--insecure",
                "--superlink",
                address,
                "--port",
                str(free_port()),
                "--node-config",
                config,
            )
            start("flower-supernode", *words)
        config = " ".join(f"{key}={json.dumps(value)}" for key, value in settings.items())
        asked = [
            str(programs / "flwr"),
            "run",
            str(ROOT / "examples" / "flower"),
            "local",
            "--run-config",
            config,
            "--stream",
        ]
        run = subprocess.run(
            asked, env=environment, cwd=home, capture_output=True, text=True, timeout=FLOWER_S, check=False
        )
        logs = "\n".join(path.read_text()[-2000:] for path in sorted(home.glob("*.log")))
        [found] = re.findall(r"outcome: (\{.*\})", run.stdout + logs) or pytest.fail(
            run.stdout + run.stderr + logs
        )
        outcome: dict[str, Any] = json.loads(found)
        return outcome
    finally:
        for process in started:  # each has children: its executor, and an app for each message
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def test_flower_s_nodes_ask_whom_they_were_told_and_its_server_takes_one_head(tmp_path: Path) -> None:
    Identity.create(tmp_path / "node", "node")
    script = tmp_path / "aside.py"
    script.write_text(ASIDE)
    np.savez(tmp_path / "data.npz", x=np.ones((2, 64)), y=np.arange(2))
    own = {"url": "nowhere", "identity": str(tmp_path / "node"), "data": str(tmp_path / "data.npz")}
    own |= {"admin-key": "ab" * 32, "approve": "cd" * 32}
    found = example("flower", str(script), own, tmp_path)
    assert found["asks"].startswith("url: ")  # its own, which has no scheme
    assert found["one"] == "4.0"
    for each in ("digests", "numbers"):
        assert found[each] != "4.0"


def test_an_nvflare_executor_takes_part(consortium: Callable[..., CliConsortium]) -> None:
    c = consortium()
    settings = {
        "url": c.cli.url,
        "admin_key": c.admin,
        "dim": DIM,
        "approve": c.approval,
        "identity": str(c.folder / "m0"),
        "data": str(c.files[0]),
    }
    refused = example("nvflare", "drive.py", settings | {"admin_key": "zz"}, c.folder)
    assert refused == {"unknown": "TASK_UNKNOWN", "code": "EXECUTION_EXCEPTION"}
    run, joins = c.run(), [c.join(member) for member in c.members[1:]]
    answer = example("nvflare", "drive.py", settings, c.folder)
    assert answer["code"] == "OK"
    assert answer["counted"] is True
    assert answer["unanswered"] == []
    assert answer["shape"] == [DIM, CLASSES]
    assert [each.result(PATIENCE_S).code for each in joins] == [0, 0]
    assert run.result(PATIENCE_S).code == 0
    assert answer["head"] == Result.load(c.result("m1")).record.head
