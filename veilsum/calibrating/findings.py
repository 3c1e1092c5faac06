"""What is known about a head: where its sums came from, how λ was chosen, how often it is right."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from calibration.questions import kind
from veilsum.calibrating.order import CENTRED, DERIVED
from veilsum.calibrating.saving import save_to

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from calibration import ReliabilityStatistics
    from calibration.head_file import Calibrated
    from calibration.questions.alone import Alone
    from calibration.rows import Floats, Integers
    from client_sdk import Result

TITLES = {
    "lda": "linear discriminant analysis, from FFC's sums",
    "ncm": "nearest class mean, from FFC's sums",
    CENTRED: "ridge head of features less their mean; λ by GCV",
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Judgement:
    """How often a head is right, and how sure, as a page draws it.

    Attributes:
        whose: the records, in a few words.
        records: N.
        right: share of them that are called what they are.
        temperature: τ at which they are likeliest.
        calibration_error: at that τ.
        before: the same at τ = 1; None where only one τ was tried.
        confidence: (B,) mean confidence of each bin at that τ.
        accuracy: (B,) share of each bin that is right.
        binned: (B,) records of each bin.
        confusion: (C, C) records of class (row) that were called class (column).
    """

    whose: str
    records: int
    right: float
    temperature: float
    calibration_error: float
    before: float | None
    confidence: Floats
    accuracy: Floats
    binned: Integers
    confusion: Integers

    @property
    def recalls(self) -> Floats:
        """(C,) share of each class's records that were called that class; 0 without records."""
        recalls: Floats = np.diagonal(self.confusion) / np.maximum(self.confusion.sum(axis=1), 1)
        return recalls

    @classmethod
    def here(cls, seen: ReliabilityStatistics) -> Judgement:
        """Of records held out on this machine, at least one."""
        confidence, accuracy, binned = seen.diagram(seen.temperature)
        return cls(
            whose="records held out",
            records=seen.records,
            right=seen.accuracy,
            temperature=seen.temperature,
            calibration_error=float(seen.calibration_errors[int(seen.losses.argmin())]),
            before=_at_one(seen.temperatures, seen.calibration_errors),
            confidence=confidence,
            accuracy=accuracy,
            binned=binned,
            confusion=seen.confusion,
        )

    @classmethod
    def pooled(cls, result: Result) -> Judgement:
        """Of a reliability round, over the records that all its members kept back."""
        arrays, notes = result.arrays("reliability"), result.notes("reliability")
        return cls(
            whose="records of all members",
            records=result.record.records,
            right=float(notes["accuracy"]),
            temperature=float(notes["temperature"]),
            calibration_error=float(notes["calibration_error"]),
            before=_at_one(arrays["temperatures"], arrays["calibration_errors"]),
            confidence=arrays["confidence"],
            accuracy=arrays["accuracy"],
            binned=arrays["binned"],
            confusion=arrays["confusion"],
        )


def _at_one(temperatures: Floats, errors: Floats) -> float | None:
    return float(errors[int(np.abs(np.log(temperatures)).argmin())]) if len(errors) > 1 else None


