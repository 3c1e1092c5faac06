"""A finished round: the weights, and the proof that they follow from what this member took part in."""

import hashlib
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.numpy import load

from calibration.errors import CalibrationError
from calibration.layout import Layout
from client_sdk.errors import PeerFault, StateError
from client_sdk.evidence import Evidence
from client_sdk.files import write_durably
from protocol.causes import Cause
from protocol.messages import Certificate
from protocol.record import verify_record
from protocol.rest import ResultRecord

Floats = npt.NDArray[np.float64]

_RECORD, _WEIGHTS = "record.json", "weights.safetensors"


@dataclass(frozen=True, repr=False, eq=False)
class Result:
    """A result with everything it takes to verify it offline.

    Attributes:
        evidence: the signed history of the round.
        record: what the coordinator signed about the result.
        weights_file: the safetensors file as it came.
    """

    evidence: Evidence
    record: ResultRecord
    weights_file: bytes

    @property
    def weights(self) -> Floats:
        """(dim, C) float64, for features of length 1: scores = z @ weights + bias."""
        return self._tensors["weights"]

    @property
    def bias(self) -> Floats | None:
        """(C,) float64; None without one."""
        return self._tensors.get("bias")

    @property
    def certificate(self) -> Certificate:
        """Who is in the sum, by the decryptors' signatures."""
        return self.evidence.certificate

    @property
    def survivors(self) -> tuple[str, ...]:
        """Ids of the members in the sum, in order."""
        return tuple(survivor.member for survivor in self.certificate.survivors)

    @property
    def counted(self) -> bool:
        """Whether this member's own upload is in the sum; False also where it only helped to decrypt."""
        return self.evidence.counted

    def verify(self, admin_key: bytes | None = None) -> None:
        """Check everything again, from the stored bytes alone, in this order.

        1. the evidence (`Evidence.verify`), and that its certificate is not VOID (result-mismatch);
        2. the coordinator's signature on the record (bad-signature);
        3. each field of the record against the evidence (result-mismatch);
        4. the weights file's digest, then its tensors' names, types, shapes and finiteness (result-mismatch).

        That the weights solve the sums is for those to check who may read the sums; this shows that the
        coordinator signed that they do, and for whom.

        Args:
            admin_key: the pinned 32-byte key; None checks against the key that the roster itself names.

        Raises:
            PeerFault: the first of these that does not hold.
        """
        self.evidence.verify(admin_key)
        if self.certificate.void:
            raise _mismatch("the certificate says that the attempt ended without a sum")
        verify_record(self.record, self.evidence.roster.coordinator)
        for field, expected in self._expected().items():
            seen = getattr(self.record, field)
            if seen != expected:
                raise _mismatch(f"{field} is {seen} in the record, {expected} follows from the certificate")
        named = tuple((view.member, view.digest) for view in self.record.survivors)
        if named != tuple((s.member, s.digest.hex()) for s in self.certificate.survivors):
            raise _mismatch("the record names other survivors than the certificate")
        if self.record.records > self.evidence.opening.terms.records_max:
            raise _mismatch(f"{self.record.records} records are more than the terms admit")
        if hashlib.sha256(self.weights_file).hexdigest() != self.record.weights_sha256:
            raise _mismatch("the weights file is not the one that the record names")
        self._check_tensors()

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the result beside its evidence, for `load`; every file has mode 0600, none holds a secret."""
        home = Path(folder)
        self.evidence.save(home)
        write_durably(home / _WEIGHTS, self.weights_file)
        write_durably(home / _RECORD, self.record.model_dump_json(indent=2).encode())  # last: stands for all

    @staticmethod
    def saved_in(folder: Path) -> bool:
        """Whether `save` finished here."""
        return (folder / _RECORD).exists()

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> "Result":
        """Read what `save` wrote, unverified.

        Raises:
            StateError: a file is missing or can't be parsed.
        """
        home = Path(folder)
        evidence = Evidence.load(home)
        try:
            record = ResultRecord.model_validate_json((home / _RECORD).read_bytes())
            return cls(evidence, record, (home / _WEIGHTS).read_bytes())
        except (OSError, ValidationError) as error:
            raise StateError(
                f"{home} holds no complete result ({error}): fetch it again into another folder"
            ) from error

    def __repr__(self) -> str:
        counted = "counted" if self.counted else "not counted"
        return f"<Result of round {self.record.round}, {len(self.survivors)} survivors, {counted}>"

    def _expected(self) -> dict[str, object]:
        attempt, terms = self.evidence.attempt, self.evidence.opening.terms
        return {
            "federation": attempt.roster.federation.hex(),
            "cohort": attempt.manifest.cohort.hex(),
            "context": attempt.context.hex(),
            "certificate": self.certificate.hash.hex(),
            "terms": terms.hash.hex(),
            "extractor": terms.extractor.hex(),
            "statistic": terms.statistic,
            "members": len(attempt.members),
        }

    @cached_property
    def _tensors(self) -> dict[str, Floats]:
        try:
            tensors: dict[str, Floats] = load(self.weights_file)
        except (SafetensorError, KeyError, ValueError) as error:  # also types and shapes that numpy has not
            raise _mismatch(f"the weights are no safetensors file: {error}") from error
        return tensors

    def _check_tensors(self) -> None:
        terms = self.evidence.opening.terms
        try:
            shapes = {block.name: block.shape for block in Layout.from_bytes(terms.layout).blocks}
            rows, classes = shapes["U"]
        except (CalibrationError, KeyError, ValueError) as error:
            raise _mismatch(f"the terms' layout is not one of classifier statistics: {error}") from error
        bias = terms.statistic == "ffc-bias"
        expected = {"weights": (rows - bias, classes)} | ({"bias": (classes,)} if bias else {})
        seen = {name: tensor.shape for name, tensor in self._tensors.items()}
        if seen != expected:
            raise _mismatch(f"the weights file holds {seen}, the terms ask for {expected}")
        for name, tensor in self._tensors.items():
            if tensor.dtype != np.float64 or not np.isfinite(tensor).all():
                raise _mismatch(f"{name} is not finite float64")


def _mismatch(detail: str) -> PeerFault:
    return PeerFault(Cause.RESULT_MISMATCH, detail, ["coordinator"])
