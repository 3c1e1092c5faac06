"""Every page without scripts: it renders, has the right content and valid links, and reveals no more than REST."""

import re
import shlex
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.routing import APIRoute
from typer.core import TyperGroup

from service.app import ROUTERS
from service.coordination.rounds import EndedRound
from service.pages import reading, rendering
from service.pages.judging import FigureRow, JudgementPage, place_x, place_y
from service.pages.routes import MEMBER_SILENT_S
from service.pages.wording import COUNTED_WORDS, STATE_WORDS
from tests.service.pages.gallery import Gallery, rows, words
from tests.support.cli import COMMAND
from tests.support.clients import KEYS
from tests.support.party import COUNTS, SIX, WITHHOLDING, Party
from tests.support.serving import TOKEN, Server, running
from veilsum.protocol.causes import Cause
from veilsum.protocol.identity import fingerprint
from veilsum.protocol.record import CombinedRecord, record_digest, sign_record, verify_record
from veilsum.protocol.rest import RoundView


class Reader(HTMLParser):
    """A page's links, text, and parts that the policy would forbid."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links, self.inline, self.headings, self.ids = set[str](), list[str](), list[int](), list[str]()
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        named = dict(attributes)
        if tag in {"a", "link"} and (address := named.get("href")):
            self.links.add(address)
        if (tag == "script" and "src" not in named) or tag == "style":
            self.inline.append(tag)
        self.inline.extend(name for name in named if name == "style" or name.startswith("on"))
        if re.fullmatch(r"h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if named.get("id"):
            self.ids.append(str(named["id"]))


async def test_every_page_renders_and_every_link_leads_somewhere(
    visitor: httpx.AsyncClient, gallery: Gallery
) -> None:
    seen, due = set[str](), set(gallery.pages().values()) - {gallery.pages()["not-found"]}
    while due:
        address = due.pop()
        seen.add(address)
        answer = await visitor.get(address)
        assert answer.status_code == (401 if address == "/audit" else 200), address
        if not answer.headers["content-type"].startswith("text/html"):
            continue
        page = Reader(answer.text)
        assert page.inline == [], address
        assert page.headings[0] == 1, address
        assert page.headings.count(1) == 1, address
        assert all(
            after <= before + 1 for before, after in zip(page.headings, page.headings[1:], strict=False)
        ), address
        assert len(page.ids) == len(set(page.ids)), address
        due |= {link for link in page.links if link.startswith("/")} - seen
    assert {f"/problems/{cause.value}" for cause in Cause} <= seen
    assert f"/v1/rounds/{gallery.done}/result/weights" in seen


async def test_every_command_that_a_page_shows_can_be_run(
    visitor: httpx.AsyncClient, gallery: Gallery
) -> None:
    shown = set[str]()
    for address in gallery.pages().values():
        copied = re.findall(r'data-copy="(veilsum [^"]+)"', (await visitor.get(address)).text)
        shown.update(line for each in copied for line in unescape(each).splitlines())
    assert any("round combined" in line for line in shown)
    for line in shown:
        _, *left = shlex.split(line)
        parse_command(COMMAND, left)


def parse_command(command: Any, left: list[str]) -> None:
    """Parse the words of a command. Raises UsageError for one that there is not, and for such an option."""
    with command.make_context("veilsum", left) as context:
        if isinstance(command, TyperGroup):
            parse_command(*command.resolve_command(context, [*context._protected_args, *context.args])[1:])


async def test_each_page_is_under_the_strict_policy(visitor: httpx.AsyncClient, gallery: Gallery) -> None:
    for address in gallery.pages().values():
        headers = (await visitor.get(address)).headers
        assert {**headers} | rendering.PAGE_HEADERS == {**headers}
    policy = rendering.PAGE_HEADERS["content-security-policy"]
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    script = await visitor.get(rendering.asset_address("live.js"))
    assert script.status_code == 200
    assert "javascript" in script.headers["content-type"]


async def test_no_page_holds_a_secret(
    server: Server, visitor: httpx.AsyncClient, gallery: Gallery, party: Party
) -> None:
    secrets = [TOKEN, server.coordinator.key.seed.hex(), *(key.seed.hex() for key in party.keys.values())]
    secrets += [chunk[:16].hex() for chunks in party.chunks.values() for chunk in chunks]
    for address in gallery.pages().values():
        text = (await visitor.get(address)).text
        assert [secret for secret in secrets if secret in text] == [], address


async def test_a_running_round_says_whom_it_waits_for_and_how_many_may_drop(
    server: Server, visitor: httpx.AsyncClient, gallery: Gallery
) -> None:
    for _ in range(3):
        await server.client.get(f"/v1/rounds/{gallery.running}/uploads/m-4")
    page = (await visitor.get(f"/rounds/{gallery.running}")).text
    text, shown = words(page), rows(page)
    assert all(each in text for each in ("3 of 6, 4 needed", "2 members", "3 members", "Roster 2"))
    assert [shown[member] for member in ("m-3", "m-0")] == [
        [done, *["later"] * 3, "–"] for done in ("0/2", "2/2")
    ]
    assert shown["chunk-unknown"] == ["3"]  # what members were refused


async def test_a_result_names_what_it_is_and_how_to_check_it(
    server: Server, visitor: httpx.AsyncClient, gallery: Gallery
) -> None:
    record = (await server.client.get(f"/v1/rounds/{gallery.done}/result")).json()
    page = (await visitor.get(f"/rounds/{gallery.done}/result")).text
    text = words(page)
    assert "Without differential privacy" in text
    assert f'data-copy="{record["head"]}"' in page
    assert f"transcript {gallery.done} --output" in text
    assert "verify transcript.json --admin-key" in text
    assert gallery.federation not in page  # the key to check with is the admin's to give
    assert page.count("<tr") == 1 + len(record["solution"]["grid"])
    assert "5 of 6 members" in text
    assert "a = 1" in text


async def test_a_result_names_its_criterion_and_links_only_to_a_head_that_there_is(
    server: Server, visitor: httpx.AsyncClient, gallery: Gallery, monkeypatch: pytest.MonkeyPatch
) -> None:
    round_, where = (
        await server.coordinator.catalogue.find_round(gallery.done),
        f"/rounds/{gallery.done}/result",
    )
    record = round_.documents.require_record()
    assert 'data-criterion="GCV"' in (await visitor.get(where)).text
    given = record.solution.model_copy(update={"chosen_by": "given"})
    assert isinstance(round_, EndedRound)
    changed = record.model_copy(update={"solution": given, "head": None})  # as means have it
    monkeypatch.setattr(round_, "_end", replace(round_.position, record=changed))
    server.coordinator.changes += 1
    page = (await visitor.get(where)).text
    assert 'data-criterion="as asked for"' in page
    assert f"/v1{where}/weights" not in page
    assert "solved" not in page


async def test_results_and_combinations_name_classes_without_records_and_those_withheld(
    server: Server, visitor: httpx.AsyncClient, gallery: Gallery, monkeypatch: pytest.MonkeyPatch
) -> None:
    round_ = await server.coordinator.catalogue.find_round(gallery.done)
    record, where = round_.documents.require_record(), f"combined/{gallery.combination}/record"
    assert isinstance(round_, EndedRound)
    changes = {"solution": record.solution.model_copy(update={"empty_classes": (0, 2)}), "withheld": (2,)}
    monkeypatch.setattr(round_, "_end", replace(round_.position, record=record.model_copy(update=changes)))
    combined = CombinedRecord.model_validate_json(server.coordinator.blobs.get(where)).model_copy(
        update=changes
    )
    server.coordinator.blobs.put(
        where, sign_record(combined, server.coordinator.key).model_dump_json().encode()
    )
    server.coordinator.changes += 1
    for address in (f"/rounds/{gallery.done}/result", f"/combinations/{gallery.combination}"):
        assert "mean nothing: class-0." in words((await visitor.get(address)).text), address
    assert "Withheld class-2" in words((await visitor.get(f"/combinations/{gallery.combination}")).text)


async def test_a_run_that_its_count_ends_says_so_and_a_count_claims_no_head(
    server: Server, visitor: httpx.AsyncClient
) -> None:
    rare = ((0, 1), (0, 2), (0, 3), (0, 4), (0, 1), (0, 2))  # only the first class has holders enough
    party = Party(SIX, classes=5, hold=rare, question={**WITHHOLDING, "members_min": 5})
    await party.begin(server)
    count = await party.count(server)
    why = f"/problems/{Cause.COUNT_MISMATCH.value}"
    for address in (f"/rounds/{count}", f"/cohorts/{party.cohort}"):
        assert why in Reader((await visitor.get(address)).text).links, address
    for address in ("/", f"/rounds/{count}", f"/cohorts/{party.cohort}", f"/federations/{party.federation}"):
        page = (await visitor.get(address)).text
        shown = re.findall(r'<span class="state .*?</svg>(.*?)</span>', page, re.DOTALL)
        assert shown == [COUNTED_WORDS.title], address
        assert STATE_WORDS["done"].meaning not in page


async def test_class_holders_stand_beside_the_number_needed(
    server: Server, visitor: httpx.AsyncClient, counted: tuple[Party, str]
) -> None:
    party, count = counted
    page = (await visitor.get(f"/rounds/{count}")).text
    rows = re.findall(r'class-(\d)(.*?)</th><td class="number">(\d)</td><td class="number">(\d)</td>', page)
    floor = party.content.question.class_floor
    assert [(int(held), int(needed), "withheld" in mark) for _, mark, held, needed in rows] == [
        (held, floor, held < floor) for held in COUNTS
    ]
    assert f"/problems/{Cause.COUNT_MISMATCH.value}" not in Reader(page).links
    rows_round = await party.count(server, "rows")
    text = words((await visitor.get(f"/rounds/{rows_round}")).text)
    assert f"a sum needs {party.content.question.rows_needed:,}" in text


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        *((102_900.0, "102,900"), (1029.4, "1,029"), (0.0001234567, "0.0001235"), (0.0, "0"), (3.0, "3")),
        *((1.5e-7, "1.5 × 10⁻⁷"), (999_999.9, "1 × 10⁶"), (-2.34567e12, "-2.35 × 10¹²")),
        *((None, "–"), (float("inf"), "–")),
    ],
)
def test_a_figure_is_written_as_people_write_it_and_never_breaks(number: float | None, shown: str) -> None:
    assert rendering.format_figure(number) == shown.replace(" ", "\N{NARROW NO-BREAK SPACE}")


def test_a_judgement_s_page_writes_a_class_as_the_study_does() -> None:
    figures = tuple(FigureRow(name, "1", "0 to 2", 0) for name in ("accuracy", "recall of ICD C50.1"))
    judgement = JudgementPage(1, 1, figures, (), (), (), (), ())
    page = (
        rendering.template_environment()
        .get_template("judged.html")
        .render(judgement=judgement, positive=None, place_x=place_x, place_y=place_y)
    )
    assert re.findall(r'<th scope="row">(.*?)</th>', page) == ["Accuracy", "Recall of ICD C50.1"]


async def test_a_federation_shows_members_and_runs(
    visitor: httpx.AsyncClient, gallery: Gallery, party: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (await visitor.get(f"/federations/{gallery.federation}")).text
    text = words(page)
    assert fingerprint(party.admin.public) in text
    assert f'data-copy="{party.keys["m-0"].public.hex()}"' in page
    runs_shown = rows(page)
    assert runs_shown["ct-2026, period 2026-10"][1:] == ["6 of 6", "2 members, 2 decryptors", "1"]
    assert runs_shown["ct-2026, period 2027-01"][1:] == ["3 of 6", "–", "0"]
    assert (runs := page.count('data-label="Enrolled"')) > 1
    assert f'data-label="Runs" class="number">{runs}</td>' in page
    # Of years of runs each would be read for every visitor.
    monkeypatch.setattr("service.pages.routes.PAGE_RUNS", 1)
    page = (await visitor.get(f"/federations/{gallery.federation}?page=1")).text
    assert page.count('data-label="Enrolled"') == 1
    assert f"1 of {runs}" in page
    assert f'data-label="Runs" class="number">{runs}</td>' in page


async def test_a_cohort_that_pairs_says_who_has_paired_and_who_is_too_late(
    server: Server, visitor: httpx.AsyncClient, gallery: Gallery
) -> None:
    where = f"/cohorts/{gallery.pairing}"
    page, run = (await visitor.get(where)).text, "ct-2026, period 2027-02"
    assert all(each in words(page) for each in ("6 of 6", "3 of 5", "m-3 m-4"))
    assert list(rows(page)) == ["Member", *(f"m-{index} decryptor" for index in (3, 4, 0, 1, 2)), "m-5"]
    paired = [rows(page)[member] for member in ("m-3 decryptor", "m-0 decryptor", "m-5")]
    assert paired == [["yes", "not yet"], ["yes", "yes"], ["yes", "too late"]]
    assert rows((await visitor.get("/")).text)[run][:3] == ["6 of 6", "3 of 5", "m-3 m-4"]
    federation = rows((await visitor.get(f"/federations/{gallery.federation}")).text)
    assert federation[run][:2] == ["paired 3 of 5", "6 of 6"]
    found = await server.coordinator.catalogue.find_cohort(gallery.pairing)
    await found.leave_out_missing(found.deadline_s)  # three are too few
    server.coordinator.changes += 1
    page = (await visitor.get(where)).text
    assert "cohort-too-small" in page
    assert [rows(page)[f"m-{index} decryptor"] for index in (0, 3)] == [["yes", "yes"], ["yes", "no"]]
    assert rows((await visitor.get(f"/cohorts/{gallery.enrolling}")).text)["m-2"] == ["yes", "–"]
    formed = rows((await visitor.get(f"/cohorts/{gallery.formed}")).text)
    assert formed["m-5 decryptor"] == ["yes", "yes"]


async def test_operators_see_when_each_member_was_last_heard_from(
    server: Server, visitor: httpx.AsyncClient, gallery: Gallery
) -> None:
    addresses = (
        f"/federations/{gallery.federation}",
        f"/cohorts/{gallery.formed}",
        f"/rounds/{gallery.running}",
    )
    limited: dict[str, Any] = {"federation": "0" * 64, "scopes": ["rounds"]}
    tokens = [limited, {"scopes": ["audit", "sums", "federations"]}]
    made = [(await server.client.post("/v1/tokens", json={"name": "x", **each})).json() for each in tokens]
    for secret in ("", *(each["secret"] for each in made), TOKEN):
        await visitor.post("/sign-in", data={"token": secret})
        for address in addresses:
            seen = re.search("lately|silent", (await visitor.get(address)).text)
            assert (seen is not None) == (secret == TOKEN), address
    server.clock.ahead_s += 2 * MEMBER_SILENT_S
    async with server.signing("m-3", KEYS["m-3"]) as member:
        assert (await member.get(f"/v1/cohorts/{gallery.formed}")).status_code == 200
    for address in addresses:
        page = (await visitor.get(address)).text
        assert re.search(r"m-3\b.*just now", words(page)), address
        assert re.search(r"m-4\b.*2\d min", words(page)), address
        assert ("lately" in page, "silent" in page) == (True, True), address


async def test_commands_name_the_address_that_members_use(tmp_path: Path) -> None:
    async with running(tmp_path / "data", public_url="https://sum.example.org/") as server:
        page = (await server.anonymous().get("/")).text
    assert "--url https://sum.example.org --member" in page


async def test_rounds_are_filtered_and_paged(
    visitor: httpx.AsyncClient, gallery: Gallery, monkeypatch: Any
) -> None:
    async def rounds(**choice: str) -> list[str]:
        return re.findall(
            r"<th scope=\"row\"><a href=\"/rounds/(\w+)", (await visitor.get("/", params=choice)).text
        )

    assert await rounds() == [gallery.running, gallery.voided, gallery.later, gallery.done]
    assert await rounds(state="live") == [gallery.running] == await rounds(state="collecting")
    assert await rounds(state="done", federation=gallery.federation) == [gallery.later, gallery.done]
    assert await rounds(federation="0" * 64) == []
    assert "No round matches" in (await visitor.get("/?state=lost")).text
    monkeypatch.setattr("service.pages.routes.PAGE_ROUNDS", 2)
    assert await rounds(page="2") == [gallery.later, gallery.done]
    assert "1 of 2" in words((await visitor.get("/?page=1")).text)


async def test_a_refusal_is_a_page_for_browsers_and_a_problem_for_others(
    visitor: httpx.AsyncClient, server: Server
) -> None:
    for address, status in (
        (f"/rounds/{'0' * 16}", 404),
        ("/rounds/x", 400),
        ("/nowhere", 404),
        ("/problems/x", 404),
    ):
        answer = await visitor.get(address)
        assert answer.status_code == status
        assert answer.headers["content-type"].startswith("text/html")
        assert "The cause is" in answer.text
        plain = await server.client.get(address)
        assert plain.json()["type"].startswith("/problems/")
    rest = await visitor.get(f"/v1/rounds/{'0' * 16}")
    assert rest.headers["content-type"] == "application/problem+json"


async def test_who_refused_is_told_by_the_transcript_alone(server: Server, formed: Party) -> None:
    view = RoundView.model_validate(await server.view(await formed.open_round(server)))
    live = view.model_copy(
        update={"state": "freezing", "phase_seconds": {"collecting": 1.0, "checking": 1.0}}
    )
    ended = live.model_copy(update={"state": "voided", "ended": True})
    answers = {"refused": frozenset({"m-0"})}
    marks = [reading._answer_mark(each, answers, "freezing", "m-0") for each in (live, ended)]
    others = reading._answer_mark(live, {"refused": frozenset({"m-1"})}, "freezing", "m-0")
    assert marks == [others, "refused"]


async def test_a_combination_says_what_it_rests_on_and_how_to_check_it(
    server: Server, visitor: httpx.AsyncClient, gallery: Gallery
) -> None:
    where = f"/v1/combinations/{gallery.combination}"
    record = CombinedRecord.model_validate((await server.client.get(where)).json())
    page = (await visitor.get(f"/combinations/{gallery.combination}")).text
    text = words(page)
    assert f"Periods 2 Vectors {record.vectors}" in text
    assert f"Rows {record.rows}" in text
    assert "Without differential privacy" in text
    assert {f"/rounds/{part.round}/result" for part in record.parts} <= Reader(page).links
    assert {where, f"{where}/weights"} <= Reader(page).links
    assert f"combined {gallery.combination} --folder" in text
    for digest in (record_digest(record).hex(), str(record.head), record.sums):
        assert f'data-copy="{digest}"' in page
    verify_record(record, server.coordinator.key.public)
    assert gallery.federation not in page  # the key to check with is the admin's to give
    missing = await visitor.get(f"/combinations/{'0' * 16}")
    assert (missing.status_code, "not-found" in missing.text) == (404, True)


async def test_a_federation_s_page_lists_its_combinations(
    server: Server, visitor: httpx.AsyncClient, gallery: Gallery
) -> None:
    listing = f"/v1/federations/{gallery.federation}/combinations"
    assert (await visitor.get(listing)).json() == [gallery.combination]
    page = await visitor.get(f"/federations/{gallery.federation}")
    assert f"/combinations/{gallery.combination}" in Reader(page.text).links
    # A combination that was interrupted before its record doesn't count, until it is completed.
    record = server.coordinator.blobs.get(f"combined/{gallery.combination}/record")
    server.coordinator.blobs.put(f"combined/{'0' * 16}/f-sums", b"sums")
    assert (await visitor.get(listing)).json() == [gallery.combination]
    other = CombinedRecord.model_validate_json(record).model_copy(update={"combination": "0" * 16})
    signed = sign_record(other, server.coordinator.key).model_dump_json().encode()
    server.coordinator.blobs.put(f"combined/{'0' * 16}/record", signed)
    assert sorted((await visitor.get(listing)).json()) == sorted([gallery.combination, "0" * 16])
    stranger = await visitor.get(f"/v1/federations/{'0' * 64}/combinations")
    assert stranger.status_code == 404


def test_every_query_parameter_has_a_pattern() -> None:
    """Or bounds: an unchecked parameter may contain a NUL, which PostgreSQL refuses with an unexpected error."""
    free = [
        (route.path, parameter.name)
        for router in ROUTERS
        for route in router.routes
        if isinstance(route, APIRoute)
        for parameter in route.dependant.query_params
        if not parameter.field_info.metadata
    ]
    assert free == []


async def test_a_list_of_rounds_takes_no_odd_filter(visitor: httpx.AsyncClient) -> None:
    odd = ("federation=%00", "federation=x", "state=%00", "state=x%0a", "page=%00", "federation=%ff")
    for query in odd:
        assert (await visitor.get(f"/?{query}")).status_code == 400, query
    assert (await visitor.get("/?federation=&state=&page=1")).status_code == 200
    assert (await visitor.get("/sign-in?then=%00")).status_code == 400
