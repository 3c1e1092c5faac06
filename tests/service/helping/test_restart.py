"""A restart at any point resumes a round with helpers, and nothing that was acknowledged is lost."""

from pathlib import Path
from typing import Any

import pytest

from protocol.helpers.coordinator import Recovered
from service import solving
from tests.service.helping.driver import HelperParty, phase_of
from tests.service.serving import Server, running, snapshot


async def see(server: Server, party: HelperParty) -> dict[str, Any]:
    """Everything that is shown."""
    seen: dict[str, Any] = {"desk": (await server.client.get(party.desk)).json()}
    federation = (await server.client.get(f"/v1/federations/{party.federation}")).json()
    for round_id in federation["rounds"]:
        seen[round_id] = await server.view(round_id)
        for member in (*party.ids[:3], *party.helpers):
            asked = await server.client.get(f"/v1/rounds/{round_id}/requests/{member}")
            seen[f"asked of {member}"] = (asked.status_code, asked.headers["veilsum-version"], asked.content)
            upload = await server.client.get(f"/v1/rounds/{round_id}/uploads/{member}")
            seen[f"upload of {member}"] = (upload.status_code, upload.json())
    return seen


async def finish(server: Server, party: HelperParty) -> None:
    """Go on from wherever it stands to a checked result."""
    found = (await server.client.get(f"/v1/federations/{party.federation}")).json()["rounds"]
    if not found:
        await party.enrol(server)
    round_id = found[0] if found else await party.open_round(server)
    assert (await party.play(server, round_id))["state"] == "done"
    await party.check_result(server, round_id)
    await party.hear(server, round_id)
    await party.enrol(server)
    following = await party.open_round(server)
    assert (await server.view(following))["sequence"] == 1


@pytest.mark.slow
async def test_every_acknowledged_request_survives_a_crash(tmp_path: Path) -> None:
    party = HelperParty(12)
    saved: list[tuple[str, Path, HelperParty, dict[str, Any]]] = []
    async with running(tmp_path / "data") as server:
        kinds: dict[str, int] = {}
        round_id = ""

        async def on_ack(label: str) -> None:
            kind = label.rsplit(" of ", maxsplit=1)[0].split(maxsplit=1)[0]
            kinds[kind] = kinds.get(kind, 0) + 1
            # The first two of a kind and every tenth; the round may be solved at any moment once it is recovered.
            if kinds[kind] > 2 and kinds[kind] % 10:
                return
            if not round_id or server.coordinator.rounds[round_id].recovered is None:
                seen = await see(server, party)
                copied = snapshot(server.folder, tmp_path / f"crash-{len(saved)}")
                if seen == await see(server, party):
                    saved.append((label, copied, party.copy(), seen))

        party.on_ack = on_ack
        round_id = await party.begin(server, chunk_elements=16)
        assert (await party.play(server, round_id))["state"] == "done"
        await server.tidy(round_id)
        saved.append(
            ("the end", snapshot(server.folder, tmp_path / "end"), party.copy(), await see(server, party))
        )
    labels = [label for label, *_ in saved]
    for kind in (
        "card",
        "round",
        "announcement",
        "chunk",
        "HelperReceipt",
        "HelperVote",
        "sums",
        "sum chunk",
    ):
        assert any(label.startswith(kind) for label in labels), (kind, labels)
    finished: set[str] = set()
    for label, folder, then, seen in saved:
        async with running(folder) as again:
            assert await see(again, then) == seen, label
            if label.split()[0] not in finished:
                finished.add(label.split()[0])
                await finish(again, then)


async def test_a_recovered_round_is_solved_after_the_restart(
    tmp_path: Path, party: HelperParty, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:

        def crash(*_: object) -> None:
            raise RuntimeError("the power is gone")

        patched.setattr(solving, "compute", crash)
        async with running(tmp_path / "data") as server:
            round_id = await party.begin(server)
            await party.play(server, round_id, "recovered")
            assert isinstance(phase_of(server, round_id), Recovered)
    async with running(tmp_path / "data") as server:
        assert (await server.until(round_id))["state"] == "done"
        await party.check_result(server, round_id)


async def test_an_end_that_was_not_kept_before_the_crash_is_kept_after_it(
    tmp_path: Path, party: HelperParty, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path / "data") as server:
        round_id = await party.begin(server)
        await party.play(server, round_id, "summing")
        round_ = server.coordinator.rounds[round_id]

        async def crash(*_: object) -> None:
            raise OSError("the disk is gone")

        with monkeypatch.context() as patched:
            patched.setattr(type(round_), "_finalise", crash)
            cancelled = await server.client.post(f"/v1/rounds/{round_id}/cancel", json={"reason": "stop"})
            assert cancelled.status_code == 503
            assert (await server.view(round_id))["state"] == "summing"
            snapshot(server.folder, tmp_path / "crash")
    async with running(tmp_path / "crash") as server:
        view = await server.until(round_id)
        assert (view["state"], view["fault"]["cause"]) == ("failed", "cancelled")
