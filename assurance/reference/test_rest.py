"""A member written from the specification, over HTTP with the real coordinator, among members of the SDK."""

import base64
import os
import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

import httpx
import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from safetensors.numpy import load

from assurance.reference import reference, wire
from client_sdk import Identity, Member, Policy
from client_sdk.operator import Operator
from client_sdk.records import Records
from tests.support.serving import TOKEN
from tests.support.simulator import simulated_content, simulated_question, simulated_roster
from tests.support.stage import coordinator
from veilsum.protocol import rest
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.messages import Study

DIM, CLASSES, IDS = 3, 2, ("ada", "bo", "cy", "di", "eve")
OCTETS = {"content-type": rest.OCTETS_TYPE}


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    with coordinator(tmp_path / "service") as stage:
        yield stage.url


class Signature(httpx.Auth):
    """Sign requests with nothing but docs/access.md."""

    requires_request_body = True

    def __init__(self, name: str, key: Ed25519PrivateKey) -> None:
        self.name, self.key = name, key

    def auth_flow(self, request: httpx.Request) -> Iterator[httpx.Request]:  # type: ignore[override]  # nothing is sent into it
        path, _, query = request.url.raw_path.decode().partition("?")
        lines = {"@method": request.method, "@authority": request.headers["host"], "@path": path, "@query": f"?{query}"}
        if request.method in {"PUT", "POST"}:
            digest = base64.b64encode(sha256(request.content).digest()).decode()
            request.headers["content-digest"] = lines["content-digest"] = f"sha-256=:{digest}:"
        covered = " ".join(f'"{name}"' for name in lines)
        now = int(time.time())
        signed = (
            f'({covered});created={now};expires={now + 60};nonce="{os.urandom(16).hex()}"'
            f';keyid="{self.name}";alg="ed25519";tag="veilsum-request-1"'
        )
        lines["@signature-params"] = signed
        base = "\n".join(f'"{name}": {value}' for name, value in lines.items())
        signature = base64.b64encode(self.key.sign(base.encode("ascii"))).decode()
        request.headers["signature-input"] = f"s={signed}"
        request.headers["signature"] = f"s=:{signature}:"
        yield request


class Stranger:
    """Talk to the coordinator with nothing but the specification, the paths and httpx."""

    def __init__(self, http: httpx.Client, member: reference.Member) -> None:
        self.http, self.member = http, member

    def send(self, method: str, path: str, body: bytes, **params: int) -> httpx.Response:
        answer = self.http.request(method, path, content=body, params=params)
        assert answer.is_success, answer.text
        return answer

    def enrol(self, cohort: str, serial: int) -> None:
        """Send the card, then a pairing for each manifest that is shown, until all members have paired."""
        place = {"cohort": cohort, "member": self.member.name}
        shown = self.put(
            rest.CARD_PATH.format(**place), self.member.enrol(self.member.study.expires, os.urandom, serial)
        )
        while pairing := self.member.receive(shown):
            shown = self.put(rest.PAIRING_PATH.format(**place), pairing)

    def put(self, path: str, message: bytes) -> bytes:
        """Send a message until the answer is one, and no longer a view of the cohort."""
        while (answer := self.send("PUT", path, message, wait_s=1)).headers["content-type"] == "application/json":
            pass
        return answer.content

    def contribute(self, round_id: str, vector: list[int]) -> None:
        """Answer requests until the round has ended."""
        where, opened = rest.ROUND_PATH.format(round_id=round_id), False
        while not (view := self.http.get(where).json())["ended"]:
            self.member.now = int(time.time())
            asked = self.http.get(rest.REQUEST_PATH.format(round_id=round_id, member=self.member.name))
            if asked.status_code == 204:
                self.http.get(where, params={"after": view["version"], "wait_s": 1})
            elif not opened:
                self.member.receive(asked.content)
                opened = True
                self.upload(round_id, vector)
            elif answer := self.member.receive(asked.content):
                self.send("POST", rest.ANSWERS_PATH.format(round_id=round_id), answer)

    def upload(self, round_id: str, vector: list[int]) -> None:
        below_p = random.SystemRandom().randrange
        announced, chunks = self.member.upload(vector, os.urandom, lambda: below_p(wire.P))
        place = {"round_id": round_id, "member": self.member.name}
        missing = self.send("PUT", rest.UPLOAD_PATH.format(**place), announced).json()["missing"]
        for index in missing:
            self.send("PUT", rest.CHUNK_PATH.format(**place, index=index), chunks[index])


def rows_of(name: str, period: int) -> Records:
    rng = np.random.default_rng(1 + IDS.index(name) + 10 * period)
    ids = [f"{name}-{period}-{number}" for number in range(60)]
    return Records(rng.normal(size=(60, DIM)), rng.integers(0, CLASSES, 60), ids)


def test_a_stranger_takes_part_in_rounds_among_members_of_the_sdk(tmp_path: Path, address: str) -> None:
    admin, me = SigningKey(bytes(range(32))), Ed25519PrivateKey.generate()
    identities = {name: Identity.create(tmp_path / name, name, held_out=0.0) for name in IDS if name != "cy"}
    keys = {name: identity.key.public for name, identity in identities.items()}
    keys["cy"] = me.public_key().public_bytes_raw()
    question = simulated_question(5) | {"dim": DIM, "classes": ["a", "b"]}
    content = simulated_content(question, int(time.time()) + 10**6)
    study = Study.make_signed(admin, federation=admin.public, content=content.to_bytes())
    policy, known = Policy(admin_key=admin.public, approved={content.approval}), reference.Known()
    with (
        Operator(address, TOKEN) as operator,
        ThreadPoolExecutor(5) as pool,
        httpx.Client(base_url=address, auth=Signature("cy", me)) as http,
    ):
        roster = simulated_roster(
            admin, bytes.fromhex(operator.coordinator().public_key), {name: keys[name] for name in IDS}
        )
        federation = operator.publish_roster(roster).federation
        operator.publish_study(study)

        def take_part(name: str) -> bool:
            if name == "cy":
                stranger.enrol(cohort.cohort, period + 1)
                stranger.contribute(opened(), vectors["cy"])
                return name in {each.member for each in stranger.member.certified}
            with Member(address, identities[name], policy) as member:
                member.enrol(cohort.cohort, rows_of(name, period))
                return member.contribute(opened()).counted

        def opened() -> str:
            while not (rounds := operator.cohort(cohort.cohort).rounds):
                with lock:
                    if operator.cohort(cohort.cohort).state == "formed" and not operator.cohort(cohort.cohort).rounds:
                        operator.open_round(cohort.cohort)
            return rounds[-1]

        lock = threading.Lock()
        for period in range(2):
            cohort = operator.open_cohort(federation, study.hash.hex(), f"period-{period}")
            run = (roster.to_bytes(), study.to_bytes(), cohort.counter, cohort.period)
            stranger = Stranger(http, reference.Member("cy", me, *run, known=known, now=int(time.time())))
            assert stranger.member.cohort.hex() == cohort.cohort
            rows = {name: rows_of(name, period) for name in IDS}
            vectors = {
                name: stranger.member.study.vector(each.features.tolist(), each.labels.tolist())
                for name, each in rows.items()
            }
            assert all(pool.map(take_part, IDS))
            ((name, total),) = load(operator.sums(opened())).items()
            plain = [sum(column) for column in zip(*vectors.values(), strict=True)]
            assert np.abs(total - plain).max() <= len(IDS), name
