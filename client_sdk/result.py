"""A finished round: the head, with everything needed to verify it."""

import hashlib
import math
import os
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field
from safetensors import SafetensorError
from safetensors.numpy import load

from client_sdk.errors import Misuse
from client_sdk.evidence import EVIDENCE, Evidence, replayed
from client_sdk.files import read_part
from client_sdk.model_card import model_card
from client_sdk.records import Records
from veilsum.calibration.answer import REFUSED
from veilsum.calibration.head import Head
from veilsum.calibration.head_file import NO_TEMPERATURE, Calibrated
from veilsum.calibration.reliability import Reliability
from veilsum.calibration.ridge import OWN_WEIGHTS
from veilsum.protocol.causes import Cause
from veilsum.protocol.disputes import Dispute, vertex_cover
from veilsum.protocol.evidence import check_proof
from veilsum.protocol.member import History
from veilsum.protocol.messages import NO_CONTEXT, Certificate, Evictions
from veilsum.protocol.record import ResultRecord, mismatch, verify_record
from veilsum.protocol.rest import round_name
from veilsum.protocol.round_spec import RoundSpec
from veilsum.protocol.study import SUM_STEP, Content, withheld_classes
from veilsum.study.answers import Pooled, answer, pooled
from veilsum.study.promise import promise
from veilsum.study.result_files import (
    Files,
    calibrated_in,
    check_answer,
    check_head,
    digest_of,
    document_in,
    material_file,
    read_material,
)
from veilsum.study.vectors import Material
from veilsum.system.files import make_folder, write_together

if TYPE_CHECKING:
    from veilsum.calibration.ridge import Personal
    from veilsum.integrations.sklearn import SecureRidgeClassifier
    from veilsum.integrations.torch import CalibratedHead
    from veilsum.protocol.replay import Verdict

Floats = npt.NDArray[np.float64]

_RECORD, _WEIGHTS, _EVICTIONS = "record.json", "weights.safetensors", "evictions.bin"
_JUDGED, _CARD = "judged.json", "model-card.md"
_REALS = 1e-9
_MATERIAL, _DOCUMENT = "material.bin", ".document.safetensors"
TRANSCRIPT = "transcript.json"
LOG_ODDS = frozenset({"gradient", "virtual features"})
"""Heads of the logistic loss, by `solution.chosen_by`: their scores are log-odds at a temperature of 1."""


