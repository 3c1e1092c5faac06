"""Further games, as small and few as possible, that reach what the first leaves out: other endings, counts, chains and combinations."""

import asyncio
import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from assurance.kill.coordinator import ROTTEN
from assurance.kill.game import WITHIN_S, Game, Unhurried
from assurance.kill.pairing import Pairs
from tests.support.forging import again, refusing
from tests.support.party import HOLD, SIX, WITHHOLDING, Party
from tests.support.serving import Clock, Server
from tests.support.simulator import After
from veilsum.protocol import rest
from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.messages import Opening, Upload
from veilsum.protocol.study import COUNT_STEP, ROWS_STEP

SHORT: dict[str, Any] = {"windows": {"enrol": 3600, "upload": 8, "answer": 2}}
BRIEF: dict[str, Any] = {"windows": {"enrol": 3600, "upload": 60, "answer": 4}, "members_min": 4}
LIFETIME_S = 14.0
"""Lifetime of a round that gets lost, so that its latest end comes soon."""
DAMAGED: dict[str, Any] = {"windows": {"enrol": 3600, "upload": 30, "answer": 10}}
DAMAGED_S = 60.0
"""Lifetime of a round that may be damaged after decryptors signed: VOID then lacks votes, and the attempt ends by erasure."""
NOISY: dict[str, Any] = {"noise": {"epsilon": 4.0, "delta": 1e-6, "unit": "record", "recipe": "mean+sum"}}


class Late(Pairs):
    """A party whose uploads may be refused: they come too late, or after the round was given up for damage. Its members may be late, too."""

    async def serve(self, server: Server, round_id: str, member: str, until: str = "") -> bool | None:
        try:
            return await super().serve(server, round_id, member, until)
        except PeerFault as fault:
            if fault.cause is not Cause.TERMS_EXPIRED:
                raise
            return False

    async def _upload(self, server: Server, round_id: str, member: str, opening: Opening) -> bool:
        try:
            return await super()._upload(server, round_id, member, opening)
        except AssertionError as refused:
            if '"cause":"wrong-phase"' not in str(refused):
                raise
            return False


class Longer(Game):
    """Base of the further games."""

    def party(self) -> Party:
        return Pairs(SIX, seed=self.number, admin_seed=self.admin_seed)

    async def play(self) -> tuple[bytes, ...]:
        async with asyncio.timeout(WITHIN_S):
            return await self.go(Unhurried(Path(), None, self.client, Clock()))

    async def go(self, server: Server) -> tuple[bytes, ...]:
        """As `play`, on a coordinator that may be killed."""
        raise NotImplementedError

    async def post(self, path: str, *settled: int, **body: Any) -> Any:
        """Post until success, or until the answer says that it was done before a kill."""
        answer = await self.client.post(path, json=body)
        assert answer.status_code < 300 or answer.status_code in settled, answer.text
        return answer.json()

    async def done(self, party: Party, server: Server) -> str:
        """Play the run's next round, with all members in the sum."""
        round_id = await self.opened(party, server)
        view = await party.play(server, round_id, within_s=WITHIN_S)
        assert view["state"] == "done", view
        return round_id


class Ends(Longer):
    """An extended and cancelled round, VOID; a LOST one, closed by the admin; and a sum at the end."""

    def party(self) -> Party:
        return Late(SIX, seed=self.number, admin_seed=self.admin_seed)

    async def go(self, server: Server) -> tuple[bytes, ...]:
        party = self.party()
        await party.begin(server)
        round_id = await self.opened(party, server)
        view = await server.view(round_id)
        await self.post(rest.EXTEND_PATH.format(round_id=round_id), deadline_s=view["deadline_s"] + 60)
        await party.seal_all(server, round_id)
        await self.post(rest.CANCEL_PATH.format(round_id=round_id), 409, reason="another one")
        view = await party.play(server, round_id, within_s=WITHIN_S)
        assert view["state"] == "voided", view
        long, party.question = (party.study, party.content), SHORT
        await party.publish_study(server, name="short")
        await party.next_period(server)
        await self._lost(party, server)
        party.study, party.content = long
        await party.next_period(server)
        return await self.files(await self.done(party, server))

    async def _lost(self, party: Party, server: Server) -> None:
        party.drop = dict.fromkeys(SIX[3:], After.RECEIPT)
        while True:
            round_id = await self.opened(party, server, lifetime_s=LIFETIME_S)
            view = await party.play(server, round_id, within_s=WITHIN_S)
            if view["state"] != "voided":  # kills used up its short windows
                break
            await party.next_period(server)
        assert view["state"] == "erasing", view
        view = await party.lose(server, round_id)
        assert view["state"] == "lost", view
        party.drop = {}
        for member in SIX[3:]:
            await party.serve(server, round_id, member)


