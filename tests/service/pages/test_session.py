"""Signing in: a cookie in exchange for the token, and what the cookie allows."""

import hashlib
import re
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.responses import HTMLResponse

from service.coordination.rounds import Round
from service.pages.acting import path_inside
from service.pages.session import SESSION_LIFETIME_S
from tests.service.access.provider import Provider
from tests.service.pages.gallery import Gallery, browser
from tests.support.party import FOUR, Party
from tests.support.serving import TOKEN, Server, running
from veilsum.protocol.round_spec import RoundSpec

NOW = int(time.time())


async def sign_in(client: httpx.AsyncClient, token: str = TOKEN, **headers: str) -> httpx.Response:
    return await client.post("/sign-in", data={"token": token, "then": "/federations"}, headers=headers)


async def form_token(client: httpx.AsyncClient) -> str:
    found = re.search(r'name="form" value="(\w+)"', (await client.get("/")).text)
    assert found is not None
    return found[1]


async def signed_in(client: httpx.AsyncClient) -> bool:
    return "Sign out" in (await client.get("/")).text


def page_cause(answer: httpx.Response) -> tuple[int, str]:
    """Return the status and the cause of a refusal's page."""
    found = re.search(r'href="/problems/([a-z-]+)"', answer.text)
    return answer.status_code, found[1] if found else ""


async def make_token(server: Server, *scopes: str, **changes: Any) -> dict[str, str]:
    answer = await server.client.post("/v1/tokens", json={"name": "x", "scopes": scopes, **changes})
    made: dict[str, str] = answer.json()
    return made


async def test_the_token_is_taken_for_a_cookie_that_scripts_and_other_sites_cannot_use(
    server: Server, visitor: httpx.AsyncClient
) -> None:
    assert not await signed_in(visitor)
    answer = await sign_in(visitor)
    assert (answer.status_code, answer.headers["location"]) == (303, "/federations")
    cookie = answer.headers["set-cookie"]
    for flag in ("HttpOnly", "SameSite=strict", "Path=/", f"Max-Age={SESSION_LIFETIME_S}"):
        assert flag in cookie
    assert "Secure" not in cookie  # not over TLS here
    assert TOKEN not in cookie
    assert hashlib.sha256(TOKEN.encode()).hexdigest() not in cookie
    assert await signed_in(visitor)
    out = await visitor.post("/sign-out", data={"form": await form_token(visitor)})
    assert out.status_code == 303
    assert not await signed_in(visitor)


async def test_a_wrong_token_is_told(visitor: httpx.AsyncClient) -> None:
    for token in ("", "not-the-token", TOKEN + "x"):
        answer = await sign_in(visitor, token)
        assert answer.status_code == 401
        assert 'role="alert"' in answer.text
        assert "set-cookie" not in answer.headers
        assert token == "" or token not in answer.text


async def test_over_tls_the_cookie_is_secure_and_of_this_host_alone(server: Server) -> None:
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(server.app), base_url="https://coordinator"
    ) as client:
        cookie = (await sign_in(client)).headers["set-cookie"]
    assert cookie.startswith("__Host-veilsum-session=")
    assert "Secure" in cookie


async def test_a_cookie_ends_in_time_and_with_its_token_and_cannot_be_made(tmp_path: Path) -> None:
    async with running(tmp_path / "data") as server, browser(server) as client:
        await sign_in(client)
        [(name, value)] = client.cookies.items()
        assert await signed_in(client)
        server.clock.ahead_s = SESSION_LIFETIME_S + 1
        assert not await signed_in(client)
        server.clock.ahead_s = 0
    async with running(tmp_path / "data") as server, browser(server) as client:
        client.cookies.set(name, value)
        assert await signed_in(client)  # also of another process: it is signed, and kept nowhere
        for made in ("", "x", value[:-2] + "aa", "WzEsMiwzXQ." + value.rpartition(".")[2]):
            client.cookies.set(name, made)
            assert not await signed_in(client)
    async with (
        running(tmp_path / "data", operator_token="another token, longer") as server,
        browser(server) as client,
    ):
        client.cookies.set(name, value)
        assert not await signed_in(client)


