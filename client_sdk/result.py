"""A finished round: the head, with everything needed to verify it."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from client_sdk.comparison import Judgement
from client_sdk.errors import Misuse, StateError
from client_sdk.evidence import EVIDENCE_FILE, Evidence, replay_with_evidence
from client_sdk.files import read_part
from client_sdk.model_card import model_card
from client_sdk.published_head import PublishedHead
from client_sdk.records import Records
from client_sdk.verification import verify_result
from veilsum.calibration.answer import REFUSED_NOTE, Document
from veilsum.calibration.head import Head
from veilsum.calibration.head_file import Calibrated
from veilsum.calibration.judge import JudgeFigures
from veilsum.calibration.judge_tables import ShownHeads
from veilsum.protocol.member import History
from veilsum.protocol.messages import NO_CONTEXT, Certificate, Evictions
from veilsum.protocol.record import ResultRecord, mismatch_fault
from veilsum.protocol.round_spec import RoundSpec
from veilsum.protocol.study import Content
from veilsum.study.judgement import judge_tables, read_tables
from veilsum.study.judging import read_shown
from veilsum.study.result_files import calibrated_in, document_in, read_material
from veilsum.study.vectors import Material
from veilsum.system.files import make_folder, write_together

if TYPE_CHECKING:
    from veilsum.protocol.replay import Verdict

_RECORD_FILE, _WEIGHTS_FILE, _EVICTIONS_FILE = "record.json", "weights.safetensors", "evictions.bin"
_JUDGEMENT_FILE, _CARD_FILE = "judged.json", "model-card.md"
_MATERIAL_FILE, _DOCUMENT_SUFFIX = "material.bin", ".document.safetensors"
TRANSCRIPT_FILE = "transcript.json"


@dataclass(frozen=True, repr=False, eq=False)
class Result(PublishedHead):
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

    @property
    def columns(self) -> tuple[str, ...]:
        """The features' names, if the study names them."""
        return self.spec.question.columns

    @cached_property
    def material(self) -> Material:
        """The step's input from earlier steps; none for a judgement, see `shown_heads`. Raises PeerFault(terms-refused) if the file does not hold it."""
        if self.spec.judges:
            return {}
        return read_material(self.spec, self.material_file)

    @cached_property
    def shown_heads(self) -> ShownHeads:
        """The heads that a judgement showed. Raises Misuse for another step, PeerFault(terms-refused) if the file does not hold them."""
        if not self.spec.judges or self.material_file is None:
            raise Misuse(f"step {self.spec.step} judges no heads: take the result of a period judge-NAME")
        return read_shown(self.spec.question, self.material_file)

    @cached_property
    def judge_figures(self) -> JudgeFigures:
        """What a judgement says about the heads that it showed, with 95 % intervals. Raises as `shown_heads`."""
        tables = read_tables(self.spec.question, self.document_files)
        return judge_tables(self.spec, tables, len(self.summed), self.shown_heads)

    @cached_property
    def heads(self) -> Mapping[str, Calibrated]:
        """Further heads from the same sums: of the study's other statistics by kind, and "lda", at a temperature of 1, and "ncm" if it publishes them."""
        names = {*(each.kind for each in self.spec.question.statistics[1:]), "lda", "ncm"}
        found = {
            name: calibrated_in(content).without(self.unanswered)
            for name, content in self.document_files.items()
            if name in names and REFUSED_NOTE not in document_in(content).notes
        }
        if "lda" in found:
            found["lda"] = replace(found["lda"], temperature=1.0)
        return found

    def read_arrays(self, name: str) -> dict[str, npt.NDArray[Any]]:
        """Return a document's arrays. Raises Misuse if the study does not publish it, or if the sums did not determine it."""
        return dict(_find_document(self.document_files, name).arrays)

    def judge(self, held_out: Records, own: Head | None = None) -> "Result":
        """Return the result with `judged`: its figures and temperature on hold-out records. Nothing leaves this member.

        Args:
            held_out: records that no member contributed. `Member.judge` finds this member's.
            own: a head to compare with, of the same classes.

        Raises:
            Misuse: no row is usable and of a class that the head predicts, or the step has no head.
            CalibrationError: as `scores`.
        """
        features, labels = held_out.usable_in(self.spec.question)
        head, answered = self.calibrated.head, ~np.isin(labels, self.unanswered)
        if not answered.any():
            raise Misuse("no hold-out record has usable features and a label that the head predicts")
        alike = None if own is None else Calibrated(own).without(self.unanswered).head
        unanswered = int((~answered).sum())
        judged = Judgement.of_head(
            head,
            features[answered],
            labels[answered],
            alike,
            unanswered=unanswered,
            positive=self.spec.question.positive_class,
        )
        return replace(self, judged=judged)

    def evaluate(self, features: npt.ArrayLike, labels: Any) -> float:
        """Return the head's accuracy on the usable rows.

        Args:
            features: (n, dim).
            labels: (n,) class indices, or class keys as text.

        Raises:
            CalibrationError: features of another shape or type.
            Misuse: no row has features and a label of the study.
        """
        usable, expected = Records(features, labels).usable_in(self.spec.question)
        if not len(expected):
            raise Misuse("no row has usable features and a label of the study's classes")
        return float((self.predict(usable) == expected).mean())

    def model_card(self) -> str:
        """Return a model card for the head, or for a judgement's heads, as Markdown."""
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
        return self.evidence.ends_run

    @cached_property
    def verdict(self) -> "Verdict | None":
        """The replayed transcript's verdict; None if it was not fetched."""
        if self.transcript_file is None:
            return None
        return replay_with_evidence(self.transcript_file, self.evidence, self.record)

    def verify(self, admin_key: bytes | str | None = None) -> None:
        """Check everything again from the stored bytes: the evidence (`Evidence.verify`), then the result (`verify_result`).

        Args:
            admin_key: the pinned key, 32 bytes or hexadecimal; None trusts the key that the roster names.

        Raises:
            PeerFault: the first check that fails.
        """
        self.evidence.verify(admin_key)
        verify_result(self)

    def check_counts(self, history: History) -> None:
        """Compare the record's counts with this member's own (result-mismatch)."""
        for context, sums in zip(
            self.evidence.opening.terms.counts, (self.record.holders, self.record.reached), strict=False
        ):
            counted = history.count_of(context)
            if counted is not None and counted.sums != sums:
                raise mismatch_fault("the record's counts differ from this member's own")

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the result and its evidence for `load`, with mode 0600, and remove an earlier round's files.

        No file holds a key. Some documents, such as pooled sums, may be for members only.
        """
        home = Path(folder)
        make_folder(home)
        earlier = {path.name: None for path in home.glob(f"*{_DOCUMENT_SUFFIX}")}  # an earlier round's
        write_together(home, {**earlier, **self._make_files()})

    def _make_files(self) -> dict[str, bytes | None]:
        """Return the content of each file of a saved result; None for those that it does not have. The record comes last."""
        return {
            EVIDENCE_FILE: self.evidence.encode(),  # there already where a member keeps its own
            **{f"{name}{_DOCUMENT_SUFFIX}": content for name, content in self.document_files.items()},
            _WEIGHTS_FILE: self.head_file,
            _MATERIAL_FILE: self.material_file,
            _EVICTIONS_FILE: None if self.evictions is None else self.evictions.to_bytes(),
            TRANSCRIPT_FILE: self.transcript_file,
            _CARD_FILE: self.model_card().encode()
            if self.head_file is not None or self.spec.judges
            else None,
            _JUDGEMENT_FILE: None if self.judged is None else self.judged.model_dump_json(indent=2).encode(),
            _RECORD_FILE: self.record.model_dump_json(indent=2).encode(),
        }

    def check_folder(self, folder: str | os.PathLike[str]) -> tuple[str, ...]:
        """Check what `verify` can't see of the folder that this result was loaded from.

        Returns:
            Names of the files that nothing proves: foreign ones, and the member's own `judged.json`.

        Raises:
            StateError: the model card is not the one that `save` writes for this result.
        """
        home, files = Path(folder), self._make_files()
        card = home / _CARD_FILE
        if card.exists() and card.read_bytes() != files[_CARD_FILE]:
            raise StateError(
                f"{card} is not the card that this release writes for this result: someone edited it, or an earlier release wrote it in other "
                "words. Record, head and evidence are fine. Remove the card and verify again; `Result.load(folder).save(folder)` writes a new one"
            )
        proved = {name for name, content in files.items() if content is not None} - {_JUDGEMENT_FILE}
        return tuple(sorted({path.name for path in home.iterdir()} - proved))

    @staticmethod
    def saved_in(folder: Path) -> bool:
        """Whether `save` finished here."""
        return (folder / _RECORD_FILE).exists()

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> "Result":
        """Read a saved result, without verifying it.

        Raises:
            StateError: a file is missing or can't be parsed.
        """
        home = Path(folder)
        evidence = Evidence.load(home)
        read = partial(read_part, of="result")
        record = read(home / _RECORD_FILE, ResultRecord.model_validate_json)
        rests = evidence.opening.terms.material != NO_CONTEXT
        return cls(
            evidence,
            record,
            read(home / _WEIGHTS_FILE, bytes) if record.head is not None else None,
            read(home / _EVICTIONS_FILE, Evictions.from_bytes) if record.evicted else None,
            read(home / TRANSCRIPT_FILE, bytes) if (home / TRANSCRIPT_FILE).exists() else None,
            {view.name: read(home / f"{view.name}{_DOCUMENT_SUFFIX}", bytes) for view in record.documents},
            read(home / _MATERIAL_FILE, bytes) if rests else None,
            read(home / _JUDGEMENT_FILE, Judgement.model_validate_json)
            if (home / _JUDGEMENT_FILE).exists()
            else None,
        )

    def __repr__(self) -> str:
        counted = "counted" if self.counted else "not counted"
        return f"<Result of round {self.record.round}, {len(self.survivors)} survivors, {counted}>"


def _find_document(files: Mapping[str, bytes], name: str) -> Document:
    """Read a published document. Raises Misuse if it is not published, or only says why it has no head."""
    if name not in files:
        raise Misuse(f"the study publishes no {name}: its after.publish has {', '.join(files) or 'nothing'}")
    document = document_in(files[name])
    if reason := document.notes.get(REFUSED_NOTE):
        raise Misuse(f"the round's sums give no {name}: {reason}")
    return document
