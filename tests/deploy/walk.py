"""A federation on one machine: each party is a service with its own user and network, and an operator watches it in a browser.

`make walk` renews the pictures of docs/tutorials/one-machine.md.
"""

import argparse
import asyncio
import io
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from playwright.async_api import Page, expect

from tests.deploy.services import ROOT, Machine, Network
from tests.service.pages.looking import WIDTHS, chromium
from tests.support.authority import Authority
from tests.support.cli import CLASSES, DIM, EXTRACTOR, PERIOD, Cli, records

MEMBERS = ("hospital-a", "hospital-b", "hospital-c", "hospital-d")
PICTURES = ROOT / "docs" / "pictures"
COLOURS = 64


class Consortium:
    """The parties on the machine before the first round.

    Args:
        machine: where they run.
        folder: of the admin and the operator.
    """

    def __init__(self, machine: Machine, folder: Path) -> None:
        self.machine, self.url = machine, f"https://{machine.network.address}:8443"
        self.cli, self.services = Cli(folder, self.url), dict[str, subprocess.Popen[bytes]]()
        self.authority = Authority(folder, "authority")
        self.approval = self.token = self.admin = ""

    def begin(self) -> None:
        """Set up certificates, the coordinator's service, identities, and a published roster and study."""
        for name in ("operator", *MEMBERS):
            self.authority.issue(name)
        certificate, key = self.authority.issue("server", self.machine.network.address)
        etc = self.machine.place("/etc/veilsum")
        for source, name in (
            (certificate, "server.pem"),
            (key, "server.key"),
            (self.authority.path, "clients.pem"),
        ):
            (etc / name).write_bytes(source.read_bytes())
        (etc / "authority.pem").write_bytes(self.authority.path.read_bytes())
        self.machine.home("veilsum")
        self.start("veilsum.service", "hub", "veilsum.service.d/tls.conf")
        self.token = Path(self.said("veilsum.service", r"Operator token: in (\S+);")).read_text().strip()
        self.said("veilsum.service", r"(https://\S+)")
        self.admin = str(self.cli.json("admin", "new", self.cli.folder / "admin")["federation"])
        keys = [word for name in MEMBERS for word in ("--member", f"{name}={self.identity(name)}")]
        folder = self.cli.folder
        named = ("--folder", folder / "admin", "--name", "Four hospitals")
        self.ask("admin", "roster", folder / "roster.json", *named, *keys)
        words = f"--extractor {EXTRACTOR} --dim {DIM} --members {len(MEMBERS)} --name ct-2026".split()
        words += [word for index in range(CLASSES) for word in ("--class", f"class-{index}")]
        words += ["--why-not-listable", "random features"]
        self.cli.json("admin", "study", "new", folder / "study.toml", *words)
        signed = self.cli.json("admin", "study", "sign", folder / "study.toml", "--folder", folder / "admin")
        self.approval = str(signed["approval"])
        self.operate("admin", "publish", folder / "roster.bin", folder / "study.bin")

    def identity(self, name: str) -> str:
        """Create a member's identity as its user; return the public key."""
        home = self.machine.home(f"veilsum-{name}")
        program = str(self.machine.place("/opt/veilsum/bin/veilsum"))
        words = [program, "member", "new", str(home / "identity"), "--member", name, "--json"]
        made = subprocess.check_output(self.machine.as_user(f"veilsum-{name}", name, words), text=True)
        [key] = re.findall(r'"public_key": "(\w+)"', made)
        for suffix in ("pem", "key"):
            file = home / f"member.{suffix}"
            file.write_bytes((self.cli.folder / f"{name}.{suffix}").read_bytes())
            self.machine.give(f"veilsum-{name}", file)
        features, labels = records(np.random.default_rng(MEMBERS.index(name)), 60)
        np.savez(home / "features.npz", features=features, labels=labels)
        self.machine.give(f"veilsum-{name}", home / "features.npz")
        return str(key)

    def join(self, name: str) -> None:
        """Write a member's settings, and start its service."""
        home = f"/var/lib/veilsum-{name}"
        values = {
            "VEILSUM_URL": self.url,
            "VEILSUM_ADMIN_KEY": self.admin,
            "VEILSUM_CLIENT_CERT": f"{home}/member.pem",
            "VEILSUM_CLIENT_KEY": f"{home}/member.key",
            "VEILSUM_CA": "/etc/veilsum/authority.pem",
            "DATA": f"{home}/features.npz",
            "APPROVE": self.approval,
        }
        lines = "".join(f"{key}={value}\n" for key, value in values.items())
        self.machine.place(f"/etc/veilsum/{name}.env").write_text(lines)
        self.start(f"veilsum-member@{name}.service", name)

    def start(self, unit: str, host: str, *drop_ins: str) -> None:
        self.services[unit] = self.machine.started(unit, host, self.log(unit), *drop_ins)

    def kill(self, name: str) -> None:
        """Kill a service as a power cut would."""
        service = self.services[f"veilsum-member@{name}.service"]
        service.kill()
        service.wait(10)

    def log(self, unit: str) -> Path:
        return self.cli.folder / f"{unit}.log"

    def said(self, unit: str, pattern: str, within_s: float = 60.0) -> str:
        """Wait until a service has logged this."""
        end = time.monotonic() + within_s
        while time.monotonic() < end and self.services[unit].poll() is None:
            if found := re.search(pattern, self.log(unit).read_text()):
                return found[1]
            time.sleep(0.1)
        raise AssertionError(self.log(unit).read_text())

    def ask(self, *words: object) -> dict[str, Any]:
        """Run a command of the operator or admin, with the operator's certificate."""
        own = self.cli.folder / "operator.pem"
        shown = ("--client-cert", own, "--client-key", own.with_suffix(".key"))
        return self.cli.json(*shown, *self.cli.at(*words), "--ca", self.authority.path)

    def operate(self, *words: object) -> dict[str, Any]:
        return self.ask(*words, "--token", self.token)

    def stop(self) -> None:
        for service in self.services.values():
            service.terminate()
        for service in self.services.values():
            service.wait(15)


