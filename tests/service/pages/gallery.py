"""A coordinator with content for every page: rounds that are finished, running and VOID, and cohorts that are formed, pairing and enrolling."""

import re
from dataclasses import dataclass
from html import unescape
from typing import Any

import httpx

from tests.support.party import SIX, Party
from tests.support.serving import Server
from tests.support.simulator import After


@dataclass(frozen=True)
class Gallery:
    """The gallery's content, under the names that pages use."""

    federation: str
    done: str
    voided: str
    running: str
    later: str
    combination: str
    formed: str
    enrolling: str
    pairing: str
    """Its second manifest leaves one member out."""

    def pages(self) -> dict[str, str]:
        """The path of every public page, by its picture's name."""
        return {
            "rounds": "/",
            "rounds-none": "/?state=failed",
            "round-done": f"/rounds/{self.done}",
            "round-void": f"/rounds/{self.voided}",
            "round-running": f"/rounds/{self.running}",
            "result": f"/rounds/{self.done}/result",
            "federations": "/federations",
            "federation": f"/federations/{self.federation}",
            "cohort-formed": f"/cohorts/{self.formed}",
            "cohort-enrolling": f"/cohorts/{self.enrolling}",
            "cohort-pairing": f"/cohorts/{self.pairing}",
            "combination": f"/combinations/{self.combination}",
            "health": "/health",
            "problems": "/problems",
            "problem": "/problems/already-summed",
            "sign-in": "/sign-in",
            "not-found": f"/rounds/{'0' * 16}",
        }


def exhibitor(**changes: Any) -> Party:
    """Make six members with realistic names for study and periods."""
    return Party(SIX, name="Northern hospitals", notes={"name": "ct-2026"}, periods="2026-1{}", **changes)


async def hang(server: Server, party: Party) -> Gallery:
    """Play what the pages show."""
    await party.begin(server)
    party.drop = {party.ids[-1]: After.ANNOUNCEMENT}
    done = await party.done(server)
    party.drop = {}
    await party.serve(server, done, party.ids[-1])  # it learns how that ended
    later, combination = await next_period(server, party, done)
    party.drop = dict.fromkeys(party.ids, After.ANNOUNCEMENT)
    voided = await party.open_round(server)
    for member in party.ids:
        await party.serve(server, voided, member)
    await server.cancel(voided, "the hospital's network is down until Monday")
    party.drop = {}
    assert (await party.play(server, voided))["state"] == "voided"
    running = await party.open_round(server)
    for member in party.ids[:3]:
        await party.serve(server, running, member)
    await party.announce(server, running, party.ids[3])
    other, pairing = party.copy(), await begin_pairing(server, party.copy())
    await other.open_cohort(server, period="2027-01")
    await other.enrol(server, party.ids[2:5])
    members = tuple(e for e in party.roster.members if e.member != party.ids[1])
    await party.publish_roster(server, party.make_roster(party.roster.coordinator, 2, members=members))
    return Gallery(
        party.federation, done, voided, running, later, combination, party.cohort, other.cohort, pairing
    )


async def begin_pairing(server: Server, party: Party) -> str:
    """Let five of six members pair in time, and three of these again under the second manifest."""
    cohort = await party.open_cohort(server, period="2027-02")
    await party.enrol(server, party.ids)
    for member in party.ids[:5]:
        await party.pair(server, member)
    found = await server.coordinator.catalogue.find_cohort(cohort)
    await found.leave_out_missing(found.deadline_s)
    for member in party.ids[:3]:
        await party.pair(server, member)
    return cohort


async def next_period(server: Server, party: Party, before: str) -> tuple[str, str]:
    """Play the next period's round, and combine both."""
    second = await party.done(server)
    made = await server.client.post(
        f"/v1/federations/{party.federation}/combinations", json={"rounds": [before, second]}
    )
    assert made.status_code == 201, made.text
    return second, made.json()["combination"]


def browser(server: Server) -> httpx.AsyncClient:
    """Make a client that requests pages as a browser does."""
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(server.app),
        base_url="http://coordinator",
        headers={"accept": "text/html,application/xhtml+xml"},
    )


def words(page: str) -> str:
    """Return a page's text in one line."""
    inner = page.split("<main")[1].split("</main>", maxsplit=1)[0].partition(">")[2]
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", inner)).split())


def rows(page: str) -> dict[str, list[str]]:
    """Return the text of each cell of a page's tables, by the first cell of its row."""
    found = dict[str, list[str]]()
    for row in re.findall(r"<tr.*?</tr>", page, re.DOTALL):
        cells = re.findall(r"<t[hd][ >].*?</t[hd]>", row, re.DOTALL)
        first, *others = (" ".join(unescape(re.sub(r"<[^>]*>", " ", cell)).split()) for cell in cells)
        found[first] = others
    return found
