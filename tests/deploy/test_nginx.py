"""The Compose file's nginx.conf in a real nginx: mutual TLS, what it lets through, and a signed round behind it."""

import os
import re
import shutil
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import uvicorn
from pydantic import SecretStr

from client_sdk import Identity, Member, Policy, Records
from client_sdk.errors import PeerFault, UnexpectedAnswer
from client_sdk.operator import Operator
from service.app import create_app
from service.settings import Settings
from tests.support.authority import Authority
from tests.support.cli import CLASSES, DIM, EXTRACTOR, PERIOD, records
from tests.support.processes import listens, until
from tests.support.servers import lacking
from veilsum.cli.admin import create_admin, revise_draft
from veilsum.cli.demo.consortium import demo_study
from veilsum.cli.demo.coordinator import free_port
from veilsum.cli.demo.plan import DemoPlan
from veilsum.cli.running import Following
from veilsum.protocol.causes import Cause
from veilsum.study import signed as study_signed

NGINX = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin")
CONF = (Path(__file__).parents[2] / "deploy" / "compose" / "nginx.conf").read_text()
AT_ONCE = 24
pytestmark = pytest.mark.slow


@dataclass
class Door:
    """nginx in front of a coordinator.

    Attributes:
        limits: the coordinator's limits, which show how it identifies callers.
    """

    url: str
    authority: Authority
    certificate: tuple[str, str]
    limits: Any

    def client(self, cert: tuple[str, str] | None) -> httpx.Client:
        context = ssl.create_default_context(cafile=str(self.authority.path))
        if cert is not None:
            context.load_cert_chain(*cert)
        return httpx.Client(base_url=self.url, verify=context)


def names(paths: tuple[Path, Path]) -> tuple[str, str]:
    return str(paths[0]), str(paths[1])


def release() -> tuple[int, ...]:
    """Return the version of the installed nginx."""
    said = subprocess.run([str(NGINX), "-v"], capture_output=True, text=True, check=True).stderr
    [found] = re.findall(r"nginx/(\d+)\.(\d+)\.(\d+)", said)
    return tuple(map(int, found))


def configured(folder: Path, door: int, behind: int) -> Path:
    """Write the deployed file with this machine's paths and ports.

    For an nginx older than the deployed one, which can't resolve names again, `resolve` is left out: all servers here are addresses.
    """
    places = {
        **({} if release() >= (1, 27, 3) else {":8000 resolve ": ":8000 "}),
        "/tmp/": f"{folder}/",
        "/etc/nginx/tls/": f"{folder}/",
        "listen 8443 ": f"listen 127.0.0.1:{door} ",
        "addresses 512": f"addresses {AT_ONCE}",
        **{f"coordinator-{n}:8000": f"127.0.0.1:{behind}" for n in (1, 2, 3)},
    }
    text = CONF
    for place, here in places.items():
        assert place in text
        text = text.replace(place, here)
    assert set(re.findall(r"server (\S+)", text)) == {"{", f"127.0.0.1:{behind}"}
    path = folder / "nginx.conf"
    path.write_text(text)
    return path


@pytest.fixture
def door(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Door]:
    if NGINX is None:
        lacking("nginx is not installed")
    monkeypatch.setattr(os, "fsync", lambda _descriptor: None)
    port = free_port()
    url = f"https://127.0.0.1:{port}"
    app = create_app(
        Settings(
            data_dir=tmp_path / "service",
            operator_token=SecretStr("the operator's own token"),
            public_url=url,
        )
    )
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", ws="none"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    authority = Authority(tmp_path, "clients")
    authority.issue("server")
    config = configured(tmp_path, port, server.servers[0].sockets[0].getsockname()[1])
    who = "user root; " if os.geteuid() == 0 else ""  # its workers have to get into the test's folder
    assert NGINX is not None
    words = [NGINX, "-c", str(config), "-e", str(tmp_path / "error.log"), "-g", f"daemon off; {who}"]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            until(lambda: process.poll() is not None or listens(port))
            assert process.poll() is None, (tmp_path / "error.log").read_text()
            yield Door(url, authority, names(authority.issue("member")), app.state.limits)
        finally:
            process.terminate()
            process.wait(10)
            server.should_exit = True
            thread.join(10)


def test_who_gets_through(door: Door, tmp_path: Path) -> None:
    strangers = [None, names(Authority(tmp_path, "another").issue("stranger"))]
    for stranger in strangers:
        with door.client(stranger) as client:
            assert client.get("/v1/coordinator").status_code == 400
        with (
            Operator(
                door.url, "the operator's own token", verify=str(door.authority.path), cert=stranger
            ) as operator,
            pytest.raises(UnexpectedAnswer),
        ):
            operator.coordinator()
    with door.client(door.certificate) as client:
        assert client.get("/v1/coordinator").status_code == 200
        assert client.get("/metrics").status_code == 404
        # A client's own X-Forwarded-For doesn't change who it is.
        assert client.get("/v1/coordinator", headers={"x-forwarded-for": "192.0.2.1"}).status_code == 200
    addresses = [who for who in door.limits._full_s if who.startswith("address")]
    assert addresses == ["address 127.0.0.1"]


def test_an_address_has_so_many_requests_at_once(door: Door) -> None:
    with door.client(door.certificate) as client, ThreadPoolExecutor(2 * AT_ONCE) as pool:
        # The coordinator lets refusals wait.
        answers = pool.map(lambda _: client.get(f"/v1/rounds/{'0' * 16}"), range(2 * AT_ONCE))
        assert {answer.status_code for answer in answers} == {404, 429}
        assert client.get("/v1/coordinator").status_code == 200


def test_a_signed_run(door: Door, tmp_path: Path) -> None:
    shown: dict[str, Any] = {"verify": str(door.authority.path), "cert": door.certificate}
    admin = create_admin(tmp_path / "admin")
    identities = [Identity.create(tmp_path / name, name) for name in ("a", "b", "c")]
    content = demo_study(DemoPlan(window_s=4), bytes.fromhex(EXTRACTOR), DIM, CLASSES, len(identities))
    policy = Policy(admin_key=admin.public, approved={content.approval})

    def contributed(identity: Identity) -> bool:
        own = Records(*records(np.random.default_rng(1), 40))
        with Member(door.url, identity, policy, **shown) as live:
            return next(iter(live.join(own, once=True))).counted

    with Operator(door.url, "the operator's own token", **shown) as operator, ThreadPoolExecutor(4) as pool:
        draft = revise_draft(
            None,
            coordinator=operator.coordinator().public_key,
            members=[f"{each.member}={each.public.hex()}" for each in identities],
        )
        operator.publish_roster(draft.sign_roster(admin))
        study = operator.publish_study(study_signed.sign_study(content, admin.public, admin, time.time()))
        run = pool.submit(Following(operator, lambda _: None).run_study, admin.public.hex(), study, PERIOD)
        assert list(pool.map(contributed, identities)) == [True] * 3
        assert run.result().state == "done"
    # Under another host name, the signatures are for another address, and are refused.
    with (
        Operator(
            door.url.replace("127.0.0.1", "localhost"), None, admin=admin, verify=False, cert=door.certificate
        ) as astray,
        pytest.raises(PeerFault) as refused,
    ):
        astray.publish_roster(revise_draft(draft, name="other").sign_roster(admin))
    assert refused.value.cause is Cause.REQUEST_FORGED
