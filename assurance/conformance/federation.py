"""A federation with one foreign member: the real coordinator, the admin, and all other members, which the kit plays."""

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from assurance.attacks.base import ENROLMENT, Forger
from assurance.conformance.tap import Seen, Tap
from service.http.callers import Allowance, Limits
from tests.support.forging import other_secrets
from tests.support.party import Party, Vector
from tests.support.serving import running, served
from tests.support.simulator import After
from veilsum.protocol.identity import SigningKey
from veilsum.protocol.member.attempting import Attempting
from veilsum.protocol.messages import Cards, Lost, Message, Roster
from veilsum.protocol.round_spec import RoundSpec
from veilsum.protocol.shamir import LIMB_PRIME

COORDINATOR = SigningKey(b"\x5e" * 32)
ADMIN = Party(()).federation
"""The admin's public key in hexadecimal: the same in every part."""
UNLIMITED = Allowance(1e9, 10**9, 10**6, share=1e6)
ROWS = 50
"""Of each class that a member holds."""
P_WORD = LIMB_PRIME.to_bytes(4, "little")
"""No word of a share (SHARE-1)."""
HELD_STATES = {"checking", "freezing", "revealing"}
"""The coordinator goes on from these once enough have answered."""
TURN_S = 0.01
"""How long the kit's members wait if none of them has anything to do."""


class NotTriedError(Exception):
    """An attack that needs what the kit does not have, such as the client's own key."""


@dataclass(frozen=True)
class Shape:
    """A federation, as a round of the vectors has it, and what its members do in the first attempt.

    Attributes:
        members: how many; one of them is the client.
        question: fields of the study's question.
        hold: the classes that each member holds; empty if each holds all.
        decryptors: places of those that the admin nominates; empty for all.
        drop: by member, the last thing that it does.
        false_dealer: deals shares of other secrets than it commits to.
        false_box: the dealer whose box to the client holds a word that is p.
        cancels: the operator cancels the attempt once the client has uploaded.
        lifetime_s: from an opening to its latest end.
        admin_closes: the admin closes the attempt after its latest end.
        client_rows: the client's rows of each class that it holds.
        is_bare: whether the client's rows have one feature that is not zero.
        more_ids: ids of further rows of the client's.
        latecomer: sends no card.
    """

    members: int
    question: Mapping[str, Any] = field(default_factory=dict)
    hold: tuple[tuple[int, ...], ...] = ()
    decryptors: tuple[int, ...] = ()
    drop: Mapping[str, After] = field(default_factory=dict)
    false_dealer: str = ""
    false_box: str = ""
    cancels: bool = False
    lifetime_s: float | None = None
    admin_closes: bool = False
    client_rows: int = ROWS
    is_bare: bool = False
    more_ids: tuple[str, ...] = ()
    latecomer: str = ""


NOISE = {"epsilon": 1.0, "delta": 1e-6, "unit": "record", "recipe": "mean+sum"}
SHORT = {"windows": {"enrol": 600, "upload": 3, "answer": 1}}
COUNTED = {
    "withhold": {"margin": 0},
    "records": {"least": 50, "most": 500, "least_per_class": 50, "rows_per_id": 1},
}
RECEIVED = After.RECEIPT
SHAPES = {
    "complete": Shape(6, {"noise": NOISE, "members_min": 5}, drop={"member-4": After.OPENING}),
    "nominated": Shape(6, decryptors=(0, 1, 2, 5)),
    "evicted": Shape(5, false_dealer="member-4"),
    "voided": Shape(4, cancels=True),
    "erased": Shape(5, SHORT, drop={"member-0": RECEIVED, "member-1": RECEIVED}, lifetime_s=7),
    "lost": Shape(
        5,
        SHORT,
        drop=dict.fromkeys(("member-0", "member-1", "member-2"), RECEIVED),
        lifetime_s=7,
        admin_closes=True,
    ),
    "count": Shape(4, COUNTED, hold=((0, 1, 3), (0, 1, 2, 3), (0, 1, 3), (0, 1, 2, 3))),
    "plain": Shape(4),
}
"""By the name of a round of the vectors; "plain" is a run of one sum without incident."""


