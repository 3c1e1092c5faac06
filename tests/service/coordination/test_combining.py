"""Periods: exact sums of several rounds of one question, added up and solved again."""

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load

from service.coordination import combining
from tests.service.conftest import done
from tests.support.party import FOUR, Party
from tests.support.refusals import refusal
from tests.support.serving import Server
from tests.support.simulator import After
from veilsum.calibration import Head, solve_ffc
from veilsum.protocol.record import CombinedRecord, verify_record
from veilsum.study.answers import compute_answer


async def combine(server: Server, party: Party, *rounds: str) -> Any:
    return await server.client.post(f"{party.where}/combinations", json={"rounds": rounds})


@pytest.mark.usefixtures("six")
async def test_two_periods_make_one_head(server: Server, formed: Party, finished: str) -> None:
    first = finished
    await formed.publish_study(server, version=2, purpose="renewed")  # the question is the same
    formed.drop = {"m-5": After.OPENING}  # who misses a period is in the others all the same
    second = await done(server, formed)
    assert refusal(await combine(server, formed, first, first)) == (422, "terms-refused")
    made = await combine(server, formed, second, first)
    assert made.status_code == 201, made.text
    record = CombinedRecord.model_validate(made.json())
    verify_record(record, formed.roster.coordinator)
    assert record.version == 2
    assert [(part.round, part.period) for part in record.parts] == [(first, "period-0"), (second, "period-1")]
    pooled = formed.statistics([*formed.ids, *formed.ids[:5]])
    assert (record.vectors, record.rows) == (11, pooled.records)
    assert record.question == formed.content.question.digest.hex()
    where = f"/v1/combinations/{record.combination}"
    assert (await server.client.get(where)).json() == made.json()
    head = (await server.client.get(f"{where}/weights")).content
    assert hashlib.sha256(head).hexdigest() == record.head
    expected = solve_ffc(pooled, record.solution.ridge).weights
    np.testing.assert_allclose(load(head)["weights"], expected, rtol=0, atol=1e-6)
    again = await combine(server, formed, first, second)
    assert again.json() == made.json()
    async with server.anonymous() as nobody:
        assert (await nobody.get(f"{where}/weights")).status_code == 401
    async with server.signing("m-5", formed.keys["m-5"]) as member:
        assert (await member.get(f"{where}/weights")).status_code == 200


