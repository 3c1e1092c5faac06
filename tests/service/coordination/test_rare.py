"""A count, and a sum that withholds rare classes, over REST (member: Enough rows)."""

import asyncio
import json
import struct
from typing import Any

import pytest
from safetensors.numpy import load
from sqlalchemy import update

from service.coordination import coordinator
from service.coordination.documents import DISCLOSURE_DOCUMENT
from service.coordination.jobs import SWEEP_S
from service.storage.tables import rounds
from tests.service.conftest import withholding
from tests.support.party import COUNTS, WITHHOLDING, Party
from tests.support.refusals import refusal
from tests.support.serving import Server, carry_out
from tests.support.simulator import After
from veilsum.protocol import rest
from veilsum.protocol.messages import Disclosure
from veilsum.protocol.study import DAY_S


@pytest.fixture
def party() -> Party:
    return withholding()


Counted = tuple[Party, str]
"""The members, and the round in which they counted."""


@pytest.fixture
async def counting(server: Server, party: Party) -> Party:
    await party.begin(server)
    return party


async def give_up(server: Server, party: Party, round_id: str) -> None:
    """Cancel a round that all members have opened, as the operator."""
    await party.seal_all(server, round_id)
    await server.cancel(round_id)
    assert (await party.play(server, round_id))["state"] == "voided"


def metadata(head: bytes) -> dict[str, Any]:
    """Return the metadata in a head's file."""
    (length,) = struct.unpack("<Q", head[:8])
    found: dict[str, Any] = json.loads(json.loads(head[8 : 8 + length])["__metadata__"][rest.HEAD_METADATA])
    return found


async def step(server: Server, party: Party) -> str | None:
    found: str | None = (await server.cohort(party.cohort))["step"]
    return found


async def forgotten(server: Server, count: str) -> None:
    async with asyncio.timeout(10):
        while DISCLOSURE_DOCUMENT in server.coordinator.blobs.list_names(f"results/{count}"):
            server.coordinator.scheduler.wake_up()
            await asyncio.sleep(0.01)


async def test_the_counts_come_first_then_the_sum_without_what_few_hold(
    server: Server, counted: Counted
) -> None:
    counting, count = counted
    view = await server.view(count)
    assert (view["holders"], view["spec"]["elements"], view["spec"]["ring_bits"]) == (COUNTS, 5, 32)
    assert {member: counting.counts(member) for member in counting.ids} == dict.fromkeys(counting.ids, COUNTS)
    assert await step(server, counting) == "rows"
    rows = await server.view(await counting.count(server, "rows"))
    assert (rows["spec"]["elements"], rows["spec"]["withheld"]) == (8, [2, 3, 4])
    assert (len(rows["reached"]), rows["holders"]) == (8, [])
    page = (await server.anonymous().get(f"/rounds/{rows['round']}")).text
    assert 'id="reached"' in page
    assert f"/rounds/{rows['round']}/result" not in page  # counts have none
    assert f"/rounds/{rows['round']}/result" not in (await server.anonymous().get("/")).text
    assert await step(server, counting) == "sum"
    main = await counting.open_round(server)
    spec = (await server.view(main))["spec"]
    assert (spec["count"], spec["rows"], spec["withheld"]) == (view["context"], rows["context"], [2, 3, 4])
    assert (await counting.play(server, main))["state"] == "done"
    record = await counting.check_result(server, main)
    assert (record["withheld"], record["holders"], record["reached"]) == ([2, 3, 4], COUNTS, rows["reached"])
    assert record["counts"] == [view["context"], rows["context"]]
    assert record["solution"]["empty_classes"] == [2, 3, 4]
    head = (await server.client.get(f"/v1/rounds/{main}/result/weights")).content
    assert (metadata(head)["withheld"], metadata(head)["form"]) == ([2, 3, 4], {"kind": "linear"})
    assert not load(head)["weights"][:, 2:].any()
    assert await step(server, counting) is None


async def test_only_members_are_shown_who_holds_what(server: Server, counting: Party) -> None:
    count = await counting.open_round(server)
    assert await step(server, counting) == "count"
    assert refusal(await counting.shown(server, count, "m-0")) == (409, "wrong-phase")
    await counting.play(server, count)
    shown = Disclosure.from_bytes((await counting.shown(server, count, "m-0")).content)
    assert [entry.header.member for entry in shown.entries] == list(counting.ids)
    assert refusal(await counting.shown(server, count, "m-0", by="m-1")) == (403, "forbidden")
    counting.keys["m-9"] = counting.keys["m-0"]
    assert refusal(await counting.shown(server, count, "m-9")) == (403, "forbidden")
    answer = await server.anonymous().get(f"/v1/rounds/{count}/disclosure/m-0")
    assert refusal(answer) == (401, "request-unsigned")


async def test_a_count_has_no_head_and_no_sums_to_hand_out(server: Server, counted: Counted) -> None:
    counting, count = counted
    for what in ("", "/weights", "/sums"):
        answer = await server.client.get(f"/v1/rounds/{count}/result{what}")
        assert refusal(answer) == (409, "wrong-phase")
    main = await counting.open_round(server)
    assert refusal(await counting.shown(server, main, "m-0")) == (409, "wrong-phase")


