"""Build the images without a Docker daemon, then hold a run of three members with a coordinator in a container.

`make image` needs root and buildah; where no registry can be reached, debootstrap makes the base.
"""

import argparse
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from client_sdk import Result
from tests.support.cli import TOKEN, Cli, CliConsortium
from veilsum.cli.demo.coordinator import free_port

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "deploy" / "docker"
BASE = "python:3.13-slim-bookworm"
"""The base image of both files."""
START_S = 90.0


def lacking() -> str | None:
    """Return why images can't be built here; None if they can."""
    if os.geteuid() != 0:
        return "building without a daemon needs root"
    return None if shutil.which("buildah") else "buildah is not installed"


class Images:
    """Images in a separate folder.

    Args:
        folder: where they are stored; an existing base is used again.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.folder.mkdir(parents=True, exist_ok=True)

    def buildah(self, *words: object, output: bool = True) -> str:
        run = subprocess.run(
            self._command(*words), stdout=subprocess.PIPE if output else None, text=True, check=True
        )
        return (run.stdout or "").strip()

    def _command(self, *words: object) -> list[str]:
        stored = ("--root", self.folder / "storage", "--runroot", self.folder / "run")
        return ["buildah", "--storage-driver", "vfs", *map(str, (*stored, *words))]

    def base(self) -> None:
        """Pull the base, or make one of Debian's packages. Its Python is then Debian's, which the project supports as well."""
        if BASE in self.buildah("images", "--format", "{{.Name}}:{{.Tag}}").replace("localhost/", "").split():
            return
        pulled = subprocess.run(
            self._command("pull", "--quiet", f"docker.io/library/{BASE}"),
            capture_output=True,
            text=True,
            check=False,
        )
        if pulled.returncode == 0:
            return
        sys.stderr.write("no registry: making the base with debootstrap\n")
        with tempfile.TemporaryDirectory(dir=self.folder) as name:
            packages = "--include=python3,python3-venv,ca-certificates"
            subprocess.run(
                ["debootstrap", "--variant=minbase", packages, "bookworm", name],
                check=True,
                stdout=subprocess.DEVNULL,
            )
            (Path(name) / "usr/bin/python").symlink_to("python3")
            container = self.buildah("from", "scratch")
            self.buildah("add", "--quiet", container, name, "/")
            self.buildah("commit", "--quiet", container, f"localhost/{BASE}")
            self.buildah("rm", container)

    def build(self, name: str) -> dict[str, int]:
        """Build an image from its file. The build uses the host's certificates and pip settings.

        Returns:
            Bytes of the image and of its base.
        """
        lent = [path for path in ("/etc/ssl/certs", "/etc/pip.conf") if Path(path).exists()]
        volumes = [word for path in lent for word in ("--volume", f"{path}:{path}:ro")]
        file = DOCKER / f"{name}.Dockerfile"
        # The other format knows no health check.
        words = f"bud --format docker --isolation chroot --pull-never --quiet --tag {name}".split()
        self.buildah(*words, *volumes, "--file", file, ROOT, output=False)
        return {"bytes": self._bytes(name), "base_bytes": self._bytes(BASE)}

    def _bytes(self, name: str) -> int:
        """Return the size of an image's files."""
        container = self.buildah("from", "--pull-never", name)
        try:
            place = self.buildah("mount", container)
            return int(subprocess.check_output(["du", "--summarize", "--bytes", place], text=True).split()[0])
        finally:
            self.buildah("rm", container)

    @contextmanager
    def running(
        self, name: str, *command: str, environment: dict[str, str]
    ) -> Iterator[subprocess.Popen[bytes]]:
        """Run a container of an image, as its user, until the block ends. Its output goes to `NAME.log` in the folder."""
        container = self.buildah("from", "--pull-never", name)
        settings = [word for each in environment.items() for word in ("--env", "=".join(each))]
        words = ("run", "--isolation", "chroot", *settings, container, "--", *command)
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(self._command(*words), stdout=log, stderr=log, start_new_session=True)
        try:
            yield process
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(30)
            self.buildah("rm", container)

    def command(self, name: str) -> list[str]:
        """Return the command that an image starts, from its Dockerfile."""
        shown = json.loads(self.buildah("inspect", "--type", "image", name))["OCIv1"]["config"]
        return [*shown.get("Entrypoint", ()), *shown["Cmd"]]


def until_ready(url: str, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + START_S
    while time.monotonic() < end and process.poll() is None:
        try:
            if httpx.get(f"{url}/readyz", timeout=5).status_code == 200:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.2)
    raise RuntimeError(
        f"the coordinator in its container was not ready within {START_S:.0f} s: its output is in coordinator.log"
    )


def held(images: Images, folder: Path) -> dict[str, Any]:
    """Hold a run of three members with a coordinator in its container; its files are checked like any result's."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    given = {"VEILSUM_OPERATOR_TOKEN": TOKEN, "VEILSUM_COORDINATOR_KEY": secrets.token_hex(32)}
    command = [*images.command("coordinator")[:-1], "127.0.0.1", "--port", str(port)]
    with images.running("coordinator", *command, environment=given) as process:
        until_ready(url, process)
        healthy = subprocess.run(
            [sys.executable, DOCKER / "healthcheck.py", str(port)], check=False, timeout=10
        ).returncode
        started = time.monotonic()
        consortium = CliConsortium(Cli(folder, url))
        _, printed = consortium.held()
        result = Result.load(consortium.result("m0"))
        result.verify(bytes.fromhex(consortium.admin))
    return {
        "healthcheck": healthy,
        "members": len(printed),
        "counted": sum(bool(each["counted"]) for each in printed.values()),
        "verified": result.record.round,
        "seconds": round(time.monotonic() - started, 1),
    }


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--folder", type=Path, default=Path("runs/images"), help="where images are stored")
    arguments.add_argument("--output", type=Path, required=True)
    given = arguments.parse_args()
    if reason := lacking():
        sys.exit(reason)
    images = Images(given.folder)
    images.base()
    found: dict[str, Any] = {name: images.build(name) for name in ("coordinator", "member")}
    with tempfile.TemporaryDirectory() as folder:
        found["run"] = held(images, Path(folder))
    given.output.write_text(json.dumps(found, indent=1) + "\n")
    sys.stdout.write(given.output.read_text())


if __name__ == "__main__":
    main()