class LeftOut(Longer):
    """A cohort that fails, because too few members pair; then one without a member that never pairs."""

    def party(self) -> Pairs:
        return Pairs(SIX, question=BRIEF, seed=self.number, admin_seed=self.admin_seed)

    async def go(self, server: Server) -> tuple[bytes, ...]:
        party = self.party()
        await party.send_cards(server)
        view = await party.form(server, SIX[:3])
        assert view["fault"]["cause"] == "cohort-too-small", view
        assert set(view["fault"]["parties"]) >= set(SIX[3:]), view
        while True:  # kills may use up the windows of others
            party.number += 1
            await party.open_cohort(server, period=party.periods.format(party.number))
            await party.enrol(server, SIX)
            view = await party.form(server, SIX[:5])
            if view["left_out"] != ["m-5"] or view["state"] != "formed":
                continue
            round_id = await self.opened(party, server)
            view = await party.play(server, round_id, within_s=WITHIN_S)
            if view["state"] != "voided":
                break
        assert view["state"] == "done", view
        return await self.files(round_id)


class Liars(Longer):
    """A dealer that is evicted, a member that signs two uploads, and a decryptor that refuses to sign."""

    async def go(self, server: Server) -> tuple[bytes, ...]:
        party = self.party()
        party.tamper = refusing(party, {"m-2": "survivors-invalid"})
        party.false_dealer("m-3")
        await party.begin(server)
        round_id = await self.opened(party, server)
        await party.serve(server, round_id, "m-1")
        upload = Upload.from_bytes(party.upload_of("m-1"))
        second = again(upload.header, party.keys["m-1"], salt=bytes(32))
        body = replace(upload, header=second).to_bytes()
        where = f"/v1/rounds/{round_id}/uploads/m-1"
        refused = await self.client.put(where, content=body)
        assert refused.json()["cause"] == "upload-conflict", refused.text
        view = await party.play(server, round_id, within_s=WITHIN_S)
        assert view["state"] == "done", view
        assert view["evicted"] == ["m-3"], view
        return await self.files(round_id)


class Counts(Longer):
    """A run that withholds rare classes, then another, so that the first run's disclosure is deleted."""

    def party(self) -> Party:
        question = {**WITHHOLDING, "members_min": 5}
        return Pairs(
            SIX, classes=5, hold=HOLD, question=question, seed=self.number, admin_seed=self.admin_seed
        )

    async def go(self, server: Server) -> tuple[bytes, ...]:
        party = self.party()
        await party.begin(server)
        await self._run(party, server)
        await party.next_period(server)
        return await self.files(await self._run(party, server))

    async def _run(self, party: Party, server: Server) -> str:
        for _counted in (COUNT_STEP, ROWS_STEP):
            await party.recount(server, await self.done(party, server))
        return await self.done(party, server)


class Chain(Longer):
    """A noisy run of two steps, the second of which rests on the first one's sum."""

    async def go(self, server: Server) -> tuple[bytes, ...]:
        party = Pairs(SIX, question=NOISY, seed=self.number, admin_seed=self.admin_seed)
        await party.begin(server)
        await self.done(party, server)
        await party.check_result(server, await self.done(party, server))
        return ()  # noise is fresh in each game


class Periods(Longer):
    """Two runs and their combination; a token that is made and revoked; a readiness check."""

    async def go(self, server: Server) -> tuple[bytes, ...]:
        party = self.party()
        await party.begin(server)
        first = await self.done(party, server)
        await party.next_period(server)
        second = await self.done(party, server)
        path = rest.COMBINATIONS_PATH.format(federation=party.federation)
        combined = await self.post(path, rounds=[first, second])
        weights = await self.client.get(
            rest.COMBINED_WEIGHTS_PATH.format(combination=combined["combination"])
        )
        token = await self.post(rest.TOKENS_PATH, name="reader", scopes=["rounds"])
        await self.post(rest.REVOKE_PATH.format(token=token["token"]))
        await self.client.get(rest.READY_PATH)
        return weights.content, *await self.files(first), *await self.files(second)


class Rotten(Longer):
    """Bits flip in storage. Rounds give the plain sum or end because of the damage, until one gives the sum."""

    async def go(self, server: Server) -> tuple[bytes, ...]:
        ids = tuple(f"{ROTTEN}{index}" for index in range(4))
        party = Late(ids, dim=3, classes=2, question=DAMAGED, seed=self.number, admin_seed=self.admin_seed)
        await party.begin(server)
        while True:
            if (await server.cohort(party.cohort))["step"] is None:
                await party.next_period(server)
            round_id = await self.opened(party, server, lifetime_s=DAMAGED_S)
            view = await party.play(server, round_id, within_s=WITHIN_S)
            self.ends[view["state"]] += 1
            if view["state"] == "done":
                await party.check_result(server, round_id)
                return await self.files(round_id)
            assert view["state"] in {"failed", "voided", "erased"}, view
            assert view["fault"]["cause"] == "storage-damaged", view


GAMES: tuple[type[Game], ...] = (Game, Ends, LeftOut, Liars, Counts, Chain, Periods, Rotten)


def outcome(files: tuple[bytes, ...]) -> str:
    """Return a short digest of the files, which must not depend on kills."""
    return hashlib.sha256(b"".join(hashlib.sha256(each).digest() for each in files)).hexdigest()
