"""Fit a head to your own files, judge it on a hold-out set, and write it. Nothing is sent."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import compress
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

import numpy as np
from safetensors.numpy import save

from veilsum.calibration import CalibrationError, FFCStatistics, Reliability
from veilsum.calibration.answer import REFUSED_NOTE, Answer
from veilsum.calibration.head import Head
from veilsum.calibration.head_file import Calibrated
from veilsum.calibration.random_features import suggested_bandwidth
from veilsum.calibration.rows import Floats
from veilsum.cli.console import print_note
from veilsum.cli.features import (
    FileRecords,
    Labels,
    Part,
    class_keys,
    divide_records,
    make_records,
    of_file,
    read_tables,
)
from veilsum.cli.head_table import TABLE_NAMES, HeadTable, derive_heads
from veilsum.cli.moments import moments_in
from veilsum.cli.read_report import list_some, report_files
from veilsum.cli.tables import TableFormat
from veilsum.protocol.errors import Misuse
from veilsum.protocol.forms import count_noun
from veilsum.protocol.rest import HEAD_METADATA
from veilsum.protocol.statistics import BANDWIDTH_MIN, CCVR, FFC, RandomFeaturesFFC, Statistic
from veilsum.protocol.study import CCVRHead
from veilsum.study.answers import Alone, solve_alone
from veilsum.system.files import write_durably

HEAD_KINDS = ("ffc", "random-features", "ccvr", "lda", "ncm")
DERIVED_HEADS = frozenset({"lda", "ncm"})
"""Heads that are derived from FFC's sums."""
LOG_ODDS_HEADS = frozenset({"lda", "ccvr"})
"""Heads whose scores are log-odds at a temperature of 1."""
_RANDOM_FEATURES_SIZE = 1024
_CCVR_HEAD = CCVRHead(samples_per_class=2000, power=0.5)
_UNUSABLE_ROWS = "NaN, infinity, all zeros, or no label of a class"


