import hmac
from pathlib import Path

import httpx
import pytest
from pydantic import SecretStr
from sqlalchemy import select

from protocol.errors import Misuse
from protocol.identity import SigningKey
from service import access
from service.storage.database import Database
from service.storage.tables import tokens
from tests.service.driver import OCTETS, Party, Server, running


async def test_a_token_is_drawn_once_printed_once_and_stored_as_a_hash(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with running(tmp_path, operator_token=None) as server:
        printed = capsys.readouterr()
        assert printed.out == ""
        token = printed.err.strip().removeprefix("Operator token (shown only this once): ")
        assert token.startswith("veilsum_")
        assert await allowed(server, token) is True
        assert await allowed(server, token + "x") is False
        async with server.coordinator.database.reading() as connection:
            stored = (await connection.execute(select(tokens.c.sha256))).scalars().all()
        assert stored == [access._hash(token)]
    async with running(tmp_path, operator_token=None) as server:
        assert "token" not in capsys.readouterr().err
        assert await allowed(server, token) is True
    assert holding(tmp_path, token.encode()) == []
    async with running(tmp_path, operator_token="another") as server:
        assert await allowed(server, token) is False
        assert await allowed(server, "another") is True


def holding(folder: Path, needle: bytes) -> list[str]:
    return [file.name for file in folder.rglob("*") if file.is_file() and needle in file.read_bytes()]


async def allowed(server: Server, token: str) -> bool:
    answer = await server.client.post(
        f"/v1/federations/{'0' * 64}/cohorts",
        json={"records_cap": 1},
        headers={"authorization": f"Bearer {token}"},
    )
    return answer.status_code == 404


@pytest.mark.parametrize("configured", ["", "  ", "\n"])
async def test_an_empty_token_is_none(tmp_path: Path, configured: str) -> None:
    async with running(tmp_path, operator_token=configured) as server:
        assert await allowed(server, "") is False
        assert await allowed(server, configured) is False


async def test_a_configured_token_loses_the_line_end_of_its_file(tmp_path: Path) -> None:
    async with running(tmp_path, operator_token="secret\n") as server:
        assert await allowed(server, "secret") is True


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer ", "Basic YTpi", "bearer wrong", "Bearer é"])
async def test_without_the_token_the_operators_routes_are_closed(
    server: Server, formed: Party, header: str | None
) -> None:
    round_id = await formed.open_round(server)
    headers = [] if header is None else [(b"authorization", header.encode("latin-1"))]
    async with server.anonymous() as client:
        for method, path in (
            ("POST", f"/v1/federations/{formed.federation}/cohorts"),
            ("POST", f"/v1/cohorts/{formed.cohort}/rounds"),
            ("POST", f"/v1/cohorts/{formed.cohort}/close"),
            ("POST", f"/v1/rounds/{round_id}/cancel"),
            ("GET", f"/v1/rounds/{round_id}/result/sums"),
            ("POST", f"/v1/cohorts/{'0' * 64}/rounds"),
        ):
            answer = await client.request(method, path, headers=httpx.Headers(headers))
            assert (answer.status_code, answer.json()["cause"]) == (401, "unauthorised"), path
            assert answer.headers["www-authenticate"] == "Bearer"
    assert (await server.view(round_id))["state"] == "collecting"


async def test_tokens_are_compared_in_constant_time(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[str, str]] = []

    def compare(one: str, other: str) -> bool:
        compared.append((one, other))
        return one == other

    monkeypatch.setattr(hmac, "compare_digest", compare)
    assert await allowed(server, "wrong") is False
    assert [len(text) for pair in compared for text in pair] == [64, 64]


async def test_a_federation_begins_with_the_operator_and_goes_on_with_the_admin(
    server: Server, party: Party
) -> None:
    key = server.coordinator.key.public
    where = f"/v1/federations/{party.federation}/roster"
    first = party.make_roster(key)
    async with server.anonymous() as client:

        async def put(roster: bytes) -> tuple[int, str | None]:
            answer = await client.put(where, content=roster, headers=OCTETS)
            return answer.status_code, answer.json().get("cause")

        assert await put(first.to_bytes()) == (401, "unauthorised")
        await party.found(server)
        assert await put(first.to_bytes()) == (200, None)
        third = party.make_roster(key, version=3)
        assert await put(third.to_bytes()) == (201, None)
        assert await put(first.to_bytes()) == (409, "roster-rollback")
        assert await put(party.make_roster(key, version=3, extractors=()).to_bytes()) == (409, "conflict")
        assert await put(party.make_roster(bytes(32), version=4).to_bytes()) == (400, "malformed")
        stranger = Party(party.ids)
        stranger.admin = SigningKey(b"s" * 32)
        assert await put(stranger.make_roster(key, version=4).to_bytes()) == (422, "wrong-federation")
        forged = stranger.make_roster(key, version=4, federation=party.admin.public)
        assert await put(forged.to_bytes()) == (422, "bad-signature")
        newest = await client.get(where)
        assert newest.content == third.to_bytes()
        view = (await client.get(f"/v1/federations/{party.federation}")).json()
        assert (view["roster_version"], view["members"]) == (3, list(party.ids))


def test_the_coordinators_key_is_made_once_and_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "key"
    key = access.load_key(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert access.load_key(path).public == key.public
    path.chmod(0o640)
    with pytest.raises(Misuse, match="readable by others: chmod 600"):
        access.load_key(path)
    path.chmod(0o600)
    path.write_bytes(b"short")
    with pytest.raises(Misuse, match="5 bytes, not 32"):
        access.load_key(path)
    assert [file.name for file in tmp_path.iterdir()] == ["key"]


async def test_a_token_that_could_not_be_shown_is_not_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = Database(tmp_path / "db")
    await database.start()

    class Closed:
        def write(self, _: str) -> None:
            raise OSError("closed")

    with monkeypatch.context() as patched:
        patched.setattr(access.sys, "stderr", Closed())  # type: ignore[attr-defined]
        with pytest.raises(OSError, match="closed"):
            await access.token_hash(database, None)
    assert await access.token_hash(database, SecretStr("set")) == access._hash("set")
    async with database.reading() as connection:
        assert (await connection.execute(select(tokens))).all() == []
    await database.stop()