async def test_an_issuer_s_token_is_taken_as_the_coordinator_s_own_is(
    tmp_path: Path, provider: Provider, party: Party
) -> None:
    async with running(tmp_path / "data", oidc=provider.trust()) as server, browser(server) as client:
        assert f"<code>{provider.url}</code>" in (await client.get("/sign-in")).text
        round_id = await party.begun(server)
        token = provider.token(exp=int(server.clock()) + 600)
        answer = await sign_in(client, token)
        assert (answer.status_code, answer.headers["location"]) == (303, "/federations")
        cookie = answer.headers["set-cookie"]
        assert token.rpartition(".")[2] not in cookie
        assert 500 < int(cookie.partition("Max-Age=")[2].partition(";")[0]) <= 600  # and not eight hours
        shown = (await client.get(f"/rounds/{round_id}")).text
        assert "oidc:alice" in shown
        assert f'action="/rounds/{round_id}/cancel"' in shown
        acted = await client.post(
            f"/rounds/{round_id}/cancel", data={"form": await form_token(client), "reason": "a test"}
        )
        assert acted.status_code == 303
        assert "operator oidc:alice" in (await server.client.get("/v1/audit")).text
        server.clock.ahead_s += 601
        assert not await signed_in(client)
        server.clock.ahead_s = 0.0
        for groups, reads in (("auditors", True), ("staff", False)):  # what it may follows from its claim
            assert (await sign_in(client, provider.token(groups=groups))).status_code == 303
            assert (await client.get("/audit")).status_code == (200 if reads else 403)
            data = {"form": await form_token(client), "reason": "r"}
            answer = await client.post(f"/rounds/{round_id}/cancel", data=data)
            assert page_cause(answer) == (403, "forbidden")


async def test_an_issuer_s_session_ends_with_what_it_rests_on(tmp_path: Path, provider: Provider) -> None:
    async with running(tmp_path / "data", oidc=provider.trust()) as server, browser(server) as client:
        await sign_in(client, provider.token())
        [(name, value)] = client.cookies.items()
        assert await signed_in(client)
        client.cookies.clear()
        for wrong in (
            provider.token(aud="other"),
            provider.token(exp=NOW - 120),
            provider.token()[:-8],
            "a.b.c",
        ):
            answer = await sign_in(client, wrong)
            assert answer.status_code == 401
        provider.keys["new"] = provider.keys["rsa"]
        provider.stop()
        # Whether it holds cannot be known now: that is not the operator's fault.
        server.app.state.gate.issuer._keys.jwk_set_cache = None
        assert (await sign_in(client, provider.token("new"))).status_code == 503
        assert (await sign_in(client, TOKEN)).status_code == 303
    for trust, stays in ((provider.trust(), True), (provider.trust(claim="roles"), False), (None, False)):
        async with running(tmp_path / "data", oidc=trust) as server, browser(server) as client:
            client.cookies.set(name, value)
            assert await signed_in(client) is stays


async def test_another_site_can_send_no_form(
    server: Server, visitor: httpx.AsyncClient, formed: Party
) -> None:
    assert (await sign_in(visitor, origin="http://evil.example")).status_code == 401
    assert (await sign_in(visitor, **{"sec-fetch-site": "cross-site"})).status_code == 401
    assert (await sign_in(visitor, origin="http://coordinator")).status_code == 303
    round_id = await formed.open_round(server)
    form, where = await form_token(visitor), f"/rounds/{round_id}/cancel"
    foreign = [{"origin": "http://evil.example"}, {"sec-fetch-site": "same-site"}, {"origin": "null"}]
    for headers in foreign:
        answer = await visitor.post(where, data={"form": form, "reason": "r"}, headers=headers)
        assert page_cause(answer) == (401, "unauthorised")
    for wrong in ("", "0" * 32, "é"):
        answer = await visitor.post(where, data={"form": wrong, "reason": "r"})
        assert page_cause(answer) == (401, "unauthorised")
    visitor.cookies.clear()
    answer = await visitor.post(where, data={"form": form, "reason": "r"})
    assert answer.status_code == 401
    assert (await server.view(round_id))["state"] == "collecting"


async def test_an_operator_cancels_with_a_reason(
    server: Server, visitor: httpx.AsyncClient, formed: Party
) -> None:
    await sign_in(visitor)
    round_id = await formed.open_round(server)
    assert f'action="/rounds/{round_id}/cancel"' in (await visitor.get(f"/rounds/{round_id}")).text
    form = await form_token(visitor)
    for reason in ("", "  ", "r" * 501, "a\0b", "a\nb", "a\x1bb", "a\u202eb"):
        answer = await visitor.post(f"/rounds/{round_id}/cancel", data={"form": form, "reason": reason})
        assert answer.status_code == 400
    reason = "<script>alert(1)</script>"
    answer = await visitor.post(f"/rounds/{round_id}/cancel", data={"form": form, "reason": reason})
    assert (answer.status_code, answer.headers["location"]) == (303, f"/rounds/{round_id}")
    view = await server.view(round_id)
    assert (view["state"], view["fault"]["detail"]) == ("voiding", reason)
    assert reason not in (await visitor.get(f"/rounds/{round_id}")).text  # as markup


