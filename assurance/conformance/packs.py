"""Studies that name a canary pack: the client has one canary in its file, and must send no card while it differs (member: Canaries)."""

import hashlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import rfc8785

from assurance.conformance.federation import CANARY, data_of, make_party
from assurance.conformance.invitations import SHAPE, Invitation, approval_of, invite, signed
from assurance.conformance.play import Part, Play
from assurance.conformance.tap import Answer, Asked
from veilsum.protocol.rest import OCTETS_TYPE
from veilsum.study.canaries import CanaryPack

CLIENT = "member-0"
TOLERANCE = 0.01


@dataclass
class PackShown(Invitation):
    """An invitation to a study that names a pack, and the pack that the coordinator shows.

    Attributes:
        pack: whose digest the study names.
        shown: if the coordinator shows another one.
    """

    pack: bytes = b""
    shown: bytes = b""
    make: Any = field(init=False)

    def __post_init__(self) -> None:
        self.make = lambda party: invite(party.roster, signed(party, self.content(party)))

    def content(self, party: Any) -> bytes:
        """Return the study's content."""
        values = json.loads(party.make_content(int(time.time()), name=self.rule.lower()).to_bytes())
        digest = hashlib.sha256(self.pack).hexdigest()
        return rfc8785.dumps(values | {"rehearsal": {"pack": digest, "tolerance": TOLERANCE}})

    async def answer(self, asked: Asked, play: Play) -> Answer | None:
        if asked.path.startswith(f"{play.federation.party.where}/canaries/"):
            return Answer(200, {b"content-type": OCTETS_TYPE.encode()}, self.shown or self.pack)
        return await super().answer(asked, play)


def packs() -> Iterator[Part]:
    """Return the part of the family CANARY."""
    party = make_party(SHAPE, CLIENT)
    features, keys, ids = data_of(party, CLIENT)
    place = ids.index(CANARY)
    own, key = features[place : place + 1], keys[place]
    other = next(each for each in party.question["classes"] if each != key)
    two = CanaryPack([CANARY, "canary-missing"], [key, key], np.vstack([own, own]))
    true = CanaryPack([CANARY], [key], own).to_bytes()
    doctorings = [
        PackShown("CANARY-2", "another pack than the study names", pack=true, shown=two.to_bytes()),
        PackShown("CANARY-3", "a pack that is no archive", pack=true[:-8]),
        PackShown("CANARY-4", "a canary that the client's file lacks", pack=two.to_bytes()),
        PackShown("CANARY-5", "another label", pack=CanaryPack([CANARY], [other], own).to_bytes()),
        PackShown("CANARY-5", "other features", pack=CanaryPack([CANARY], [key], own[:, ::-1]).to_bytes()),
    ]
    approves = {approval_of(each.content(party)): None for each in doctorings}
    yield Part("invitations: canary packs", SHAPE, CLIENT, doctorings, approves=tuple(filter(None, approves)))