async def test_what_was_disclosed_is_kept_until_the_sum_is_certified(
    server: Server, counted: Counted
) -> None:
    counting, count = counted
    rows = await counting.count(server, "rows")
    await give_up(server, counting, await counting.open_round(server))
    for counted_in in (count, rows):
        assert (await counting.shown(server, counted_in, "m-0")).status_code == 200
    main = await counting.done(server)
    await counting.check_result(server, main)
    await forgotten(server, count)
    await forgotten(server, rows)
    assert refusal(await counting.shown(server, count, "m-0")) == (409, "wrong-phase")
    # By a process that stood still while another went on.
    server.coordinator.blobs.put(f"results/{count}/{DISCLOSURE_DOCUMENT}", b"late")
    server.clock.ahead_s += SWEEP_S + 1
    await forgotten(server, count)


async def test_counts_that_nobody_can_have_fail_the_count_and_a_new_period_counts_again(
    server: Server, counting: Party
) -> None:
    counting.spoil["m-2"] = lambda vector: vector - 100
    count = await counting.open_round(server)
    view = await counting.play(server, count)
    assert (view["state"], view["fault"]["cause"], view["holders"]) == ("failed", "sum-check-failed", [])
    assert not any(letter.isdigit() for letter in view["fault"]["detail"])
    await server.tidy(count)
    assert server.coordinator.blobs.list_names(f"results/{count}") == ()
    assert await step(server, counting) is None
    refused = await counting.try_round(server)
    assert refusal(refused) == (422, "count-mismatch")
    assert "Nothing was spent" in refused.json()["detail"]
    counting.spoil = {}
    await counting.next_period(server)
    assert (await server.view(await counting.count(server)))["holders"] == COUNTS
    assert await step(server, counting) == "rows"


async def test_a_run_is_over_if_its_count_leaves_too_few_members_for_another_step(server: Server) -> None:
    """Two of seven drop out, and one of the five that are needed proves false; each class has holders enough."""
    ids = tuple(f"m-{index}" for index in range(7))
    question = {**WITHHOLDING, "withhold": {"margin": 0}, "members_min": 7}
    party = Party(ids, hold=((0, 1, 2),) * 7, question=question)
    party.drop = dict.fromkeys(ids[5:], After.OPENING)
    party.false_dealer("m-4", threshold=5)
    await party.begin(server)
    count = await party.open_round(server)
    view = await party.play(server, count)
    assert (view["state"], view["survivors_min"], view["evicted"]) == ("done", 5, ["m-4"])
    assert view["holders"] == [4, 4, 4]
    assert await step(server, party) is None
    runs = (await server.client.get(f"{party.where}/runs")).json()["runs"]
    assert [run["over"] for run in runs] == [True]
    refused = await party.try_round(server)
    assert refusal(refused) == (422, "count-mismatch")
    assert "Nothing was spent" in refused.json()["detail"]


async def test_a_sum_whose_count_was_damaged_is_not_signed_without_it(
    server: Server, counted: Counted
) -> None:
    """Members would refuse the record, and the round could not be repeated."""
    counting, count = counted
    await counting.count(server, "rows")
    main = await counting.open_round(server)
    await counting.play_until(server, main, "revealing")
    await carry_out(server.coordinator.database, update(rounds).where(rounds.c.id == count).values(final="x"))
    view = await counting.play(server, main)
    assert (view["state"], view["fault"]["cause"], view["fault"]["parties"]) == (
        "failed",
        "storage-damaged",
        ["coordinator"],
    )
    assert count in view["fault"]["detail"]
    assert refusal(await server.client.get(f"/v1/rounds/{main}/result")) == (409, "wrong-phase")


async def test_a_run_goes_on_under_a_later_version_after_its_disclosures_are_deleted(server: Server) -> None:
    """The version that was counted expires, and with it what members were shown; all of them had recounted."""
    party = withholding()
    party.notes = {"expires": int(server.clock()) + 2 * DAY_S}
    await party.begin(server)
    count = await party.count(server)
    party.notes = {}
    await party.publish_study(server, version=2)
    server.clock.ahead_s += 2 * DAY_S + 60
    await server.coordinator.jobs.sweep_storage()
    assert DISCLOSURE_DOCUMENT not in server.coordinator.blobs.list_names(f"results/{count}")
    assert refusal(await party.shown(server, count, "m-0")) == (409, "wrong-phase")
    await party.open_cohort(server, period=party.period)
    await party.enrol(server)
    await party.seal_all(server, await party.open_round(server))  # every member accepts it


async def test_a_cohort_without_those_who_were_counted_opens_no_sum(server: Server, counted: Counted) -> None:
    counting, _ = counted
    await counting.open_cohort(server)
    await counting.enrol(server, counting.ids[:4])
    closed = await server.client.post(f"/v1/cohorts/{counting.cohort}/close")
    assert closed.json()["state"] == "failed"  # members_min
    counting.question = {**counting.question, "members_min": 4, "withhold": {"margin": 0}}
    counting.notes = {"name": "other"}
    await counting.publish_study(server)
    await counting.open_cohort(server)
    await counting.enrol(server)
    await counting.count(server)
    await counting.open_cohort(server)
    await counting.enrol(server, counting.ids[:5])
    await server.client.post(f"/v1/cohorts/{counting.cohort}/close")
    await counting.take_manifest(server)
    refused = await counting.try_round(server)
    assert refusal(refused) == (422, "count-mismatch")
    assert refused.json()["parties"] == ["m-5"]


async def test_a_disclosure_longer_than_members_read_is_not_begun(
    server: Server, counting: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator, "MAX_DISCLOSURE_BYTES", 10_000)
    assert refusal(await counting.try_round(server)) == (422, "terms-refused")
    monkeypatch.setattr(coordinator, "MAX_DISCLOSURE_BYTES", 20_000)
    assert (await counting.try_round(server)).status_code == 201
