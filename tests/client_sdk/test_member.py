"""The public `Member` classes, in threads and on event loops, with the real coordinator."""

import asyncio
import gc
import inspect
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

import client_sdk
from client_sdk import AsyncMember, Identity, Member, Result
from client_sdk.effects import Pause
from client_sdk.errors import IdentityError, Misuse
from client_sdk.member import Conversations
from client_sdk.operator import Operator
from client_sdk.store import Store
from client_sdk.transport import BlockingDriver
from tests.support.consortium import NOISY, WITHHOLDING, Consortium
from tests.support.refusals import refused
from tests.support.serving import TOKEN, Stage, coordinator
from veilsum.protocol import round_spec
from veilsum.protocol.causes import Cause

URL = "https://sum.example.org"


@pytest.mark.parametrize(
    "wrong",
    [
        {"lanes": 0},
        {"patience_s": -1},
        {"identity": "folder"},
        {"policy": None},
        {"roster": 7},
        {"roster": "none.bin"},
    ],
)
def test_arguments_that_mean_nothing_are_misuse(consortium: Consortium, wrong: dict[str, Any]) -> None:
    identity = Identity.load(consortium.folder / "member-0")
    with pytest.raises(Misuse):
        Conversations(**{"identity": identity, "policy": consortium.policy, **wrong})
    Conversations(identity, consortium.policy, consortium.roster.to_bytes(), lanes=1, patience_s=0).close()


@pytest.mark.parametrize(
    "ask",
    [
        lambda member: member.enrol("ab" * 31),
        lambda member: member.enrol("x" * 64),
        lambda member: member.enrol(bytes(33)),
        lambda member: member.enrol("ab" * 32, "records"),
        lambda member: member.cohort(""),
        lambda member: member.study("ab" * 31),
        lambda member: member.canaries("ab" * 31),
        lambda member: member.contribute("0" * 17),
        lambda member: member.contribute("A" * 16),
        lambda member: member.make_agent([]),
        lambda member: member.mark_summed([]),
    ],
)
def test_ids_and_records_of_another_form_are_misuse(
    consortium: Consortium, ask: Callable[[Conversations], object]
) -> None:
    with pytest.raises(Misuse):
        ask(consortium.member("member-0"))


def test_a_run_that_the_ledger_lacks_is_not_given_up(consortium: Consortium) -> None:
    for run in (("other", "p1"), ("study", "p2")):
        with pytest.raises(Misuse):
            consortium.alone(consortium.member("member-0").give_up(*run))


def test_a_roster_that_is_passed_is_the_admins_and_none_that_was_replaced(consortium: Consortium) -> None:
    first, second = consortium.make_roster(1), consortium.make_roster(2)
    consortium.member("member-0", roster=second)
    for roster, cause in (
        (first, Cause.ROSTER_ROLLBACK),
        (consortium.make_roster(3, consortium.coordinator_key), Cause.BAD_SIGNATURE),
    ):
        with refused(cause, ...):
            consortium.member("member-0", roster=roster)
    consortium.member("member-0", roster=second)  # the folder was given back


def test_a_member_has_one_conversation_at_a_time(consortium: Consortium) -> None:
    cohort = consortium.open_cohort()
    conversations = consortium.member("member-0")
    first = conversations.enrol(cohort)
    next(first)
    with pytest.raises(Misuse, match="another conversation"):
        next(conversations.enrol(cohort))
    first.close()
    next(conversations.enrol(cohort))


def test_an_asynchronous_member_stays_in_one_event_loop(served: Stage, tmp_path: Path) -> None:
    """Its connections belong to the event loop that made them."""
    consortium = Consortium(served, tmp_path / "federation")
    identity = Identity.load(consortium.folder / "member-0")
    member = AsyncMember(consortium.stage.url, identity, consortium.policy)

    async def used() -> None:
        await member.runs()

    with asyncio.Runner() as first:
        first.run(used())
        with pytest.raises(Misuse, match="another event loop"):
            asyncio.run(used())
        with pytest.raises(Misuse, match="another event loop"):
            asyncio.run(member.close())
        identity.lock().release()  # it was given back all the same
        first.run(member.close())


