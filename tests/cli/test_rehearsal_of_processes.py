"""A rehearsal over five real processes, with slips that no test in one process has, and the run after it."""

import re
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

import numpy as np
import pytest

from client_sdk.store import Store
from tests.support.consortium import stored_in
from tests.support.processes import until
from tests.support.raw_http import Script, answering
from veilsum.cli.demo.consortium import demo_study
from veilsum.cli.demo.coordinator import child_environment, running_coordinator
from veilsum.cli.demo.federation import Federation
from veilsum.cli.demo.folder import Folder
from veilsum.cli.demo.plan import DemoPlan
from veilsum.cli.demo.processes import Children
from veilsum.cli.rehearsing import Rehearsed, rehearse
from veilsum.cli.running import Following
from veilsum.protocol.periods import PeriodKind
from veilsum.protocol.study import Rehearsal
from veilsum.study.canaries import CanaryPack

pytestmark = pytest.mark.slow
MEMBERS, CLASSES, CANARIES = tuple(f"hospital-{letter}" for letter in "abcde"), 3, 24
ROWS, DIM = 600, 128
BODY_MAX_BYTES = 20_000
"""Less than a vector has, and more than any other body."""
PLAN = DemoPlan(enrol_s=900, window_s=16)
MACHINES = {
    "good": "",
    "clock": "import time\nfrom client_sdk.environment import THIS_MACHINE\n"
    "object.__setattr__(THIS_MACHINE, 'now_s', lambda: time.time() + 300)\n",
    "old": "from client_sdk import site_report\nsite_report.version = lambda _: '0.0.1'\n",
    "disk": "import shutil, types\nshutil.disk_usage = lambda _: types.SimpleNamespace(free=1 << 20)\n",
}
"""What a site's process does before it starts `veilsum`: a clock that is five minutes ahead, an old release, a full disk."""
PATIENCE_S = 120.0


def refuse_large_bodies(url: str) -> Script:
    """Pass requests on to an address, except those with a large body, as nginx does."""
    behind = urlsplit(url)

    def script(client: socket.socket, _over: threading.Event) -> None:
        with socket.create_connection((str(behind.hostname), int(behind.port or 0))) as server:
            threading.Thread(target=pump, args=(server, client), daemon=True).start()
            source = client.makefile("rb")
            while head := read_head(source):
                length = re.search(rb"(?i)content-length: *(\d+)", head)
                if length is not None and int(length[1]) > BODY_MAX_BYTES:
                    client.sendall(
                        b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
                    )
                    return
                server.sendall(head + b"\r\n" + source.read(int(length[1]) if length else 0))

    return script


def pump(source: socket.socket, sink: socket.socket) -> None:
    try:
        while part := source.recv(1 << 16):
            sink.sendall(part)
        sink.shutdown(socket.SHUT_RDWR)
    except OSError:
        return


def read_head(source: IO[bytes]) -> bytes:
    head = b""
    while (line := source.readline()) and line != b"\r\n":
        head += line
    return head


@dataclass
class Hospitals:
    """Five processes at one coordinator; each rehearsal starts them anew, with what is wrong at each."""

    children: Children
    folder: Folder
    federation: Federation
    pack: CanaryPack
    rehearsals: int = 0

    def start(self, member: str, wrong: str = "", url: str | None = None, *, once: bool = False) -> None:
        """Start a member's agent on its data, through a proxy's address if there is one."""
        rng = np.random.default_rng(MEMBERS.index(member))
        features = np.vstack([rng.standard_normal((ROWS, DIM)), self.pack.features])
        labels = [*rng.integers(0, CLASSES, ROWS), *map(int, self.pack.labels)]
        ids = [*(f"{member}-{row}" for row in range(ROWS)), *self.pack.ids]
        data = self.folder.features_file(member)
        np.savez(data, features=features[:, ::-1] if wrong == "columns" else features, labels=labels, ids=ids)
        machine = wrong if wrong in MACHINES else "good"
        federation, home = self.federation, self.folder.member_folder(member)
        (home / f"{machine}_site.py").write_text(
            f"{MACHINES[machine]}from veilsum.cli.app import app\napp()\n"
        )
        words = ["member", "join", str(home), str(data), "--admin-key", federation.admin_key.hex()]
        words += ["--url", url or federation.url, "--approve", federation.published.approval]
        self.children.start_child(
            member,
            f"{machine}_site",
            *words,
            *(["--once"] if once else []),
            log=self.folder.logs / member,
            environment=child_environment(),
            folder=home,
        )

    def rehearse(self, wrong: Mapping[str, str], urls: Mapping[str, str] | None = None) -> Rehearsed:
        """Rehearse with what is wrong at some sites, and with proxies before some."""
        self.rehearsals += 1
        for member in MEMBERS:
            self.start(member, wrong.get(member, ""), (urls or {}).get(member))
        for member in MEMBERS:
            log = self.folder.logs / member
            until(lambda log=log: log.stat().st_size)  # type: ignore[misc]
        done = rehearse(
            self.federation.operator,
            lambda _: None,
            self.federation.admin_key.hex(),
            self.federation.published,
            f"rehearsal-{self.rehearsals}",
        )
        for member in MEMBERS:
            assert not self.children._children[member].over.done()  # an agent waits, whatever is wrong
            self.children.kill_child(member)
        return done

    def run(self) -> str:
        """Run the study; return the state in which it ended."""
        for member in MEMBERS:
            self.start(member, once=True)
        following = Following(self.federation.operator, lambda _: None, attempts_max=1)
        of, period = self.federation.admin_key.hex(), self.federation.period
        state: str = following.run_study(of, self.federation.published, period).state
        self.children.join_children(MEMBERS, PATIENCE_S)
        return state

    def list_held(self) -> list[Any]:
        """Return what all members' ledgers hold of records: runs over data, and the records that are held or marked."""
        found: list[Any] = []
        for member in MEMBERS:
            stored = stored_in(self.folder.member_folder(member))
            found += [*stored["held"], *stored["summed"], *(run for run in stored["run"] if "data" in run)]
        return found


