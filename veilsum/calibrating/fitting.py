"""A head from your own files: fitted, judged on a hold-out set, written. Nothing is sent."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from pydantic import ValidationError
from safetensors.numpy import save

from client_sdk.errors import first_fault
from client_sdk.files import write_durably
from veilsum.calibration import FFCStatistics, Reliability, suggested_bandwidth
from veilsum.calibration.head_file import Calibrated
from veilsum.calibration.rows import Floats, Integers, as_features, as_labels
from veilsum.console import lacks, note
from veilsum.features import (
    MAX_CLASSES,
    Features,
    Labels,
    Moments,
    Part,
    moments_in,
    of_file,
    read_table,
    split,
    usable_part,
)
from veilsum.protocol.errors import Misuse
from veilsum.protocol.rest import HEAD
from veilsum.protocol.study import CCVR, FFC, CCVRHead, RandomFeaturesFFC, Statistic
from veilsum.study.answers import Alone, alone

HEADS = {
    "ffc": "ridge head of unit features (FFC)",
    "random-features": "ridge head of random features (FFC)",
    "ccvr": "logistic head of virtual features (CCVR)",
    "lda": "linear discriminant analysis, from FFC's sums",
    "ncm": "nearest class mean, from FFC's sums",
}
DERIVED = frozenset({"lda", "ncm"})
"""Heads that follow from FFC's sums."""
LOG_ODDS = frozenset({"lda", "ccvr"})
"""Heads with scores that are log-odds at a temperature of 1."""
_SIZE = 1024
_CHOSEN = {"gcv": "GCV", "given": "you"}


@dataclass(frozen=True, kw_only=True)
class Order:
    """The options of `veilsum calibrate`.

    Attributes:
        head: a key of `HEADS`.
        parameters: of the head: bias (1 fits a constant), size and bandwidth, or samples_per_class and power.
        ridge: λ; None for generalised cross-validation.
        output: path of the head.
        held_out: a share of the records, or a file of others; None for no hold-out set.
        report: path of the page; None for no page.
        personal: folder of a result; its pooled sums are mixed with these records.
        unit_columns: whether the weights of each class are scaled to length 1.
        prior: "uniform", or a text file with a number for each class.
        standardise: a file of moments to standardise features by; written from the records if it does not exist.

    Raises:
        Misuse: options that exclude each other, or a missing extra.
    """

    head: str = "ffc"
    parameters: Mapping[str, float] = field(default_factory=dict)
    ridge: float | None = None
    output: Path
    held_out: float | Path | None = None
    report: Path | None = None
    personal: Path | None = None
    unit_columns: bool = False
    prior: str | None = None
    standardise: Path | None = None

    def __post_init__(self) -> None:
        if self.head not in HEADS:
            raise Misuse(f"unknown head {self.head!r}: expected {', '.join(HEADS)}")
        if self.ridge is not None and self.head in {*DERIVED, "ccvr"}:
            raise Misuse(f"a head of {self.head} has no λ: leave out --ridge")
        if self.personal is not None and self.head != "ffc":
            raise Misuse("--personal mixes FFC's sums: leave out --head")
        if self.personal is not None and not isinstance(self.held_out, float):
            raise Misuse("--personal needs --held-out SHARE: these records choose the mixture")
        if self.report is not None and lacks("matplotlib", "torch"):
            raise Misuse("--report needs an extra: pip install 'veilsum[training]'")

    @property
    def publish(self) -> tuple[Literal["lda", "ncm"], ...]:
        """The document of the study that holds the head, if one does."""
        return (cast("Literal['lda', 'ncm']", self.head),) if self.head in DERIVED else ()

    @property
    def ccvr(self) -> CCVRHead | None:
        """How CCVR's head is retrained; None for other heads."""
        if self.head != "ccvr":
            return None
        given = {"samples_per_class": 2000, "power": 0.5, **self._known("samples_per_class", "power")}
        return CCVRHead(samples_per_class=int(given["samples_per_class"]), power=float(given["power"]))

    def statistic(self, bandwidth: float | None) -> Statistic:
        """The statistic to sum. Raises Misuse for parameters that the head does not have."""
        try:
            if self.head == "random-features":
                given = self._known("size", "bandwidth")
                width = given.get("bandwidth", bandwidth)
                assert width is not None
                return RandomFeaturesFFC(size=int(given.get("size", _SIZE)), bandwidth=float(width))
            if self.head == "ccvr":
                _ = self.ccvr
                return CCVR()
        except ValidationError as error:
            raise Misuse(f"--parameter: {first_fault(error)}") from error
        return FFC(bias=bool(self._known(*(() if self.head in DERIVED else ("bias",))).get("bias", 0)))

    def _known(self, *names: str) -> Mapping[str, float]:
        if strange := sorted({*self.parameters} - {*names}):
            raise Misuse(
                f"{self.head} has no parameter {', '.join(strange)}; it has: {', '.join(names) or 'none'}"
            )
        return self.parameters

    def check_output(self, files: Sequence[Path]) -> None:
        """Refuse outputs that would replace an input, or can't be written (Misuse)."""
        inputs = {path.resolve() for path in files}
        if isinstance(self.held_out, Path):
            inputs.add(self.held_out.resolve())
        outputs = [("--output", self.output), ("--report", self.report), ("--standardise", self.standardise)]
        for name, output in outputs:
            if output is None:
                continue
            if output.resolve() in inputs:
                raise Misuse(f"{name} {output} would replace the features: choose another file")
            if output.is_dir():
                raise Misuse(f"{name} {output} is a folder, expected a file")
            above = next(each for each in output.absolute().parents if each.exists())
            if not above.is_dir():
                raise Misuse(f"{name} {output}: {above} is a file, expected a folder")
        if self.report is not None and self.report.resolve() == self.output.resolve():
            raise Misuse("--report and --output name the same file")