class Judgement(BaseModel):
    """Accuracy of heads on this member's hold-out records.

    Attributes:
        records: number of hold-out rows.
        accuracy: share of them that the consortium's head labels correctly.
        own_accuracy: share that a head fitted to this member's contribution alone labels correctly; None without one.
        worse: whether the consortium's head is wrong more often, by more than two standard errors (McNemar 1947).
        temperature: τ at which softmax(scores/τ) of the consortium's head fits their labels best.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    records: int = Field(gt=0)
    accuracy: float
    own_accuracy: float | None
    worse: bool
    temperature: float = Field(gt=0, allow_inf_nan=False)


@dataclass(frozen=True, repr=False, eq=False)
class Result:
    """A round's result, with everything needed to verify it offline.

    Attributes:
        evidence: the signed history of the round.
        record: the coordinator's signed record of the result.
        head_file: the head's safetensors file, as received; None if the step has no head.
        evictions: proofs against survivors that were left out of the sum; None if none was.
        transcript_file: the round's transcript; None if it was not fetched.
        document_files: documents published with the head, by name, as received.
        material_file: the step's input from earlier steps; None without any.
        judged: the head's accuracy on this member's hold-out records; None before `judge`. It is not signed or sent.
    """

    evidence: Evidence
    record: ResultRecord
    head_file: bytes | None
    evictions: Evictions | None = None
    transcript_file: bytes | None = None
    document_files: Mapping[str, bytes] = field(default_factory=dict)
    material_file: bytes | None = None
    judged: Judgement | None = None

    @property
    def spec(self) -> RoundSpec:
        """The round's parameters, from study, manifest and terms."""
        return self.evidence.attempt.spec

    @property
    def content(self) -> Content:
        """The content of the round's study."""
        return self.evidence.attempt.content

    @cached_property
    def material(self) -> Material:
        """The step's input from earlier steps. Raises PeerFault(terms-refused) if the file does not hold it."""
        return read_material(self.spec, self.material_file)

    @property
    def head(self) -> Head | None:
        """The head; None after a step without one."""
        return None if self.head_file is None else self.calibrated.head

    @cached_property
    def calibrated(self) -> Calibrated:
        """The head with its temperature: the one that `judge` found, or else 1 for logistic heads. It never predicts a class without rows.

        Raises:
            Misuse: the step has no head.
            PeerFault: result-mismatch if the file holds no head.
        """
        if self.head_file is None:
            raise Misuse(f"step {self.record.step} has no head: see `arrays` of its documents")
        found = calibrated_in(self.head_file).without(self.unanswered)
        if self.judged is not None:
            return replace(found, temperature=self.judged.temperature)
        log_odds = self.record.solution.chosen_by in LOG_ODDS
        return replace(found, temperature=1.0) if log_odds else found

    @cached_property
    def heads(self) -> Mapping[str, Calibrated]:
        """Further heads from the same sums: of the study's other statistics by kind, and "lda" and "ncm" if it publishes them."""
        names = {*(each.kind for each in self.spec.question.statistics[1:]), "lda", "ncm"}
        return {
            name: calibrated_in(content).without(self.unanswered)
            for name, content in self.document_files.items()
            if name in names and REFUSED not in document_in(content).notes
        }

    @property
    def weights(self) -> Floats:
        """(dim, C) float64. For a linear head, scores = z @ weights + bias for features z of length 1."""
        return self.calibrated.head.weights

    @property
    def bias(self) -> Floats | None:
        """(C,) float64; None without one."""
        return self.calibrated.head.bias

    def arrays(self, name: str) -> dict[str, npt.NDArray[Any]]:
        """Return a document's arrays. Raises Misuse if the study does not publish it, or if the sums did not determine it."""
        return dict(document_in(self._document(name)).arrays)

    def notes(self, name: str) -> dict[str, Any]:
        """Return a document's notes. Raises as `arrays`."""
        return dict(document_in(self._document(name)).notes)

    def personalise(
        self, own: Records, held_out: Records, weights: Sequence[float] = OWN_WEIGHTS
    ) -> "Personal":
        """Fit a personal head: the round's sums with this member's own rows counted (1 + β) times. Nothing leaves the member.

        Rows of withheld classes count too, because the head stays here. Unusable rows are skipped.

        Args:
            own: the records that this member contributed.
            held_out: records that it did not contribute, n ≥ 1. β minimises the squared error on them.
            weights: β to choose from.

        Raises:
            Misuse: the study does not publish its pooled sums, or has no ridge head.
            CalibrationError: as `veilsum.calibration.personalise`.
        """
        from veilsum.calibration import FFCStatistics, personalise  # noqa: PLC0415 - few need it

        ridge = self.record.solution.ridge
        if "pooled" not in self.document_files or ridge is None:
            raise Misuse("a personal head needs a ridge head and after.publish = pooled in the study")
        arrays = self.arrays("pooled")
        pooled = FFCStatistics.from_blocks(
            arrays["V"], arrays["U"], arrays["counts"], bias=bool(self.notes("pooled")["bias"])
        )
        statistics = FFCStatistics(pooled.dim, pooled.classes, bias=pooled.bias, normalise=True)
        statistics.update(*self._usable(own))
        return personalise(
            pooled, statistics, *self._usable(held_out), ridge=ridge, weights=weights, normalise=True
        )

    def _usable(self, records: Records) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
        """Features and class indices of the usable rows."""
        records.check_dim(self.spec.question.dim)
        labels, usable = records.usable(self.spec.question.classes)
        return records.features[usable], labels[usable]

    def _document(self, name: str) -> bytes:
        if name not in self.document_files:
            there = ", ".join(self.document_files) or "nothing"
            raise Misuse(
                f"the study publishes no {name} beside its head, but {there}: after.publish lists what it does"
            )
        if reason := document_in(self.document_files[name]).notes.get(REFUSED):
            raise Misuse(f"no {name} follows from the round's sums: {reason}")
        return self.document_files[name]

    @property
    def unanswered(self) -> tuple[int, ...]:
        """Classes without rows in the sum, withheld ones included: the head never predicts them."""
        return tuple(sorted({*self.record.withheld, *self.record.solution.empty_classes}))

    def scores(self, features: npt.ArrayLike) -> Floats:
        """Return (n, C) scores of (n, dim) features of any length; −∞ for classes that the head never predicts.

        Raises:
            CalibrationError: features of another shape or type, or without direction.
        """
        return self.calibrated.scores(features)

    def probabilities(self, features: npt.ArrayLike, *, temperature: float | None = None) -> Floats:
        """Return (n, C) probabilities softmax(scores/τ).

        A ridge head without a temperature is not calibrated: its scores are not log-odds, and a UserWarning says so.

        Args:
            features: as for `scores`.
            temperature: τ; None for the one that `judge` found, or else 1.

        Raises:
            CalibrationError: as `scores`.
        """
        calibrated = self.calibrated
        tau = calibrated.temperature if temperature is None else temperature
        if tau is None:
            warnings.warn(NO_TEMPERATURE, stacklevel=2)
        return calibrated.head.probabilities(
            features, temperature=1.0 if tau is None else tau, normalise=calibrated.head.scales
        )

    def judge(self, held_out: Records, own: Head | None = None) -> "Result":
        """Return the result with `judged`: its accuracy and temperature on hold-out records. Nothing leaves this member.

        Args:
            held_out: records that no member contributed. `Member.judge` finds this member's.
            own: a head to compare with.

        Raises:
            Misuse: no row is usable, or the step has no head.
            CalibrationError: as `scores`.
        """
        features, labels = self._usable(held_out)
        if not len(labels):
            raise Misuse("no hold-out record has usable features and a label of the study's classes")
        head = self.calibrated.head
        seen = Reliability.of(head, features, labels, normalise=head.scales)
        beside, worse = None, False
        if own is not None:
            right, own_right = (
                each.predict(features, normalise=each.scales) == labels for each in (head, own)
            )
            behind, ahead = int((own_right & ~right).sum()), int((right & ~own_right).sum())
            beside, worse = float(own_right.mean()), behind - ahead > 2 * math.sqrt(behind + ahead)
        judged = Judgement(
            records=len(labels),
            accuracy=seen.accuracy,
            own_accuracy=beside,
            worse=worse,
            temperature=seen.temperature,
        )
        return replace(self, judged=judged)

    def predict(self, features: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Return (n,) class indices; never a class without rows."""
        scores = self.scores(features)
        answered = np.setdiff1d(np.arange(scores.shape[1]), self.unanswered)
        # Among those answered, whatever else is −∞ too.
        labels: npt.NDArray[np.int64] = answered[scores[:, answered].argmax(axis=1)]
        return labels

    def evaluate(self, features: npt.ArrayLike, labels: Any) -> float:
        """Return the head's accuracy on the usable rows.

        Args:
            features: (n, dim).
            labels: (n,) class indices, or class keys as text.

        Raises:
            CalibrationError: features of another shape or type.
            Misuse: no row has features and a label of the study.
        """
        usable, expected = self._usable(Records(features, labels))
        if not len(expected):
            raise Misuse("no row has usable features and a label of the study's classes")
        return float((self.predict(usable) == expected).mean())

    def to_torch(self) -> "CalibratedHead":
        """Return the head as a PyTorch layer; `replace_head` puts it into a model. Raises Misuse unless it is linear."""
        from veilsum.integrations.linear import LinearHead  # noqa: PLC0415 - an extra
        from veilsum.integrations.torch import CalibratedHead  # noqa: PLC0415 - an extra

        return CalibratedHead(LinearHead.of(self))

    def to_sklearn(self, classes: Any = None) -> "SecureRidgeClassifier":
        """Return the head as a fitted scikit-learn classifier; `classes` are labels in the study's order. Raises Misuse unless it is linear."""
        from veilsum.integrations.sklearn import SecureRidgeClassifier  # noqa: PLC0415 - an extra

        return SecureRidgeClassifier.of(self, classes)

    def to_onnx(self, path: str | os.PathLike[str]) -> None:
        """Write the head as an ONNX model (`veilsum.integrations.onnx.save_onnx`). Raises Misuse unless it is linear."""
        from veilsum.integrations.onnx import save_onnx  # noqa: PLC0415 - an extra

        record = self.record
        save_onnx(
            self,
            path,
            notes={
                "study": record.name,
                "period": record.period,
                "round": record.round,
                "classes": self.spec.question.classes,
            },
        )

    def model_card(self) -> str:
        """Return a model card for the head, as Markdown."""
        return model_card(self)

    @property
    def certificate(self) -> Certificate:
        """The decryptors' certificate of the survivors."""
        return self.evidence.certificate

    @property
    def survivors(self) -> tuple[str, ...]:
        """Ids of the certified members, in order."""
        return tuple(survivor.member for survivor in self.certificate.survivors)

    @property
    def summed(self) -> tuple[str, ...]:
        """Ids of the members in the sum: the survivors except evicted ones."""
        return tuple(member for member in self.survivors if member not in self.record.evicted)

    @property
    def counted(self) -> bool:
        """Whether this member's upload is in the sum; False if it only helped to decrypt."""
        return self.evidence.member in self.summed

    @property
    def standing(self) -> str:
        """Say in words whether this member's upload was counted, and if not, why."""
        if self.counted:
            return "counted"
        if self.evidence.member in self.record.evicted:
            return "not counted: this member's shares were proved false"
        if self.evidence.member in self.record.dropped:
            return "not counted: left out because of a dispute with another member"
        if self.evidence.header is None:
            return "not counted: this member sent no upload in this attempt"
        return "not counted: the upload was not complete when the upload window closed"

    @property
    def last(self) -> bool:
        """Whether the run ends with this step."""
        repeated = self.evidence.manifest.repeats != NO_CONTEXT
        return self.record.step == (SUM_STEP if repeated else self.content.question.steps[-1])

    @cached_property
    def verdict(self) -> "Verdict | None":
        """The replayed transcript's verdict; None if it was not fetched."""
        if self.transcript_file is None:
            return None
        return replayed(self.transcript_file, self.evidence, self.record)

    def verify(self, admin_key: bytes | str | None = None) -> None:
        """Check everything again, from the stored bytes alone, in this order.

        1. the evidence (`Evidence.verify`), and that its certificate is not VOID (result-mismatch);
        2. the coordinator's signature on the record (bad-signature);
        3. each field of the record against the evidence (result-mismatch);
        4. dropped members are those that its disputes dropped, and none of them survives; each
           one evicted is a survivor and proved false (result-mismatch, eviction-invalid);
        5. the classes withheld are those that follow from the counts that it states (result-mismatch);
        6. what it says of noise follows from study and manifest (result-mismatch);
        7. the digests of the head's file, the documents and the material, then that the head is the study's
           (result-mismatch);
        8. the record names a transcript; if it was fetched, it is that one, it replays, and the coordinator broke no rule in
           it (`replayed`).

        Only readers of the sums can check that the weights solve them. This check shows that the coordinator
        signed that they do, and for which members.

        Args:
            admin_key: the pinned key, 32 bytes or hexadecimal; None trusts the key that the roster names.

        Raises:
            PeerFault: the first of these that does not hold.
        """
        self.evidence.verify(admin_key)
        self.verify_against_evidence()

    def verify_against_evidence(self) -> None:
        """Check what `verify` checks after the evidence."""
        if self.certificate.void:
            raise mismatch("the certificate says that the attempt ended without a sum")
        if self.spec.indicator:
            raise mismatch("an indicator has no result")
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
        self._check_withheld()
        self._check_noise()
        if not self.spec.noisy and self.record.rows > self.spec.question.records_max:
            raise mismatch(f"{self.record.rows} rows are more than the study admits")
        self._check_files()
        _ = self.verdict

    def _check_files(self) -> None:
        if digest_of(self.head_file) != self.record.head:
            raise mismatch("the head's file is not the one that the record names")
        documents = {view.name: view.sha256 for view in self.record.documents}
        if {name: digest_of(content) for name, content in self.document_files.items()} != documents:
            raise mismatch("the documents are not those that the record names")
        material = self.evidence.opening.terms.material
        if (digest_of(self.material_file) or NO_CONTEXT.hex()) != material.hex():
            raise mismatch("the material is not the one that the terms name")
        if self.head_file is None:
            if self.spec.step != "mean":
                raise mismatch("the record names no head, but the step has one")
            return
        check_head(self.spec, calibrated_in(self.head_file), self.material)
        self._check_classes()

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
            raise mismatch(f"the record evicts {', '.join(evicted) or 'no member'}; the proofs do not match")
        for proof in proofs:
            check_proof(attempt, self.certificate, proof)

    def _check_withheld(self) -> None:
        terms, holders, question = self.evidence.opening.terms, self.record.holders, self.spec.question
        if len(holders) != (0 if terms.indicator == NO_CONTEXT else len(question.classes)):
            raise mismatch(
                "the record must give one count for each class if the terms name an indicator, and else none"
            )
        if withheld_classes(question, holders) != terms.withheld:
            raise mismatch("the classes withheld do not follow from the counts")

    def _check_noise(self) -> None:
        expected, seen = promise(self.spec), self.record.noise
        if (seen is None) != (expected is None):
            raise mismatch("the record and the study disagree on whether there is noise")
        if seen is not None and expected is not None:
            for name, value in expected:
                if not abs(getattr(seen, name) - value) <= _REALS * abs(value):
                    raise mismatch("the noise in the record does not follow from study and manifest")

    def _check_classes(self) -> None:
        unanswered, classes = list(self.unanswered), len(self.spec.question.classes)
        if not {*unanswered} < {*range(classes)}:
            raise mismatch(f"the record names classes {unanswered} that the head cannot answer, of {classes}")
        columns = [self.weights] if self.bias is None else [self.weights, self.bias]
        # A class's Gaussian that is missing costs a logistic head its column's use, not its numbers.
        linear = type(self.calibrated.head) is Head and not self.spec.noisy
        if linear and any(tensor[..., unanswered].any() for tensor in columns):
            raise mismatch(f"the head scores classes {unanswered}, but the sum holds no rows of them")

    def check_counts(self, history: History) -> None:
        """Compare the record's counts with this member's own (result-mismatch)."""
        counted = history.count_of(self.evidence.opening.terms.indicator)
        if counted is not None and counted.holders != self.record.holders:
            raise mismatch("the record's counts differ from this member's own")

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the result and its evidence for `load`, with mode 0600, and remove an earlier round's files.

        No file holds a key. Some documents, such as pooled sums, may be for members only.
        """
        home = Path(folder)
        make_folder(home)
        files = {
            EVIDENCE: self.evidence.encode(),  # there already where a member keeps its own
            **{path.name: None for path in home.glob(f"*{_DOCUMENT}")},  # an earlier round's
            **{f"{name}{_DOCUMENT}": content for name, content in self.document_files.items()},
            _WEIGHTS: self.head_file,
            _MATERIAL: self.material_file,
            _EVICTIONS: None if self.evictions is None else self.evictions.to_bytes(),
            TRANSCRIPT: self.transcript_file,
            _CARD: None if self.head_file is None else self.model_card().encode(),
            _JUDGED: None if self.judged is None else self.judged.model_dump_json(indent=2).encode(),
            _RECORD: self.record.model_dump_json(indent=2).encode(),
        }
        write_together(home, files)

    @staticmethod
    def saved_in(folder: Path) -> bool:
        """Whether `save` finished here."""
        return (folder / _RECORD).exists()

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> "Result":
        """Read a saved result, without verifying it.

        Raises:
            StateError: a file is missing or can't be parsed.
        """
        home = Path(folder)
        evidence = Evidence.load(home)
        read = partial(read_part, of="result")
        record = read(home / _RECORD, ResultRecord.model_validate_json)
        rests = evidence.opening.terms.material != NO_CONTEXT
        return cls(
            evidence,
            record,
            read(home / _WEIGHTS, bytes) if record.head is not None else None,
            read(home / _EVICTIONS, Evictions.from_bytes) if record.evicted else None,
            read(home / TRANSCRIPT, bytes) if (home / TRANSCRIPT).exists() else None,
            {view.name: read(home / f"{view.name}{_DOCUMENT}", bytes) for view in record.documents},
            read(home / _MATERIAL, bytes) if rests else None,
            read(home / _JUDGED, Judgement.model_validate_json) if (home / _JUDGED).exists() else None,
        )

    def __repr__(self) -> str:
        counted = "counted" if self.counted else "not counted"
        return f"<Result of round {self.record.round}, {len(self.survivors)} survivors, {counted}>"

    def _expected(self) -> dict[str, object]:
        attempt, content = self.evidence.attempt, self.content
        return {
            "round": round_name(attempt.context),
            "context": attempt.context.hex(),
            "federation": attempt.roster.federation.hex(),
            "study": attempt.study.hash.hex(),
            "name": content.notes.name,
            "version": content.notes.version,
            "period": attempt.manifest.period,
            "step": attempt.terms.step,
            "cohort": attempt.manifest.cohort.hex(),
            "terms": attempt.terms.hash.hex(),
            "survivors_hash": self.certificate.survivors_hash.hex(),
            "withheld": attempt.terms.withheld,
        }


def verify_sums(result: Result, sums_file: bytes) -> Pooled:
    """Check the sums behind a result as a reader, in this order (each fails with result-mismatch).

    1. the file is the one that the signed record names: one int64 vector of the step's length;
    2. it fulfils every identity that a sum of honest members fulfils;
    3. its number of rows is the record's, and the heads follow from it (`check_answer`).

    Args:
        result: verified by `Result.verify`.
        sums_file: a safetensors file with one tensor, `sum`.

    Returns:
        What the sum holds, by the kind of the statistic.

    Raises:
        PeerFault: the first of these that does not hold.
    """
    if hashlib.sha256(sums_file).hexdigest() != result.record.sums:
        raise mismatch("the sums are not those that the record names")
    try:
        total = load(sums_file)["sum"]
    except (SafetensorError, KeyError, ValueError) as error:
        raise mismatch(f"the sums are not a safetensors file of a tensor `sum`: {error}") from error
    spec, members = result.spec, len(result.summed)
    following = None
    if spec.noisy and total.shape == (spec.elements,) and spec.step != spec.question.steps[-1]:
        # The next step's opening binds its material, and its members check it there; here it is what follows from the sums.
        following = material_file(
            answer(spec, pooled(spec, total, members), members, result.material).material
        )
    return check_answer(
        spec,
        total,
        members,
        Files(result.head_file, result.document_files, following),
        rows=result.record.rows,
        ridge=result.record.solution.ridge,
        material=result.material,
    )
