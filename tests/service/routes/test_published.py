"""Public documents are built once for each version, and sent once to a client that says which version it has."""

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event

from service.coordination import cache
from service.coordination.cache import ObjectCache
from service.coordination.cohorts import Cohort
from service.coordination.federations import Federations
from tests.service.conftest import Past
from tests.support.party import Party
from tests.support.serving import Server, running, two
from veilsum.protocol import rest


async def paths(server: Server, party: Party, round_id: str) -> list[str]:
    """The path of every published document."""
    names = {
        "federation": party.federation,
        "study": party.study.hash.hex(),
        "cohort": party.cohort,
        "round_id": round_id,
        "context": (await server.view(round_id))["context"],
    }
    templates = (
        rest.FEDERATION_PATH, rest.ROSTER_PATH, rest.CHAIN_PATH, rest.STUDY_PATH, rest.STUDIES_PATH, rest.RUNS_PATH, rest.COHORT_PATH,
        rest.INVITATION_PATH, rest.MANIFEST_PATH, rest.ROUND_PATH, rest.OPENING_PATH, rest.CLOSING_PATH, rest.RESULT_PATH,
    )  # fmt: skip
    return [template.format(**names) for template in templates]


async def test_a_client_that_has_the_version_is_not_sent_it_again(
    server: Server, formed: Party, finished: str
) -> None:
    async with server.anonymous() as nobody:
        for path in await paths(server, formed, finished):
            first = await nobody.get(path)
            assert (first.status_code, first.headers["cache-control"]) == (200, "no-cache"), path
            tag = first.headers["etag"]
            for known in (tag, f"W/{tag}", f'"another", {tag}'):
                again = await nobody.get(path, headers={"if-none-match": known})
                assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag), path
            other = await nobody.get(path, headers={"if-none-match": '"another"'})
            assert (other.status_code, other.content) == (200, first.content)


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count how often each kind of document was built."""
    counts = Counter[str]()

    def count(kind: type, name: str) -> None:
        true = getattr(kind, name)

        def counted(*arguments: Any) -> Any:
            counts[kind.__name__] += 1
            return true(*arguments)

        monkeypatch.setattr(kind, name, counted)

    count(Federations, "federation_view")
    count(Cohort, "current_view")
    return counts


async def test_a_document_is_built_once_for_each_version(
    server: Server, party: Party, built: Counter[str]
) -> None:
    await party.found(server)
    cohort = f"/v1/cohorts/{await party.open_cohort(server)}"
    async with server.anonymous() as nobody:

        async def shown(path: str) -> dict[str, Any]:
            """Return what each of ten simultaneous callers gets."""
            answers = await asyncio.gather(*(nobody.get(path) for _ in range(10)))
            assert len({answer.content for answer in answers}) == 1
            view: dict[str, Any] = answers[0].json()
            return view

        built.clear()
        assert (await shown(party.where))["cohorts"] == [party.cohort]
        assert (await shown(cohort))["cards"] == []
        assert built == {"Federations": 1, "Cohort": 1}
        built.clear()
        await party.enrol(server, party.ids[:1])  # a card is answered with the document
        assert (await shown(cohort))["cards"] == [party.ids[0]]
        assert (await shown(party.where))["cohorts"] == [party.cohort]
        assert built == {"Cohort": 1}
        await party.enrol(server)
        round_id = await party.open_round(server)
        built.clear()
        assert (await shown(cohort))["rounds"] == (await shown(party.where))["rounds"] == [round_id]
        await party.play(server, round_id)
        assert (await shown(cohort))["step"] is None
        assert built == {"Federations": 1, "Cohort": 2}


async def test_a_new_roster_is_in_every_document_that_shows_it(server: Server, formed: Party) -> None:
    coordinator = server.coordinator.key.public
    async with server.anonymous() as nobody:
        documents = [formed.where + path for path in ("", "/roster", "/studies")]
        documents.append(f"/v1/cohorts/{formed.cohort}/invitation")
        before = [(await nobody.get(path)).content for path in documents]
        revoked = (formed.study.hash,)
        await formed.publish_roster(server, formed.make_roster(coordinator, 2, revoked=revoked))
        after = [(await nobody.get(path)).content for path in documents]
    assert all(old != new for old, new in zip(before, after, strict=True))


@pytest.mark.usefixtures("on_servers")
async def test_replicas_show_what_the_others_stored(tmp_path: Path, party: Party) -> None:
    async with two(tmp_path / "data") as (one, other, _), other.anonymous() as nobody:
        await party.begin(one)
        paths = (party.where, f"/v1/cohorts/{party.cohort}")
        assert [(await nobody.get(path)).json()["rounds"] for path in paths] == [[], []]
        round_id = await party.open_round(one)
        assert [(await nobody.get(path)).json()["rounds"] for path in paths] == [[round_id]] * 2


class Held:
    at_rest, size = True, 1

    def __init__(self, name: str, federation: str) -> None:
        self.id, self.federation = name, federation


def test_a_federation_s_cohorts_are_found_by_its_name() -> None:
    objects = ObjectCache[Held]()
    held = [Held(f"cohort-{index}", f"federation-{index % 3}") for index in range(9)]
    for each in (*held, *held):
        objects.put_object(each)
    assert {each.id for each in objects.of_federation("federation-1")} == {"cohort-1", "cohort-4", "cohort-7"}
    assert objects.of_federation("federation-9") == []


def test_a_look_at_all_that_is_cached_drops_none_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "RECENT_MEMBERS_MAX", 250)
    objects = ObjectCache[Held]()
    in_use = Held("in use", "federation")
    for each in (in_use, Held("recent", "federation"), Held("newest", "federation")):
        objects.put_object(each)
    del each
    assert list(objects.snapshot()) == ["in use", "recent", "newest"]
    assert "recent" in objects
    assert objects.get("in use") is in_use
    assert "recent" not in objects, "there is room for two"


async def test_what_was_just_stored_is_not_read_back(stopped: Callable[[str], Past]) -> None:
    """A single process has what it stored in memory."""
    statements = list[str]()

    def after(change: str) -> list[str]:
        [at] = [index for index, each in enumerate(statements) if each.startswith(change)]
        return [each for each in statements[at:] if each.startswith("SELECT rounds.number, rounds.id")]

    def note(*given: Any) -> None:
        statements.append(" ".join(given[2].split()))

    past = stopped("formed")
    party = past.party
    async with running(past.folder) as server:
        event.listen(Engine, "before_cursor_execute", note)
        round_id = await party.open_round(server)
        assert after("INSERT INTO rounds") == []
        await party.play(server, round_id)
        await server.tidy(round_id)
        assert after("UPDATE rounds SET final") == []
        event.remove(Engine, "before_cursor_execute", note)
        await party.check_result(server, round_id)
