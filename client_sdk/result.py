"""A finished round: the weights, and the proof that they follow from what this member took part in."""

import hashlib
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError
from safetensors.numpy import load

from calibration.errors import CalibrationError
from calibration.head import Head
from calibration.head_file import Calibrated, notes_in
from calibration.personal import WEIGHTS, Personal
from calibration.questions import REFUSED, Question
from client_sdk.asked import check_material, material_digest, terms_mechanism, terms_noise, terms_question
from client_sdk.errors import Misuse, mismatch
from client_sdk.evidence import Evidence
from client_sdk.files import read_part, write_together
from client_sdk.personal import personalise
from client_sdk.replaying import replayed
from client_sdk.supply import Records
from protocol.causes import Cause
from protocol.disputes import Dispute, vertex_cover
from protocol.evicting import check_proof
from protocol.member import History
from protocol.messages import NO_INDICATOR, Certificate, Evictions
from protocol.published import ResultRecord
from protocol.record import verify_record
from protocol.recount import class_floor, rare_classes
from protocol.rest import HEAD, round_name
from protocol.verdict import Verdict

Floats = npt.NDArray[np.float64]

_RECORD, _WEIGHTS, _EVICTIONS = "record.json", "weights.safetensors", "evictions.bin"
_REALS = 1e-9
_MATERIAL, _DOCUMENT = "material.bin", ".document.safetensors"
TRANSCRIPT = "transcript.json"


