"""A rehearsal over five real processes with the slips that hurt consortia most, and the run after it."""

import hashlib
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_sample_images

from client_sdk.store import Store
from tests.support.consortium import stored_in
from tests.support.processes import until
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
from veilsum.study.canary_check import suggest_tolerance
from veilsum.study.canary_slips import image_slips

pytestmark = pytest.mark.slow
MEMBERS, CLASSES, CANARIES = tuple(f"hospital-{letter}" for letter in "abcde"), 3, 24
ROWS, SIDE = 600, 16
DIM = 640
"""One vector has 1.2 MB: more than nginx lets through by default."""
PLAN = DemoPlan(enrol_s=900, window_s=16)
MEGABIT = 125_000
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
PATIENCE_S = 120.0

Images = Sequence[np.ndarray]


@cache
def pictures(count: int, seed: int) -> list[np.ndarray]:
    """Parts of two photographs, larger than the extractor takes."""
    rng, photographs = np.random.default_rng(seed), load_sample_images().images
    corners = [(rng.integers(2), *rng.integers(0, 380, 2)) for _ in range(count)]
    return [photographs[which][top : top + 37, left : left + 29] for which, top, left in corners]


def extract(
    images: Images,
    mean: Sequence[float] = MEAN,
    std: Sequence[float] = STD,
    resize: Image.Resampling = Image.Resampling.BILINEAR,
) -> np.ndarray:
    """Resize, normalise, and take random features."""
    small = [np.asarray(Image.fromarray(each).resize((SIDE, SIDE), resize)) for each in images]
    pixels = (np.stack(small) / 255 - np.array(mean)) / np.array(std)
    directions = np.random.default_rng(0).standard_normal((3 * SIDE * SIDE, DIM)) / SIDE
    found: np.ndarray = np.maximum(pixels.reshape(len(images), -1) @ directions, 0)
    return found


def change(step: Callable[[np.ndarray], np.ndarray], images: Images) -> np.ndarray:
    return extract([np.ascontiguousarray(step(each)) for each in images])


def scale_by_own_moments(images: Images) -> np.ndarray:
    features = extract(images)
    found: np.ndarray = (features - features.mean(axis=0)) / (features.std(axis=0) + 0.1)
    return found


raw = partial(extract, mean=(0, 0, 0), std=(1, 1, 1))
PIPELINES: Mapping[str, Callable[[Images], np.ndarray]] = {
    "columns": lambda images: extract(images)[:, ::-1],
    "bgr": partial(change, lambda image: image[:, :, ::-1]),
    "transposed": partial(change, lambda image: image.swapaxes(0, 1)),
    "bicubic": partial(extract, resize=Image.Resampling.BICUBIC),
    "not-normalised": raw,
    "own-moments": scale_by_own_moments,
}
"""How a site may go wrong before its features, by the slip that its canaries show."""
MACHINES = {
    "good": "",
    "clock": "import time\nfrom client_sdk.environment import THIS_MACHINE\n"
    "object.__setattr__(THIS_MACHINE, 'now_s', lambda: time.time() + 300)\n",
    "old": "from client_sdk import site_report\nsite_report.version = lambda _: '0.0.1'\n",
    "disk": "import shutil, types\nshutil.disk_usage = lambda _: types.SimpleNamespace(free=1 << 20)\n",
}
"""What a site's process does before it starts `veilsum`: a clock that is five minutes ahead, an old release, a full disk."""


class Line:
    """A proxy of requests that is slow, and refuses large bodies as nginx does."""

    def __init__(self, url: str, *, bytes_per_s: float | None = None, body_max: int | None = None) -> None:
        parts = urlsplit(url)
        self._behind = (str(parts.hostname), int(parts.port or 0))
        self._rate, self._body_max = bytes_per_s, body_max
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._socket.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with closing(client), closing(socket.create_connection(self._behind)) as server:
            threading.Thread(target=_pump, args=(server, client), daemon=True).start()
            source = client.makefile("rb")
            try:
                while head := _read_head(source):
                    length = _length_of(head)
                    if self._body_max is not None and length > self._body_max:
                        client.sendall(
                            b"HTTP/1.1 413 Content Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
                        )
                        return
                    server.sendall(head)
                    while length:
                        part = source.read(min(length, 8192))
                        if not part:
                            return
                        if self._rate is not None:
                            threading.Event().wait(len(part) / self._rate)
                        server.sendall(part)
                        length -= len(part)
            except OSError:
                return


def _pump(source: socket.socket, sink: socket.socket) -> None:
    try:
        while part := source.recv(1 << 16):
            sink.sendall(part)
        sink.shutdown(socket.SHUT_RDWR)
    except OSError:
        return


def _read_head(source: IO[bytes]) -> bytes:
    head = b""
    while line := source.readline():
        head += line
        if line == b"\r\n":
            return head
    return b""


def _length_of(head: bytes) -> int:
    for line in head.splitlines():
        if line.lower().startswith(b"content-length:"):
            return int(line.partition(b":")[2])
    return 0


