"""A round with mask helpers as one client can prove it: its upload, that it was counted, and the signed result."""

import hashlib
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from calibration.head_file import Calibrated
from client_sdk.asked import terms_question
from client_sdk.errors import Misuse, PeerFault, StateError, first_fault, mismatch
from client_sdk.files import make_folder, write_together
from client_sdk.policy import check_admin
from client_sdk.result import calibrated_in, check_head
from protocol.helpers.attempt import HelperAttempt
from protocol.helpers.messages import HelperCounted, HelperOpening, HelperUpload, root_outcome
from protocol.messages import Roster
from protocol.messages.outcome import NO_REASON, closing_hash
from protocol.published import ResultRecord
from protocol.record import verify_record
from protocol.rest import round_name

_ROSTER, _OPENING, _UPLOAD = "roster.bin", "helper-opening.bin", "helper-upload.bin"
_COUNTED, _RECORD, _WEIGHTS = "counted.bin", "record.json", "weights.safetensors"


@dataclass(frozen=True)
class ClientEvidence:
    """What a client keeps before its upload leaves; no secret is in it.

    Attributes:
        member: the client.
        upload: its announcement, sent again as it is.
    """

    member: str
    roster: Roster
    opening: HelperOpening
    upload: HelperUpload

    @cached_property
    def attempt(self) -> HelperAttempt:
        """Roster and opening as one."""
        return HelperAttempt(self.roster, self.opening)

    def save(self, folder: Path) -> None:
        """Write roster, opening and upload."""
        make_folder(folder)
        parts = {_ROSTER: self.roster, _OPENING: self.opening, _UPLOAD: self.upload}
        write_together(folder, {name: part.to_bytes() for name, part in parts.items()})

    @staticmethod
    def saved_in(folder: Path) -> bool:
        """Whether `save` finished here."""
        return (folder / _UPLOAD).exists()

    @classmethod
    def load(cls, folder: Path) -> "ClientEvidence":
        """Read what `save` wrote; StateError where a file is missing or can't be parsed."""
        try:
            upload = HelperUpload.from_bytes((folder / _UPLOAD).read_bytes())
            return cls(
                upload.member,
                Roster.from_bytes((folder / _ROSTER).read_bytes()),
                HelperOpening.from_bytes((folder / _OPENING).read_bytes()),
                upload,
            )
        except (OSError, PeerFault, Misuse) as error:
            raise StateError(f"{folder} holds no complete evidence of a round ({error})") from error


@dataclass(frozen=True, repr=False, eq=False)
class ClientResult:
    """A counted client's result, with everything it takes to verify it offline.

    Attributes:
        evidence: what the client was shown, and what it sent.
        counted: three helpers' votes, and the path by which its upload stands in the set they certify.
        record: what the coordinator signed about the result.
        weights_file: the safetensors file as it came.
    """

    evidence: ClientEvidence
    counted: HelperCounted
    record: ResultRecord
    weights_file: bytes

    @property
    def weights(self) -> npt.NDArray[np.float64]:
        """(dim, C) float64, for features of length 1: scores = z @ weights + bias."""
        return self.calibrated.head.weights

    @property
    def bias(self) -> npt.NDArray[np.float64] | None:
        """(C,) float64; None without one."""
        return self.calibrated.head.bias

    @cached_property
    def calibrated(self) -> Calibrated:
        """The head, as its file says; PeerFault(result-mismatch) where it holds none."""
        return calibrated_in(self.weights_file)

    def verify(self, admin_key: bytes | str | None = None) -> None:
        """Check everything again, from the stored bytes alone, in this order.

        1. the roster is the admin's (wrong-federation, bad-signature);
        2. the opening passes `HelperAttempt.check`, whatever has expired since, and the client signed its upload for it;
        3. that very upload stands in a set of n_min or more that three helpers certified (`check_counted`);
        4. the coordinator's signature on the record (bad-signature);
        5. each field of the record against the opening and the certified set, whose size it tells and whose other
           members a client is not shown (result-mismatch);
        6. the weights file's digest, then its tensors' names, types, shapes and finiteness (result-mismatch).

        Args:
            admin_key: the pinned key, 32 bytes or their 64 hexadecimal digits; None checks against the key that the roster itself names.

        Raises:
            PeerFault: the first of these that does not hold.
        """
        evidence, attempt, record = self.evidence, self.evidence.attempt, self.record
        check_admin(evidence.roster, admin_key)
        attempt.check(0.0)
        attempt.check_header(evidence.upload.header)
        attempt.check_counted(self.counted, evidence.upload.header.survivor)
        verify_record(record, evidence.roster.coordinator)
        for field, expected in self._expected().items():
            seen = getattr(record, field)
            if seen != expected:
                raise mismatch(f"{field} is {seen} in the record, {expected} follows from what was certified")
        own = self.counted.survivor
        if len(record.survivors) != self.counted.count or (own.member, own.digest.hex()) not in {
            (view.member, view.digest) for view in record.survivors
        }:
            raise mismatch("the record names other survivors than were certified")
        if not set(record.outvoted) <= set(attempt.present) or len(record.outvoted) > 1:
            raise mismatch(f"{', '.join(record.outvoted)}: one helper at the most can be outvoted")
        if record.records > evidence.opening.terms.records_max:
            raise mismatch(f"{record.records} records are more than the terms admit")
        if hashlib.sha256(self.weights_file).hexdigest() != record.weights_sha256:
            raise mismatch("the weights file is not the one that the record names")
        check_head(terms_question(attempt), self.weights_file)

    def _expected(self) -> dict[str, object]:
        attempt, terms = self.evidence.attempt, self.evidence.opening.terms
        opened = root_outcome(attempt.context, attempt.family, attempt.manifest.floor, self.counted.root)
        return {
            "mode": "helpers",
            "round": round_name(attempt.context),
            "federation": attempt.roster.federation.hex(),
            "cohort": attempt.manifest.cohort.hex(),
            "context": attempt.context.hex(),
            "closing": closing_hash(attempt.context, NO_REASON, [opened]).hex(),
            "terms": terms.hash.hex(),
            "extractor": terms.extractor.hex(),
            "statistic": terms.statistic,
            "members": attempt.manifest.clients,
            "withheld": terms.withheld,
            "disputes": (),
            "dropped": (),
            "evicted": (),
        }

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the result beside its evidence, for `load`; every file has mode 0600, none holds a secret."""
        home = Path(folder)
        self.evidence.save(home)
        files = {
            _WEIGHTS: self.weights_file,
            _RECORD: self.record.model_dump_json(indent=2).encode(),
            _COUNTED: self.counted.to_bytes(),
        }
        write_together(home, files)

    @staticmethod
    def saved_in(folder: Path) -> bool:
        """Whether `save` finished here."""
        return (folder / _COUNTED).exists()

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> "ClientResult":
        """Read what `save` wrote, unverified; StateError where a file is missing or can't be parsed."""
        home = Path(folder)
        evidence = ClientEvidence.load(home)
        try:
            return cls(
                evidence,
                HelperCounted.from_bytes((home / _COUNTED).read_bytes()),
                ResultRecord.model_validate_json((home / _RECORD).read_bytes()),
                (home / _WEIGHTS).read_bytes(),
            )
        except (OSError, ValidationError, PeerFault) as error:
            why = first_fault(error) if isinstance(error, ValidationError) else error
            raise StateError(f"{home} holds no complete result ({why})") from error

    def __repr__(self) -> str:
        return f"<ClientResult of round {self.record.round}, one of {self.counted.count} counted>"
