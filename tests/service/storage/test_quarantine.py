"""Damage stops only its own federation or round, which is named everywhere."""

from pathlib import Path

import pytest

from service.coordination import checking
from service.settings import Settings
from service.storage import migrating
from tests.service.storage.kept import DONE, FOLDERS, LIVE, count_damage, flip, opened, overwrite, run_sql
from tests.support.refusals import refusal
from tests.support.serving import running
from veilsum.protocol.errors import Misuse

ROWS = {
    "rosters.body": "roster 1 of federation {federation}",
    "studies.body": "study {study} of federation {federation}",
    "cohorts.study": "cohort {cohort} of federation {federation}",
    "cohorts.manifest": "cohort {cohort} of federation {federation}",
    "cards.body": "cohort {cohort} of federation {federation}",
    "rounds.opening": "round {round}",
    "rounds.final": "round {round}",
    "rounds.record": "round {round}",
    "rounds.closing": "round {round}",
    "links.body": "chain of federation {federation}",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"


def names(folder: Path, federation: str) -> dict[str, str]:
    query = "SELECT id, cohort, study FROM rounds JOIN (SELECT id AS cohort_id, study FROM cohorts) ON cohort = cohort_id"
    [row] = run_sql(folder, f"{query} WHERE federation = ?", federation)
    return {"federation": federation, **dict(zip(("round", "cohort", "study"), row, strict=True))}


@pytest.mark.parametrize("place", ROWS)
async def test_a_damaged_row_is_named_and_all_else_goes_on(folder: Path, place: str) -> None:
    clock = opened(FOLDERS / f"{migrating.newest_format()}.tar.gz", folder)
    table, column = place.split(".")
    of, other = names(folder, DONE), names(folder, LIVE)
    key = "cohort" if table == "cards" else "federation"
    flip(folder, table, column, key, of[key], cut=table == "links")
    found, named = count_damage("row"), ROWS[place].format(**of)
    async with running(folder, clock) as server:
        shown = [
            await server.client.get(path.format(**of))
            for path in ("/federations/{federation}", "/cohorts/{cohort}", "/rounds/{round}")
        ]
        assert any(answer.status_code == 500 and named in answer.text for answer in shown)
        for path in ("/federations/{federation}", "/rounds/{round}", "/v1/federations/{federation}/runs"):
            assert (await server.client.get(path.format(**other))).status_code == 200
        for path in ("/", "/federations", "/metrics"):
            assert (await server.client.get(path)).status_code == 200
        ready = await server.client.get("/readyz")
        assert ready.status_code == 200
        assert named in ready.json()["damaged"]
        assert named in (await server.client.get("/health")).text
        assert (await server.client.post("/v1/tokens", json={"name": "x", "scopes": ["rounds"]})).is_success
    assert count_damage("row") > found


@pytest.mark.parametrize(
    ("column", "after"), [("final", '"survivors_min":'), ("record", '"signature":"'), ("final", " ")]
)
async def test_a_flipped_bit_in_how_a_round_ended_is_found(folder: Path, column: str, after: str) -> None:
    """Even if the text is still well-formed, it isn't served."""
    clock = opened(FOLDERS / f"{migrating.newest_format()}.tar.gz", folder)
    of = names(folder, DONE)
    flip(folder, "rounds", column, "federation", DONE, after=after)
    assert await checking.find_damage(Settings(data_dir=folder)) == {
        "damaged": [f"round {of['round']} of federation {DONE}"]
    }
    async with running(folder, clock) as server:
        for path in ("", "/result", "/transcript", "/result/weights"):
            answer = await server.client.get(f"/v1/rounds/{of['round']}{path}")
            assert refusal(answer) == (500, "storage-damaged")
            assert f"round {of['round']}" in answer.json()["detail"]
        assert f"round {of['round']}" in (await server.client.get("/readyz")).json()["damaged"]


@pytest.mark.parametrize("table", ["tokens", "events"])
async def test_a_damaged_page_is_noticed_at_the_start(folder: Path, table: str) -> None:
    clock = opened(FOLDERS / f"{migrating.newest_format()}.tar.gz", folder)
    overwrite(folder, table)
    found = count_damage("file")
    async with running(folder, clock) as server:
        assert count_damage("file") == found + 1
        answer = await server.client.get("/readyz")
        assert refusal(answer) == (503, "unavailable")
        assert "database: " in answer.json()["detail"]
        assert (await server.client.get(f"/federations/{DONE}")).status_code == 200


@pytest.mark.parametrize("table", ["rounds", "alembic_version"])
async def test_a_file_that_cannot_be_started_with_says_so(folder: Path, table: str) -> None:
    clock = opened(FOLDERS / f"{migrating.newest_format()}.tar.gz", folder)
    overwrite(folder, table)
    with pytest.raises(Misuse, match="operator db check"):
        async with running(folder, clock):
            pass
