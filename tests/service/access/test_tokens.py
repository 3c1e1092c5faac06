import asyncio
import hmac
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from sqlalchemy import select

from service.access import tokens
from service.access.tokens import Tokens
from service.coordination.federations import MAX_NUMBER
from service.storage.database import Database
from service.storage.dialects import Sqlite
from service.storage.tables import tokens as stored_tokens
from tests.support.calls import record_calls
from tests.support.party import Party
from tests.support.refusals import refusal, refused
from tests.support.serving import TOKEN, Server, running
from veilsum.protocol.errors import Misuse
from veilsum.protocol.rest import Scope


async def test_a_token_is_drawn_once_printed_once_and_stored_as_a_hash(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with running(tmp_path, operator_token=None) as server:
        printed, kept = capsys.readouterr(), tmp_path / "operator.token"
        assert printed.out == ""
        assert str(kept) in printed.err
        token = kept.read_text().strip()
        assert (token[:8], len(token)) == ("veilsum_", 51)  # 256 random bits
        assert token not in printed.err
        assert kept.stat().st_mode & 0o777 == 0o600
        assert await allowed(server, token) is True
        assert await allowed(server, token + "x") is False
        stored = await server.coordinator.database.read_values(select(stored_tokens.c.sha256))
        assert stored == [tokens._hash_token(token)]
    async with running(tmp_path, operator_token=None) as server:
        assert "token" not in capsys.readouterr().err
        assert await allowed(server, token) is True
    assert holding(tmp_path, token.encode()) == ["operator.token"]
    async with running(tmp_path, operator_token="another token, longer") as server:
        assert await allowed(server, "another token, longer") is True
        assert await allowed(server, token) is True, "until it is revoked"


@pytest.mark.both_stores
async def test_replicas_that_start_together_draw_one_token(tmp_path: Path, database: Database) -> None:
    replicas = [Tokens(database, time.time, None, tmp_path) for _ in range(4)]
    await asyncio.gather(*(each.list_tokens() for each in replicas))  # each has a connection now
    await asyncio.gather(*(each.create_first_token() for each in replicas))
    assert len(await replicas[0].list_tokens()) == 1


async def test_at_a_terminal_it_is_shown_and_left_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    async with running(tmp_path, operator_token=None) as server:
        token = capsys.readouterr().err.strip().removeprefix("Operator token (shown only this once): ")
        assert await allowed(server, token) is True
    assert holding(tmp_path, token.encode()) == []


def holding(folder: Path, needle: bytes) -> list[str]:
    return [file.name for file in folder.rglob("*") if file.is_file() and needle in file.read_bytes()]


async def allowed(server: Server, token: str) -> bool:
    answer = await server.client.post(
        f"/v1/federations/{'0' * 64}/cohorts",
        json={"study": "0" * 64, "period": "p"},
        headers={"authorization": f"Bearer {token}"},
    )
    return answer.status_code == 404


@pytest.mark.parametrize(
    ("configured", "sent", "accepted"),
    [
        pytest.param("", "", False, id="empty"),
        pytest.param(" \n", " \n", False, id="blank"),
        pytest.param(
            "twenty-letter-secret\n", "twenty-letter-secret", True, id="of a file, with its line end"
        ),
    ],
)
async def test_a_configured_token_is_a_line(
    tmp_path: Path, configured: str, sent: str, *, accepted: bool
) -> None:
    async with running(tmp_path, operator_token=configured) as server:
        assert await allowed(server, sent) is accepted


@pytest.mark.parametrize("token", ["fifteen letters", "fifteen letters, ö", "fifteen letters\nand more"])
async def test_a_configured_token_that_is_short_or_can_t_be_sent_is_refused(
    tmp_path: Path, token: str
) -> None:
    with pytest.raises(Misuse, match="openssl rand") as caught:
        async with running(tmp_path, operator_token=token):
            pass
    assert "fifteen" not in str(caught.value)


async def test_tokens_are_compared_in_constant_time(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    compared = record_calls(monkeypatch, hmac, "compare_digest", lambda *pair: pair)
    assert await allowed(server, "wrong") is False
    assert [len(text) for pair in compared for text in pair] == [64, 64]


async def test_a_federation_begins_with_the_operator_and_goes_on_with_the_admin(
    server: Server, party: Party
) -> None:
    key = server.coordinator.key.public
    where = f"/v1/federations/{party.federation}/roster"
    first = party.make_roster(key)
    async with server.signing("admin", party.admin) as client:

        async def put(roster: bytes) -> tuple[int, str | None]:
            answer = await client.put(where, content=roster)
            return answer.status_code, answer.json().get("cause")

        async with server.anonymous() as nobody:
            assert (await nobody.put(where, content=first.to_bytes())).json()["cause"] == "unauthorised"
        assert await put(first.to_bytes()) == (401, "unauthorised")
        await party.found(server)
        assert await put(first.to_bytes()) == (200, None)
        third = party.make_roster(key, number=3)
        assert await put(third.to_bytes()) == (201, None)
        assert await put(first.to_bytes()) == (409, "roster-rollback")
        assert await put(party.make_roster(key, number=3, name="another token, longer").to_bytes()) == (
            409,
            "conflict",
        )
        assert await put(party.make_roster(bytes(32), number=4).to_bytes()) == (400, "malformed")
        assert await put(party.make_roster(key, number=MAX_NUMBER + 1).to_bytes()) == (400, "malformed")
        stranger = Party(party.ids, admin_seed=b"s" * 32)
        assert await put(stranger.make_roster(key, number=4).to_bytes()) == (422, "wrong-federation")
        forged = stranger.make_roster(key, number=4, federation=party.admin.public)
        assert await put(forged.to_bytes()) == (422, "bad-signature")
        newest = await client.get(where)
        assert newest.content == third.to_bytes()
        view = (await client.get(f"/v1/federations/{party.federation}")).json()
        assert (view["roster"], view["members"]) == ("3", list(party.ids))


@pytest.mark.parametrize("buffered", [False, True])
async def test_a_token_that_could_not_be_shown_is_not_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, buffered: bool
) -> None:
    database = Sqlite(tmp_path / "db")
    await database.start()

    class Closed:
        def isatty(self) -> bool:
            return True

        def write(self, _: str) -> None:
            if not buffered:
                self.flush()

        def flush(self) -> None:
            raise OSError("closed")

    with monkeypatch.context() as patched:
        patched.setattr(tokens.sys, "stderr", Closed())  # type: ignore[attr-defined]
        with pytest.raises(OSError, match="closed"):
            await Tokens(database, time.time, None, tmp_path).create_first_token()
    assert await Tokens(database, time.time, None, tmp_path).list_tokens() == ()
    await database.stop()


async def made(server: Server, *scopes: str, **changes: Any) -> dict[str, Any]:
    answer = await server.client.post("/v1/tokens", json={"name": "x", "scopes": scopes, **changes})
    assert answer.status_code == 201, answer.text
    token: dict[str, Any] = answer.json()
    return token


def bearer(token: dict[str, Any]) -> dict[str, str]:
    return {"authorization": f"Bearer {token['secret']}"}


async def test_a_scope_is_all_that_a_token_may(server: Server, formed: Party) -> None:
    round_id = await formed.open_round(server)
    calls = {
        "sums": ("GET", f"/v1/rounds/{round_id}/result/sums", None, 409),
        "audit": ("GET", "/v1/audit", None, 200),
        "rounds": ("POST", f"/v1/rounds/{'0' * 16}/cancel", {"reason": "x"}, 404),
        "federations": ("PUT", f"/v1/federations/{formed.federation}/roster", None, 400),
        "admin": ("GET", "/v1/tokens", None, 200),
    }
    for scope in calls:
        token = await made(server, scope)
        assert token["scopes"] == [scope]
        for other, (method, path, body, allowed) in calls.items():
            answer = await server.anonymous().request(method, path, json=body, headers=bearer(token))
            expected = allowed if scope in {other, "admin"} else 403
            assert answer.status_code == expected, (scope, other, answer.text)
            if expected == 403:
                assert f"this needs '{other}'" in answer.json()["detail"]
                assert token["secret"] not in answer.text


async def test_a_token_works_for_its_federation_alone(server: Server, formed: Party) -> None:
    round_id = await formed.open_round(server)
    scopes = ("sums", "rounds", "federations")
    mine = await made(server, *scopes, federation=formed.federation)
    other = await made(server, *scopes, federation="0" * 64)
    cohort = (await server.view(round_id))["cohort"]
    calls = {
        ("GET", f"/v1/rounds/{round_id}/result/sums"): 409,
        ("POST", f"/v1/cohorts/{cohort}/close"): 200,
        ("PUT", f"/v1/federations/{formed.federation}/roster"): 400,
        ("GET", "/v1/tokens"): 403,
        ("GET", "/v1/audit"): 403,
    }
    for (method, path), allowed in calls.items():
        for token, expected in ((mine, allowed), (other, 403)):
            answer = await server.anonymous().request(method, path, headers=bearer(token))
            assert answer.status_code == expected, (path, token["federation"], answer.text)
    listed = (await server.client.get("/v1/tokens")).json()["tokens"]
    assert [each["federation"] for each in listed] == [formed.federation, "0" * 64]


async def test_a_token_ends_by_its_time_or_by_hand(server: Server) -> None:
    short, long = await made(server, "admin", lifetime_s=60), await made(server, "sums", "rounds")
    nobody = server.anonymous()
    assert (await nobody.get("/v1/tokens", headers=bearer(short))).status_code == 200
    answer = await nobody.post(f"/v1/tokens/{short['token']}/revoke", headers=bearer(short))
    assert refusal(answer) == (409, "conflict")
    ended = await server.client.post(f"/v1/tokens/{long['token']}/revoke")
    again = await server.client.post(f"/v1/tokens/{long['token']}/revoke")
    assert ended.json() == again.json()
    assert ended.json()["revoked_s"] is not None
    answer = await nobody.get(f"/v1/rounds/{'0' * 16}/result/sums", headers=bearer(long))
    assert refusal(answer) == (401, "unauthorised")
    assert f"token {long['token']} was revoked" in answer.json()["detail"]
    server.clock.ahead_s = 61.0
    late = await nobody.get("/v1/tokens", headers=bearer(short))
    assert f"token {short['token']} has expired" in late.json()["detail"]
    assert (await server.client.post("/v1/tokens/00000000/revoke")).status_code == 404
    listed = (await server.client.get("/v1/tokens")).text
    assert short["secret"] not in listed
    assert [each["token"] for each in (await server.client.get("/v1/tokens")).json()["tokens"]] == [
        short["token"],
        long["token"],
    ]


async def test_a_session_rests_on_its_own_token(server: Server) -> None:
    found: Tokens = server.app.state.tokens
    ids = [(await made(server, scope))["token"] for scope in ("sums", "audit")]
    stored = {
        row.id: row.sha256 for row in await server.coordinator.database.read_rows(select(stored_tokens))
    }
    for token, scope in zip(ids, (Scope.SUMS, Scope.AUDIT), strict=True):
        caller, proof = await found.find_in_force(token)
        assert (caller.name, set(caller.scopes), proof) == (token, {scope}, stored[token])
    configured, proof = await found.find_in_force(tokens.CONFIGURED_NAME)
    assert (set(configured.scopes), proof) == ({Scope.ADMIN}, tokens.hash_configured(SecretStr(TOKEN)))
    for unknown in ("00000000", ""):
        with refused("unauthorised"):
            await found.find_in_force(unknown)
    without = Tokens(server.coordinator.database, time.time, None, server.folder)
    with refused("unauthorised"):
        await without.find_in_force(tokens.CONFIGURED_NAME)


async def test_a_token_has_a_name_a_scope_and_an_end(server: Server) -> None:
    odd: tuple[dict[str, Any], ...] = (
        *({"scopes": []}, {"scopes": ["root"]}, {"name": ""}, {"name": "a\nb"}),
        *({"lifetime_s": 0}, {"lifetime_s": 1e9}, {"federation": "x"}),
        {"federation": "0" * 64, "scopes": ["audit"]},
        {"federation": "0" * 64, "scopes": ["rounds", "admin"]},
    )
    for changes in odd:
        answer = await server.client.post("/v1/tokens", json={"name": "x", "scopes": ["sums"], **changes})
        assert refusal(answer) == (400, "malformed-request"), changes