async def test_a_record_that_was_kept_stands_beside_its_own_head_whatever_is_interrupted(
    server: Server, formed: Party, finished: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And sums that differ from the signed ones are not combined."""
    rounds = [finished, await done(server, formed)]
    blobs = server.coordinator.blobs
    put, fails = blobs.put, [False, True]

    def failing(name: str, data: bytes) -> None:
        if name.startswith("combined/") and fails and fails.pop(0):
            raise OSError("no space left")
        put(name, data)

    def otherwise(*args: Any) -> Any:
        """Solve with other rounding, as on another processor."""
        found = compute_answer(*args)
        assert isinstance(found.head, Head)
        return replace(found, head=replace(found.head, weights=np.nextafter(found.head.weights, np.inf)))

    with monkeypatch.context() as patched:
        patched.setattr(blobs, "put", failing)
        assert (await combine(server, formed, *rounds)).status_code == 503
        patched.setattr(combining, "compute_answer", otherwise)
        kept = await combine(server, formed, *rounds)
    assert kept.status_code == 201
    assert (await combine(server, formed, *rounds)).json() == kept.json()
    where = f"/v1/combinations/{kept.json()['combination']}/weights"
    head = (await server.client.get(where)).content
    assert hashlib.sha256(head).hexdigest() == kept.json()["head"]
    for name in blobs.list_names("combined"):
        blobs.delete(f"combined/{name}")
    [name] = (each for each in blobs.list_names(f"results/{finished}") if each.endswith("-sums"))
    sums = bytearray(blobs.get(f"results/{finished}/{name}"))
    sums[-1] ^= 1
    blobs.put(f"results/{finished}/{name}", bytes(sums))
    refused = await combine(server, formed, *rounds)
    assert refusal(refused) == (500, "storage-damaged")
    assert finished in refused.json()["detail"]


async def test_a_damaged_record_hides_no_other_and_is_made_again(
    server: Server, formed: Party, finished: str
) -> None:
    rounds, blobs = [finished, await done(server, formed)], server.coordinator.blobs
    name = (await combine(server, formed, *rounds)).json()["combination"]
    record = blobs.get(f"combined/{name}/record")
    blobs.put(f"combined/{name}/record", b"\xff" + record[1:])
    where = f"/v1/federations/{formed.federation}/combinations"
    assert (await server.client.get(where)).json() == []
    assert refusal(await server.client.get(f"/v1/combinations/{name}")) == (500, "storage-damaged")
    assert (await combine(server, formed, *rounds)).status_code == 201
    assert (await server.client.get(where)).json() == [name]
    for part in blobs.list_names(f"combined/{name}"):
        if part.endswith("-head"):
            blobs.delete(f"combined/{name}/{part}")
    lost = await server.client.get(f"/v1/combinations/{name}/weights")
    assert refusal(lost) == (500, "storage-damaged")


async def test_what_does_not_add_up_is_refused(
    server: Server, formed: Party, finished: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = finished
    context = (await server.view(first))["context"]
    await formed.open_cohort(server, repeats=context)
    await formed.enrol(server)
    again = await done(server, formed)  # the same records once more
    twice = await combine(server, formed, first, again)
    assert refusal(twice) == (422, "terms-refused")
    assert "period-0" in twice.json()["detail"]
    formed.question = {"constant": True}
    await formed.publish_study(server, name="other")
    other = await done(server, formed)
    unlike = await combine(server, formed, first, other)
    assert "different questions" in unlike.json()["detail"]
    formed.after = {"readers": "anyone"}
    await formed.publish_study(server, name="other", version=2)
    public = await done(server, formed)
    # Anyone would read a head that members approved for themselves alone.
    unlike = await combine(server, formed, other, public)
    assert "different readers" in unlike.json()["detail"]
    formed.after = {}
    await formed.publish_study(server, name="other", version=3)
    await formed.next_period(server)
    running = await formed.open_round(server)
    assert refusal(await combine(server, formed, other, running)) == (409, "wrong-phase")
    stranger = Party(formed.ids, admin_seed=b"o" * 32)
    await stranger.found(server)
    for party, rounds in ((stranger, (first, other)), (formed, (first, "0" * 16))):
        assert refusal(await combine(server, party, *rounds)) == (404, "not-found")
    assert (await formed.play(server, running))["state"] == "done"
    elements = formed.content.question.elements
    with monkeypatch.context() as patched:
        patched.setattr(combining, "load", lambda _: {"sum": np.full(elements, -(1 << 40), np.int64)})
        assert refusal(await combine(server, formed, other, running)) == (422, "sum-check-failed")
    for path in ("", "/weights"):
        assert refusal(await server.client.get(f"/v1/combinations/{'0' * 16}{path}")) == (404, "not-found")


@pytest.mark.slow
async def test_periods_that_withhold_other_classes_do_not_add_up(
    server: Server, counted: tuple[Party, str]
) -> None:
    party, _ = counted

    async def summed() -> str:
        await party.count(server, "rows")
        return await done(server, party)

    async def again() -> str:
        await party.next_period(server)
        await party.count(server)
        return await summed()

    rounds = [await summed(), await again()]
    assert (await combine(server, party, *rounds)).json()["withheld"] == [2, 3, 4]
    party.hold = ((0, 1, 2),) * 6
    rounds.append(await again())
    assert refusal(await combine(server, party, *rounds[1:])) == (422, "terms-refused")


async def test_noisy_sums_are_not_combined(server: Server) -> None:
    noise = {"epsilon": 2.0, "delta": 1e-5, "unit": "record", "recipe": "sum"}
    party = Party(FOUR, question={"noise": noise})
    await party.begin(server)
    answer = await combine(server, party, await done(server, party), await done(server, party))
    assert refusal(answer) == (422, "terms-refused")