def make_party(shape: Shape, client: str = "") -> "Others":
    """Return the admin and the members of a shape, before they have met the coordinator."""
    ids = tuple(f"member-{place}" for place in range(shape.members))
    question = {"classes": [f"class-{label}" for label in range(5 if shape.hold else 2)], **shape.question}
    return Others(
        ids,
        dim=question.get("dim", 3),
        classes=len(question["classes"]),
        decryptors=tuple(ids[place] for place in shape.decryptors),
        question=question,
        hold=shape.hold,
        rows={client: shape.client_rows},
        bare=client if shape.is_bare else "",
    )


class Foreign:
    """The client's key, of which the kit has the public half."""

    def __init__(self, public: bytes) -> None:
        self.public = public

    def sign(self, _digest: bytes) -> bytes:
        raise NotTriedError("needs the client's own key")


class Others(Party):
    """All members but the client, of which it knows the data and the public key.

    Attributes:
        rows: of each class, by member; 50 by default.
        bare: the member whose rows have one feature that is not zero.
    """

    def __init__(self, *values: Any, rows: Mapping[str, int], bare: str = "", **named: Any) -> None:
        super().__init__(*values, **named)
        self.rows, self.bare = rows, bare
        self.asked = dict[str, tuple[RoundSpec, Mapping[str, Any]]]()

    def records(self, member: str) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
        """Return a member's rows, as many of each class that it holds, so even that no feature is sparse."""
        place = self.ids.index(member)
        rng = np.random.default_rng(place + 1)
        held = self.hold[place] if self.hold else np.arange(self.classes)
        labels = np.repeat(held, self.rows.get(member, ROWS))
        shape = (len(labels), self.dim)
        features = rng.choice([-1.0, 1.0], shape) * rng.uniform(0.7, 1.3, shape)
        if member == self.bare:
            features[:, 1:] = 0.0
        return features, labels.astype(np.int64)

    def make_roster(self, coordinator: bytes, number: int = 5, **changes: Any) -> Roster:
        """Make the roster; its number leaves room for older ones."""
        return super().make_roster(coordinator, number, **changes)

    def vector(self, member: str, spec: RoundSpec, material: Mapping[str, Any]) -> Vector:
        """Return a member's vector, and remember what the step asks of all members."""
        self.asked[spec.step] = spec, material
        return super().vector(member, spec, material)


CANARY = "canary-0"
TRAPS = {
    "SELECT-1": ("a row of zeros", "exam-zeros"),
    "SELECT-2": ("a second row of an id", "exam-0"),
    "ID-2": ("a second row of an id that looks the same", "\N{ZERO WIDTH SPACE}exam-1\N{NO-BREAK SPACE}"),
    "ID-3": ("a second row of a whole number", "07.0"),
    "CANARY-1": ("a canary's row", CANARY),
}
"""Rows of the client's data that add nothing to an honest vector, by the rule that leaves them out."""


def data_of(party: Party, member: str) -> tuple[npt.NDArray[np.float64], list[str], list[str]]:
    """Return the client's data: its rows as the kit expects them in the sum, and the traps."""
    features, labels = party.records(member)
    ids = [f"exam-{place}" for place in range(len(labels))]
    ids[2] = "7"
    # Whichever of two rows of an id the client draws, the kit knows it: they are the same row.
    rows = [np.zeros(party.dim), *features[:4]]
    traps = [labels[0], *labels[:4]]
    keys = [party.question["classes"][label] for label in (*labels, *traps)]
    return np.vstack([features, *rows]), keys, [*ids, *(each for _, each in TRAPS.values())]


