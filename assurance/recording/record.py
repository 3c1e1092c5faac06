"""Record a federation of the product's own classes: `python -m assurance.recording.record FILE`.

Six members count and sum; the last one disappears after its announcement for the sum. The recording holds all messages
in order of traffic, and beside them what no recorder has: each member's private keys, and its plain vectors.
"""

import argparse
import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from assurance.recording.recorded import FORMAT
from tests.support.simulator import After, Federation, of
from veilsum.protocol.coordinator import CoordinatorPhase
from veilsum.protocol.member import Enrolled
from veilsum.protocol.messages import Enrolment, Message
from veilsum.protocol.tags import PROTOCOL_VERSION

MEMBERS, CLASSES = 6, 4


class RecordedFederation(Federation):
    """A federation whose traffic, private keys and plain vectors are recorded."""

    def __post_init__(self) -> None:
        self.traffic: list[dict[str, Any]] = []
        self.private: dict[str, dict[str, list[str]]] = {}
        self.plain: dict[str, dict[str, list[int]]] = {}
        self.folders: dict[str, dict[str, str]] = {}
        self.tamper = self._note
        super().__post_init__()

    def _note(self, sender: str, message: Message) -> Message:
        """Note a message, and a member's private keys when its card leaves: they are gone once it has paired."""
        source, _, target = sender.partition(">")
        self.traffic.append(
            {"from": source, "to": target or "coordinator", "message": message.to_bytes().hex()}
        )
        if isinstance(message, Enrolment):
            keys = of(Enrolled, self.phases[source]).keys
            held = self.private.setdefault(source, {"x25519": [], "mlkem": []})
            held["x25519"].append(bytes(keys.x25519).hex())
            held["mlkem"].append(bytes(keys.mlkem_seed).hex())
        return message

    def enrol(self, *args: Any, **kwargs: Any) -> None:
        for member in self.ids:
            self._note(f"coordinator>{member}", self.roster)
            self._note(f"coordinator>{member}", self.study)
        super().enrol(*args, **kwargs)

    def begin(self, *args: Any, **kwargs: Any) -> None:
        super().begin(*args, **kwargs)
        vectors = {member: [int(each) for each in self.vectors_now[member]] for member in self.ids}
        self.plain[self.phase.attempt.context.hex()] = vectors

    def _store(self, phase: CoordinatorPhase, member: str, index: int) -> CoordinatorPhase:
        place = {"round": phase.attempt.context.hex()[:16], "chunk": index}
        packed = self.spool[member, index].hex()
        if member == self.ids[0]:
            self.copy_folders("folder-during", member)
        self.traffic.append({"from": member, "to": "coordinator", **place, "bytes": packed})
        return super()._store(phase, member, index)

    def copy_folders(self, name: str, *members: str) -> None:
        """Note what members hold at this time, without their identities and their records."""
        self.folders[name] = {member: self.phases[member].to_bytes().hex() for member in members}

    def recording(self) -> dict[str, Any]:
        """Return all that was recorded."""
        kept = {"keys": self.private, "vectors": self.plain, "folders": self.folders}
        return {"format": FORMAT, "version": PROTOCOL_VERSION, "traffic": self.traffic} | kept


def record_federation(seed: int = 0, folders: int = 1) -> dict[str, Any]:
    """Record a count and a sum of six members. The last class is held by five, and the last member misses the sum.

    Args:
        seed: of all random bytes but those of encapsulations.
        folders: of how many members the folders are copied after the sum.
    """
    drop: dict[int, After] = {}
    records = {"least": 50, "most": 500, "least_per_class": 20, "rows_per_id": 1}
    with RecordedFederation(MEMBERS, drop, seed, margin=1, question={"records": records}) as federation:
        counts = np.ones((MEMBERS, CLASSES), np.int64)
        counts[2, -1] = 0
        federation.run_round(dict(zip(federation.ids, counts, strict=True)))
        federation.disclose()
        drop[MEMBERS - 1] = After.ANNOUNCEMENT
        outcome = federation.run_round()
        if outcome.total is None:
            raise RuntimeError(f"the recorded round has no sum: {outcome.fault}")
        federation.copy_folders("folder-after", *federation.ids[:folders])
        return federation.recording()


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("recording", type=Path, help="where to write it: .json or .json.gz")
    parser.add_argument("--seed", type=int, default=0, help="of all random bytes but those of encapsulations")
    given = parser.parse_args(argv)
    data = json.dumps(record_federation(given.seed), separators=(",", ":")).encode()
    given.recording.write_bytes(gzip.compress(data, mtime=0) if given.recording.suffix == ".gz" else data)


if __name__ == "__main__":
    main()