async def test_an_operator_gives_more_time(server: Server, visitor: httpx.AsyncClient, formed: Party) -> None:
    await sign_in(visitor)
    round_id = await formed.open_round(server)
    form, where, before = await form_token(visitor), f"/rounds/{round_id}/extend", await server.view(round_id)
    for minutes in ("", "0", "-1", "1.5", "x", "9" * 30, "00000003" + "0" * 9, "٣"):
        assert (await visitor.post(where, data={"form": form, "minutes": minutes})).status_code == 400
    assert (await visitor.post(where, data={"form": form, "minutes": "30"})).status_code == 303
    assert (await server.view(round_id))["deadline_s"] == before["deadline_s"] + 1800
    beyond = await visitor.post(where, data={"form": form, "minutes": "527040"})
    assert page_cause(beyond) == (422, "terms-refused")
    await formed.play(server, round_id)
    over = await visitor.post(where, data={"form": form, "minutes": "30"})
    assert page_cause(over) == (409, "wrong-phase")


async def test_a_session_may_what_its_token_may_and_ends_with_it(
    server: Server, visitor: httpx.AsyncClient, formed: Party
) -> None:
    made = await make_token(server, "sums", lifetime_s=60.0)
    round_id = await formed.open_round(server)
    await sign_in(visitor, made["secret"])
    page = (await visitor.get(f"/rounds/{round_id}")).text
    assert made["token"] in page
    form = await form_token(visitor)
    for act in ("cancel", "extend"):
        answer = await visitor.post(
            f"/rounds/{round_id}/{act}", data={"form": form, "reason": "r", "minutes": "1"}
        )
        assert page_cause(answer) == (403, "forbidden")
    assert (
        await visitor.get(f"/rounds/{round_id}/sums")
    ).status_code == 409  # it has permission, but there is no sum yet
    server.clock.ahead_s += 61
    assert not await signed_in(visitor)
    server.clock.ahead_s -= 61
    assert await signed_in(visitor)
    revoked = await server.client.post(f"/v1/tokens/{made['token']}/revoke")
    assert revoked.status_code == 200
    assert not await signed_in(visitor)


async def test_what_a_session_may_not_do_is_not_offered_to_it(
    server: Server, visitor: httpx.AsyncClient, gallery: Gallery
) -> None:
    running, result = f"/rounds/{gallery.running}", f"/rounds/{gallery.done}/result"
    offers = (f"{running}/cancel", f"{running}/extend", f"/rounds/{gallery.done}/sums")
    for federation, scopes, offered in (
        (gallery.federation, ["rounds"], (True, True, False)),
        (gallery.federation, ["sums"], (False, False, True)),
        ("0" * 64, ["rounds", "sums"], (False, False, False)),
    ):
        made = await make_token(server, *scopes, federation=federation)
        await sign_in(visitor, made["secret"])
        pages = [(await visitor.get(address)).text for address in (running, result)]
        assert tuple(any(offer in page for page in pages) for offer in offers) == offered, (
            federation,
            scopes,
        )
    form = {"form": await form_token(visitor), "reason": "r", "minutes": "1"}  # for another federation
    answers = [await visitor.post(f"{running}/{act}", data=form) for act in ("cancel", "extend")]
    answers.append(await visitor.get(f"/rounds/{gallery.done}/sums"))
    assert [each.status_code for each in answers] == [403] * 3
    assert (await server.view(gallery.running))["state"] == "collecting"


