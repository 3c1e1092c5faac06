"""A member's state on disk: what must be there before any of its messages leaves.

    state/
        roster.bin              the highest roster version seen
        lineage.key             32 random bytes, made once
        phases/COHORT           the member's phase in each cohort, with the round it is in
        retired/COHORT          why a cohort is not used again; its keys are gone
        spool/COHORT/INDEX      masked chunks of the attempt in progress
        results/ROUND/          evidence and result of each finished round (no secrets)

Every file but the spool's and the results' is sealed by a checksum: a damaged one is refused, never guessed at.
"""

import hashlib
import json
import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from client_sdk.errors import Misuse, NoResult, PeerFault, StateError, fault_of
from client_sdk.files import make_private, remove_durably, write_durably
from client_sdk.spool import Spool
from protocol.causes import Cause
from protocol.codec import SecretBytes
from protocol.member import MemberPhase, load_phase
from protocol.messages import Roster
from protocol.rest import PROBLEM_BASE, Problem

_HEADER = b"veilsum-state/1\n"
_LOSS = (
    "Don't repair it and don't restore a backup: with old keys this member could mask or vote twice. State loss "
    "is a new identity: make one with Identity.create, give its public key to the admin, and enrol it in the "
    "next cohort"
)


@dataclass(frozen=True)
class Held:
    """A stored phase, and the id of the round it is in or was in last; "" before the first."""

    phase: MemberPhase
    round_id: str

    def __repr__(self) -> str:
        return f"<Held {type(self.phase).__name__} {self.round_id}>"


class Store:
    """One member's state; the caller holds the identity's lock.

    Args:
        folder: the identity's.
    """

    def __init__(self, folder: Path) -> None:
        self._state = make_private(folder / "state")
        for name in ("phases", "retired", "spool", "results"):
            make_private(self._state / name)
        self._finish_erasing()

    def _finish_erasing(self) -> None:
        """Erase what a crash kept: keys in a half-replaced file, and those of a cohort that was being retired."""
        phases = self._state / "phases"
        for fresh in phases.glob(".*.new"):
            remove_durably(fresh)
        for tombstone in (self._state / "retired").glob("[!.]*"):
            if (phases / tombstone.name).exists():
                remove_durably(phases / tombstone.name)
            self.spool(bytes.fromhex(tombstone.name)).clear()

    def held(self, cohort: bytes) -> Held | None:
        """What this member holds of a cohort; None before it enrolled.

        Raises:
            StateError: the file is damaged.
            NoResult: the cohort was retired.
        """
        path = self._state / "retired" / cohort.hex()
        if path.exists():
            tombstone = json.loads(_unsealed(path))
            raise NoResult(
                tombstone["round"], tombstone["state"], fault_of(Problem.model_validate(tombstone["fault"]))
            )
        path = self._state / "phases" / cohort.hex()
        if not path.exists():
            return None
        round_id, _, raw = _unsealed(path).partition(b"\n")
        try:
            return Held(load_phase(raw), round_id.decode("ascii"))
        except (PeerFault, Misuse, ValueError) as error:
            raise StateError(f"{path} is not of this release. {_LOSS}") from error

    def hold(self, cohort: bytes, phase: MemberPhase, round_id: str) -> None:
        """Store a phase durably; only then may its messages leave."""
        path = self._state / "phases" / cohort.hex()
        write_durably(path, _sealed(round_id.encode("ascii") + b"\n" + phase.to_bytes()))

    def lapse_others(self, cohort: bytes, now_s: float) -> None:
        """Erase what every other cohort still holds of a round past its terms' latest end."""
        for path in (self._state / "phases").iterdir():
            other = bytes.fromhex(path.name)
            with suppress(StateError):  # a damaged one is refused where it is used
                held = self.held(other) if other != cohort else None
                if held is not None and (following := held.phase.lapse(now_s)) is not held.phase:
                    self.hold(other, following, held.round_id)
                    self.spool(other).clear()

    def retire(self, cohort: bytes, round_id: str, state: str, fault: PeerFault) -> None:
        """Erase a cohort's keys for good and remember why."""
        problem = Problem(
            type=PROBLEM_BASE + fault.cause.value,
            title=fault.cause.summary,
            status=422,
            detail=fault.detail,
            cause=fault.cause.value,
            parties=fault.parties,
        )
        tombstone = {"round": round_id, "state": state, "fault": problem.model_dump(mode="json")}
        write_durably(self._state / "retired" / cohort.hex(), _sealed(json.dumps(tombstone).encode()))
        remove_durably(self._state / "phases" / cohort.hex())
        self.spool(cohort).clear()

    def spool(self, cohort: bytes) -> Spool:
        """The masked chunks of the attempt that this cohort is in."""
        return Spool(self._state / "spool" / cohort.hex())

    def results(self, round_id: str) -> Path:
        """Where a round's evidence and result are kept."""
        return self._state / "results" / round_id

    def roster(self) -> Roster | None:
        """The highest version seen, if any."""
        path = self._state / "roster.bin"
        return Roster.from_bytes(_unsealed(path)) if path.exists() else None

    def see_roster(self, roster: Roster) -> None:
        """Remember a roster that the policy has checked.

        Raises:
            PeerFault: roster-rollback where a higher version, or another roster of this version, was seen.
        """
        seen = self.roster()
        if seen is not None:
            if roster.version_number < seen.version_number:
                raise PeerFault(
                    Cause.ROSTER_ROLLBACK,
                    f"roster version {roster.version_number} is shown, version {seen.version_number} was seen",
                )
            if roster.version_number == seen.version_number:
                if roster.hash != seen.hash:
                    raise PeerFault(
                        Cause.ROSTER_ROLLBACK, f"two rosters of version {seen.version_number}", ["admin"]
                    )
                return
        write_durably(self._state / "roster.bin", _sealed(roster.to_bytes()))

    def lineage_key(self) -> SecretBytes:
        """32 bytes under which this member names its data sets: the same names for life, unreadable to others."""
        path = self._state / "lineage.key"
        if not path.exists():
            write_durably(path, _sealed(secrets.token_bytes(32)))
        return SecretBytes(_unsealed(path))


def _sealed(content: bytes) -> bytes:
    return _HEADER + hashlib.sha256(content).digest() + content


def _unsealed(path: Path) -> bytes:
    raw = path.read_bytes()
    start = len(_HEADER)
    content = raw[start + 32 :]
    if raw[:start] != _HEADER or raw[start : start + 32] != hashlib.sha256(content).digest():
        raise StateError(f"{path} is damaged. {_LOSS}")
    return content
