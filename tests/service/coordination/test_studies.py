"""Studies: published once, never rolled back, and refused if members would refuse them; and their runs."""

import asyncio

import pytest
from sqlalchemy import Connection, insert, update

from service.coordination import runs as runs_module
from service.storage.tables import cohorts, links, studies
from tests.support.calls import record_calls
from tests.support.party import Party
from tests.support.refusals import refusal
from tests.support.serving import Server, carry_out
from tests.support.simulator import After
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.messages import NO_CONTEXT, Link, Study
from veilsum.protocol.rest import RunsView


async def refused(server: Server, party: Party, study: Study) -> tuple[int, str]:
    answer = await party.try_study(server, study)
    return answer.status_code, answer.json().get("cause", "")


async def runs(server: Server, party: Party, **wait: float) -> RunsView:
    answer = await server.client.get(f"{party.where}/runs", params=wait)
    assert answer.status_code == 200, answer.text
    return RunsView.model_validate(answer.json())


async def test_a_study_is_published_and_read_back(server: Server, party: Party) -> None:
    await party.found(server)
    again = await party.try_study(server, party.study)
    assert again.status_code == 200
    got = await server.client.get(f"{party.where}/studies/{party.study.hash.hex()}")
    assert got.content == party.study.to_bytes()
    [view] = (await server.client.get(f"{party.where}/studies")).json()
    assert view == again.json()
    assert (view["study"], view["name"], view["version"]) == (party.study.hash.hex(), "study", 1)
    assert view["question"] == party.content.question.digest.hex()
    assert (view["approval"], view["revoked"]) == (party.content.approval.hex(), False)
    answer = await server.client.put(
        f"{party.where}/studies/{'0' * 64}",
        content=party.study.to_bytes(),
        headers={"content-type": "application/octet-stream"},
    )
    assert refusal(answer) == (400, "malformed-request")


async def test_a_study_that_members_would_refuse_is_not_published(server: Server, party: Party) -> None:
    now_s = server.clock()
    early = await refused(server, party, party.make_study(now_s))
    assert early in {(404, "not-found"), (401, "unauthorised")}
    await party.found(server)
    content = party.content.to_bytes()
    stranger = SigningKey(b"x" * 32)
    day = 86_400
    for study, cause in (
        (Study.make_signed(stranger, federation=stranger.public, content=content), "wrong-federation"),
        (Study.make_signed(stranger, federation=party.admin.public, content=content), "bad-signature"),
        (
            Study.make_signed(party.admin, federation=party.admin.public, content=content[:-1]),
            "study-refused",
        ),
        (party.make_study(now_s, name="old", expires=int(now_s) - 1), "study-refused"),
        (party.make_study(now_s, name="late", expires=int(now_s) + 91 * day), "study-refused"),
    ):
        assert (await refused(server, party, study))[1] == cause
    assert len((await server.client.get(f"{party.where}/studies")).json()) == 1


async def test_a_name_is_never_rolled_back(server: Server, party: Party) -> None:
    await party.found(server)
    first, now_s = party.study, server.clock()
    await party.publish_study(server, version=3)
    for version, purpose in ((2, ""), (3, "another")):
        study = party.make_study(now_s, version=version, purpose=purpose)
        assert await refused(server, party, study) == (422, "study-refused")
    assert (await party.try_study(server, first)).status_code == 200  # it is published already
    old = await party.try_cohort(server, study=first.hash.hex())
    assert refusal(old) == (422, "study-refused")
    assert party.study.hash.hex() in old.json()["detail"]
    assert (await party.try_cohort(server)).status_code == 201


async def test_a_revoked_study_opens_neither_cohorts_nor_rounds(server: Server, formed: Party) -> None:
    newer = formed.make_roster(formed.roster.coordinator, 2, revoked=(formed.study.hash,))
    await formed.publish_roster(server, newer)
    for answer in (await formed.try_cohort(server), await formed.try_round(server)):
        assert refusal(answer) == (422, "study-refused")
    assert (await server.client.get(f"{formed.where}/studies")).json()[0]["revoked"] is True
    assert await refused(server, formed, formed.study) == (422, "study-refused")


async def test_another_study_key_ends_the_studies_of_the_one_before(server: Server, party: Party) -> None:
    """Members refuse the old signature, so the study is neither offered to them nor kept under a new signature."""
    await party.found(server)
    lead = SigningKey(b"L" * 32)
    await party.publish_roster(server, party.make_roster(party.roster.coordinator, 2, study_key=lead.public))
    [view] = (await server.client.get(f"{party.where}/studies")).json()
    assert view["revoked"] is True
    again = Study.make_signed(lead, federation=party.admin.public, content=party.study.content)
    assert again.hash == party.study.hash
    assert await refused(server, party, again) == (422, "study-refused")
    cohort = await party.try_cohort(server)
    assert refusal(cohort) == (422, "study-refused")
    assert "study key" in cohort.json()["detail"]
    content = party.make_study(server.clock(), version=2).content
    later = Study.make_signed(lead, federation=party.admin.public, content=content)
    answer = await party.try_study(server, later)
    assert (answer.status_code, answer.json()["revoked"]) == (201, False)