def test_of_threads_that_begin_together_one_has_the_conversation(
    consortium: Consortium, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, busy = list[int](), [False]
    together, over = threading.Barrier(4), threading.Barrier(4)

    def slowly(_: Conversations) -> bool:
        seen = busy[0]
        time.sleep(0.05)  # whatever another thread does meanwhile
        return seen

    def flow(_session: Any, _cohort: bytes, _records: Any) -> Iterator[Any]:
        begun.append(threading.get_ident())
        yield Pause(0.0)

    def kept(_: Conversations, value: bool) -> None:  # noqa: FBT001 - a setter
        busy[0] = value

    monkeypatch.setattr(Conversations, "_busy", property(slowly, kept), raising=False)
    monkeypatch.setattr("client_sdk.member.enrol_in_cohort", flow)
    conversations = consortium.member("member-0")

    def begin(_: int) -> str:
        conversation, refused = conversations.enrol("ab" * 32), ""
        together.wait(10)
        try:
            next(conversation)
        except Misuse as error:
            refused = type(error).__name__
        over.wait(10)
        conversation.close()
        return refused

    with ThreadPoolExecutor(4) as pool:
        outcomes = sorted(pool.map(begin, range(4)))
    assert outcomes == ["", *["Misuse"] * 3]
    assert len(begun) == 1


def test_a_closed_member_makes_nothing(consortium: Consortium) -> None:
    identity = Identity.load(consortium.folder / "member-0")
    member = Member(URL, identity, consortium.policy)
    asynchronous = AsyncMember(URL, Identity.load(consortium.folder / "member-1"), consortium.policy)
    member.close()
    asyncio.run(asynchronous.close())
    before = sorted(consortium.folder.rglob("*"))
    records = consortium.records("member-0")
    for ask in (
        lambda: member.contribute("0" * 16),
        lambda: next(member.join(records)),
        lambda: member.enrol("ab" * 32, records),
    ):
        with pytest.raises(Misuse, match="closed"):
            ask()

    async def asked() -> None:
        await asynchronous.contribute("0" * 16)

    with pytest.raises(Misuse, match="closed"):
        asyncio.run(asked())
    assert sorted(consortium.folder.rglob("*")) == before


def test_both_kinds_of_member_have_the_same_methods() -> None:
    """One definition generates both, with its docstrings."""
    names = [name for name in dir(Member) if not name.startswith("_")]
    assert names == [name for name in dir(AsyncMember) if not name.startswith("_")]
    for name in names:
        assert getattr(Member, name).__doc__
        assert (
            inspect.signature(getattr(Member, name)).parameters
            == inspect.signature(getattr(AsyncMember, name)).parameters
        )
    assert Member.enrol.__doc__ == AsyncMember.enrol.__doc__ == Conversations.enrol.__doc__


def test_a_member_whose_lock_was_replaced_says_nothing_more(consortium: Consortium) -> None:
    """A clean-up job or a restored copy may replace the lock file, and another process may lock the new one."""
    round_id = consortium.open_round(consortium.enrol())
    flows = consortium.contributions(round_id)
    steps = consortium.until(flows.pop("member-0"), "chunks")
    card = consortium.folder / "member-0" / "identity.json"
    content = card.read_bytes()
    card.unlink()
    card.write_bytes(content)
    Identity.load(consortium.folder / "member-0").lock()
    results = consortium.together(flows, started={"member-0": steps}, stuck=consortium.expiring(round_id))
    assert {m: type(each) for m, each in results.items() if not isinstance(each, Result)} == {
        "member-0": IdentityError
    }
    assert "replaced" in str(results["member-0"])


def test_a_folder_is_given_back_when_the_conversation_under_way_has_ended(consortium: Consortium) -> None:
    conversations = consortium.member("member-0")
    flow = conversations.enrol(consortium.open_cohort())
    next(flow)
    conversations.close()
    identity = Identity.load(consortium.folder / "member-0")
    with pytest.raises(IdentityError, match="another process"):
        identity.lock()
    flow.close()
    identity.lock().release()


def test_an_identity_in_use_is_refused_and_given_back(consortium: Consortium) -> None:
    identity = Identity.load(consortium.folder / "member-0")
    with Member(URL, identity, consortium.policy), pytest.raises(IdentityError, match="another process"):
        Member(URL, identity, consortium.policy)
    Member(URL, identity, consortium.policy)  # not closed, and gone
    gc.collect()
    Member(URL, identity, consortium.policy).close()


def test_a_member_whose_connections_cannot_be_closed_gives_its_folder_back(
    consortium: Consortium, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity = Identity.load(consortium.folder / "member-0")
    member, close = Member(URL, identity, consortium.policy), BlockingDriver.close

    def close_and_fail(driver: BlockingDriver) -> None:
        close(driver)
        raise OSError("connection reset")

    monkeypatch.setattr(BlockingDriver, "close", close_and_fail)
    with pytest.raises(OSError, match="reset"):
        member.close()
    identity.lock().release()


def test_a_fork_has_no_part_in_a_member(consortium: Consortium) -> None:
    """It would use the same keys. A surviving fork, such as a data loader's worker, doesn't keep the folder locked either."""
    identity = Identity.load(consortium.folder / "member-0")
    member = Member(URL, identity, consortium.policy, patience_s=0)
    over, end = os.pipe()
    if not (fork := os.fork()):
        os.close(end)
        try:
            with pytest.raises(Misuse, match="forked"):
                member.studies()
            os.read(over, 1)
        except BaseException:  # noqa: BLE001 - pytest must not go on in the fork
            os._exit(1)
        os._exit(0)
    try:
        member.close()
        Member(URL, identity, consortium.policy).close()
    finally:
        os.close(end)
        _, status = os.waitpid(fork, 0)
    assert status == 0


def test_the_package_shows_little_and_imports_late() -> None:
    shown_names = {"AsyncMember", "Declined", "Identity", "Member", "Policy", "Progress", "Records", "Result"}
    assert set(client_sdk.__all__) == shown_names
    assert client_sdk.Records.__module__ == "client_sdk.records"
    with pytest.raises(AttributeError, match="no attribute 'Nobody'"):
        _ = client_sdk.Nobody
    heavy = ("httpx", "numpy", "pydantic", "cryptography", "safetensors")
    script = f"import client_sdk, sys; print([name for name in {heavy} if name in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


# The real coordinator


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Stage]:
    with coordinator(tmp_path / "service") as made:
        yield made


@pytest.mark.parametrize("question", [WITHHOLDING, NOISY], ids=["blocking", "asynchronous"])
def test_agents_and_the_service_over_http(tmp_path: Path, served: Stage, question: dict[str, Any]) -> None:
    """Blocking members in threads, or members on event loops of their own."""
    consortium = Consortium(served, tmp_path / "federation", readers=("member-0",), question=question)
    address, name, roster, study = served.url, consortium.name, consortium.roster, consortium.study
    with Operator(address, TOKEN) as operator:
        assert operator.roster(name) == roster
        shown = operator.publish_study(study)
        assert operator.studies(name) == (shown,)
        assert operator.study(name, shown.study) == study

        path = tmp_path / "roster.bin"
        path.write_bytes(roster.to_bytes())

        def live(member: str) -> Result:
            identity = Identity.load(consortium.folder / member)
            if question is NOISY:
                return asyncio.run(on_a_loop(member, identity))
            with Member(address, identity, consortium.policy, roster=roster, lanes=2) as agent:
                assert repr(agent) == f"<Member {member}>"
                [result] = agent.join(consortium.records(member), once=True)
                assert [run.rows for run in agent.ledger()] == [len(consortium.records(member))]
                if member == "member-0":
                    assert list(agent.sums(result)) == ["ffc"]
                return result

        async def on_a_loop(member: str, identity: Identity) -> Result:
            async with AsyncMember(address, identity, consortium.policy, roster=path, lanes=2) as agent:
                assert repr(agent) == f"<AsyncMember {member}>"
                [result] = [each async for each in agent.join(consortium.records(member), once=True)]
                if member == "member-0":
                    assert list(await agent.sums(result)) == ["ffc"]
                return result

        with ThreadPoolExecutor(3) as pool:
            running = [pool.submit(live, member) for member in consortium.ids]
            cohort = operator.open_cohort(name, shown.study, "p1").cohort
            view = operator.cohort(cohort)
            while view.forming:
                view = operator.cohort(cohort, view.version)
            while (view := operator.cohort(cohort)).step is not None:
                operator.preflight(cohort)
                round_id = operator.open_round(cohort).round
                round_view = operator.round(round_id)
                while not round_view.ended:
                    round_view = operator.round(round_id, round_view.version)
                assert round_view.state == "done", round_view
            results = [each.result(60) for each in running]
        assert operator.result(round_id) == results[0].record
        assert [run.over for run in operator.runs(name).runs] == [True]
        assert operator.chain(name).links[-1].reason == "none"
        assert operator.federation(name).members == consortium.ids
        assert len(operator.sums(round_id)) > 100
        other = operator.open_cohort(name, shown.study, "p2").cohort
        assert operator.close_cohort(other).state == "failed"
    assert all(result.counted for result in results)
    for member in consortium.ids:  # the caller has it: `veilsum member join` shows it no more
        left = {path.name for path in Store(consortium.folder / member).unexported_folders()}
        assert results[0].record.round not in left
    results[0].verify(consortium.admin.public)


class Line(httpx.HTTPTransport):
    """A transport to the coordinator that records requests, without ids."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = list[str]()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(f"{request.method} {re.sub('[0-9a-f]{16,}', '*', request.url.path)}")
        return super().handle_request(request)


@pytest.mark.parametrize("agent", [False, True])
def test_what_a_member_asks_from_its_card_to_its_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, agent: bool
) -> None:
    """wire: REST. Three requests to a cohort and seven to a result, however long it waits."""
    monkeypatch.setattr(round_spec, "CHUNK_ELEMENTS", 1 << 20)
    with coordinator(tmp_path / "service", max_wait_s=60.0) as served:
        consortium, lines = Consortium(served, tmp_path / "federation"), dict[str, Line]()
        operator, cohort, members = consortium.operator, consortium.open_cohort(), dict[str, Member]()
        for member in consortium.ids:
            lines[member] = Line()
            driver = BlockingDriver(served.url, transport=lines[member])
            identity = Identity.load(consortium.folder / member)
            members[member] = Member(served.url, identity, consortium.policy, driver=driver)
        with ThreadPoolExecutor(len(members)) as pool:
            if agent:
                joined = pool.map(
                    lambda each: next(members[each].join(consortium.records(each), once=True)), members
                )
                while operator.cohort(cohort).forming:
                    time.sleep(0.01)
            else:
                list(pool.map(lambda each: members[each].enrol(cohort, consortium.records(each)), members))
            round_id = operator.open_round(cohort).round
            results = list(
                joined if agent else pool.map(lambda each: each.contribute(round_id), members.values())
            )
        for each in members.values():
            each.close()
    assert all(result.counted for result in results)
    for member, line in lines.items():
        answers = line.asked.count("POST /v1/rounds/*/answers")
        assert answers in {2, 3}  # a slow member is no longer asked to vote
        # An agent also waits for what begins, a cohort's forming among it.
        assert [each for each in line.asked if each != "GET /v1/federations/*/runs"] == [
            "GET /v1/cohorts/*/invitation",
            f"PUT /v1/cohorts/*/cards/{member}",
            *((f"GET /v1/cohorts/*/manifest/{member}",) if agent else ()),
            f"PUT /v1/cohorts/*/pairings/{member}",
            f"GET /v1/rounds/*/requests/{member}",
            f"PUT /v1/rounds/*/uploads/{member}",
            f"PUT /v1/rounds/*/uploads/{member}/chunks/0",
            *["POST /v1/rounds/*/answers"] * answers,
            "GET /v1/rounds/*/result/weights",
        ]
