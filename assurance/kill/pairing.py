"""A party that pairs while coordinators are killed: what it was shown must never change, and what was acknowledged must be known."""

from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.support.party import Party
from tests.support.serving import Server
from veilsum.protocol.member import Enrolled, Paired, Ready
from veilsum.protocol.messages import Cards, Ciphertexts, Manifest, Message, parse_message
from veilsum.protocol.rest import OCTETS_TYPE


@dataclass
class Pairs(Party):
    """Remember what the coordinator showed.

    Attributes:
        cards: by cohort, member and manifest.
        ciphertexts: by cohort and member.
        manifests: by cohort, in the order in which they were shown.
    """

    cards: dict[tuple[str, str, bytes], bytes] = field(default_factory=dict)
    ciphertexts: dict[tuple[str, str], bytes] = field(default_factory=dict)
    manifests: dict[str, list[Manifest]] = field(default_factory=dict)

    async def enrol(self, server: Server, members: tuple[str, ...] | None = None) -> None:
        """Send the missing cards and pair, in one period after another until no member is left out: kills may use up a short window."""
        await super().enrol(server, members or self.ids)
        while members is None:
            view = await self.form(server, self.ids)
            if view["state"] == "formed" and not view["left_out"]:
                return
            self.number += 1
            await self.open_cohort(server, period=self.periods.format(self.number))
            await super().enrol(server, self.ids)

    async def form(self, server: Server, members: tuple[str, ...]) -> dict[str, Any]:
        """Have these members pair until the cohort is formed or has failed, and return its view."""
        while True:
            for member in members:
                await self._step(server, member)
            view = await self._view(server)
            if view["state"] == "failed" or (view["state"] == "formed" and self._all_ready(members, view)):
                return view
            if view["state"] == "pairing" and {*view["paired"]} >= {*members} - {*view["left_out"]}:
                await server.client.get(
                    f"/v1/cohorts/{self.cohort}", params={"after": view["version"], "wait_s": 1.0}
                )

    def _all_ready(self, members: tuple[str, ...], view: dict[str, Any]) -> bool:
        return all(isinstance(self.phases[member], Ready) for member in {*members} - {*view["left_out"]})

    async def _view(self, server: Server) -> dict[str, Any]:
        view: dict[str, Any] = await server.cohort(self.cohort)
        return view

    async def _step(self, server: Server, member: str) -> None:
        """Take a member one step further."""
        where, phase = f"/v1/cohorts/{self.cohort}/pairings/{member}", self.phases[member]
        if isinstance(phase, Enrolled):
            answer = await server.client.get(f"/v1/cohorts/{self.cohort}/manifest/{member}")
        elif isinstance(phase, Paired):
            answer = await server.client.get(where, params={"manifest": phase.manifest.hash.hex()})
        else:
            return
        shown = self._shown(member, answer)
        if shown is None:
            return
        self.phases[member], replies = phase.receive(shown, self.keys[member], self.now(server))
        for pairing in replies:
            sent = await server.client.put(where, content=pairing.to_bytes())
            # The member may have been left out since.
            assert sent.status_code == 200 or sent.json()["cause"] in {"wrong-phase", "unknown-member"}, (
                sent.text
            )
            self._shown(member, sent)
            await self._check_known(server, member)

    async def _check_known(self, server: Server, member: str) -> None:
        """Check that an acknowledged pairing of the newest manifest is known, also after a kill."""
        phase = self.phases[member]
        before, view, after = (
            await self._newest(server, member),
            await self._view(server),
            await self._newest(server, member),
        )
        if isinstance(phase, Paired) and before == after == phase.manifest:
            assert member in view["paired"], f"{member}'s pairing is lost"

    async def _newest(self, server: Server, member: str) -> Manifest | None:
        shown = self._shown(member, await server.client.get(f"/v1/cohorts/{self.cohort}/manifest/{member}"))
        return shown.manifest if isinstance(shown, Cards) else None

    def _shown(self, member: str, answer: httpx.Response) -> Message | None:
        """Return the message that a member is shown, and check that the coordinator shows one thing only."""
        if answer.status_code != 200 or answer.headers["content-type"] != OCTETS_TYPE:
            return None
        message, known = parse_message(answer.content), self.manifests.setdefault(self.cohort, [])
        if isinstance(message, Cards):
            manifest = message.manifest
            place = self.cohort, member, manifest.hash
            assert self.cards.setdefault(place, answer.content) == answer.content, (
                f"{member} is shown other cards"
            )
            if manifest not in known:
                assert not known or {*manifest.members} < {*known[-1].members}, "a manifest of more members"
                known.append(manifest)
            assert manifest == known[-1], f"{member} is shown an earlier manifest"
        elif isinstance(message, Ciphertexts):
            own = self.ciphertexts.setdefault((self.cohort, member), answer.content)
            assert own == answer.content, f"{member} is shown other ciphertexts"
        return message