async def test_runs_are_seen_as_they_begin_go_on_and_end(server: Server, party: Party) -> None:
    await party.found(server)
    seen = await runs(server, party)
    assert seen.runs == ()
    waiting = asyncio.create_task(runs(server, party, after=seen.revision, wait_s=20))
    await asyncio.sleep(0.1)
    await party.open_cohort(server)
    seen = await waiting
    [run] = seen.runs
    assert (run.cohort, run.study, run.name, run.version) == (
        party.cohort,
        party.study.hash.hex(),
        "study",
        1,
    )
    assert (run.period, run.counter, run.repeats, run.state, run.over) == (
        "period-0",
        0,
        None,
        "enrolling",
        False,
    )
    for state in ("pairing", "formed"):
        waiting = asyncio.create_task(runs(server, party, after=seen.revision, wait_s=20))
        await (party.enrol(server, party.ids) if state == "pairing" else party.take_manifest(server))
        after, seen = seen.revision, await waiting
        assert seen.revision == after + 1
        assert [(run.state, run.round, run.over) for run in seen.runs] == [(state, None, False)]
    waiting = asyncio.create_task(runs(server, party, after=seen.revision, wait_s=20))
    round_id = await party.open_round(server)
    seen = await waiting
    assert [(run.round, run.over) for run in seen.runs] == [(round_id, False)]
    waiting = asyncio.create_task(runs(server, party, after=seen.revision, wait_s=20))
    assert (await party.play(server, round_id))["state"] == "done"
    seen = await waiting
    assert [(run.state, run.over) for run in seen.runs] == [("formed", True)]
    server.clock.ahead_s += 81 * 86_400
    assert (await runs(server, party)).runs == ()


async def test_each_run_is_read_from_the_attempts_of_its_own_period(
    server: Server, party: Party, monkeypatch: pytest.MonkeyPatch
) -> None:
    await party.found(server)
    values = {"federation": party.federation, "roster_number": 1, "study": party.study.hash.hex()}
    forming = {"deadline_s": 0.0, "manifest": b"-", "changes": 1}
    formed, chain, question = [], [], party.content.question.digest
    for place in range(60):
        name, period = place.to_bytes(32), f"period-{place}"
        formed.append({**values, **forming, "id": name.hex(), "period": period, "counter": place})
        link = Link(name, 0, 0, question, period, "sum", NO_CONTEXT, name, "none", b"s" * 32)
        chain.append({"federation": party.federation, "position": place, "body": link.encode()})

    def store(connection: Connection) -> None:
        connection.execute(insert(cohorts), formed)
        connection.execute(insert(links), chain)

    await server.coordinator.database.write(store)
    looked_through = record_calls(
        monkeypatch, runs_module, "next_step", lambda _question, _period, links, *_, **__: len(links)
    )
    assert [run.over for run in (await runs(server, party)).runs] == [True] * 60
    assert looked_through == [1] * 60


@pytest.mark.usefixtures("six")
async def test_a_certified_attempt_without_a_sum_is_repeated_over_exactly_its_survivors(
    server: Server, formed: Party
) -> None:
    formed.spoil["m-2"] = lambda vector: -5 * vector
    formed.drop = {"m-5": After.OPENING}
    failed = await formed.open_round(server)
    view = await formed.play(server, failed)
    assert (view["state"], view["fault"]["cause"]) == ("failed", "sum-check-failed")
    assert refusal(await formed.try_round(server)) == (409, "already-summed")
    answer = await formed.try_cohort(server, period="another", repeats=view["context"])
    assert refusal(answer) == (422, "repeat-mismatch")
    nothing = await formed.try_cohort(server, repeats="0" * 63 + "1")
    assert nothing.json()["cause"] == "repeat-mismatch"
    formed.spoil, formed.drop = {}, {}
    await formed.open_cohort(server, repeats=view["context"])
    cohort = await server.cohort(formed.cohort)
    assert (cohort["members"], cohort["step"]) == (list(formed.ids[:5]), "sum")
    await formed.enrol(server, formed.ids[:5])
    await formed.take_manifest(server)
    again = await formed.open_round(server)
    view = await formed.play(server, again)
    assert (view["state"], view["survivors"]) == ("done", list(formed.ids[:5]))
    await formed.check_result(server, again)
    assert (await server.cohort(formed.cohort))["step"] is None


async def test_a_damaged_study_that_is_published_again_is_listed_again_with_its_runs(
    server: Server, formed: Party
) -> None:
    where, database = f"{formed.where}/studies", server.coordinator.database
    body = formed.study.to_bytes()
    await carry_out(database, update(studies).values(body=body[:-1]))
    assert (await server.client.get(where)).json() == []
    assert (await runs(server, formed)).runs == ()
    assert (await formed.try_study(server, formed.study)).status_code == 201
    assert [each["study"] for each in (await server.client.get(where)).json()] == [formed.study.hash.hex()]
    assert [each.cohort for each in (await runs(server, formed)).runs] == [formed.cohort]