@dataclass(frozen=True, kw_only=True, eq=False)
class Findings:
    """A head and the figures on its page.

    Attributes:
        name: of the head, a key of `HEADS`.
        records: rows that were summed.
        head: the head.
        judged: on the hold-out set; None without one.
        ridge: λ; None for a head without.
        grid: (G,) λ that GCV compared; empty if λ was given.
        errors: (G,) their GCV errors; infinite where undefined.
        eigenvalues: (l,) of V; None if unknown.
        personal: whether a result's pooled sums were mixed in.
    """

    name: str
    records: int
    head: Calibrated
    judged: Reliability | None
    ridge: float | None
    grid: Floats
    errors: Floats
    eigenvalues: Floats | None
    personal: bool

    @property
    def figures(self) -> dict[str, Any]:
        """Figures of the hold-out set; empty without one."""
        if self.judged is None:
            return {}
        return {
            "held_out": self.judged.records,
            "accuracy": self.judged.accuracy,
            "temperature": self.judged.temperature,
            "calibration_error": float(self.judged.calibration_errors[self.judged.best]),
        }


class Fitting:
    """Records from files, and the head that is fitted to them.

    Args:
        order: the options.
        files: features and labels.
        labels: the labels of one .npy file.
        classes: C; None for the highest label plus one.

    Raises:
        Misuse: files that do not fit together, too many classes, or an output that would replace a file.
    """

    def __init__(
        self, order: Order, files: Sequence[Path], *, labels: Path | None = None, classes: int | None = None
    ) -> None:
        if labels is not None and len(files) != 1:
            raise Misuse("--labels is for one file of features")
        if classes is not None and classes > MAX_CLASSES:
            raise Misuse(f"--classes {classes}: at most {MAX_CLASSES}")
        order.check_output(files)
        self.order = order
        self._moments = (
            moments_in(order.standardise, [read_table(path, labels).features for path in files])
            if order.standardise
            else None
        )
        loaded = [_read(path, labels, self._moments) for path in files]
        self._dim = loaded[0][0].shape[1]
        self._classes = classes or max(2, 1 + max(int(y.max()) for _, y in loaded))
        for path, (features, y) in zip(files, loaded, strict=True):
            with of_file(path):
                as_features(features, self._dim)
                as_labels(y, len(y), self._classes)
        share = order.held_out if isinstance(order.held_out, float) else 0.0
        parts = [split(features, y, share) for features, y in loaded]
        self._fitted = [fitted for fitted, _ in parts]
        self._held = _joined([held for _, held in parts])
        if not sum(len(y) for _, y in self._fitted):
            raise Misuse(f"--held-out {share:g} leaves no records to fit: use a smaller share")

    def run(self) -> dict[str, Any]:
        """Sum, solve, judge, and write head and report.

        Raises:
            CalibrationError: no head follows from these records.
            Misuse: the hold-out set does not fit, or the sums exceed this machine's memory.
        """
        order = self.order
        found = self._alone()
        head = self._head(found)
        values: dict[str, Any] = {"records": found.answer.records, "classes": self._classes}
        judging = self._judging(head)
        if order.personal is not None:
            assert judging is not None  # `Order` requires --held-out
            choosing, judging = _halves(judging)
            head, shared = self._personal(choosing)
            values["accuracy_of_the_shared_head"] = _judged(shared, *judging).accuracy
            values["own_weight"] = getattr(head.head, "weight", None)
        counts = np.bincount(np.concatenate([labels for _, labels in self._fitted]), minlength=self._classes)
        head = changed(head, order, counts, judging)
        seen = None
        if judging is not None:
            seen = _judged(head, *judging)
            head = Calibrated(head.head, temperature=seen.temperature)
        elif order.head in LOG_ODDS and not order.unit_columns:
            head = replace(head, temperature=1.0)
        else:
            note(
                "No hold-out set: the accuracy is unknown, and the scores are not probabilities. Pass --held-out 0.2"
            )
        _save(order.output, save(head.arrays, {HEAD: json.dumps(head.notes)}))
        findings = self._findings(found, head, seen)
        values |= self._solved(found, head) | findings.figures
        if order.report is not None:
            from veilsum.calibrating.page import render  # noqa: PLC0415 - matplotlib takes seconds

            _save(order.report, render(findings).encode())
            values["report"] = str(order.report)
        return values

    def _solved(self, found: Alone, head: Calibrated) -> dict[str, Any]:
        answer = found.answer
        values: dict[str, Any] = {"empty_classes": list(head.head.empty_classes)}
        if self.order.head not in DERIVED and answer.ridge is not None:
            values |= {"ridge": answer.ridge, "chosen_by": _CHOSEN.get(answer.chosen_by, answer.chosen_by)}
            if answer.solution is not None:
                values |= {"effective_dof": answer.solution.dof, "condition": answer.solution.condition}
        return {**values, "saved": str(self.order.output)}

    def _alone(self) -> Alone:
        order, bandwidth = self.order, None
        if order.head == "random-features" and "bandwidth" not in order.parameters:
            sums = self._sum(FFC(bias=False))
            bandwidth = suggested_bandwidth(cast("FFCStatistics", sums.statistics))
        return self._sum(order.statistic(bandwidth))

    def _sum(self, statistic: Statistic) -> Alone:
        self._check_memory(statistic)
        return alone(
            self._dim,
            self._classes,
            statistic,
            self._fitted,
            normalise=True,
            ridge="gcv" if self.order.ridge is None else self.order.ridge,
            publish=self.order.publish,
            ccvr=self.order.ccvr if isinstance(statistic, CCVR) else None,
        )

    def _check_memory(self, statistic: Statistic) -> None:
        """Raise Misuse for sums that exceed this machine's memory, which holds them as added, as sent and as checked."""
        width = statistic.width(self._dim)
        numbers = 2 * statistic.elements(self._dim, self._classes) + width * (self._classes + 2 * width)
        needed, there = 8 * numbers, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if needed > there:
            raise Misuse(
                f"{self._classes} classes of {self._dim} features take at least {needed / 1e9:,.1f} GB, and this machine has "
                f"{there / 1e9:,.1f} GB. Are the labels class indices from 0? Otherwise use another --head or a larger machine"
            )

    def _head(self, found: Alone) -> Calibrated:
        head = found.answer.heads[self.order.head] if self.order.head in DERIVED else found.answer.head
        assert head is not None  # without a head, an exact sum raises
        return Calibrated(head)

    def _judging(self, head: Calibrated) -> Part | None:
        held = self.order.held_out
        if held is None:
            return None
        if isinstance(held, Path):
            (features, labels), _ = usable_part(held, classes=self._classes, moments=self._moments)
            if features.shape[1] != head.head.dim:
                raise Misuse(
                    f"{held}: features have shape {features.shape}, the head takes (n, {head.head.dim})"
                )
            return features, labels
        if not len(self._held[1]):
            raise Misuse(f"--held-out {held:g} holds out no record: use a larger share, or a file")
        return self._held

    def _personal(self, choosing: Part) -> tuple[Calibrated, Calibrated]:
        """A head from these records and a result's pooled sums, and the result's own head."""
        from client_sdk import Records, Result  # noqa: PLC0415 - only this needs them

        assert self.order.personal is not None
        result = Result.load(self.order.personal)
        result.verify()
        own = result.personalise(Records(*_joined(self._fitted)), Records(*choosing))
        return Calibrated(own), result.calibrated

    def _findings(self, found: Alone, head: Calibrated, seen: Reliability | None) -> Findings:
        answer, derived = found.answer, self.order.head in DERIVED
        V = getattr(found.statistics, "V", None)
        chosen = not derived and answer.grid is not None and answer.errors is not None
        return Findings(
            name=self.order.head,
            records=answer.records,
            head=head,
            judged=seen,
            ridge=None if derived else answer.ridge,
            grid=answer.grid if chosen and answer.grid is not None else np.zeros(0),
            errors=answer.errors if chosen and answer.errors is not None else np.zeros(0),
            eigenvalues=None if V is None else np.linalg.eigvalsh(V),
            personal=self.order.personal is not None,
        )


