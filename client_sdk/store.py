"""A member's state on disk, stored before any of its messages leaves.

    state/
        roster.bin              the newest roster seen
        studies/NAME            the highest version seen of each study
        ledger/                 which records are reserved or spent, and the federation's chain as far as this member knows it
        phases/COHORT           the member's phase in each cohort, with the round it is in
        uploads/COHORT          what the masked chunks of the attempt in progress follow from
        results/ROUND/          evidence and result of each finished round (no secrets)

Every file but the results' is sealed by a checksum: a damaged one is refused, never guessed at.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from client_sdk.errors import PeerFault, StateError
from client_sdk.files import (
    LOSS,
    make_private,
    read_sealed,
    remove_durably,
    sync_folder,
    write_sealed,
    write_synced,
)
from client_sdk.ledger import DATABASE
from client_sdk.reservations import Reservations
from veilsum.protocol.causes import Cause
from veilsum.protocol.codec import SecretBytes
from veilsum.protocol.keystream import SEED_BYTES
from veilsum.protocol.member import Closed, MemberPhase, load_phase
from veilsum.protocol.member.attempting import Attempting
from veilsum.protocol.messages import Roster, Study
from veilsum.protocol.study import read_content

T = TypeVar("T")
Integers = npt.NDArray[np.int64]

_EXPORTED = "exported"


class Unsent:
    """What the chunks of an upload in progress follow from, beside the phase's keys: a crash makes no difference to their bytes."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def keep(self, seed: bytes, vector: Integers | None) -> None:
        """Keep the seed of the member's own mask durably, and a vector that is kept nowhere else; an interrupted upload's are dropped."""
        write_sealed(self._path, seed + (b"" if vector is None else vector.astype("<i8").tobytes()))

    def load(self) -> tuple[SecretBytes, Integers | None]:
        """Read what `keep` was given; StateError if it is missing or damaged."""
        return read_sealed(self._path, _unsent)

    def clear(self) -> None:
        """Delete it durably, if it is there."""
        if self._path.exists():
            remove_durably(self._path)


@dataclass(frozen=True)
class StoredPhase:
    """A stored phase, and the id of the round it is in or was in last; "" before the first."""

    phase: MemberPhase
    round_id: str

    def __repr__(self) -> str:
        return f"<StoredPhase {type(self.phase).__name__} {self.round_id}>"