class Loaded(NamedTuple):
    """The records of all files.

    Attributes:
        fitted: the records to fit, by file.
        judging: the hold-out set, or None.
        read: a report on each file.
    """

    fitted: list[Part]
    judging: Part | None
    dim: int
    classes: Sequence[str]
    read: list[dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Fitting:
    """The options of `veilsum calibrate`, described in its help, and its work."""

    files: Sequence[Path]
    head: str
    output: Path
    held_out: float | Path | None
    unit_columns: bool
    prior: str | None
    positive: str | None
    standardise: Path | None
    form: TableFormat

    def run_fit(self) -> tuple[dict[str, Any], HeadTable | None]:
        """Sum, solve, judge, and write the head. Returns what is known of the head, and the heads of the same sums beside it.

        Raises:
            CalibrationError: no head follows from these records.
            Misuse: options exclude each other, files do not fit together, or the sums exceed this machine's memory.
        """
        self._check_options()
        self._check_outputs()
        records = self._load_records()
        self._find_positive(records.classes)
        found = self._sum_records(records)
        answer = found.answer
        head, judging = Calibrated(self._choose_head(answer)), records.judging
        values: dict[str, Any] = {
            "read": records.read,
            "records": answer.records,
            "classes": len(records.classes),
        }
        if (keys := [*records.classes]) != [f"class-{index}" for index in range(len(keys))]:
            values["class_keys"] = keys  # in the order of the head's columns
        head = self._apply_options(head, records, judging)
        seen = None
        if judging is not None:
            _note_unfitted(judging[1], head.head.empty_classes, records.classes)
            seen = _judge_head(head, judging)
            head = Calibrated(head.head, temperature=seen.temperature)
        elif self._has_log_odds:
            head = replace(head, temperature=1.0)
        else:
            print_note(
                "No hold-out set: the accuracy is unknown, and the scores are not probabilities. Pass --held-out 0.2"
            )
        _save_output(self.output, save(head.arrays, {HEAD_METADATA: json.dumps(head.notes)}))
        values["empty_classes"] = list(head.head.empty_classes)
        if self.head not in DERIVED_HEADS and answer.ridge is not None:
            values["ridge"] = answer.ridge
            if answer.solution is not None:
                values |= {"effective_dof": answer.solution.dof, "condition": answer.solution.condition}
        values["saved"] = str(self.output)
        if seen is not None:
            values |= {
                "held_out": seen.records,
                "accuracy": seen.accuracy,
                "temperature": seen.temperature,
                "calibration_error": float(seen.calibration_errors[seen.best]),
            }
        table = None if judging is None else self._compare_heads(records, found, judging)
        return values if table is None else {**values, **table.to_json()}, table

    def _compare_heads(self, records: Loaded, found: Alone, judging: Part) -> HeadTable | None:
        """Judge the heads that follow from FFC's sums, and the head that was asked for."""
        of_ffc = self.head in {"ffc", *DERIVED_HEADS}
        sums = found if of_ffc else self._sum_statistic(records, FFC())
        assert isinstance(sums.statistics, FFCStatistics)
        assert sums.answer.head is not None  # without a head, an exact sum raises
        chosen = None if self.prior == "uniform" else self.prior
        prior = None if chosen is None else _read_prior(chosen, records.classes)
        heads = derive_heads(sums.statistics, sums.answer.head, prior)
        if self.head in TABLE_NAMES:
            heads[TABLE_NAMES[self.head]] = self._choose_head(found.answer)
        return HeadTable.of_heads(heads, *judging, records.classes, self._find_positive(records.classes))

    def _find_positive(self, classes: Sequence[str]) -> int | None:
        """Return the index of the positive class: the one that was named, else the second of two. Raises Misuse if it has no records."""
        if self.positive is None:
            return 1 if len(classes) == 2 else None
        if self.positive not in classes:
            raise Misuse(
                f"--positive {self.positive}: the records have no such class; expected one such as {classes[0]}"
            )
        return classes.index(self.positive)

    def _check_options(self) -> None:
        if self.head not in HEAD_KINDS:
            raise Misuse(f"unknown head {self.head!r}: expected {', '.join(HEAD_KINDS)}")
        if self.positive is not None and self.held_out is None:
            raise Misuse("--positive is judged in the table of heads: pass --held-out")

    def _check_outputs(self) -> None:
        """Refuse outputs that would replace an input, or can't be written (Misuse)."""
        inputs = {os.path.realpath(path) for path in self.files}  # realpath accepts loops of links
        if isinstance(self.held_out, Path):
            inputs.add(os.path.realpath(self.held_out))
        for name, output in (("--output", self.output), ("--standardise", self.standardise)):
            if output is None:
                continue
            if os.path.realpath(output) in inputs:
                raise Misuse(f"{name} {output} would replace the features: choose another file")
            if output.is_dir():
                raise Misuse(f"{name} {output} is a folder, expected a file")
            above = next(each for each in output.absolute().parents if each.exists())
            if not above.is_dir():
                raise Misuse(f"{name} {output}: {above} is a file, expected a folder")

    def _load_records(self) -> Loaded:
        """Read and divide all files. Raises Misuse if the files do not fit together."""
        paths = [*self.files, *([self.held_out] if isinstance(self.held_out, Path) else [])]
        tables = read_tables(paths, self.form)
        if self.standardise is not None:
            moments = moments_in(self.standardise, tables[: len(self.files)])
            with of_file(*paths):
                tables = [moments.standardise_table(table) for table in tables]
        records = list[FileRecords]()
        for path, table in zip(paths, tables, strict=True):
            with of_file(path):
                records.append(make_records(table))
        del tables
        dim = records[0].features.shape[1]
        with of_file(*paths):
            classes = class_keys(records)
        read = report_files(paths, records, classes)
        parts, ids = list[Part](), list[list[bytes] | None]()
        for path, each in zip(paths, records, strict=True):
            if each.features.shape[1] != dim:
                raise Misuse(f"{path} has {each.features.shape[1]} features, {paths[0]} has {dim}")
            labels, usable = each.find_usable_rows(classes)
            if not usable.any():
                raise Misuse(f"{path} has no usable record: {_UNUSABLE_ROWS}")
            parts.append((each.features, labels) if usable.all() else (each.features[usable], labels[usable]))
            ids.append(None if each.ids is None else [*compress(each.keys, usable)])
        if isinstance(self.held_out, Path):
            return Loaded(parts[:-1], parts[-1], dim, classes, read)
        return Loaded(*self._divide_records(parts, ids), dim, classes, read)

    def _divide_records(
        self, parts: list[Part], ids: list[list[bytes] | None]
    ) -> tuple[list[Part], Part | None]:
        """Divide records by the hold-out share into those to fit and the hold-out set."""
        share = self.held_out
        if not isinstance(share, float):
            return parts, None
        divided = [divide_records(*part, named, share) for part, named in zip(parts, ids, strict=True)]
        held, fitted = zip(*divided, strict=True)
        judging = _join_parts(held)
        if not sum(len(y) for _, y in fitted):
            raise Misuse(f"--held-out {share:g} leaves no records to fit: use a smaller share")
        if not len(judging[1]):
            raise Misuse(f"--held-out {share:g} holds out no record: use a larger share, or a file")
        return [*fitted], judging

    def _sum_records(self, records: Loaded) -> Alone:
        if self.head == "random-features":
            means = cast("FFCStatistics", self._sum_statistic(records, FFC()).statistics)
            bandwidth = max(BANDWIDTH_MIN, suggested_bandwidth(means))
            return self._sum_statistic(
                records, RandomFeaturesFFC(size=_RANDOM_FEATURES_SIZE, bandwidth=bandwidth)
            )
        return self._sum_statistic(records, CCVR() if self.head == "ccvr" else FFC())

    def _sum_statistic(self, records: Loaded, statistic: Statistic) -> Alone:
        constant = isinstance(statistic, FFC)  # as in the studies that `veilsum admin study new` drafts
        _check_memory(records, statistic, constant=constant)
        return solve_alone(
            records.dim,
            len(records.classes),
            statistic,
            records.fitted,
            constant=constant,
            normalise=True,
            publish=(cast("Literal['lda', 'ncm']", self.head),) if self.head in DERIVED_HEADS else (),
            ccvr=_CCVR_HEAD if isinstance(statistic, CCVR) else None,
        )

    def _choose_head(self, answer: Answer) -> Head:
        if self.head not in DERIVED_HEADS:
            assert answer.head is not None  # without a head, an exact sum raises
            return answer.head
        if self.head in answer.documents:
            raise CalibrationError(
                f"no head of {self.head}: {answer.documents[self.head].notes[REFUSED_NOTE]}"
            )
        return answer.heads[self.head]

    @property
    def _has_log_odds(self) -> bool:
        """Whether the head's scores are log-odds without a fitted temperature."""
        return self.head in LOG_ODDS_HEADS and not self.unit_columns

    def _apply_options(self, head: Calibrated, records: Loaded, judging: Part | None) -> Calibrated:
        """Apply `--unit-columns` and `--prior`."""
        found = head.head.with_unit_columns() if self.unit_columns else head.head
        temperature = None
        if self.prior is not None:
            if judging is not None:
                temperature = _judge_head(Calibrated(found), judging).temperature
                if not isinstance(self.held_out, Path):
                    print_note(
                        "The hold-out set has the records' class shares, not those of --prior: "
                        "accuracy and calibration error will differ where the head is used"
                    )
            elif self._has_log_odds:
                temperature = 1.0
            else:
                raise Misuse("--prior needs calibrated scores: pass --held-out, which fits the temperature")
            counts = np.bincount(_join_parts(records.fitted)[1], minlength=len(records.classes))
            prior = _read_prior(self.prior, records.classes)
            # Log-odds are shifted as they are, as in the table of heads; a temperature divides them afterwards.
            shift = 1.0 if self._has_log_odds else temperature
            found = found.with_prior(counts, prior, temperature=shift)
        return head if found is head.head else replace(head, head=found, temperature=temperature)


def _check_memory(records: Loaded, statistic: Statistic, *, constant: bool) -> None:
    """Raise Misuse if the sums, which are held in several forms at once, exceed this machine's memory."""
    if not hasattr(os, "sysconf"):  # Windows promises no memory that it lacks: numpy raises MemoryError
        return
    width = statistic.width_for(records.dim, constant=constant)
    classes = len(records.classes)
    numbers = 2 * statistic.elements_for(records.dim, classes, constant=constant) + width * (
        classes + 2 * width
    )
    needed, there = 8 * numbers, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > there:
        raise Misuse(
            f"{classes} classes of {records.dim} features take at least {needed / 1e9:,.1f} GB, and this machine has "
            f"{there / 1e9:,.1f} GB. Are the labels class indices from 0? Otherwise use another --head or a larger machine"
        )


def _note_unfitted(labels: Labels, empty: Sequence[int], classes: Sequence[str]) -> None:
    """Say how many hold-out records have a class without a fitted record, which the head never predicts."""
    unfitted = labels[np.isin(labels, empty)]
    if len(unfitted):
        names = list_some([classes[place] for place in np.unique(unfitted).tolist()])
        print_note(
            f"{len(unfitted):,} of {count_noun(len(labels), 'hold-out record')} have a class without a record to fit ({names}). Accuracy and "
            "calibration error count them as wrong, the table of heads leaves them out. Are classes spelled and numbered alike in all files?"
        )


def _join_parts(parts: Sequence[Part]) -> Part:
    features, labels = zip(*parts, strict=True)
    return np.concatenate(features), np.concatenate(labels)


def _judge_head(head: Calibrated, records: Part) -> Reliability:
    """Judge a head at its temperature, or else at the one that these records give."""
    given = None if head.temperature is None else [head.temperature]
    return Reliability.of(head.head, *records, normalise=head.head.scales, temperatures=given)


def _read_prior(given: str, classes: Sequence[str]) -> Floats:
    """Return the (C,) class shares that `--prior` gives. Raises Misuse for a file of other numbers."""
    if given == "uniform":
        return np.ones(len(classes))
    try:
        shares = np.atleast_1d(np.loadtxt(given))
    except (OSError, ValueError) as error:
        raise Misuse(f"--prior {given}: expected 'uniform', or a text file of numbers: {error}") from error
    if shares.shape != (len(classes),):
        raise Misuse(
            f"--prior {given}: got {count_noun(shares.size, 'number')}, expected {len(classes)}, one a line, for the classes in the order "
            f"{list_some(classes)}"
        )
    return shares


def _save_output(output: Path, content: bytes) -> None:
    """Replace a file, or the target of a link, with a file of mode 0600; write to a pipe or device directly."""
    output.parent.mkdir(parents=True, exist_ok=True)
    target = Path(os.path.realpath(output))
    if target.exists() and not target.is_file():
        target.write_bytes(content)
    else:
        write_durably(target, content)