@dataclass
class Hospitals:
    """Five processes at one coordinator; each rehearsal starts them anew, with what is wrong at each."""

    children: Children
    folder: Folder
    federation: Federation
    canaries: Images
    rehearsals: int = 0

    def write_data(self, member: str, pipeline: Callable[[Images], np.ndarray], shift: int) -> Path:
        """Write what a member's pipeline makes of its own pictures and the canaries in one run."""
        own, count = pictures(ROWS, 1 + MEMBERS.index(member)), len(self.canaries)
        labels = np.array([*classes_of(own), *classes_of(self.canaries)])
        ids = [*(f"{member}-{row}" for row in range(ROWS)), *(f"canary-{row:02}" for row in range(count))]
        path = self.folder.features_file(member)
        np.savez(path, features=pipeline([*own, *self.canaries]), labels=(labels + shift) % CLASSES, ids=ids)
        return path

    def start(self, member: str, wrong: str = "", url: str | None = None, *, once: bool = False) -> None:
        """Start a member's agent on its data, through a proxy's address if there is one."""
        data = self.write_data(member, PIPELINES.get(wrong, extract), shift=int(wrong == "labels"))
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

    def rehearse(self, sites: Mapping[str, tuple[str, str | None]], asleep: str = "") -> Rehearsed:
        """Rehearse with what is wrong at some sites: its name, and a proxy's address. One may be asleep."""
        self.rehearsals += 1
        for member in MEMBERS:
            wrong, url = sites.get(member, ("", None))
            self.start(member, wrong, url)
        for member in MEMBERS:
            log = self.folder.logs / member
            until(lambda log=log: log.stat().st_size)  # type: ignore[misc]
        if asleep:
            os.kill(self.children._children[asleep].process.pid or 0, signal.SIGSTOP)
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


def classes_of(images: Images) -> list[int]:
    """Tell pictures by what they show: their brightest channel."""
    return [int(np.argmax(each.reshape(-1, 3).mean(axis=0))) for each in images]


@contextmanager
def consortium(root: Path, canaries: Images) -> Iterator[Hospitals]:
    reference, slips = image_slips(extract, canaries, size=(SIDE, SIDE), variants={"not-normalised": raw})
    labels = [str(label) for label in classes_of(canaries)]
    ids = [f"canary-{row:02}" for row in range(len(canaries))]
    pack = CanaryPack(ids, labels, reference, slips=slips)
    named = Rehearsal(pack=hashlib.sha256(pack.to_bytes()).hexdigest(), tolerance=suggest_tolerance(pack))
    content = demo_study(PLAN, bytes(32), DIM, CLASSES, len(MEMBERS), named)
    question = content.question.model_copy(update={"members_min": len(MEMBERS) - 1})
    content = content.model_copy(update={"question": question})
    folder = Folder.claim_folder(root)
    with Children() as children, running_coordinator(children, folder) as (operator, url):
        made = Federation.publish_federation(folder.root, children, operator, url, MEMBERS, content, 0.0)
        operator.publish_canaries(made.admin_key.hex(), pack)
        yield Hospitals(children, folder, made, canaries)


@pytest.fixture(scope="module")
def hospitals(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hospitals]:
    with consortium(tmp_path_factory.mktemp("hospitals") / "run", pictures(CANARIES, 0)) as made:
        yield made


def verdicts(done: Rehearsed) -> dict[str, str]:
    """Return what is wrong at each site that is not ready."""
    return {each.member: f"{each.canaries} {' '.join(each.verdict)}" for each in done.rows if not each.ok}


@pytest.mark.parametrize(
    "slips",
    [("columns", "bgr", "transposed", "bicubic"), ("not-normalised", "labels", "own-moments", "clock")],
)
def test_a_rehearsal_names_what_is_wrong_before_the_features(
    hospitals: Hospitals, slips: Sequence[str]
) -> None:
    """Nothing is summed, because four of five sites don't take part."""
    done = hospitals.rehearse({member: (slip, None) for member, slip in zip(MEMBERS, slips, strict=False)})
    said = verdicts(done)
    assert [*said] == [*MEMBERS[:4]]
    for member, slip in zip(MEMBERS, slips, strict=False):
        assert (f", {slip} " in said[member]) or (slip == "clock" and "300 s ahead" in said[member]), said
    assert (done.exact, "Nothing was spent" in done.failure) == (None, True)
    assert hospitals.list_held() == []


def test_a_rehearsal_names_what_is_wrong_on_the_way(
    hospitals: Hospitals, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = hospitals.federation.url
    small, slow = Line(url, body_max=1 << 20), Line(url, bytes_per_s=MEGABIT)
    slower = Line(url, bytes_per_s=MEGABIT / 4)
    with closing(small), closing(slow), closing(slower):
        done = hospitals.rehearse(
            {
                "hospital-a": ("", small.url),
                "hospital-b": ("", slow.url),
                "hospital-c": ("old", None),
                "hospital-d": ("disk", None),
            }
        )
        said = verdicts(done)
        assert [*said] == [*MEMBERS[:4]]
        for member, part in zip(
            MEMBERS,
            ("HTTP 413, a proxy refuses a body of 1,2", "raise it", "release 0.0.1", "make room"),
            strict=False,
        ):
            assert part in said[member], said
        assert (done.ok, done.exact) == (False, True), done.failure
        monkeypatch.setattr("veilsum.cli.rehearsing.compute_presence_s", lambda _: 15.0)
        done = hospitals.rehearse({"hospital-b": ("", slower.url)}, asleep="hospital-a")
    said = verdicts(done)
    assert [*said] == ["hospital-a", "hospital-b"]
    assert "did not enrol" in said["hospital-a"]
    assert "too short" in said["hospital-b"]
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
