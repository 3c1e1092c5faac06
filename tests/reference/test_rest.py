"""One member that was written from the page, over HTTP with the real coordinator, among members of the SDK."""

import base64
import os
import random
import threading
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import uvicorn
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import SecretStr
from safetensors.numpy import load

from calibration import FFCStatistics, SumsLattice
from client_sdk import Identity, Member, Policy
from client_sdk.operator import Operator
from protocol import rest
from protocol.identity import SigningKey
from protocol.messages import Entry, Roster
from protocol.rest import CohortRequest, RoundRequest
from service.app import create_app
from service.settings import Settings
from tests.reference import reference, wire
from tests.threads import together

DIM, CLASSES, EXTRACTOR = 3, 2, bytes(32)
OCTETS = {"content-type": rest.OCTETS}


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    settings = Settings(data_dir=tmp_path / "service", operator_token=SecretStr("token"))
    server = uvicorn.Server(uvicorn.Config(create_app(settings), port=0, log_level="error", ws="none"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join(120)


class Signature(httpx.Auth):
    """Signs by nothing but docs/access.md."""

    requires_request_body = True

    def __init__(self, name: str, key: Ed25519PrivateKey) -> None:
        self.name, self.key = name, key

    def auth_flow(self, request: httpx.Request) -> Iterator[httpx.Request]:  # type: ignore[override]  # nothing is sent into it
        path, _, query = request.url.raw_path.decode().partition("?")
        lines = {
            "@method": request.method,
            "@authority": request.headers["host"],
            "@path": path,
            "@query": f"?{query}",
        }
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
    """Speaks to the coordinator by nothing but the pages, the paths and httpx."""

    def __init__(self, http: httpx.Client, member: reference.Member) -> None:
        self.http, self.member = http, member

    def send(self, method: str, path: str, body: bytes) -> Any:
        answer = self.http.request(method, path, content=body, headers=OCTETS)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def enrol(self, cohort: str) -> None:
        card = self.member.enrol(int(time.time()) + 10**6, os.urandom)
        self.send("PUT", rest.CARD.format(cohort=cohort, member=self.member.name), card)
        while (view := self.http.get(rest.COHORT.format(cohort=cohort)).json())["state"] == "enrolling":
            self.http.get(rest.COHORT.format(cohort=cohort), params={"after": view["version"], "wait_s": 1})
        shown = self.http.get(rest.CARDS.format(cohort=cohort, member=self.member.name))
        self.member.receive(shown.content)

    def contribute(self, round_id: str, statistics: FFCStatistics, lineage: bytes) -> None:
        """Answers what it is asked until the round has ended."""
        where, opened = rest.ROUND.format(round_id=round_id), False
        while not (view := self.http.get(where).json())["ended"]:
            self.member.now = int(time.time())
            asked = self.http.get(rest.REQUEST.format(round_id=round_id, member=self.member.name))
            if asked.status_code == 204:
                self.http.get(where, params={"after": view["version"], "wait_s": 1})
            elif not opened:
                self.member.receive(asked.content)
                opened = True
                self.upload(round_id, statistics, lineage)
            elif answer := self.member.receive(asked.content):
                self.send("POST", rest.ANSWERS.format(round_id=round_id), answer)

    def upload(self, round_id: str, statistics: FFCStatistics, lineage: bytes) -> None:
        vector = statistics.vector(sums_lattice(self.member.terms))
        below_p = random.SystemRandom().randrange
        announced, chunks = self.member.upload(
            [int(value) for value in vector], lineage, bytes(8), os.urandom, lambda: below_p(wire.P)
        )
        place = {"round_id": round_id, "member": self.member.name}
        missing = self.send("PUT", rest.UPLOAD.format(**place), announced)["missing"]
        for index in missing:
            self.send("PUT", rest.CHUNK.format(**place, index=index), chunks[index])


def sums_lattice(terms: Any) -> SumsLattice:
    assert terms.lattice == "sums"
    return SumsLattice(terms.lattice_bits)


def statistics_of(number: int) -> FFCStatistics:
    rng = np.random.default_rng(number)
    statistics = FFCStatistics(DIM, CLASSES, bias=False, normalise=True)
    statistics.update(rng.normal(size=(20, DIM)), rng.integers(0, CLASSES, 20))
    return statistics


def test_a_stranger_takes_part_in_rounds_among_members_of_the_sdk(tmp_path: Path, address: str) -> None:
    admin = SigningKey(bytes(range(32)))
    ids, me = ("ada", "bo", "cy", "di", "eve"), Ed25519PrivateKey.generate()
    identities = {name: Identity.create(tmp_path / name, name) for name in ids if name != "cy"}
    keys = {name: identity.key.public for name, identity in identities.items()}
    keys["cy"] = me.public_key().public_bytes_raw()
    policy = Policy(admin_key=admin.public.hex())
    with (
        Operator(address, "token") as operator,
        httpx.Client(base_url=address, auth=Signature("cy", me)) as http,
    ):
        roster = Roster.make(
            admin,
            version_number=1,
            federation=admin.public,
            coordinator=bytes.fromhex(operator.coordinator().public_key),
            members=tuple(Entry(name, keys[name]) for name in ids),
            decryptors=(),
            extractors=(EXTRACTOR,),
            readers=(),
            withhold=0,
        )
        federation = operator.publish(roster).federation
        cohort = operator.open_cohort(federation, CohortRequest(records_cap=100)).cohort
        stranger = Stranger(http, reference.Member("cy", me, roster.to_bytes(), 0, (1, 3, 100, False)))
        assert stranger.member.cohort.hex() == cohort

        def enrolled(name: str) -> None:
            if name == "cy":
                stranger.enrol(cohort)
            else:
                with Member(address, identities[name], None, policy) as member:
                    member.enrol(cohort)

        def contributed(name: str) -> bool:
            statistics = statistics_of(ids.index(name))
            if name == "cy":
                stranger.contribute(round_id, statistics, bytes(8))
                return name in {each.member for each in stranger.member.certified}
            with Member(address, identities[name], None, policy) as member:
                return member.contribute(round_id, statistics, lineage="all").counted

        together(enrolled, ids)
        request = RoundRequest(dim=DIM, classes=CLASSES, extractor=EXTRACTOR.hex(), chunk_elements=8)
        for _ in range(2):
            round_id = operator.open_round(cohort, request).round
            assert all(together(contributed, ids))
            lattice = sums_lattice(stranger.member.terms)
            plain = np.sum([statistics_of(number).vector(lattice) for number in range(len(ids))], axis=0)
            np.testing.assert_array_equal(load(operator.sums(round_id))["sum"], plain)
