"""Periods: sums of several rounds over different lineages, added up and solved again."""

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load

from calibration import Head, SumsLattice, solve_ffc
from protocol.published import CombinedRecord
from protocol.record import verify_record
from protocol.simulator import After
from service import combining
from service.solving import solve
from tests.service.driver import Party
from tests.service.serving import Server


async def period(server: Server, party: Party, name: str, **request: Any) -> str:
    """A finished round over records of their own."""
    party.lineages = dict.fromkeys(party.ids, name.encode().ljust(8, b"-"))
    round_id = await party.open_round(server, **request)
    assert (await party.play(server, round_id))["state"] == "done"
    return round_id


async def combine(server: Server, party: Party, *rounds: str, **more: Any) -> Any:
    where = f"/v1/federations/{party.federation}/combinations"
    return await server.client.post(where, json={"rounds": rounds, **more})


async def test_two_periods_make_one_head(server: Server, formed: Party) -> None:
    first = await period(server, formed, "autumn")
    formed.drop = {"m-5": After.OPENING}  # who misses a period is in the others all the same
    second = await period(server, formed, "winter")
    answer = await combine(server, formed, second, first, ridges=[0.5])
    assert answer.status_code == 201, answer.text
    record = CombinedRecord.model_validate(answer.json())
    verify_record(record, formed.roster.coordinator)
    assert [part.round for part in record.parts] == sorted([first, second])
    terms = server.coordinator.rounds[first].attempt.opening.terms
    pooled = formed.statistics("m-0", terms)
    for member in (*formed.ids[1:], *formed.ids[:5]):
        pooled.merge(formed.statistics(member, terms))
    assert (record.vectors, record.records) == (11, pooled.records)
    where = f"/v1/combinations/{record.combination}"
    assert (await server.client.get(where)).json() == answer.json()
    weights = (await server.client.get(f"{where}/weights")).content
    assert hashlib.sha256(weights).hexdigest() == record.weights_sha256
    np.testing.assert_allclose(load(weights)["weights"], solve_ffc(pooled, 0.5).weights, rtol=0, atol=1e-6)
    again = await combine(server, formed, first, second, ridges=[0.5])
    assert again.json() == answer.json()
    counted = record.model_copy(update={"weights_sha256": None})
    server.coordinator.blobs.put(f"combined/{record.combination}/record", counted.model_dump_json().encode())
    server.coordinator.blobs.delete(f"combined/{record.combination}/{record.signature[:16]}-weights")
    none = await server.client.get(f"{where}/weights")
    assert (none.status_code, none.json()["cause"]) == (404, "not-found")


async def test_a_record_that_was_kept_stands_beside_its_own_weights_whatever_is_interrupted(
    server: Server, formed: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = [await period(server, formed, name) for name in ("autumn", "winter")]
    blobs = server.coordinator.blobs
    put, fails = blobs.put, [False, True]

    def failing(name: str, data: bytes) -> None:
        if name.startswith("combined/") and fails and fails.pop(0):
            raise OSError("no space left")
        put(name, data)

    def otherwise(*args: Any) -> Any:
        """As a processor solves that rounds otherwise."""
        answer = solve(*args)
        assert isinstance(answer.head, Head)
        return replace(answer, head=replace(answer.head, weights=np.nextafter(answer.head.weights, np.inf)))

    with monkeypatch.context() as patched:
        patched.setattr(blobs, "put", failing)
        assert (await combine(server, formed, *rounds)).status_code == 503
        patched.setattr(combining, "solve", otherwise)
        kept = await combine(server, formed, *rounds)
    assert kept.status_code == 201
    assert (await combine(server, formed, *rounds)).json() == kept.json()
    where = f"/v1/combinations/{kept.json()['combination']}/weights"
    weights = (await server.client.get(where)).content
    assert hashlib.sha256(weights).hexdigest() == kept.json()["weights_sha256"]


async def test_a_later_period_knows_more_classes(server: Server, formed: Party) -> None:
    first = await period(server, formed, "autumn")
    old = server.coordinator.rounds[first].attempt.opening.terms
    before = [formed.statistics(member, old) for member in formed.ids]
    formed.classes += 1
    second = await period(server, formed, "winter")
    new = server.coordinator.rounds[second].attempt.opening.terms
    answer = await combine(server, formed, first, second, ridges=[0.5])
    assert answer.status_code == 201, answer.text
    pooled = formed.statistics("m-0", new)
    for member in formed.ids[1:]:
        pooled.merge(formed.statistics(member, new))
    for statistics in before:
        statistics.add_classes(formed.classes)
        pooled.merge(statistics)
    assert answer.json()["records"] == pooled.records
    where = f"/v1/combinations/{answer.json()['combination']}/weights"
    weights = load((await server.client.get(where)).content)["weights"]
    assert weights.shape == (4, 4)
    np.testing.assert_allclose(weights, solve_ffc(pooled, 0.5).weights, rtol=0, atol=1e-6)


async def test_what_does_not_add_up_is_refused(
    server: Server, formed: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await period(server, formed, "autumn")
    same = await period(server, formed, "autumn")
    twice = await combine(server, formed, first, same)
    assert (twice.status_code, twice.json()["cause"]) == (422, "terms-refused")
    assert twice.json()["parties"] == list(formed.ids)
    formed.dim += 1
    wider = await period(server, formed, "summer")
    formed.dim -= 1
    apart = await combine(server, formed, first, wider)
    assert "over other features" in apart.json()["detail"]
    other = await period(server, formed, "winter", bias=True)
    unlike = await combine(server, formed, first, other)
    assert "differ in statistic" in unlike.json()["detail"]
    running = await formed.open_round(server)
    unfinished = await combine(server, formed, first, running)
    assert (unfinished.status_code, unfinished.json()["cause"]) == (409, "wrong-phase")
    stranger = Party(formed.ids, admin_seed=b"o" * 32)
    await stranger.found(server)
    for party, rounds in ((stranger, (first, other)), (formed, (first, "0" * 16))):
        missing = await combine(server, party, *rounds)
        assert (missing.status_code, missing.json()["cause"]) == (404, "not-found")
    third = await period_after(server, formed, running)
    terms = server.coordinator.rounds[first].attempt.opening.terms
    with monkeypatch.context() as patched:
        patched.setattr(combining, "load", lambda _: {"sum": np.full(terms.elements, -(1 << 40), np.int64)})
        broken = await combine(server, formed, first, third)
        assert (broken.status_code, broken.json()["cause"]) == (422, "sum-check-failed")
    with monkeypatch.context() as patched:
        patched.setattr(SumsLattice, "bound", lambda *_: 1 << 63)
        large = await combine(server, formed, first, third)
        assert "leave 64 bits" in large.json()["detail"]
    for path in ("", "/weights"):
        nothing = await server.client.get(f"/v1/combinations/{'0' * 16}{path}")
        assert (nothing.status_code, nothing.json()["cause"]) == (404, "not-found")


async def period_after(server: Server, party: Party, running: str) -> str:
    """The round that runs is finished, over records of its own."""
    party.lineages = dict.fromkeys(party.ids, b"spring--")
    assert (await party.play(server, running))["state"] == "done"
    return running