def changed(head: Calibrated, order: Order, counts: Integers, judging: Part | None) -> Calibrated:
    """Apply `--unit-columns` and `--prior` to a head.

    Raises:
        Misuse: a prior for scores that are not log-odds, without a hold-out set; an invalid file.
        CalibrationError: as `Head.with_prior`.
    """
    found = head.head.with_unit_columns() if order.unit_columns else head.head
    if order.prior is not None:
        if judging is not None:
            temperature = _judged(Calibrated(found), *judging).temperature
        elif order.head in LOG_ODDS and not order.unit_columns:
            temperature = 1.0
        else:
            raise Misuse(
                "--prior needs log-odds: pass --held-out, which finds the temperature at which scores are"
            )
        prior = np.ones(len(counts)) if order.prior == "uniform" else _numbers(Path(order.prior))
        found = found.with_prior(counts, prior, temperature=temperature)
    return head if found is head.head else replace(head, head=found, temperature=None)


def _read(path: Path, labels: Path | None, moments: Moments | None) -> tuple[Features, Labels]:
    part, skipped = usable_part(path, labels, moments=moments)
    if skipped:
        note(
            f"{path}: skipped {skipped} unusable row{'' if skipped == 1 else 's'} (NaN, infinity, or all zeros)"
        )
    return part


def _joined(parts: Sequence[Part]) -> Part:
    features, labels = zip(*parts, strict=True)
    return np.concatenate(features), np.concatenate(labels)


def _halves(records: Part) -> tuple[Part, Part]:
    """Every second record, and the others: records that choose a head must not judge it."""
    features, labels = records
    return (features[::2], labels[::2]), (features[1::2], labels[1::2])


def _judged(head: Calibrated, features: Features, labels: Labels) -> Reliability:
    return Reliability.of(head.head, features, labels, normalise=head.head.scales)


def _numbers(path: Path) -> Floats:
    try:
        return np.atleast_1d(np.loadtxt(path))
    except (OSError, ValueError) as error:
        raise Misuse(f"--prior {path}: expected 'uniform', or a text file of numbers: {error}") from error


def _save(output: Path, content: bytes) -> None:
    """Replace a file, or the target of a link, by one of mode 0600; write to a pipe or device as it is."""
    output.parent.mkdir(parents=True, exist_ok=True)
    target = output.resolve()
    if target.exists() and not target.is_file():
        target.write_bytes(content)
    else:
        write_durably(target, content)
