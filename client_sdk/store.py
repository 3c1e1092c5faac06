"""A member's state, stored before any of its messages leaves.

state/
    state.sqlite, arrays/   everything that this member must not forget, or must forget in time (`client_sdk.database`)
    results/ROUND/          evidence and result of each finished round (no secrets); of rehearsals, only a question's newest
    canaries/DIGEST         public packs of studies
"""

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from client_sdk.database import StateDatabase
from client_sdk.errors import Misuse
from client_sdk.reservations import Reservations
from veilsum.protocol.codec import SecretBytes
from veilsum.protocol.keystream import MASK_SEED_BYTES
from veilsum.protocol.member import Enrolled, History, MemberPhase, load_phase
from veilsum.protocol.member.attempting import Attempting
from veilsum.protocol.messages import KeyCard, Roster, Study, UploadHeader
from veilsum.protocol.study import HELD_OUT_SHARE, read_content
from veilsum.system.files import make_private, write_durably

Integers = npt.NDArray[np.int64]

_EXPORTED_FILE = "exported"


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
        folder: the identity's, where `create` made the state.

    Attributes:
        folder: the identity's.
        database: everything except results; opened for a conversation.
        ledger: of this member's records.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self._state = folder, folder / "state"
        self.database = StateDatabase(self._state)
        self.ledger = Reservations(self.database)
        self._current = dict[bytes, tuple[StoredPhase, History, StoredPhase]]()

    @classmethod
    def create(
        cls, folder: Path, member: str, ledger: Path | None = None, held_out: float | None = None
    ) -> None:
        """Create an identity's state, with the secret that identifies its records.

        Args:
            folder: the identity's. An existing state is left as it is.
            member: its id, for life.
            ledger: the folder of an identity that lost its other state. Its ledger moves here, so that no record is summed twice, and
                that identity becomes unusable. It must not be older than the last attempt it took part in (member: Clock).
            held_out: the share of records that are in no count and no sum, for life; `HELD_OUT_SHARE` by default. A ledger keeps its own.

        Raises:
            Misuse: `ledger` has no state, or `folder` has one; the state is another member's; or `held_out` is no share, or given with `ledger`.
            StateError: the ledger is damaged.
            IdentityError: a member is using `ledger`.
        """
        if held_out is not None and ledger is not None:
            raise Misuse("the share of held-out records stays as the ledger has it: leave out held_out")
        share = HELD_OUT_SHARE if held_out is None else held_out
        if not 0 <= share < 1:
            raise Misuse(f"held_out: got {share!r}, expected at least 0 and below 1")
        made = cls(folder)
        if ledger is None:
            made.database.create(member, share)
        else:
            made.database.take_over(StateDatabase(ledger / "state"), member)
        make_private(folder / "state/results")

    # Phases

    def load_phase(self, cohort: bytes) -> StoredPhase | None:
        """Return this member's phase in a cohort; None before enrolment. Raises StateError if it is damaged."""
        stored = self.database.load_sealed(f"phase/{cohort.hex()}", _parse_phase)
        if stored is None:
            return None
        history, current = self.ledger.load_history(), self._current.get(cohort)
        if current is None or current[0] is not stored or current[1] is not history:
            # The history is the member's, not a phase's: every phase knows what was learned in other cohorts since.
            current = stored, history, replace(stored, phase=stored.phase.with_history(history))
            self._current[cohort] = current
        return current[2]

    @cached_property
    def expiries(self) -> dict[bytes, float]:
        """By cohort, no later than when its phase holds secrets that must be erased, Unix time in seconds; infinity for none."""
        return {cohort: held.phase.expiry_s for cohort, held in self.stored_phases()}

    def store_phase(self, cohort: bytes, phase: MemberPhase, round_id: str) -> None:
        """Store a phase without its history, after which its messages may leave. Erase what `load_unsent` returns once no upload needs it."""
        bare, history = phase.with_history(History()), self.ledger.load_history()
        content, stored = round_id.encode("ascii") + b"\n" + bare.to_bytes(), StoredPhase(bare, round_id)
        if (
            phase.with_history(history) == phase
        ):  # what the caller has derived from it need not be derived again
            self._current[cohort] = stored, history, StoredPhase(phase, round_id)
        with self.database.write():
            self.database.store_sealed(f"phase/{cohort.hex()}", stored, content)
            # Not later than before: this write may still fail, and leave the former phase.
            self.expiries[cohort] = min(self.expiries.get(cohort, math.inf), phase.expiry_s)
            if not (isinstance(phase, Attempting) and phase.uploads):
                self.database.erase_sealed(f"unsent/{cohort.hex()}")

    def newest_card(self) -> KeyCard | None:
        """Return the newest card that this member's key has signed; None before the first."""
        return self.database.load_sealed("card", KeyCard.from_bytes)

    def store_card(self, card: KeyCard, enrolled: Enrolled) -> None:
        """Store a new card with its phase, after which the card may leave."""
        with self.database.write():
            self.database.store_sealed("card", card, card.to_bytes())
            self.store_phase(card.cohort, enrolled, "")

    def stored_phases(self) -> Iterator[tuple[bytes, StoredPhase]]:
        """Yield this member's phase in each cohort."""
        for name in self.database.sealed_names("phase"):
            if (held := self.load_phase(cohort := bytes.fromhex(name))) is not None:
                yield cohort, held

    # Uploads

    def keep_unsent(self, cohort: bytes, seed: SecretBytes, vector: bytes) -> None:
        """Store what the chunks of an upload are derived from, besides the phase's keys, until the attempt is over.

        Args:
            cohort: whose attempt it is.
            seed: of the member's own mask.
            vector: SHA-256, as `Reservations.keep_vector` returned it.
        """
        self.database.store_sealed(f"unsent/{cohort.hex()}", (seed, vector), seed + vector)

    def load_unsent(self, cohort: bytes) -> tuple[SecretBytes, Integers] | None:
        """Return the seed and vector of an upload in progress. Raises StateError if they are damaged."""
        found = self.database.load_sealed(f"unsent/{cohort.hex()}", _parse_unsent)
        return found and (found[0], np.frombuffer(self.database.read_array(found[1]), "<i8"))

    def keep_header(self, round_id: str, header: UploadHeader) -> None:
        """Store the header of an upload whose phase is erased: a certificate may still name it."""
        self.database.store_sealed(f"header/{round_id}", header, header.encode())

    def load_headers(self, round_id: str) -> tuple[UploadHeader, ...]:
        """Return what `keep_header` has stored for a round, at most one."""
        header = self.database.load_sealed(f"header/{round_id}", UploadHeader.from_bytes)
        return () if header is None else (header,)

    # Results

    def result_folder(self, round_id: str) -> Path:
        """Return the folder of a round's evidence and result."""
        return self._state / "results" / round_id

    def unexported_folders(self) -> tuple[Path, ...]:
        """Return the folders of results that `mark_exported` has not marked."""
        return tuple(
            sorted(
                path for path in (self._state / "results").glob("*") if not (path / _EXPORTED_FILE).exists()
            )
        )

    def mark_exported(self, round_id: str) -> None:
        """Note that a round's result was saved where its owner wants it."""
        write_durably(self.result_folder(round_id) / _EXPORTED_FILE, b"")

    # Canary packs

    def load_pack(self, digest: str) -> bytes | None:
        """Return a canary pack that was fetched before; None if there is none of this SHA-256."""
        path = self._pack_file(digest)
        if path.is_file() and hashlib.sha256(content := path.read_bytes()).hexdigest() == digest:
            return content
        return None

    def keep_pack(self, digest: str, content: bytes) -> None:
        """Store a fetched pack: it is needed before every enrolment."""
        make_private(self._pack_file(digest).parent)
        write_durably(self._pack_file(digest), content)

    def _pack_file(self, digest: str) -> Path:
        return self._state / "canaries" / digest

    # Signed documents

    def newest_roster(self) -> Roster | None:
        """Return the newest roster seen, if any."""
        return self.database.load_sealed("roster", Roster.from_bytes)

    def see_roster(self, roster: Roster) -> None:
        """Remember a roster that the policy has checked.

        Raises:
            PeerFault: roster-rollback if a higher number, or another roster of this number, was seen.
        """
        seen = self.newest_roster()
        if seen is not None:
            roster.check_after(seen)
            if roster.number == seen.number:
                return
        self.database.store_sealed("roster", roster, roster.to_bytes())

    def newest_study(self, name: str) -> Study | None:
        """Return the highest version seen of a study, if any."""
        return self.database.load_sealed(f"study/{name}", Study.from_bytes)

    def see_study(self, study: Study) -> None:
        """Remember a study that was checked, as the highest version of its name."""
        if self.newest_study(name := read_content(study.content).notes.name) != study:
            self.database.store_sealed(f"study/{name}", study, study.to_bytes())


def _parse_phase(content: bytes) -> StoredPhase:
    round_id, _, raw = content.partition(b"\n")
    return StoredPhase(load_phase(raw), round_id.decode("ascii"))


def _parse_unsent(content: bytes) -> tuple[SecretBytes, bytes]:
    return SecretBytes(content[:MASK_SEED_BYTES]), content[MASK_SEED_BYTES:]
