"""Folders of earlier releases can be opened, and their coordinators continue."""

from pathlib import Path

import pytest
from sqlalchemy import select

from service.storage import migrating
from service.storage.tables import rounds
from tests.service.storage.kept import FINISHED, FOLDERS, PAIRING, RUNNING, opened
from tests.support.party import SIX, Party
from tests.support.serving import running
from veilsum.protocol.audit import follow_entries


def test_a_folder_of_this_release_s_format_is_kept() -> None:
    path = FOLDERS / f"{migrating.newest_format()}.tar.gz"
    assert path.stat().st_size < 200_000, "`python -m tests.service.storage.kept` makes it"


@pytest.mark.parametrize("archive", sorted(FOLDERS.iterdir()), ids=lambda path: path.name)
async def test_a_kept_folder_is_opened_and_goes_on(tmp_path: Path, archive: Path) -> None:
    clock = opened(archive, tmp_path)
    finished = Party(SIX, admin_seed=FINISHED, notes={"version": 2})
    live, pairing = (Party(SIX, admin_seed=seed) for seed in (RUNNING, PAIRING))
    async with running(tmp_path, clock) as server:
        assert (await server.client.get("/readyz")).status_code == 200
        heard = await server.coordinator.last_heard.read_times(live.federation, SIX)
        assert {clock() - 60 < signed_s <= clock() for signed_s in heard.values()} == {True}
        assert set(heard) == set(SIX)
        found = await server.coordinator.database.read_rows(select(rounds.c.id, rounds.c.federation))
        names = {federation: name for name, federation in found}
        view = await server.view(names[live.federation])
        assert (view["state"], view["uploaded"]) == ("collecting", ["m-0"])
        assert (await server.view(names[finished.federation]))["state"] == "done"
        assert (await server.client.get(f"/v1/rounds/{names[finished.federation]}/result")).status_code == 200
        [cohort] = (await server.client.get(pairing.where)).json()["cohorts"]
        forming = await server.cohort(cohort)
        assert (forming["state"], forming["paired"]) == ("pairing", list(SIX[:3]))
        page = await server.audited()
        assert follow_entries(page.entries) == page.head.end
        await finished.found(server)
        await finished.next_period(server)
        round_id = await finished.done(server)
        await finished.check_result(server, round_id)
