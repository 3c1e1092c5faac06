"""A coordinator's clock jumps by an hour or a day and back. Members are told, no sum is wrong, and the next attempt works."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from assurance.outages.patience import check_sum
from service.storage import nonces
from tests.support.clients import Everybody, client_of
from tests.support.party import Party
from tests.support.refusals import refusal
from tests.support.serving import TOKEN, Clock, running

HOUR_S, DAY_S = 3600.0, 86_400.0


@pytest.mark.slow
@pytest.mark.parametrize("jump_s", [HOUR_S, -HOUR_S, DAY_S, -DAY_S])
@pytest.mark.parametrize("state", ["collecting", "checking", "freezing", "revealing"])
async def test_a_clock_that_jumps_and_comes_back(
    tmp_path: Path, state: str, jump_s: float, record_property: Callable[[str, object], None]
) -> None:
    party, clock = Party(tuple(f"m-{index}" for index in range(4))), Clock()
    async with (
        running(tmp_path / "data", clock) as server,
        client_of(server.app, {}, Everybody(time.time, TOKEN)) as right,
    ):
        round_id = await party.begun(server)
        await party.play_until(server, round_id, state)
        clock.ahead_s = jump_s
        server.coordinator.scheduler.wake_up()
        assert refusal(await right.get(f"/v1/rounds/{round_id}/requests/m-0")) == (401, "clock-skew")
        await asyncio.sleep(0.5)  # what is due now is done, also on a busy machine
        assert not (await server.view(round_id))["ended"] or jump_s > 0
        clock.ahead_s = 0.0
        server.coordinator.scheduler.wake_up()
        if (await server.view(round_id))["state"] == "erasing":
            # Members report no erasure before the latest end by their own clocks, so these must reach it too.
            clock.ahead_s = 2 * HOUR_S
        view = await party.play(server, round_id)
        if view["state"] == "erasing":
            view = await party.lose(server, round_id)
        record_property("figures", {"ended": view["state"]})
        if view["state"] != "done":
            assert jump_s > 0, "only a deadline that passed ends a round"
            round_id = await party.open_round(server)
            await party.play(server, round_id)
        await check_sum(party, server, round_id)
        assert set((await server.view(round_id))["survivors"]) == set(party.ids)


@pytest.mark.slow
@pytest.mark.parametrize("jump_s", [HOUR_S, -HOUR_S, DAY_S, -DAY_S])
async def test_a_clock_that_jumps_while_members_pair_and_comes_back(tmp_path: Path, jump_s: float) -> None:
    """Members that had no time to pair are left out, and here too few are left; the next cohort forms."""
    party, clock = Party(tuple(f"m-{index}" for index in range(4))), Clock()
    async with running(tmp_path / "data", clock) as server:
        await party.send_cards(server)
        for member in party.ids[:2]:
            await party.pair(server, member)
        clock.ahead_s = jump_s
        server.coordinator.scheduler.wake_up()
        await asyncio.sleep(0.5)  # what is due now is done, also on a busy machine
        clock.ahead_s = 0.0
        server.coordinator.scheduler.wake_up()
        view = await server.cohort(party.cohort)
        assert view["state"] == ("failed" if jump_s > 0 else "pairing")
        if jump_s > 0:
            assert (view["fault"]["cause"], view["fault"]["parties"]) == ("cohort-too-small", ["m-2", "m-3"])
            await party.next_period(server)
        else:
            await party.take_manifest(server)
        round_id = await party.open_round(server)
        await party.play(server, round_id)
        await check_sum(party, server, round_id)


async def test_what_was_forgotten_is_not_taken_again_where_the_clock_is_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attacker that kept a reader's request for an hour waits for such a clock."""
    monkeypatch.setattr(nonces, "DELETE_EVERY_S", 0.0)
    party, clock = Party(tuple(f"m-{index}" for index in range(4)), readers=("m-0",)), Clock()
    async with running(tmp_path / "data", clock) as server:
        await party.begin(server)
        path = f"/v1/rounds/{await party.done(server)}/result/sums"
        reader = server.signing("m-0", party.keys["m-0"])
        clock.ahead_s = -HOUR_S
        kept = await reader.get(path)
        clock.ahead_s = 0.0
        for _ in range(2):  # the next requests delete the old nonces
            assert (await reader.get(path)).status_code == 200
        clock.ahead_s = -HOUR_S
        async with client_of(server.app, {}) as whoever:
            again = await whoever.get(path, headers=kept.request.headers)
        assert (kept.status_code, again.status_code, again.json()["cause"]) == (200, 401, "clock-skew")
        assert "were forgotten" in again.json()["detail"]
        clock.ahead_s = 0.0
        assert (await reader.get(path)).status_code == 200