async def test_a_judgement_is_shown_to_sessions_that_may_read_its_documents(
    server: Server, visitor: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    party, shown = Party(FOUR), list[str]()  # its head is for members
    await party.begin(server)
    round_id = await party.done(server)

    async def note_reading(_here: Any, found: Round) -> None:
        shown.append(found.id)

    made_page = HTMLResponse("the round's record is of a sum")
    monkeypatch.setattr(RoundSpec, "judges", property(lambda _: True))
    monkeypatch.setattr("service.pages.routes.read_judgement", note_reading)
    monkeypatch.setattr("service.pages.routes.render_page", lambda *_, **__: made_page)
    for federation, scope, may in (
        (party.federation, "sums", True),
        (party.federation, "rounds", False),
        ("0" * 64, "sums", False),
        (None, "sums", True),
    ):
        shown.clear()
        made = await make_token(server, scope, federation=federation)
        await sign_in(visitor, made["secret"])
        assert (await visitor.get(f"/rounds/{round_id}/result")).status_code == 200
        assert bool(shown) is may, (federation, scope)


async def test_how_far_an_upload_is_only_operators_see(
    server: Server, visitor: httpx.AsyncClient, party: Party, gallery: Gallery
) -> None:
    chunk = party.chunks["m-3"][0]
    where = f"/v1/rounds/{gallery.running}/uploads/m-3/chunks/0"
    sent = await server.client.put(where, content=chunk)
    assert sent.status_code == 200, sent.text

    async def shown() -> str:
        page = (await visitor.get(f"/rounds/{gallery.running}")).text
        return str(re.findall(r'max="2" value="(\d)"', page[page.index(">m-3") :])[0])

    assert await shown() == "0"
    await sign_in(visitor)
    assert await shown() == "1"


async def test_the_audit_log_is_for_operators_and_shows_what_was_done_here(
    server: Server, visitor: httpx.AsyncClient, formed: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = await visitor.get("/audit")
    assert (refused.status_code, "/sign-in?then=/audit" in refused.text) == (401, True)
    await sign_in(visitor)
    round_id = await formed.open_round(server)
    await visitor.post(f"/rounds/{round_id}/cancel", data={"form": await form_token(visitor), "reason": "r"})
    page = (await visitor.get("/audit")).text
    assert "POST /rounds/{round_id}/cancel" in page
    assert f"round_id={round_id}" in page
    assert f'data-copy="{formed.federation}"' in page
    head = (await server.client.get("/v1/audit")).json()["head"]
    assert f'data-copy="{head["head"]}"' in page
    monkeypatch.setattr("service.pages.acting.PAGE_ENTRIES", 2)
    second = (await visitor.get("/audit?page=2")).text
    assert f"Page 2 of {-(-head['number'] // 2)}" in second
    shown = re.findall(r'<th scope="row" class="figures">(\d+)</th>', second)
    assert shown == [str(head["number"] - newer) for newer in (2, 3)]
    assert (await visitor.get("/audit?page=999")).status_code == 200


async def test_the_audit_log_is_filtered(server: Server, visitor: httpx.AsyncClient, formed: Party) -> None:
    assert (await server.client.post("/v1/tokens", json={})).status_code == 400
    await sign_in(visitor)
    round_id = await formed.open_round(server)
    entries = (await server.client.get("/v1/audit")).json()["entries"]
    of_round = [each for each in entries if round_id in each["on"]]
    assert 0 < len(of_round) < len(entries)
    page = (await visitor.get(f"/audit?text={round_id}")).text
    assert page.count('data-label="Outcome"') == len(of_round)
    failed = [each for each in entries if each["outcome"] != "done"]
    assert failed
    assert (await visitor.get("/audit?outcome=refused")).text.count('data-label="Outcome"') == len(failed)
    assert "No entry matches" in (await visitor.get("/audit?text=%25")).text  # no wildcard
    assert (await visitor.get("/audit?text=%00")).status_code == 400


async def test_the_sum_itself_is_for_operators(
    server: Server, visitor: httpx.AsyncClient, gallery: Gallery
) -> None:
    round_id = gallery.done
    refused = await visitor.get(f"/rounds/{round_id}/sums")
    assert refused.status_code == 401
    assert f"/sign-in?then=/rounds/{round_id}/sums" in refused.text
    await sign_in(visitor)
    got = await visitor.get(f"/rounds/{round_id}/sums")
    assert got.content == (await server.client.get(f"/v1/rounds/{round_id}/result/sums")).content
    entries = (await server.client.get("/v1/audit")).json()["entries"]
    assert [each["action"] for each in entries if "sums" in each["action"]] == [
        "GET /rounds/{round_id}/sums",
        "GET /v1/rounds/{round_id}/result/sums",
    ]


async def test_each_sign_in_is_in_the_log_and_strangers_write_nothing_there(
    server: Server, visitor: httpx.AsyncClient
) -> None:
    await sign_in(visitor, "not-the-token")
    await sign_in(visitor)
    entries = (await server.client.get("/v1/audit")).json()["entries"]
    assert [(each["action"], each["who"]) for each in entries] == [("POST /sign-in", "operator configured")]


async def test_what_is_no_form_is_refused(visitor: httpx.AsyncClient) -> None:
    odd = b"\xff=%ff&" + b"a&" * 40
    for kind, body in (("application/json", b"{}"), ("application/x-www-form-urlencoded", odd)):
        answer = await visitor.post("/sign-in", content=body, headers={"content-type": kind})
        assert answer.status_code == 400, kind
    long = await visitor.post("/sign-in", data={"token": "x" * 10_000})
    assert long.status_code == 413


def test_a_link_leads_back_inside() -> None:
    assert path_inside("/rounds/1?a=b") == "/rounds/1?a=b"
    assert path_inside("/a\r\nset-cookie: x") == "/a%0D%0Aset-cookie%3A%20x"
    elsewhere = ("//evil.example", "/\\evil.example", "https://evil.example/", "javascript:alert(1)")
    for address in (*elsewhere, "http://[", "rounds"):
        assert path_inside(address) == "/", address