@dataclass(frozen=True, repr=False, eq=False)
class Result:
    """A result with everything it takes to verify it offline.

    Attributes:
        evidence: the signed history of the round.
        record: what the coordinator signed about the result.
        weights_file: the head's safetensors file as it came; None where the round ends in no head.
        evictions: proofs against the survivors that the sum is without; None where it is of all of them.
        transcript_file: what was said in the round; None where it was not fetched.
        documents: what is published beside the head, by name, as it came.
        material: what the round's question rested on; None for nothing.
    """

    evidence: Evidence
    record: ResultRecord
    weights_file: bytes | None
    evictions: Evictions | None = None
    transcript_file: bytes | None = None
    documents: Mapping[str, bytes] = field(default_factory=dict)
    material: bytes | None = None

    @property
    def weights(self) -> Floats:
        """(dim, C) float64, for features of length 1: scores = z @ weights + bias; of other heads for what they map features to."""
        return self.calibrated.head.weights

    @property
    def bias(self) -> Floats | None:
        """(C,) float64; None without one."""
        return self.calibrated.head.bias

    @cached_property
    def calibrated(self) -> Calibrated:
        """The head of whatever kind, which answers no class without records.

        Raises:
            Misuse: the round ended in no head.
            PeerFault: result-mismatch where the file holds none.
        """
        if self.weights_file is None:
            raise Misuse(f"a {self.record.statistic} round ends in no head: see `arrays` of its documents")
        return calibrated_in(self.weights_file).without(self.unanswered)

    def arrays(self, name: str) -> dict[str, npt.NDArray[Any]]:
        """The arrays of a document that the record names; Misuse where it names none such, or none followed from the sums."""
        return tensors_of(self._document(name))

    def notes(self, name: str) -> dict[str, Any]:
        """What a document says beside its arrays; Misuse as `arrays`."""
        return notes_of(self._document(name))

    def head(self, name: str) -> Calibrated:
        """Another head that follows from the same sums, such as "lda", where the round publishes it; Misuse as `arrays`."""
        return calibrated_in(self._document(name)).without(self.unanswered)

    def personalise(self, own: Records, held_out: Records, weights: Sequence[float] = WEIGHTS) -> Personal:
        """This member's own head: the round's sums with its own records counted (1 + β) times; nothing leaves the member.

        Records of classes that were withheld count too: the head stays here.

        Args:
            own: what it contributed.
            held_out: what it did not, n ≥ 1: the β of their least squared error is taken.
            weights: β to choose from.

        Raises:
            Misuse: the round does not publish its pooled sums.
            CalibrationError: as `calibration.personalise`.
        """
        return personalise(self, own, held_out, weights)

    def _document(self, name: str) -> bytes:
        if name not in self.documents:
            there = ", ".join(self.documents) or "none"
            raise Misuse(
                f"the round publishes no {name} beside its head, but {there}: ask for it when it is opened"
            )
        if reason := notes_of(self.documents[name]).get(REFUSED):
            raise Misuse(f"no {name} follows from the round's sums: {reason}")
        return self.documents[name]

    @property
    def unanswered(self) -> tuple[int, ...]:
        """Classes without records in the sum, those withheld among them: their columns are zero, and no score of theirs counts."""
        return tuple(sorted({*self.record.withheld, *self.record.solution.empty_classes}))

    def scores(self, features: npt.ArrayLike) -> Floats:
        """(n, C) scores of (n, dim) features of any length; −∞ for the classes that this head cannot answer.

        Raises:
            CalibrationError: features of another shape or type, or without direction.
        """
        return self.calibrated.scores(features)

    def probabilities(self, features: npt.ArrayLike, *, temperature: float = 1.0) -> Floats:
        """(n, C) probabilities softmax(scores/τ).

        Args:
            features: as `scores`.
            temperature: τ; records held out say which suits a ridge head.

        Raises:
            CalibrationError: as `scores`.
        """
        head = self.calibrated.head
        return head.probabilities(features, temperature=temperature, normalise=head.scales)

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

    def verify(self, admin_key: bytes | str | None = None) -> None:
        """Check everything again, from the stored bytes alone, in this order.

        1. the evidence (`Evidence.verify`), and that its certificate is not VOID (result-mismatch);
        2. the coordinator's signature on the record (bad-signature);
        3. each field of the record against the evidence (result-mismatch);
        4. members that were dropped are those whom its disputes cost their place, and none of them survives; each
           one evicted is a survivor and proved false (result-mismatch, eviction-invalid);
        5. the classes withheld are those that the counts it states leave below the floor (result-mismatch);
        6. all that the record says of noise is what terms and manifest come to (result-mismatch);
        7. the digests of the weights file and the other documents, then that the head is one that the terms ask for, of their
           dimensions, and finite; that what the record says of classes is of those that the head has: a count for each, and
           zeros for each that it cannot answer, which leaves some; and that the head's file says the same of noise as the
           record (result-mismatch);
        8. the record names a transcript; where it was fetched, it is that one, it replays, and the coordinator broke no rule in
           it (`replayed`).

        That the weights solve the sums is for those to check who may read the sums; this shows that the
        coordinator signed that they do, and for whom.

        Args:
            admin_key: the pinned key, 32 bytes or their 64 hexadecimal digits; None checks against the key that the roster itself names.

        Raises:
            PeerFault: the first of these that does not hold.
        """
        self.evidence.verify(admin_key)
        if self.certificate.void:
            raise mismatch("the certificate says that the attempt ended without a sum")
        verify_record(self.record, self.evidence.roster.coordinator)
        for each, expected in self._expected().items():
            seen = getattr(self.record, each)
            if seen != expected:
                raise mismatch(f"{each} is {seen} in the record, {expected} follows from the certificate")
        named = tuple((view.member, view.digest) for view in self.record.survivors)
        if named != tuple((s.member, s.digest.hex()) for s in self.certificate.survivors):
            raise mismatch("the record names other survivors than the certificate")
        self._check_dropped()
        self._check_evicted()
        self._check_rare()
        self._check_noise()
        if self.record.noise == "none" and self.record.records > self.evidence.opening.terms.records_max:
            raise mismatch(f"{self.record.records} records are more than the terms admit")
        self._check_files()
        _ = self.verdict

    def _check_files(self) -> None:
        if _digest(self.weights_file) != self.record.weights_sha256:
            raise mismatch("the weights file is not the one that the record names")
        documents = {view.name: view.sha256 for view in self.record.documents}
        if {name: _digest(content) for name, content in self.documents.items()} != documents:
            raise mismatch("the documents are not those that the record names")
        if self.weights_file is not None:
            self._check_tensors()
            self._check_classes()
            noise = self.record.noise
            if self.calibrated.noise != (None if isinstance(noise, str) else noise.model_dump(mode="json")):
                raise mismatch("the head promises other noise than the record")
        elif terms_question(self.evidence.attempt, self.material).has_head:
            raise mismatch("the record names no weights, and the terms ask for a head")

    def _check_dropped(self) -> None:
        context, members = self.evidence.attempt.context, set(self.evidence.attempt.members)
        disputes = [Dispute(Cause(view.cause), *view.parties) for view in self.record.disputes]
        dropped = set(self.record.dropped)
        if (
            any(dispute.one == dispute.other for dispute in disputes)
            or dropped != vertex_cover(context, disputes, self.evidence.attempt.quorum.colluders)
            or not {party for dispute in disputes for party in dispute.parties} <= members
            or dropped & set(self.survivors)
        ):
            raise mismatch("the members that were dropped do not follow from the record's disputes")

    def _check_evicted(self) -> None:
        attempt, evicted = self.evidence.attempt, self.record.evicted
        proofs = self.evictions.proofs if self.evictions is not None else ()
        if tuple(proof.member for proof in proofs) != evicted or len(evicted) > attempt.quorum.colluders:
            raise mismatch(f"no proof for each of the evicted, {', '.join(evicted) or 'who are none'}")
        for proof in proofs:
            check_proof(attempt, self.certificate, proof)

    def _check_noise(self) -> None:
        """What the record promises is what terms and manifest come to (result-mismatch)."""
        noise = terms_noise(self.evidence.opening.terms)
        mechanism = terms_mechanism(self.evidence.attempt)
        view = None if isinstance(self.record.noise, str) else self.record.noise.model_dump(mode="json")
        if (mechanism is None) != (view is None):
            raise mismatch("the record says of noise what the terms do not")
        if noise is not None and mechanism is not None and not _alike(view, noise.promise(mechanism)):
            raise mismatch("the record promises other noise than the terms come to")

    def _check_rare(self) -> None:
        terms, manifest, rare = self.evidence.opening.terms, self.evidence.manifest, self.record.rare
        if (rare is None) != (terms.indicator == NO_INDICATOR):
            raise mismatch("the record gives counts exactly where the terms name an indicator round")
        if rare is None:
            return
        floor = class_floor(manifest, terms.margin)
        if (rare.indicator, rare.margin, rare.floor) != (terms.indicator.hex(), terms.margin, floor):
            raise mismatch("the record states another indicator round, margin or floor than the terms")
        if rare_classes(rare.holders, floor) != terms.withheld:
            raise mismatch("the classes withheld are not those that the counts leave below the floor")

    def _check_classes(self) -> None:
        rare, unanswered, classes = self.record.rare, list(self.unanswered), self.weights.shape[1]
        if rare is not None and len(rare.holders) != classes:
            raise mismatch(f"the record states counts of {len(rare.holders)} classes, the head has {classes}")
        if not {*unanswered} < {*range(classes)}:
            raise mismatch(f"the record names classes {unanswered} that the head cannot answer, of {classes}")
        columns = [self.weights] if self.bias is None else [self.weights, self.bias]
        # A class's Gaussian that is missing costs a logistic head its column's use, not its numbers.
        linear = type(self.calibrated.head) is Head
        if linear and any(tensor[..., unanswered].any() for tensor in columns):
            raise mismatch(f"the head scores classes {unanswered}, of which there are no records in the sum")

    def check_counts(self, history: History) -> None:
        """Hold the counts that the record states against this member's own (result-mismatch)."""
        for counted in history.counted:
            rare = self.record.rare
            if (
                rare is not None
                and counted.context.hex() == rare.indicator
                and counted.holders != rare.holders
            ):
                raise mismatch("the record states other counts than this member made")

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the result beside its evidence, for `load`, and remove an earlier round's; every file has mode 0600.

        None holds a key. Documents may be for members alone, such as pooled sums.
        """
        home = Path(folder)
        self.evidence.save(home)
        files = {
            **{path.name: None for path in home.glob(f"*{_DOCUMENT}")},  # an earlier round's
            **{f"{name}{_DOCUMENT}": content for name, content in self.documents.items()},
            _WEIGHTS: self.weights_file,
            _MATERIAL: self.material,
            _EVICTIONS: None if self.evictions is None else self.evictions.to_bytes(),
            TRANSCRIPT: self.transcript_file,
            _RECORD: self.record.model_dump_json(indent=2).encode(),
        }
        write_together(home, files)

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
        read = partial(read_part, of="result")
        record = read(home / _RECORD, ResultRecord.model_validate_json)
        rests = material_digest(evidence.opening.terms) is not None
        return cls(
            evidence,
            record,
            read(home / _WEIGHTS, bytes) if record.weights_sha256 is not None else None,
            read(home / _EVICTIONS, Evictions.from_bytes) if record.evicted else None,
            read(home / TRANSCRIPT, bytes) if (home / TRANSCRIPT).exists() else None,
            {view.name: read(home / f"{view.name}{_DOCUMENT}", bytes) for view in record.documents},
            read(home / _MATERIAL, bytes) if rests else None,
        )

    def __repr__(self) -> str:
        counted = "counted" if self.counted else "not counted"
        return f"<Result of round {self.record.round}, {len(self.survivors)} survivors, {counted}>"

    def _expected(self) -> dict[str, object]:
        attempt, terms = self.evidence.attempt, self.evidence.opening.terms
        return {
            "round": round_name(attempt.context),
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

    def _check_tensors(self) -> None:
        assert self.weights_file is not None
        if self.material is not None:
            check_material(self.evidence.opening.terms, self.material)
        check_head(terms_question(self.evidence.attempt, self.material), self.weights_file)


def tensors_of(content: bytes) -> dict[str, npt.NDArray[Any]]:
    """The arrays in a safetensors file; PeerFault(result-mismatch) where it is none."""
    try:
        arrays: dict[str, npt.NDArray[Any]] = load(content)
    except (SafetensorError, KeyError, ValueError) as error:  # also types and shapes that numpy has not
        raise mismatch(f"this is no safetensors file: {error}") from error
    return arrays


def notes_of(content: bytes) -> dict[str, Any]:
    """What a safetensors file says beside its arrays; PeerFault(result-mismatch) where that is no object."""
    try:
        return notes_in(content, HEAD)
    except CalibrationError as error:
        raise mismatch(str(error)) from error


def calibrated_in(content: bytes) -> Calibrated:
    """The head in its file; PeerFault(result-mismatch) where it is none."""
    try:
        return Calibrated.of(tensors_of(content), notes_of(content))
    except CalibrationError as error:
        raise mismatch(f"the weights file holds no head: {error}") from error


def check_head(asked: Question, content: bytes) -> None:
    """Refuse a head of another kind or of other dimensions than the terms ask for, or not finite (result-mismatch)."""
    try:
        asked.check_head(calibrated_in(content).head)
    except CalibrationError as error:
        raise mismatch(str(error)) from error


def _alike(seen: Mapping[str, Any] | None, expected: Mapping[str, Any]) -> bool:
    """The same under the same names, reals but for the last digits, in which libraries differ."""
    return (
        seen is not None
        and seen.keys() == expected.keys()
        and all(
            math.isclose(seen[name], value, rel_tol=_REALS)
            if isinstance(value, float) and isinstance(seen[name], float)
            else seen[name] == value
            for name, value in expected.items()
        )
    )


def _digest(content: bytes | None) -> str | None:
    return None if content is None else hashlib.sha256(content).hexdigest()
