"""The front door: threads and event loops against the coordinator in memory, and the real one."""

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import uvicorn
from pydantic import SecretStr

import client_sdk
from calibration import FFCStatistics
from client_sdk import AsyncMember, Identity, Member, Policy, Records, Result
from client_sdk.conversations import Conversations
from client_sdk.effects import Pause, Request
from client_sdk.errors import IdentityError, Misuse, PeerFault
from client_sdk.operator import Operator
from client_sdk.transport import AsyncDriver, BlockingDriver
from protocol.causes import Cause
from protocol.rest import CohortRequest, RoundRequest
from service.app import create_app
from service.settings import Settings
from tests.client_sdk.federation import EXTRACTOR, Federation
from tests.client_sdk.local_coordinator import CLASSES, DIM
from tests.threads import together

URL = "https://sum.example.org"


class Wire:
    """The coordinator in memory behind httpx; a long poll waits for a while."""

    def __init__(self, federation: Federation) -> None:
        self.federation, self.lock = federation, threading.Lock()

    def ready(self, request: Request) -> bool:
        with self.lock:
            return self.federation.coordinator.has_news(request)

    def answer(self, request: Request) -> httpx.Response:
        with self.lock:
            response = self.federation.coordinator.handle(request)
        return httpx.Response(response.status, headers=dict(response.headers), content=response.body)

    def __call__(self, arrived: httpx.Request) -> httpx.Response:
        request = self.translated(arrived)
        for _ in range(500):
            if self.ready(request):
                break
            time.sleep(0.002)
        return self.answer(request)

    async def on_a_loop(self, arrived: httpx.Request) -> httpx.Response:
        request = self.translated(arrived)
        for _ in range(500):
            if self.ready(request):
                break
            await asyncio.sleep(0.002)
        return self.answer(request)

    @staticmethod
    def translated(request: httpx.Request) -> Request:
        return Request(
            request.method,
            request.url.path,
            request.content,
            dict(request.headers),
            dict(request.url.params),
        )


def test_blocking_members_in_threads(federation: Federation) -> None:
    cohort, wire, rounds = federation.coordinator.open_cohort(), Wire(federation), list[str]()
    opened = threading.Barrier(3, action=lambda: rounds.append(federation.coordinator.open_round(cohort)))

    def live(name: str) -> Result:
        driver = BlockingDriver(URL, transport=httpx.MockTransport(wire))
        identity = Identity.load(federation.folder / name)
        with Member(URL, identity, federation.roster, federation.policy, driver=driver) as member:
            assert repr(member) == f"<Member {name}>"
            assert member.enrol(cohort).members == 3
            opened.wait(120)
            return member.contribute(rounds[0], federation.statistics(name), lineage="ct-2026")

    federation.policy = Policy(federation.admin.public, lifetime_max_s=10**12)
    federation.clock.now_s = time.time()
    results = together(live, federation.ids)
    assert all(result.counted for result in results)
    assert federation.total(rounds[0]) == federation.expected(federation.ids)


async def test_asynchronous_members_on_one_loop(federation: Federation, tmp_path: Path) -> None:
    cohort, wire = federation.coordinator.open_cohort(), Wire(federation)
    federation.clock.now_s = time.time()
    path = tmp_path / "roster.bin"
    path.write_bytes(federation.roster.to_bytes())
    members = []
    for name in federation.ids:
        driver = AsyncDriver(URL, transport=httpx.MockTransport(wire.on_a_loop))
        identity = Identity.load(federation.folder / name)
        members.append(AsyncMember(URL, identity, path, federation.policy, driver=driver))
    await asyncio.gather(*(member.enrol(cohort) for member in members))
    round_id = federation.coordinator.open_round(cohort)
    results = await asyncio.gather(
        *(
            m.contribute(round_id, federation.statistics(name), lineage="ct-2026")
            for m, name in zip(members, federation.ids, strict=True)
        )
    )
    assert all(result.counted for result in results)
    assert federation.total(round_id) == federation.expected(federation.ids)
    assert repr(members[0]) == "<AsyncMember member-0>"
    for member in members:
        async with member:
            pass
    with pytest.raises(Misuse, match="closed"):
        await members[0].enrol(cohort)


def test_a_member_has_one_conversation_at_a_time(federation: Federation) -> None:
    cohort = federation.coordinator.open_cohort()
    conversations = federation.member("member-0")
    first = conversations.enrol(cohort)
    next(first)
    with pytest.raises(Misuse, match="another conversation"):
        next(conversations.enrol(cohort))
    first.close()
    next(conversations.enrol(cohort))


