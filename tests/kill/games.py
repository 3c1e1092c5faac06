"""Further games, as few and as small as reach what the first one leaves out: other ends, counts, combinations."""

import asyncio
import hashlib
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from protocol import rest
from protocol.messages import Message, Refusal, Upload, Vote
from protocol.shamir import share_secrets
from protocol.simulator import After, SeededRandom
from tests.kill.game import WITHIN_S, Game, Patient
from tests.protocol.forging import again
from tests.service.counting import HOLD, Counting
from tests.service.driver import Party
from tests.service.serving import OCTETS, Clock, Server

SIX = tuple(f"m-{index}" for index in range(6))
SOON_S = 2.0


class Longer(Game):
    """What further games share."""

    def party(self) -> Party:
        return Party(SIX, seed=self.number, admin_seed=self.admin_seed)

    async def play(self) -> tuple[bytes, ...]:
        async with asyncio.timeout(WITHIN_S):
            return await self.go(Patient(Path(), None, self.client, Clock()))

    async def go(self, server: Server) -> tuple[bytes, ...]:
        """As `play`, on a coordinator that may be killed."""
        raise NotImplementedError

    async def post(self, path: str, *settled: int, **body: Any) -> Any:
        """An answer of success, or one that says it was done before the kill."""
        answer = await self.client.post(path, json=body)
        assert answer.status_code < 300 or answer.status_code in settled, answer.text
        return answer.json()

    async def done(self, party: Party, server: Server, name: str) -> str:
        """A round of everybody over new lineages."""
        party.lineages = dict.fromkeys(party.ids, name.encode().ljust(8, b"-"))
        round_id = await self.opened(party, server)
        view = await party.play(server, round_id, within_s=WITHIN_S)
        assert view["state"] == "done", view
        return round_id


class Ends(Longer):
    """Extended and cancelled, VOID; LOST and closed by the admin; and a sum in the end."""

    async def go(self, server: Server) -> tuple[bytes, ...]:
        party = self.party()
        await party.begin(server)
        party.lineages = dict.fromkeys(party.ids, b"spring--")
        round_id = await self.opened(party, server)
        view = await server.view(round_id)
        await self.post(rest.EXTEND.format(round_id=round_id), deadline_s=view["deadline_s"] + 60)
        for member in party.ids:
            party.seal(member, await server.opening(round_id, member))
        await self.post(rest.CANCEL.format(round_id=round_id), 409, reason="another one")
        view = await party.play(server, round_id, within_s=WITHIN_S)
        assert view["state"] == "voided", view
        party.drop = dict.fromkeys(SIX[3:], After.RECEIPT)
        round_id = await self.opened(party, server, windows={"freeze_s": SOON_S})
        view = await party.play(server, round_id, within_s=WITHIN_S)
        assert view["state"] == "erasing", view
        view = await party.lose(server, round_id)
        assert view["state"] == "lost", view
        party.drop = {}
        for member in SIX[3:]:
            await party.serve(server, round_id, member)
        return await self.files(await self.done(party, server, "summer"))


class Liars(Longer):
    """A dealer that is evicted, a member that signs two uploads, and a decryptor that refuses to sign."""

    async def go(self, server: Server) -> tuple[bytes, ...]:
        party = self.party()
        other = share_secrets([b"\x01" * 32] * 6, 4, 6, SeededRandom(7))
        places = {member: place for place, member in enumerate(SIX)}
        party.tamper = partial(self._refusing, party)
        party.deal["m-3"] = lambda decryptor, _shares: other[places[decryptor]].tobytes()
        await party.begin(server)
        round_id = await self.opened(party, server)
        await party.serve(server, round_id, "m-1")
        upload = Upload.from_bytes(party.upload_of("m-1"))
        second = again(upload.header, party.keys["m-1"], salt=bytes(32))
        body = replace(upload, header=second).to_bytes()
        where = f"/v1/rounds/{round_id}/uploads/m-1"
        refused = await self.client.put(where, content=body, headers=OCTETS)
        assert refused.json()["cause"] == "upload-conflict", refused.text
        view = await party.play(server, round_id, within_s=WITHIN_S)
        assert view["state"] == "done", view
        assert view["evicted"] == ["m-3"], view
        return await self.files(round_id)

    def _refusing(self, party: Party, member: str, message: Message) -> Message:
        """What a member answers; of m-2, a refusal in its vote's place."""
        if member != "m-2" or not isinstance(message, Vote):
            return message
        said: dict[str, Any] = {"cause": "ledger-refused", "group": (), "rounds": ()}
        return Refusal.make(party.keys[member], context=message.context, member=member, **said)


class Counts(Longer):
    """An indicator round, then another, so that the first one's disclosure is deleted, and the main round that rests on it."""

    async def go(self, server: Server) -> tuple[bytes, ...]:
        party = Counting(SIX, classes=5, seed=self.number, admin_seed=self.admin_seed)
        assert len(HOLD) == len(SIX)
        await party.begin(server)
        party.lineages = dict.fromkeys(SIX, b"main----")
        for _ in range(2):
            round_id = await self.opened(party, server, statistic="indicator", dim=None)
            view = await party.play(server, round_id, within_s=WITHIN_S)
            assert view["state"] == "done", view
        await party.recount(server, round_id)
        return await self.files(await self.done(party, server, "main"))


class Periods(Longer):
    """Two rounds, both combined; a token made and revoked, a look at readiness."""

    async def go(self, server: Server) -> tuple[bytes, ...]:
        party = self.party()
        await party.begin(server)
        first = await self.done(party, server, "autumn")
        second = await self.done(party, server, "winter")
        body: dict[str, Any] = {"rounds": [first, second], "ridges": [0.5]}
        combined = await self.post(rest.COMBINATIONS.format(federation=party.federation), **body)
        weights = await self.client.get(rest.COMBINED_WEIGHTS.format(combination=combined["combination"]))
        token = await self.post(rest.TOKENS, name="reader", scopes=["rounds"])
        await self.post(rest.REVOKE.format(token=token["token"]))
        await self.client.get(rest.READY)
        return weights.content, *await self.files(first), *await self.files(second)


GAMES: tuple[type[Game], ...] = (Game, Ends, Liars, Counts, Periods)


def outcome(files: tuple[bytes, ...]) -> str:
    """What must come out, whoever dies; short, for a report."""
    return hashlib.sha256(b"".join(hashlib.sha256(each).digest() for each in files)).hexdigest()