@contextmanager
def consortium() -> Iterator[Consortium]:
    """Yield a set-up consortium."""
    with (
        tempfile.TemporaryDirectory(prefix="veilsum-") as folder,
        Network(f"vs{os.getpid()}", MEMBERS) as network,
    ):
        Path(folder).chmod(0o755)
        own = Path(folder) / "own"
        own.mkdir(mode=0o700)
        made = Consortium(Machine(Path(folder) / "machine", network), own)
        made.begin()
        try:
            yield made
        finally:
            made.stop()


@asynccontextmanager
async def operator_s_browser(c: Consortium) -> AsyncIterator[Page]:
    """Start Chromium with the operator's certificate."""
    async with chromium() as browser:
        context = await browser.new_context(
            viewport={"width": WIDTHS["desktop"], "height": 800},
            reduced_motion="reduce",
            ignore_https_errors=True,  # the authority is the consortium's own
            client_certificates=[
                {
                    "origin": c.url,
                    "certPath": c.cli.folder / "operator.pem",
                    "keyPath": c.cli.folder / "operator.key",
                }
            ],
        )
        yield await context.new_page()


async def walk(c: Consortium, pictures: Path) -> dict[str, Any]:
    """Walk through the operator's tasks: sign in, open, wait, extend, see a dropout return, see the result."""

    async def picture(page: Page, name: str) -> None:
        with Image.open(io.BytesIO(await page.screenshot(full_page=True))) as shown:
            shown.convert("RGB").quantize(COLOURS).save(pictures / f"{name}.png", optimize=True)

    async with operator_s_browser(c) as page:
        await page.goto(c.url + "/sign-in")
        await page.get_by_label("Operator's token").fill(c.token)
        await picture(page, "sign-in")
        await page.get_by_role("button", name="Sign in").click()
        await page.get_by_role("button", name="Sign out").wait_for()

        for name in MEMBERS:
            c.join(name)
        study = ("--federation", c.admin, "--period", PERIOD)
        opened = await asyncio.to_thread(c.operate, "operator", "cohort", "open", "ct-2026", *study)
        cohort = str(opened["cohort"])
        await asyncio.to_thread(c.ask, "operator", "cohort", "watch", cohort)
        await page.goto(f"{c.url}/federations/{c.admin}")
        await picture(page, "federation")

        # The first step counts the classes' holders.
        counts = str(c.operate("operator", "round", "open", cohort)["round"])
        await asyncio.to_thread(c.ask, "operator", "round", "watch", counts)
        c.kill("hospital-d")  # before it has uploaded
        round_id = str(c.operate("operator", "round", "open", cohort)["round"])
        await page.goto(f"{c.url}/rounds/{round_id}")
        await expect(page.locator("dd", has_text="3 of 4")).to_be_visible(timeout=60_000)
        await page.get_by_label("Additional minutes").fill("20")
        await picture(page, "waiting")
        await page.get_by_role("button", name="Extend").click()
        c.join("hospital-d")
        await expect(page.locator(".now")).to_have_text("done", timeout=60_000)
        await page.reload()
        await picture(page, "done")
        await page.get_by_role("link", name="See the result").click()
        await page.locator(".chart canvas").wait_for()
        await picture(page, "result")
    return {"round": round_id}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pictures", type=Path, default=PICTURES)
    arguments = parser.parse_args()
    with consortium() as c:
        sys.stdout.write(f"{asyncio.run(walk(c, arguments.pictures))}\n")


if __name__ == "__main__":
    main()