@contextmanager
def founded(root: Path) -> Iterator[Hospitals]:
    ids, labels = (
        [f"canary-{row:02}" for row in range(CANARIES)],
        [str(row % CLASSES) for row in range(CANARIES)],
    )
    pack = CanaryPack(ids, labels, np.random.default_rng(9).standard_normal((CANARIES, DIM)))
    named = Rehearsal(pack=pack.digest, tolerance=1e-3)
    content = demo_study(PLAN, bytes(32), DIM, CLASSES, len(MEMBERS), named)
    question = content.question.model_copy(update={"members_min": len(MEMBERS) - 1})
    content = content.model_copy(update={"question": question})
    folder = Folder.claim_folder(root)
    with Children() as children, running_coordinator(children, folder) as (operator, url):
        made = Federation.publish_federation(folder.root, children, operator, url, MEMBERS, content, 0.0)
        operator.publish_canaries(made.admin_key.hex(), pack)
        yield Hospitals(children, folder, made, pack)


@pytest.fixture(scope="module")
def hospitals(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hospitals]:
    with founded(tmp_path_factory.mktemp("hospitals") / "run") as made:
        yield made


def verdicts(done: Rehearsed) -> dict[str, str]:
    """Return what is wrong at each site that is not ready."""
    return {each.member: f"{each.canaries} {' '.join(each.verdict)}" for each in done.rows if not each.ok}


def test_a_rehearsal_names_what_is_wrong_before_the_upload(hospitals: Hospitals) -> None:
    """Nothing is summed, because two of five sites don't take part."""
    done = hospitals.rehearse({"hospital-a": "columns", "hospital-b": "clock"})
    said = verdicts(done)
    assert [*said] == [*MEMBERS[:2]]
    assert "reverse" in said["hospital-a"]
    assert "300 s ahead" in said["hospital-b"]
    assert (done.exact, "Nothing was spent" in done.failure) == (None, True)
    assert hospitals.list_held() == []


def test_a_rehearsal_names_what_is_wrong_on_the_way(hospitals: Hospitals) -> None:
    with answering(refuse_large_bodies(hospitals.federation.url)) as url:
        wrong = {"hospital-b": "old", "hospital-c": "disk"}
        done = hospitals.rehearse(wrong, {"hospital-a": url})
    said = verdicts(done)
    assert [*said] == [*MEMBERS[:3]]
    for member, part in zip(MEMBERS, ("HTTP 413", "release 0.0.1", "make room"), strict=False):
        assert part in said[member], said
    assert (done.ok, done.exact) == (False, True), done.failure
    assert hospitals.list_held() == []


def test_mended_sites_are_ready_and_their_run_succeeds(hospitals: Hospitals) -> None:
    done = hospitals.rehearse({})
    assert (done.ok, done.list_sentences()[:-1]) == (True, [])
    assert hospitals.list_held() == []
    assert hospitals.run() == "done"
    for member in MEMBERS:
        [run] = [
            each
            for each in Store(hospitals.folder.member_folder(member)).ledger.list_runs()
            if each.kind is PeriodKind.DATA
        ]
        assert run.state == "spent"