class Store:
    """One member's state on disk. The writer holds the identity's lock.

    Args:
        folder: the identity's.
    """

    def __init__(self, folder: Path) -> None:
        self._state = folder / "state"
        self.ledger = Reservations(self._state / "ledger")

    def begin(self) -> None:
        """Make the folders, and erase what a crash left: half-replaced files, and what no upload follows from any more.

        Raises:
            StateError: the ledger is gone, and this member has enrolled before.
        """
        make_private(self._state)
        for name in ("phases", "uploads", "results", "studies"):
            make_private(self._state / name)
        ledger = self._state / "ledger" / DATABASE
        if any(self._state.glob("phases/[!.]*")) and not (ledger.exists() and ledger.stat().st_size):
            raise StateError(f"{ledger} is missing. {LOSS}")
        for fresh in (*self._state.glob("phases/.*.new"), *self._state.glob("uploads/.*.new")):
            remove_durably(fresh)
        for path in (self._state / "uploads").glob("[0-9a-f]" * 64):
            with suppress(StateError):
                held = self._read(f"phases/{path.name}", _held)
                # The machine stopped before the upload was stored, or after its attempt had ended.
                if held is None or not (isinstance(held.phase, Attempting) and held.phase.uploads):
                    remove_durably(path)
        self.ledger.clear_up()

    def held(self, cohort: bytes) -> StoredPhase | None:
        """What this member holds of a cohort; None before it enrolled. StateError where the file is damaged."""
        path = self._state / "phases" / cohort.hex()
        if not path.exists():
            return None
        held = read_sealed(path, _held)
        # What was learned in other cohorts since is known here too: no phase may take the history back to its own.
        return replace(held, phase=held.phase.knowing(self.ledger.history()))

    def hold(self, cohort: bytes, phase: MemberPhase, round_id: str) -> None:
        """Store a phase durably; only then may its messages leave."""
        path = self._state / "phases" / cohort.hex()
        write_sealed(path, round_id.encode("ascii") + b"\n" + phase.to_bytes())

    def cohorts(self, but: bytes = b"") -> Iterator[tuple[bytes, StoredPhase]]:
        """What this member holds of each cohort but one; a damaged file is skipped here, and refused when it is used."""
        for path in sorted((self._state / "phases").glob("[!.]*")):
            if not re.fullmatch("[0-9a-f]{64}", path.name) or path.name == but.hex():
                continue  # no member wrote this, or it is not asked for
            cohort = bytes.fromhex(path.name)
            with suppress(StateError):
                if (held := self.held(cohort)) is not None:
                    yield cohort, held

    def lapse_others(self, cohort: bytes, now_s: float) -> None:
        """Erase what every other cohort still holds of a round past its terms' latest end."""
        for other, held in list(self.cohorts(but=cohort)):
            if not isinstance(held.phase, Attempting | Closed):
                continue
            if (following := held.phase.lapse(now_s)) is not held.phase:
                self.ledger.remember(following.history, held.phase.history)
                self.hold(other, following, held.round_id)
                self.unsent(other).clear()

    def _read(self, name: str, load: Callable[[bytes], T]) -> T | None:
        """A file of the state; None before there is one."""
        path = self._state / name
        return read_sealed(path, load) if path.exists() else None

    def unsent(self, cohort: bytes) -> Unsent:
        """What the upload of the attempt that this cohort is in follows from."""
        return Unsent(self._state / "uploads" / cohort.hex())

    def results(self, round_id: str) -> Path:
        """Where a round's evidence and result are kept."""
        return self._state / "results" / round_id

    def unexported(self) -> tuple[Path, ...]:
        """The folders of `results` that `exported` was not called for."""
        return tuple(
            sorted(path for path in (self._state / "results").iterdir() if not (path / _EXPORTED).exists())
        )

    def exported(self, round_id: str) -> None:
        """Note durably that a round's result stands where its owner wants it."""
        write_synced(self.results(round_id) / _EXPORTED, b"")
        sync_folder(self.results(round_id))

    def roster(self) -> Roster | None:
        """The newest roster seen, if any."""
        return self._read("roster.bin", Roster.from_bytes)

    def see_roster(self, roster: Roster) -> None:
        """Remember a roster that the policy has checked.

        Raises:
            PeerFault: roster-rollback if a higher number, or another roster of this number, was seen.
        """
        seen = self.roster()
        if seen is not None:
            if roster.number < seen.number:
                raise PeerFault(
                    Cause.ROSTER_ROLLBACK,
                    f"roster {roster.number} is shown, and roster {seen.number} was seen",
                )
            if roster.number == seen.number:
                if roster.hash != seen.hash:
                    raise PeerFault(
                        Cause.ROSTER_ROLLBACK, f"there are two rosters of number {seen.number}", ["admin"]
                    )
                return
        write_sealed(self._state / "roster.bin", roster.to_bytes())

    def study(self, name: str) -> Study | None:
        """The highest version seen of a study, if any."""
        return self._read(f"studies/{name}", Study.from_bytes)

    def see_study(self, study: Study) -> None:
        """Remember a study that was checked, as the highest version of its name."""
        if self.study(name := read_content(study.content).notes.name) != study:
            write_sealed(self._state / "studies" / name, study.to_bytes())


def _unsent(content: bytes) -> tuple[SecretBytes, Integers | None]:
    seed, vector = content[:SEED_BYTES], content[SEED_BYTES:]
    return SecretBytes(seed), np.frombuffer(vector, "<i8") if vector else None


def _held(content: bytes) -> StoredPhase:
    round_id, _, raw = content.partition(b"\n")
    return StoredPhase(load_phase(raw), round_id.decode("ascii"))