@dataclass(frozen=True, kw_only=True, eq=False)
class Findings:
    """A head and what its page shows.

    Attributes:
        name: as `--head` has it.
        source: where the sums came from, in a sentence.
        privacy: what is promised, in a sentence.
        records: N that were summed.
        head: the head.
        judged: over records held out; None for none.
        pooled: of a reliability round, over all members' records; None of other rounds.
        ridge: λ; None where there is none.
        chosen_by: as `Answer.chosen_by`.
        grid: (G,) λ compared; empty where there was no choice.
        errors: (G,) by that criterion; infinite where it is undefined.
        eigenvalues: (l,) of V; None where it is not known.
        edge: of the noise on V; None for an exact sum.
        identities: what names the sums, as a table of the page.
    """

    name: str
    source: str
    privacy: str
    records: int
    head: Calibrated
    judged: ReliabilityStatistics | None
    pooled: Judgement | None = None
    ridge: float | None = None
    chosen_by: str = ""
    grid: Floats = field(default_factory=lambda: np.zeros(0))
    errors: Floats = field(default_factory=lambda: np.zeros(0))
    eigenvalues: Floats | None = None
    edge: float | None = None
    identities: Mapping[str, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """What the head is, in a few words."""
        if self.edge is not None:
            return "ridge head from noisy second moments, by shrinkage"
        return TITLES.get(self.name) or kind(self.name).title

    @classmethod
    def alone(
        cls, name: str, found: Alone, head: Calibrated, judged: ReliabilityStatistics | None, *, derived: bool
    ) -> Findings:
        """Of one's own files; `derived` is a head beside the question's own, which λ says nothing about."""
        answer, V = found.answer, getattr(found.statistics, "V", None)
        none = np.zeros(0)
        grid, errors = (answer.grid, answer.errors) if not derived else (None, None)
        return cls(
            name=name,
            source="The sums are of files on this machine; nothing was sent to anybody.",
            privacy="No noise was added: whoever gets the head gets it as the records have it.",
            records=answer.records,
            head=head,
            judged=judged,
            ridge=None if derived else answer.ridge,
            chosen_by=answer.chosen_by,
            grid=none if grid is None else grid,
            errors=none if errors is None else errors,
            eigenvalues=None if V is None else np.linalg.eigvalsh(V),
        )

    @classmethod
    def of(
        cls,
        name: str | None,
        result: Result,
        head: Calibrated,
        judged: ReliabilityStatistics | None,
        promised: str,
    ) -> Findings:
        """Of a round's verified result; `name` None for the head that it ended in, `promised` of noise, as commands say it."""
        record, derived = result.record, name in DERIVED
        solution = record.solution
        spectrum = "spectrum" in result.documents
        errors = [np.inf if error is None else error for error in solution.errors]
        return cls(
            name=name or record.statistic,
            source=(
                f"The sums are of {len(result.summed)} members of {record.members}, "
                "added up by a coordinator that saw the sums alone."
            ),
            privacy=f"Noise: {promised}.",
            records=record.records,
            head=head,
            judged=judged,
            pooled=Judgement.pooled(result) if "reliability" in result.documents else None,
            ridge=None if derived else solution.ridge,
            chosen_by=solution.chosen_by,
            grid=np.array([] if derived else solution.grid),
            errors=np.array([] if derived else errors),
            eigenvalues=result.arrays("spectrum")["eigenvalues"] if spectrum else None,
            edge=float(result.notes("spectrum")["edge"]) if spectrum else None,
            identities={
                "round": record.round,
                "federation: the admin's public key": record.federation,
                "extractor and preprocessing": record.extractor,
                "weights, SHA-256": str(record.weights_sha256),
            },
        )

    @property
    def judgements(self) -> Iterator[Judgement]:
        """What a page draws: own records held out, then those of all members."""
        if self.judged is not None and self.judged.records:
            yield Judgement.here(self.judged)
        if self.pooled is not None:
            yield self.pooled

    @property
    def figures(self) -> dict[str, Any]:
        """Figures of the records held out; none where none were."""
        if self.judged is None or not self.judged.records:
            return {} if self.judged is None else {"accuracy": float("nan")}
        best = int(self.judged.losses.argmin())
        return {
            "held_out": self.judged.records,
            "accuracy": self.judged.accuracy,
            "temperature": self.judged.temperature,
            "calibration_error": float(self.judged.calibration_errors[best]),
        }

    def report(self, path: Path | None) -> dict[str, str]:
        """Write the page, if one was asked for, and say where it is."""
        if path is None:
            return {}
        from veilsum.calibrating.page import render  # noqa: PLC0415 - torch takes seconds

        save_to(path, render(self).encode())
        return {"report": str(path)}
