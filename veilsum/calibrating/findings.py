"""What is known about a head: where its sums came from, how λ was chosen, how often it is right."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from calibration.questions import kind
from veilsum.calibrating.order import CENTRED, DERIVED
from veilsum.calibrating.saving import save_to

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from calibration import Reliability
    from calibration.head_file import Calibrated
    from calibration.questions.alone import Alone
    from calibration.rows import Floats
    from client_sdk import Result

TITLES = {
    "lda": "linear discriminant analysis, from FFC's sums",
    "ncm": "nearest class mean, from FFC's sums",
    CENTRED: "ridge head of features less their mean; λ by GCV",
}


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
    judged: Reliability | None
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
        cls, name: str, found: Alone, head: Calibrated, judged: Reliability | None, *, derived: bool
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
        judged: Reliability | None,
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
    def figures(self) -> dict[str, Any]:
        """Figures of the records held out; none where none were."""
        if self.judged is None or not self.judged.records:
            return {} if self.judged is None else {"accuracy": float("nan")}
        return {
            "held_out": self.judged.records,
            "accuracy": self.judged.accuracy,
            "temperature": self.judged.temperature,
            "calibration_error": float(self.judged.calibration_errors[self.judged.best]),
        }

    def report(self, path: Path | None) -> dict[str, str]:
        """Write the page, if one was asked for, and say where it is."""
        if path is None:
            return {}
        from veilsum.calibrating.page import render  # noqa: PLC0415 - torch takes seconds

        save_to(path, render(self).encode())
        return {"report": str(path)}