class LiveForger(Forger):
    """What a hostile coordinator and its colluders hold of this federation: every key but the client's."""

    def __init__(self, federation: "Federation", attempt: int) -> None:
        self._live, self.attempt = federation, attempt
        party = federation.party
        seen = [cards for cards in federation.tap.messages if isinstance(cards.message, Cards)]
        self.federation = cast(
            "Any",
            SimpleNamespace(
                admin=party.admin,
                coordinator=COORDINATOR,
                keys=party.keys,
                roster=party.roster,
                study=party.study,
                manifest=cast("Cards", seen[-1].message).manifest if seen else None,
            ),
        )

    @property
    def now_s(self) -> int:
        return int(time.time())

    def said(
        self,
        form: type[Message],
        source: str,
        to: str = "coordinator",
        nth: int = 0,
        attempt: int | None = None,
    ) -> Any:
        number = self.attempt if attempt is None else attempt
        found = self._live.find(form, source, to, number)
        if len(found) <= nth:
            raise NotTriedError(f"{source} has sent {to} no such {form.__name__}")
        return found[nth]

    def share_of(self, dealer: str, holder: str, index: int) -> bytes:
        del dealer, holder, index
        raise NotTriedError("needs a share that a decryptor keeps to itself")


class Federation:
    """One run, from the roster to its end, with the client at the tap.

    Args:
        shape: of the federation.
        client: the member that the client plays.
        public: its key.
        folder: for the coordinator, and for the client's data.
    """

    def __init__(self, shape: Shape, client: str, public: bytes, folder: Path) -> None:
        self.shape, self.client, self.folder = shape, client, folder
        self.party = make_party(shape, client)
        self.party.drop = {member: after for member, after in shape.drop.items() if member != client}
        self.party.keys[client] = cast("SigningKey", Foreign(public))
        if dealer := shape.false_dealer:
            self.party.deal[dealer] = lambda decryptor, shares: self._deal_falsely(dealer, decryptor, shares)
        if shape.false_box:
            self.party.deal[shape.false_box] = lambda to, shares: (
                P_WORD + shares[4:] if to == client else shares
            )
        self.others = tuple(member for member in self.party.ids if member != client)
        self.rounds: list[str] = []
        self.state = ("", "")
        """The newest round, and whether its end was told."""
        self.settled, self.halted = asyncio.Event(), False
        self.over = asyncio.Event()
        features, labels, names = data_of(self.party, client)
        more = len(shape.more_ids)
        self.data = folder / "data.json"
        self.write_data(
            np.vstack([features, *[features[:1]] * more]),
            labels + labels[:1] * more,
            [*names, *shape.more_ids],
        )

    def write_data(self, features: npt.NDArray[np.float64], labels: list[str], ids: list[str]) -> None:
        """Write the client's data, in both forms."""
        self.data.write_text(json.dumps({"features": features.tolist(), "labels": labels, "ids": ids}))
        np.savez(self.data.with_suffix(".npz"), features=features, labels=np.array(labels), ids=np.array(ids))

    async def serve(self, tap: Tap) -> None:
        """Serve the coordinator, and play the other members, until cancelled. Sets `tap.url` first."""
        self.tap = tap
        settings: dict[str, Any] = {
            "coordinator_key": COORDINATOR.seed.hex(),
            "max_wait_s": 0.5,
            "clock_skew_s": 3600.0,
        }
        store = self.folder / "coordinator"
        async with running(store, limits=Limits(UNLIMITED, UNLIMITED), **settings) as server:
            self.server = server
            tap.app = server.app
            server.client.event_hooks["response"].append(self._note)
            await self.party.found(server)
            async with served(replace(server, app=tap)) as url:
                tap.url.set_result(url)
                await self._play()

    def _deal_falsely(self, dealer: str, decryptor: str, shares: bytes) -> bytes:
        """Return shares of another self seed than the dealer committed to."""
        phase = self.party.phases[dealer]
        assert isinstance(phase, Attempting)
        return other_secrets(phase.attempt, 0)(decryptor, shares)

    async def _note(self, response: Any) -> None:
        request = response.request
        await response.aread()
        self.tap.note(Seen.of(request.method, request.url.path, request.content, response.content))

    async def _play(self) -> None:
        await self.party.open_cohort(self.server)
        coming = tuple(member for member in self.others if member != self.shape.latecomer)
        await self.party.enrol(self.server, coming)
        while not self.halted:
            if await self._move():
                self.settled.clear()
                continue
            self.settled.set()
            await asyncio.sleep(TURN_S)
        await asyncio.Event().wait()

    async def _move(self) -> bool:
        """Let each of the kit's members take a step; return whether one did."""
        cohort = await self.server.cohort(self.party.cohort)
        if cohort["state"] in {"pairing", "formed"}:
            before = self._phases()
            await self.party.take_manifest(self.server)
            if any(one is not other for one, other in zip(before, self._phases(), strict=True)):
                return True
        if cohort["state"] != "formed":
            return False
        self.rounds = cohort["rounds"]
        view = await self.server.view(self.rounds[-1]) if self.rounds else None
        if view is not None:
            answering = self._answering(view, cohort["quorum"]["threshold"])
            moved = [await self.party.serve(self.server, view["round"], member) for member in answering]
            if not view["ended"]:
                return any(moved) or await self._hurry(view)
            if self.state != (view["round"], "ended"):
                self.state, self.party.drop = (view["round"], "ended"), {}
                for member in self.others:
                    await self.party.serve(self.server, view["round"], member)
                if (view["state"], view["spec"]["step"]) in {("done", "count"), ("done", "rows")}:
                    await self.party.recount(self.server, view["round"])
        if cohort["step"] is None:
            self.over.set()
            return False
        lifetime_s = None if view else self.shape.lifetime_s
        opened = await self.party.try_round(self.server, lifetime_s=lifetime_s)
        assert opened.status_code == 201, opened.text
        return True

    def _phases(self) -> list[Any]:
        return [self.party.phases.get(member) for member in self.others]

    def _answering(self, view: Mapping[str, Any], threshold: int) -> tuple[str, ...]:
        """Return the members that answer now: one too few to go on without the client, while the coordinator waits for it.

        However slow client and machine are, the honest message still comes after the false ones.
        """
        if self._will_cancel(view):
            return self.others[:-1]  # the attempt waits for an upload until it is cancelled
        if view["state"] not in HELD_STATES or self.client not in view["waiting_for"]:
            return self.others
        decrypting = self.party.decryptors or self.others
        return tuple(member for member in self.others if member in decrypting)[: threshold - 1]

    def _will_cancel(self, view: Mapping[str, Any]) -> bool:
        return self.shape.cancels and len(self.rounds) == 1 and view["state"] == "collecting"

    async def _hurry(self, view: dict[str, Any]) -> bool:
        """End what would take the length of a window, once all others have done their part."""
        party, waiting = self.party, set(view["waiting_for"])
        if self.shape.admin_closes and view["state"] == "erasing" and self.client not in waiting:
            lost = Lost.make_signed(party.admin, context=bytes.fromhex(view["context"]))
            where = f"/v1/rounds/{view['round']}/lost"
            await self.server.client.post(where, content=lost.to_bytes())
            return True
        if self._will_cancel(view) and self.client in view["uploaded"]:
            await self.server.cancel(view["round"])
            return True
        if self.shape.lifetime_s is None and waiting and waiting <= party.drop.keys():
            await self.server.pass_time(view)
            return True
        return False

    def find(self, form: type[Message], source: str, to: str, attempt: int) -> list[Message]:
        """Return what one party has sent another in an attempt, oldest first, each message once."""
        name = None if attempt == ENROLMENT else self.rounds[attempt] if attempt < len(self.rounds) else "?"
        found: dict[bytes, Message] = {}
        for seen in self.tap.messages:
            if isinstance(seen.message, form) and (seen.source, seen.to, seen.round) == (source, to, name):
                found.setdefault(seen.data, seen.message)
        return [*found.values()]
