import json
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import sklearn  # noqa: F401 - it looks for torch while it is imported
import structlog
import uvicorn

from client_sdk.errors import Unreachable
from service.access.pool import PROBE_CONNECTIONS
from service.coordination.coordinator import Coordinator
from service.storage.folder import lock_folder
from tests.support.authority import Authority
from tests.support.cli import CLASSES, DIM, EXTRACTOR, PATIENCE_S, PERIOD, Cli, later, records
from veilsum.cli import serving
from veilsum.cli.console import CLIENT_CERTIFICATE
from veilsum.cli.remote import open_operator
from veilsum.protocol.errors import Misuse

ROOT = Path(__file__).parents[2]
BESIDE = serving.DESCRIPTORS_BESIDE + PROBE_CONNECTIONS


def test_errors_before_anything_is_served(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    serve = ("serve", "--port", 0, "--data-dir", "data")
    certificate, key = Authority(Path(), "authority").issue("coordinator")
    tls = ("--tls-cert", certificate, "--tls-key", key)
    for words in (
        ("--tls-key", "x"),
        ("--client-ca", "x"),
        ("--tls-cert", "x"),
        ("--tls-cert", "x", "--tls-key", "y"),
        (*tls, "--client-ca", "x"),
        (*tls, "--client-ca", key),
    ):
        assert str(words[-2]) in cli(*serve, *words).error
    assert not Path("data").exists()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        error = cli("serve", "--port", port, "--data-dir", "data").error
    assert f"127.0.0.1 port {port}: " in error
    assert "::ffff:999 port 0" in cli(*serve, "--host", "::ffff:999").error
    with lock_folder(Path("data")):
        assert f"process {os.getpid()}" in cli(*serve).error
    Path("data/coordinator.key").chmod(0o644)
    assert "chmod 600 data/coordinator.key" in cli(*serve).error
    Path("file").touch()
    assert "file" in cli("serve", "--data-dir", "file").error
    monkeypatch.setenv("VEILSUM_MAX_WAIT_S", "soon")
    refused = cli(*serve, "--json")
    assert refused.code == 1
    assert refused.values["error"].startswith("VEILSUM_MAX_WAIT_S: ")


def test_a_start_that_fails_later_is_said_too(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(server: uvicorn.Server, sockets: Any = None) -> None:
        server.should_exit = True

    monkeypatch.setattr("uvicorn.Server.startup", broken)
    monkeypatch.setattr(structlog, "configure", lambda **_: None)
    assert cli("serve", "--port", 0, "--json").values["error"]
    assert Path("veilsum-data").is_dir()


def test_stores_that_cannot_be_had_are_named_without_their_password(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve, password = ("serve", "--port", 0), "pass-of-the-database"
    monkeypatch.setenv("VEILSUM_DATABASE_URL", f"postgresql://v:{password}@127.0.0.1:1/veilsum")
    assert "database" in cli(*serve).error
    lines = [json.loads(line) for line in cli.said[-1].err.splitlines() if line.startswith("{")]
    [failed] = [line for line in lines if line["event"] == "start failed"]
    assert (failed["error"], failed["why"]) == ("Misuse", cli.said[-1].error)
    assert "faults.py:" in failed["at"]
    assert cli(*serve, "--json").values["error"] == failed["why"]
    monkeypatch.setenv("VEILSUM_DATABASE_URL", f"postgresql://v:{password}@1:x@127.0.0.1/veilsum")
    assert "percent-encode the password" in cli(*serve).error
    assert all(password not in said.err + said.out for said in cli.said)
    monkeypatch.delenv("VEILSUM_DATABASE_URL")
    monkeypatch.setenv("VEILSUM_BLOBS_URL", "s3://veilsum")
    monkeypatch.setenv("VEILSUM_BLOBS_ENDPOINT", "ftp://127.0.0.1")
    assert "bucket" in cli(*serve).error
    lines = [json.loads(line) for line in cli.said[-1].err.splitlines() if line.startswith("{")]
    [failed] = [line for line in lines if line["event"] == "start failed"]
    assert failed["why"] == cli.said[-1].error


def test_of_what_nobody_foresaw_the_log_has_type_and_place(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(_coordinator: Coordinator, _resume_grace_s: float) -> None:
        raise LookupError("words")

    monkeypatch.setattr(Coordinator, "load_open", broken)
    outcome = cli("serve", "--port", 0)
    assert '"error": "LookupError"' in outcome.err
    assert "words" not in outcome.err
    assert "Operator token" not in outcome.err, "it is drawn last"


def test_one_of_several_says_itself_why_it_does_not_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refusing(*_: object) -> None:
        raise Misuse("no database")

    monkeypatch.setattr(serving, "serve_here", refusing)
    serving.serve_replica(None)
    assert capsys.readouterr().err == "veilsum: no database\n"


def test_traces_without_their_libraries_stop_the_start_in_words(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk", None)
    assert "pip install 'veilsum[service,otel]'" in cli("serve", "--port", 0).error


def test_a_member_s_installation_names_the_extra(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    for missing, command, extra in (
        ("uvicorn", ("serve",), "service"),
        ("obstore", ("serve",), "service"),
        ("torch", ("train",), "training"),
        ("sklearn", ("train",), "training"),
        ("pyarrow", ("calibrate", "x.parquet"), "tables"),
        ("pyarrow", ("calibrate", "x.csv"), "tables"),
    ):
        with monkeypatch.context() as patch:
            patch.delitem(sys.modules, "veilsum.cli.serving", raising=False)
            patch.delattr("veilsum.cli.serving", raising=False)
            patch.setitem(sys.modules, missing, None)
            Path("x.parquet").touch()
            Path("x.csv").touch()
            assert cli(*command).error.endswith(f"pip install 'veilsum[{extra}]'"), missing


@pytest.mark.parametrize(
    ("soft", "hard", "raised", "fitting"),
    [
        (1 << 20, 1 << 20, 1 << 20, 4096),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, resource.RLIM_INFINITY, 4096),
        (1024, resource.RLIM_INFINITY, 4096 + BESIDE, 4096),
        (1024, 1024, 1024, 1024 - BESIDE),
        (256, 2048, 2048, 2048 - BESIDE),
        (BESIDE, BESIDE, BESIDE, 1),
    ],
)
def test_connections_are_fitted_to_the_files_that_a_process_may_open(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    soft: int,
    hard: int,
    raised: int,
    fitting: int,
) -> None:
    limits = [soft, hard]
    monkeypatch.setattr(resource, "getrlimit", lambda _: tuple(limits))
    monkeypatch.setattr(resource, "setrlimit", lambda _, given: limits.__setitem__(slice(None), given))
    assert serving.fit_descriptors(4096) == fitting
    assert limits == [raised, hard]
    assert ("VEILSUM_CONNECTIONS" in capsys.readouterr().err) == (fitting < 4096)


@pytest.mark.parametrize(
    ("trusted", "proxies"),
    [
        ("", set()),
        ("*", {"10.42.3.4", "192.0.2.7", "fd00::1"}),
        ("10.42.0.0/16, fd00::/8", {"10.42.3.4", "fd00::1"}),
    ],
)
def test_connections_of_trusted_proxies_are_many_callers(trusted: str, proxies: set[str]) -> None:
    is_proxy = serving.find_proxies(trusted)
    assert {host for host in ("10.42.3.4", "192.0.2.7", "fd00::1") if is_proxy(host)} == proxies


class Process:
    """Run `python -m veilsum` as a user would."""

    started: ClassVar[list[subprocess.Popen[str]]] = []
    program: ClassVar[tuple[str, ...]] = ("-m", "veilsum")

    def __init__(self, folder: Path, *words: object, **environment: str) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("VEILSUM_")}
        self.process = subprocess.Popen(
            [sys.executable, *self.program, *map(str, words), "--json"],
            cwd=folder,
            env={**kept, "PYTHONPATH": str(ROOT), **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.started.append(self.process)

    def end(self) -> dict[str, Any]:
        out, err = self.process.communicate(timeout=180)
        assert self.process.returncode == 0, out + err
        values: dict[str, Any] = json.loads(out)
        return values


class ProcessWithoutPosix(Process):
    """Run it without what Windows lacks."""

    program = (str(ROOT / "tests" / "support" / "without_posix.py"),)


class Server(Process):
    """Run a coordinator; `facts` is what it printed at its start."""

    def __init__(self, folder: Path) -> None:
        ours = Authority(folder, "authority")
        certificate, key = ours.issue("coordinator")
        tls = ("--tls-cert", certificate, "--tls-key", key, "--client-ca", ours.path)
        super().__init__(folder, "serve", "--port", 0, *tls)
        self.authority = ours
        assert self.process.stdout is not None
        lines = iter(self.process.stdout.readline, "")
        text = ""
        for line in lines:
            text += line
            if line == "}\n":
                break
        self.facts: dict[str, Any] = json.loads(text)

    def stop(self) -> tuple[str, str]:
        """Stop it; return what it printed besides the facts."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.communicate(timeout=120)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    try:
        yield Server(tmp_path)
    finally:
        while Process.started:
            with Process.started.pop() as process:
                process.kill()


def test_a_round_of_real_processes(server: Server, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator with mutual TLS and a member, each a process, play a round with its operator and two members in threads; then SIGTERM ends it.
    The member's process runs without what Windows lacks.

    The folder contains a user's own modules with names that veilsum's top-level packages once had.
    """
    folder, url, status = cli.folder, server.facts["url"], ("operator", "round", "status", "ab" * 8)
    ca = ("--ca", server.authority.path)
    refused = cli(*status, "--url", url).error
    assert "certificate" in refused
    certificate, key = server.authority.issue("member")
    stranger = Authority(folder, "another").issue("stranger")
    tls = {"VEILSUM_CLIENT_CERT": str(certificate), "VEILSUM_CLIENT_KEY": str(key)}
    for named in ((None, None), stranger):
        CLIENT_CERTIFICATE.set(named)
        with open_operator(url, ca=ca[1], patience_s=0.0) as nobody, pytest.raises(Unreachable):
            nobody.coordinator()
    for name, value in tls.items():
        monkeypatch.setenv(name, value)
    assert cli(*status, "--url", url, *ca).error.startswith("not-found")
    assert (folder / "veilsum-data").is_dir()
    kept = folder / "veilsum-data" / "operator.token"
    assert server.process.stderr is not None
    assert server.process.stderr.readline().startswith(f"Operator token: in {kept}; ")
    token = kept.read_text().strip()

    for name in ("protocol.py", "calibration/__init__.py", "training/__init__.py"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("raise SystemExit(f'{__name__} is the user's own')\n")
    admin = cli.json("admin", "new", "admin")["federation"]
    keys: list[str] = []
    for member in ("a", "b", "c"):
        identity = cli.json("member", "new", member, "--member", member, "--held-out", 0)
        keys += ["--member", f"{member}={identity['public_key']}"]
        np.savez(
            f"{member}.npz",
            **dict(zip(("features", "labels"), records(np.random.default_rng(1), 30), strict=True)),
        )
    cli.json("admin", "roster", "r.json", "--folder", "admin", *keys, "--url", url, *ca)
    assert json.loads(Path("r.json").read_text())["coordinator"] == server.facts["public_key"]
    classes = [word for index in range(CLASSES) for word in ("--class", f"class-{index}")]
    words = (f"--extractor {EXTRACTOR} --dim {DIM} --members 3", "--why-not-listable", "random features")
    cli.json("admin", "study", "new", "s.toml", *words, *classes)
    signed = cli.json("admin", "study", "sign", "s.toml", "--folder", "admin")
    operating = ("--url", url, "--token", token, *ca)
    cli.json("admin", "publish", "r.bin", "s.bin", *operating)
    run = later(cli, "operator", "run", "s.bin", "--period", PERIOD, *operating, "--json")
    joined = {"VEILSUM_URL": url, "VEILSUM_ADMIN_KEY": admin, **tls}
    once = ("--approve", signed["approval"], "--once", *ca)
    threads = [
        later(cli, "member", "join", m, f"{m}.npz", *once, "--url", url, "--admin-key", admin, "--json")
        for m in ("b", "c")
    ]
    own = ProcessWithoutPosix(folder, "member", "join", "a", "a.npz", *once, **joined)
    assert own.end()["counted"] is True
    assert [each.result(PATIENCE_S).values["counted"] for each in threads] == [True, True]
    assert run.result(PATIENCE_S).values["rows"] == 90
    checked = cli.json("verify", f"a/results/study/{PERIOD}", "--admin-key", admin)
    assert checked["record"]["rows"] == 90

    waiting = Process(folder, "member", "join", "a", "a.npz", *ca, **joined)
    assert waiting.process.stderr is not None
    assert any("is enrolling" in line for line in waiting.process.stderr)
    waiting.process.send_signal(signal.SIGINT)
    said, _ = waiting.process.communicate(timeout=120)
    assert waiting.process.returncode == 130
    assert json.loads(said) == {"error": "stopped", "cause": None}
    out, err = server.stop()
    assert server.process.returncode == -signal.SIGTERM
    assert out == ""
    assert token not in err
