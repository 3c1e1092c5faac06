"""A member is killed between its reservation and its card, and around everything else it sends: one run, one vector, the same result."""

import asyncio
import time
from pathlib import Path

import pytest

from client_sdk import AsyncMember, Identity, Policy
from client_sdk.operator import Operator
from protocol.identity import SigningKey
from protocol.messages import Entry, Roster, Study
from protocol.simulator import simulated_content, simulated_question
from protocol.study import DAY_S
from tests.kill.members import Death, killed, records_of
from tests.service.process import Process
from tests.service.serving import TOKEN

IDS = tuple(f"m-{index}" for index in range(4))
ENROLLING = (Death("card"), Death("card", before=False))
CONTRIBUTING = tuple(
    Death(sent, before) for sent in ("announcement", "chunk", "answer") for before in (True, False)
)


def founded(operator: Operator, folder: Path) -> tuple[bytes, str]:
    """A federation with its study; the admin's key, and the cohort of a first run."""
    admin = SigningKey(bytes(range(32)))
    keys = {member: Identity.create(folder / member, member).public for member in IDS}
    roster = Roster.make(
        admin,
        number=1,
        name="kills",
        federation=admin.public,
        coordinator=bytes.fromhex(operator.coordinator().public_key),
        study_key=admin.public,
        members=tuple(Entry(member, key) for member, key in keys.items()),
        decryptors=(),
        readers=(),
        revoked=(),
    )
    operator.publish_roster(roster)
    question = {
        **simulated_question(len(IDS)),
        "dim": 4,
        "classes": ["a", "b", "c"],
        "records": {"least": 50, "most": 50, "least_per_class": 1, "rows_per_id": 1},
    }
    content = simulated_content(question, int(time.time()) + 80 * DAY_S)
    study = Study.make(admin, federation=admin.public, content=content.to_bytes())
    operator.publish_study(study)
    return admin.public, operator.open_cohort(admin.public.hex(), study.hash.hex(), "period-0").cohort


@pytest.mark.parametrize(
    "deaths", [ENROLLING[:1], pytest.param((*ENROLLING, *CONTRIBUTING), marks=pytest.mark.slow)]
)
async def test_a_killed_member_goes_on_with_what_it_reserved(
    tmp_path: Path, deaths: tuple[Death, ...]
) -> None:
    process = Process(tmp_path / "data")
    await process.start()
    url = f"http://127.0.0.1:{process.port}"
    try:
        with Operator(url, TOKEN) as operator:
            admin, cohort = await asyncio.to_thread(founded, operator, tmp_path)
            for death in deaths:
                if death in ENROLLING:
                    assert await killed(url, tmp_path / "m-0", admin, cohort, "", death), death
            policy = Policy(admin, approved={"simulated"})
            members = [AsyncMember(url, Identity.load(tmp_path / each), policy) for each in IDS]
            [run] = members[0].ledger()
            assert (run.state, run.rows) == ("reserved", 50)
            # Its records are others by now, and the answer is the one that it stored.
            asked = [None, *(records_of(seed) for seed in range(1, len(IDS)))]
            await asyncio.gather(
                *(member.enrol(cohort, own) for member, own in zip(members, asked, strict=True))
            )
            await members[0].close()
            round_id = (await asyncio.to_thread(operator.open_round, cohort)).round
            others = asyncio.gather(*(member.contribute(round_id) for member in members[1:]))
            for death in deaths:
                if death in CONTRIBUTING:
                    assert await killed(url, tmp_path / "m-0", admin, cohort, round_id, death), death
            members[0] = AsyncMember(url, Identity.load(tmp_path / "m-0"), policy)
            result = await members[0].contribute(round_id)
            await others
            assert result.counted
            assert result.summed == IDS
            assert result.record.rows == 50 * len(IDS)
            [run] = members[0].ledger()
            assert (run.state, run.rows) == ("spent", 50)
            for member in members:
                await member.close()
    finally:
        await process.close()
