"""Sums in the clear: there under their flag alone, for the roster's members, and what is solved is their sum."""

from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load

from calibration import FFCStatistics, solve_ffc
from service.routes.unmasked import CHUNK, RESULT, SUM
from tests.service.driver import Party
from tests.service.serving import OCTETS, Server, running

DIM, CLASSES, CHUNK_ELEMENTS = 4, 3, 16
MEMBERS = ("m-0", "m-1", "m-2")
ASKED = {"dim": DIM, "classes": CLASSES, "members": len(MEMBERS), "chunk_elements": CHUNK_ELEMENTS}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with running(tmp_path, unmasked_benchmark=True) as server:
        yield server


@pytest.fixture
async def party(server: Server) -> Party:
    party = Party(MEMBERS, dim=DIM, classes=CLASSES)
    await party.found(server)
    begun = await server.client.post(SUM.format(federation=party.federation), json=ASKED)
    view = {"state": "collecting", "version": 1, "seconds": {}, "fault": None}
    assert (begun.status_code, begun.json()) == (201, view)
    return party


def statistics(member: str) -> FFCStatistics:
    rng = np.random.default_rng(MEMBERS.index(member))
    found = FFCStatistics(DIM, CLASSES, normalise=True)
    found.update(rng.normal(size=(20, DIM)), rng.integers(CLASSES, size=20))
    return found


def chunks(member: str, *, whole: bool = False) -> list[bytes]:
    found = statistics(member)
    V = found.V.ravel() if whole else found.V[np.triu_indices(DIM)]
    flat = np.concatenate([V, found.U.ravel(), found.counts]).astype("<f4").tobytes()
    return [flat[start : start + 4 * CHUNK_ELEMENTS] for start in range(0, len(flat), 4 * CHUNK_ELEMENTS)]


async def put(server: Server, party: Party, member: str, index: int, data: bytes) -> tuple[int, str]:
    path = CHUNK.format(federation=party.federation, member=member, index=index)
    answer = await server.client.put(path, content=data, headers=OCTETS)
    return answer.status_code, answer.json().get("cause", answer.json().get("state"))


@pytest.mark.parametrize("whole", [False, True])
async def test_the_sum_is_solved_once_all_have_sent(server: Server, party: Party, *, whole: bool) -> None:
    begun = await server.client.post(SUM.format(federation=party.federation), json={**ASKED, "whole": whole})
    assert begun.status_code == 201
    early = await server.client.get(RESULT.format(federation=party.federation))
    assert early.json()["cause"] == "wrong-phase"
    for member in MEMBERS:
        for index, data in enumerate(chunks(member, whole=whole)):
            assert await put(server, party, member, index, data) in {(200, "collecting"), (200, "done")}
    view = await server.client.get(SUM.format(federation=party.federation), params={"after": 2, "wait_s": 5})
    assert (view.json()["state"], set(view.json()["seconds"])) == ("done", {"collecting", "solving"})
    answer = await server.client.get(RESULT.format(federation=party.federation))
    pooled = sum((statistics(member) for member in MEMBERS[1:]), statistics(MEMBERS[0]))
    assert np.allclose(load(answer.content)["weights"], solve_ffc(pooled).weights, atol=1e-4)
    assert await put(server, party, "m-0", 0, chunks("m-0", whole=whole)[0]) == (409, "wrong-phase")


async def test_what_was_not_asked_for_is_refused(server: Server, party: Party) -> None:
    first, last = chunks("m-0")[0], len(chunks("m-0")) - 1
    assert await put(server, party, "m-0", last + 1, first) == (422, "chunk-unknown")
    assert await put(server, party, "m-0", last, first) == (422, "chunk-mismatch")
    assert await put(server, party, "m-0", 0, first[:-1]) == (422, "chunk-mismatch")
    nothing = np.full(CHUNK_ELEMENTS, np.nan, "<f4").tobytes()
    assert await put(server, party, "m-0", 0, nothing) == (422, "chunk-mismatch")
    path = CHUNK.format(federation=party.federation, member="m-0", index=0)
    async with server.anonymous() as nobody, server.signing("m-1", party.keys["m-1"]) as another:
        assert (await nobody.put(path, content=first, headers=OCTETS)).json()["cause"] == "request-unsigned"
        assert (await another.put(path, content=first, headers=OCTETS)).json()["cause"] == "forbidden"
        assert (await nobody.post(SUM.format(federation=party.federation), json=ASKED)).status_code == 401
    unknown = await server.client.get(SUM.format(federation="0" * 64))
    assert unknown.json()["cause"] == "not-found"


async def test_a_sum_without_records_has_no_solution(server: Server, party: Party) -> None:
    outcomes = [
        await put(server, party, member, index, bytes(len(data)))
        for member in MEMBERS
        for index, data in enumerate(chunks(member))
    ]
    assert outcomes[-1] == (422, "sum-check-failed")
    await check_failed(server, party, "sum-check-failed")


async def test_a_sum_that_storage_lost_says_so(
    server: Server, party: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(_name: str) -> bytes:
        raise OSError

    monkeypatch.setattr(server.coordinator.blobs, "get", lost)
    outcomes = [
        await put(server, party, member, index, data)
        for member in MEMBERS
        for index, data in enumerate(chunks(member))
    ]
    assert outcomes[-1] == (503, "unavailable")
    await check_failed(server, party, "unavailable")


async def check_failed(server: Server, party: Party, cause: str) -> None:
    """The sum has ended, and whoever asks is told why."""
    view = (await server.client.get(SUM.format(federation=party.federation))).json()
    assert (view["state"], set(view["seconds"]), view["version"]) == (
        "failed",
        {"collecting", "solving"},
        3,
    )
    assert view["fault"]["cause"] == cause
    weights = await server.client.get(RESULT.format(federation=party.federation))
    assert weights.json()["cause"] == "wrong-phase"
    assert view["fault"]["detail"] in weights.json()["detail"]


async def test_without_the_flag_there_is_no_such_route(tmp_path: Path) -> None:
    async with running(tmp_path / "other") as server:
        party = Party(MEMBERS, dim=DIM, classes=CLASSES)
        await party.found(server)
        begun = await server.client.post(SUM.format(federation=party.federation), json=ASKED)
        assert (begun.status_code, begun.json()["cause"]) == (404, "not-found")
        assert await put(server, party, "m-0", 0, chunks("m-0")[0]) == (404, "not-found")