def test_of_threads_that_begin_together_one_has_the_conversation(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, busy = list[int](), [False]
    begin, over = threading.Barrier(4), threading.Barrier(4)

    def slowly(_: Conversations) -> bool:
        seen = busy[0]
        time.sleep(0.05)  # whatever another thread does meanwhile
        return seen

    def flow(_session: Any, _cohort: bytes) -> Iterator[Any]:
        begun.append(threading.get_ident())
        yield Pause(0.0)

    def kept(_: Conversations, value: bool) -> None:  # noqa: FBT001 - a setter
        busy[0] = value

    monkeypatch.setattr(Conversations, "_busy", property(slowly, kept), raising=False)
    monkeypatch.setattr("client_sdk.conversations.enrol", flow)
    conversations = federation.member("member-0")

    def one(_: int) -> str:
        conversation, refused = conversations.enrol("ab" * 32), ""
        begin.wait(120)
        try:
            next(conversation)
        except Misuse as error:
            refused = str(error)
        over.wait(120)
        conversation.close()
        return refused

    outcomes = sorted(together(one, range(4)))
    assert outcomes == ["", *["this member is in another conversation: wait for it"] * 3]
    assert len(begun) == 1


def unread(_self: Any) -> Any:
    raise AssertionError("nothing was to be made")


def test_a_closed_member_makes_nothing(federation: Federation, monkeypatch: pytest.MonkeyPatch) -> None:
    identity = Identity.load(federation.folder / "member-0")
    member = Member(URL, identity, None, federation.policy)
    asynchronous = AsyncMember(URL, Identity.load(federation.folder / "member-1"), None, federation.policy)
    member.close()
    asyncio.run(asynchronous.close())
    before = sorted(federation.folder.rglob("*"))
    statistics = federation.statistics("member-0")
    monkeypatch.setattr(FFCStatistics, "record_digests", property(unread))
    with pytest.raises(Misuse, match="closed: make a new one"):
        member.contribute("0" * 16, statistics)
    with pytest.raises(Misuse, match="closed: make a new one"):
        asyncio.run(asynchronous.contribute("0" * 16, statistics))
    assert sorted(federation.folder.rglob("*")) == before


async def test_records_are_tagged_off_the_event_loop(
    federation: Federation, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = set[int]()
    digests = FFCStatistics.record_digests.fget  # type: ignore[attr-defined]  # a property

    def seen(self: FFCStatistics) -> bytes:
        threads.add(threading.get_ident())
        return bytes(digests(self))

    monkeypatch.setattr(FFCStatistics, "record_digests", property(seen))
    driver = AsyncDriver(URL, transport=httpx.MockTransport(Wire(federation).on_a_loop))
    identity = Identity.load(federation.folder / "member-0")
    async with AsyncMember(URL, identity, None, federation.policy, driver=driver) as member:
        with pytest.raises(PeerFault, match="not-found"):
            await member.contribute("0" * 16, federation.statistics("member-0"))
    assert threads
    assert threading.get_ident() not in threads


def test_a_folder_is_given_back_when_the_conversation_under_way_has_ended(federation: Federation) -> None:
    conversations = federation.member("member-0")
    flow = conversations.enrol(federation.coordinator.open_cohort())
    next(flow)
    conversations.close()
    identity = Identity.load(federation.folder / "member-0")
    with pytest.raises(IdentityError, match="another process"):
        identity.lock()
    flow.close()
    identity.lock().release()


def test_an_identity_in_use_is_refused_and_given_back(federation: Federation) -> None:
    identity = Identity.load(federation.folder / "member-0")
    with (
        Member(URL, identity, None, federation.policy),
        pytest.raises(IdentityError, match="another process"),
    ):
        Member(URL, identity, None, federation.policy)
    Member(URL, identity, None, federation.policy).close()


def test_a_failed_start_gives_the_folder_back(federation: Federation) -> None:
    identity = Identity.load(federation.folder / "member-0")
    Member(URL, identity, federation.make_roster(2), federation.policy).close()
    with pytest.raises(PeerFault) as caught:
        Member(URL, identity, federation.roster, federation.policy)
    assert caught.value.cause is Cause.ROSTER_ROLLBACK
    Member(URL, identity, None, federation.policy).close()


@pytest.mark.parametrize("cohort", ["", "xy", "ab" * 31, b"short"])
def test_what_is_no_cohort(federation: Federation, cohort: Any) -> None:
    with pytest.raises(Misuse, match="no cohort's id"):
        federation.member("member-0").enrol(cohort)


@pytest.mark.parametrize("round_id", ["", "ab", "AB" * 8, "../../etc/passwd", "0" * 16 + "\n"])
def test_what_is_no_round(federation: Federation, round_id: str) -> None:
    with pytest.raises(Misuse, match="no round's id"):
        federation.member("member-0").contribute(round_id, None, "main")


@pytest.mark.parametrize(
    ("lineage", "why"), [("", "a lineage needs a name.*pass lineage="), ("\udcff", "is not UTF-8")]
)
def test_a_lineage_has_a_name(federation: Federation, lineage: str, why: str) -> None:
    statistics = federation.statistics("member-0")
    with Member(URL, Identity.load(federation.folder / "member-0"), None, federation.policy) as member:
        with pytest.raises(Misuse, match=why):
            member.contribute("0" * 16, statistics, lineage=lineage)
        with pytest.raises(Misuse, match=why):
            member.contribute("0" * 16, Records(np.eye(DIM), np.zeros(DIM, int)), lineage=lineage)


@pytest.mark.parametrize("settings", [{"lanes": 0}, {"patience_s": -1.0}])
def test_settings_that_mean_nothing(federation: Federation, settings: dict[str, Any]) -> None:
    with pytest.raises(Misuse, match="at least"):
        Member(URL, Identity.load(federation.folder / "member-0"), None, federation.policy, **settings)


def test_the_package_shows_little_and_imports_late() -> None:
    shown_names = {"AsyncMember", "Identity", "Member", "Policy", "Progress", "Records", "Result", "Wanted"}
    assert set(client_sdk.__all__) == shown_names
    assert client_sdk.Records.__module__ == client_sdk.Wanted.__module__ == "client_sdk.supply"
    with pytest.raises(AttributeError, match="no attribute 'Nobody'"):
        _ = client_sdk.Nobody
    heavy = ("httpx", "numpy", "pydantic", "cryptography", "safetensors")
    script = f"import client_sdk, sys; print([name for name in {heavy} if name in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


def test_only_one_file_knows_httpx() -> None:
    folder = Path(client_sdk.__file__).parent
    assert [p.name for p in folder.glob("*.py") if "import httpx" in p.read_text()] == ["transport.py"]


# The real coordinator


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    settings = Settings(data_dir=tmp_path / "service", operator_token=SecretStr("token"))
    config = uvicorn.Config(create_app(settings), port=0, log_level="error", ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join(120)


def test_a_round_over_http_with_the_service(federation: Federation, address: str) -> None:
    with Operator(address, "token") as operator:
        key = bytes.fromhex(operator.coordinator().public_key)
        roster = federation.make_roster(1, coordinator=key)
        name = operator.publish(roster).federation
        assert operator.roster(name) == roster
        cohort = operator.open_cohort(name, CohortRequest(records_cap=1000)).cohort

        def enrolled(member: str) -> None:
            identity = Identity.load(federation.folder / member)
            with Member(address, identity, None, federation.policy) as live:
                live.enrol(cohort)

        def contributed(member: str) -> Result:
            identity = Identity.load(federation.folder / member)
            with Member(address, identity, None, federation.policy, lanes=2) as live:
                return live.contribute(round_id, federation.statistics(member, bias=True), lineage="ct")

        together(enrolled, federation.ids)
        request = RoundRequest(
            dim=DIM, classes=CLASSES, bias=True, extractor=EXTRACTOR.hex(), chunk_elements=8, ridges=(0.1,)
        )
        round_id = operator.open_round(cohort, request).round
        results = together(contributed, federation.ids)
        assert operator.round(round_id).state == "done"
        assert operator.result(round_id) == results[0].record
        assert operator.cohort(cohort, after=0).state == "formed"
        second = operator.open_round(cohort, request).round
        assert operator.round(second, after=0).state == "collecting"
        assert operator.cancel(second, "a test").state == "voiding"
        other = operator.open_cohort(name, CohortRequest(records_cap=1)).cohort
        assert operator.close_cohort(other).state == "failed"
        assert operator.federation(name).members == federation.ids
        assert len(operator.sums(round_id)) > 100
    assert all(result.counted for result in results)
    assert results[0].bias is not None
    results[0].verify(federation.admin.public)
