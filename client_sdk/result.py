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
from calibration.rows import as_features, check_rows, unit_rows
from client_sdk.errors import PeerFault, StateError
from client_sdk.evidence import Evidence
from client_sdk.files import remove_durably, write_durably
from client_sdk.replaying import replayed
from protocol.attempt import group_floor
from protocol.causes import Cause
from protocol.disputes import Dispute, vertex_cover
from protocol.evicting import check_proof
from protocol.member import History
from protocol.messages import NO_INDICATOR, Certificate, Evictions, Terms
from protocol.published import ResultRecord
from protocol.record import verify_record
from protocol.recount import class_floor, rare_classes
from protocol.verdict import Verdict

Floats = npt.NDArray[np.float64]

_RECORD, _WEIGHTS, _EVICTIONS = "record.json", "weights.safetensors", "evictions.bin"
TRANSCRIPT = "transcript.json"


@dataclass(frozen=True, repr=False, eq=False)
class Result:
    """A result with everything it takes to verify it offline.

    Attributes:
        evidence: the signed history of the round.
        record: what the coordinator signed about the result.
        weights_file: the safetensors file as it came.
        evictions: proofs against the survivors that the sum is without; None where it is of all of them.
        transcript_file: what was said in the round; None where it was not fetched.
    """

    evidence: Evidence
    record: ResultRecord
    weights_file: bytes
    evictions: Evictions | None = None
    transcript_file: bytes | None = None

    @property
    def weights(self) -> Floats:
        """(dim, C) float64, for features of length 1: scores = z @ weights + bias."""
        return self._tensors["weights"]

    @property
    def bias(self) -> Floats | None:
        """(C,) float64; None without one."""
        return self._tensors.get("bias")

    @property
    def unanswered(self) -> tuple[int, ...]:
        """Classes without records in the sum, those withheld among them: their columns are zero, and no score of theirs counts."""
        return tuple(sorted({*self.record.withheld, *self.record.solution.empty_classes}))

    def scores(self, features: npt.ArrayLike) -> Floats:
        """(n, C) scores of (n, dim) features of any length; −∞ for the classes that this head cannot answer.

        Raises:
            CalibrationError: features of another shape or type, or without direction.
        """
        matrix = as_features(features, self.weights.shape[0])
        check_rows(matrix, normalise=True)
        found: Floats = unit_rows(matrix)[0] @ self.weights + (0.0 if self.bias is None else self.bias)
        found[:, list(self.unanswered)] = -np.inf  # zeros would beat every negative score
        return found

    def predict(self, features: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """(n,) labels as the members numbered them; never a class that was withheld."""
        scores = self.scores(features)
        answered = np.setdiff1d(np.arange(scores.shape[1]), self.unanswered)
        labels: npt.NDArray[np.int64] = answered[
            scores[:, answered].argmax(axis=1)
        ]  # whatever else is −∞ too
        return labels

    @property
    def certificate(self) -> Certificate:
        """Who is in the sum, by the decryptors' signatures."""
        return self.evidence.certificate

    @property
    def survivors(self) -> tuple[str, ...]:
        """Ids of the certified members, in order."""
        return tuple(survivor.member for survivor in self.certificate.survivors)

    @property
    def summed(self) -> tuple[str, ...]:
        """Ids of the members in the sum: the survivors, without those that proved false."""
        return tuple(member for member in self.survivors if member not in self.record.evicted)

    @property
    def counted(self) -> bool:
        """Whether this member's own upload is in the sum; False also where it only helped to decrypt."""
        return self.evidence.counted and self.evidence.member in self.summed

    @cached_property
    def verdict(self) -> Verdict | None:
        """What the transcript shows, `replayed`; None where it was not fetched."""
        if self.transcript_file is None:
            return None
        return replayed(self.transcript_file, self.evidence, self.record)

    def verify(self, admin_key: bytes | None = None) -> None:
        """Check everything again, from the stored bytes alone, in this order.

        1. the evidence (`Evidence.verify`), and that its certificate is not VOID (result-mismatch);
        2. the coordinator's signature on the record (bad-signature);
        3. each field of the record against the evidence (result-mismatch);
        4. members that were dropped are those whom its disputes cost their place, and none of them survives; each
           one evicted is a survivor and proved false (result-mismatch, eviction-invalid);
        5. the classes withheld are those that the counts it states leave below the floor (result-mismatch);
        6. the weights file's digest, then its tensors' names, types, shapes and finiteness, and that what the record says of classes
           is of those that the head has: a count for each, and zeros for each that it cannot answer, which leaves some
           (result-mismatch);
        7. the record names a transcript; where it was fetched, it is that one, it replays, and the coordinator broke no rule in
           it (`replayed`).

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
        self._check_dropped()
        self._check_evicted()
        self._check_rare()
        if self.record.records > self.evidence.opening.terms.records_max:
            raise _mismatch(f"{self.record.records} records are more than the terms admit")
        if hashlib.sha256(self.weights_file).hexdigest() != self.record.weights_sha256:
            raise _mismatch("the weights file is not the one that the record names")
        self._check_tensors()
        self._check_classes()
        if self.record.transcript is None:
            raise _mismatch("the record names no transcript")
        _ = self.verdict

    def _check_dropped(self) -> None:
        context, members = self.evidence.attempt.context, set(self.evidence.attempt.members)
        disputes = [Dispute(Cause(view.cause), *view.parties) for view in self.record.disputes]
        dropped = set(self.record.dropped)
        if (
            dropped != vertex_cover(context, disputes)
            or not {party for dispute in disputes for party in dispute.parties} <= members
            or dropped & set(self.survivors)
        ):
            raise _mismatch("the members that were dropped do not follow from the record's disputes")

    def _check_evicted(self) -> None:
        attempt, evicted = self.evidence.attempt, self.record.evicted
        proofs = self.evictions.proofs if self.evictions is not None else ()
        if tuple(proof.member for proof in proofs) != evicted or len(evicted) > attempt.quorum.colluders:
            raise _mismatch(f"no proof for each of the evicted, {', '.join(evicted) or 'who are none'}")
        for proof in proofs:
            check_proof(attempt, self.certificate, proof)

    def _check_rare(self) -> None:
        terms, manifest, rare = self.evidence.opening.terms, self.evidence.manifest, self.record.rare
        if (rare is None) != (terms.indicator == NO_INDICATOR):
            raise _mismatch("the record gives counts exactly where the terms name an indicator round")
        if rare is None:
            return
        floor = class_floor(len(manifest.members), group_floor(manifest), terms.margin)
        if (rare.indicator, rare.margin, rare.floor) != (terms.indicator.hex(), terms.margin, floor):
            raise _mismatch("the record states another indicator round, margin or floor than the terms")
        if rare_classes(rare.holders, floor) != terms.withheld:
            raise _mismatch("the classes withheld are not those that the counts leave below the floor")

    def _check_classes(self) -> None:
        rare, unanswered, classes = self.record.rare, list(self.unanswered), self.weights.shape[1]
        if rare is not None and len(rare.holders) != classes:
            raise _mismatch(
                f"the record states counts of {len(rare.holders)} classes, the head has {classes}"
            )
        if not {*unanswered} < {*range(classes)}:
            raise _mismatch(
                f"the record names classes {unanswered} that the head cannot answer, of {classes}"
            )
        if any(tensor[..., unanswered].any() for tensor in self._tensors.values()):
            raise _mismatch(f"the head scores classes {unanswered}, of which there are no records in the sum")

    def check_counts(self, history: History) -> None:
        """Hold the counts that the record states against this member's own (result-mismatch)."""
        for counted in history.counted:
            rare = self.record.rare
            if (
                rare is not None
                and counted.context.hex() == rare.indicator
                and counted.holders != rare.holders
            ):
                raise _mismatch("the record states other counts than this member made")

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the result beside its evidence, for `load`; every file has mode 0600, none holds a secret."""
        home = Path(folder)
        self.evidence.save(home)
        write_durably(home / _WEIGHTS, self.weights_file)
        if self.evictions is not None:
            write_durably(home / _EVICTIONS, self.evictions.to_bytes())
        if self.transcript_file is not None:
            write_durably(home / TRANSCRIPT, self.transcript_file)
        else:
            remove_durably(home / TRANSCRIPT)  # an earlier round's
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
            raw = (home / _EVICTIONS).read_bytes() if record.evicted else None
            evictions = Evictions.from_bytes(raw) if raw is not None else None
            kept = home / TRANSCRIPT
            transcript = kept.read_bytes() if kept.exists() else None
            return cls(evidence, record, (home / _WEIGHTS).read_bytes(), evictions, transcript)
        except (OSError, ValidationError, PeerFault) as error:
            why = error.errors(include_url=False)[0]["msg"] if isinstance(error, ValidationError) else error
            raise StateError(
                f"{home} holds no complete result ({why}): fetch it again into another folder"
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
            "closing": self.certificate.past.closing.hex(),
            "terms": terms.hash.hex(),
            "extractor": terms.extractor.hex(),
            "statistic": terms.statistic,
            "members": len(attempt.members),
            "withheld": terms.withheld,
        }

    @cached_property
    def _tensors(self) -> dict[str, Floats]:
        return tensors_of(self.weights_file)

    def _check_tensors(self) -> None:
        check_tensors(self.evidence.opening.terms, self._tensors)


def tensors_of(weights_file: bytes) -> dict[str, Floats]:
    """The tensors in a weights file; PeerFault(result-mismatch) where it is none."""
    try:
        tensors: dict[str, Floats] = load(weights_file)
    except (SafetensorError, KeyError, ValueError) as error:  # also types and shapes that numpy has not
        raise _mismatch(f"the weights are no safetensors file: {error}") from error
    return tensors


def check_tensors(terms: Terms, tensors: dict[str, Floats]) -> None:
    """Refuse tensors of other names, shapes or types than the terms ask for, or not finite (result-mismatch)."""
    try:
        shapes = {block.name: block.shape for block in Layout.from_bytes(terms.layout).blocks}
        rows, classes = shapes["U"]
    except (CalibrationError, KeyError, ValueError) as error:
        raise _mismatch(f"the terms' layout is not one of classifier statistics: {error}") from error
    bias = terms.statistic == "ffc-bias"
    expected = {"weights": (rows - bias, classes)} | ({"bias": (classes,)} if bias else {})
    seen = {name: tensor.shape for name, tensor in tensors.items()}
    if seen != expected:
        raise _mismatch(f"the weights file holds {seen}, the terms ask for {expected}")
    for name, tensor in tensors.items():
        if tensor.dtype != np.float64 or not np.isfinite(tensor).all():
            raise _mismatch(f"{name} is not finite float64")


def _mismatch(detail: str) -> PeerFault:
    return PeerFault(Cause.RESULT_MISMATCH, detail, ["coordinator"])
