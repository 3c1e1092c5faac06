"""What `veilsum calibrate` was asked for, wherever the sums come from."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from calibration import Reliability
from calibration.head_file import Calibrated
from calibration.questions import QUESTIONS, kind
from calibration.questions.alone import chain
from protocol.errors import Misuse
from veilsum.console import lacks
from veilsum.features import checked_features

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from calibration.rows import Floats, Integers
    from protocol.rest import Parameter
    from veilsum.features import Features, Labels, Part

DERIVED = ("lda", "ncm")
"""Heads that a round of FFC publishes beside its own."""

LOG_ODDS = ("lda", "ccvr")
"""Heads whose scores are log-odds as they are, at a temperature of 1."""

CENTRED = "centred"
"""FFC's noisy head of features less their mean, which a noisy round of means finds first."""

HEADS = (*QUESTIONS, *DERIVED, CENTRED)
"""What `--head` takes."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """A head, and what is to be found out about it.

    Attributes:
        head: one of `HEADS`; None for FFC from files, and for whatever a round asks.
        parameters: of its question.
        bias: whether it has a constant.
        ridges: λ; empty for the question's own choice.
        normalise: whether to scale feature vectors to length 1.
        output: where it goes.
        held_share: of the records, kept back by their names; 0 for none.
        held_file: of records that are only judged on; None for none.
        report: where the page goes; None for none.
        personal: whether the member's own records are to count more, as half of those held out tell.
        unit_columns: whether the weights of each class are scaled to length 1.
        prior: "uniform", or a text file of a number for each class: their shares among the records that the head is to answer;
            None leaves them as they are among those it was fitted on.

    Raises:
        Misuse: no such head, or none in the end to be changed; λ for one that has none; a report without what draws it.
    """

    head: str | None = None
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    bias: bool = False
    ridges: Sequence[float] = ()
    normalise: bool = False
    output: Path
    held_share: float = 0.0
    held_file: Path | None = None
    report: Path | None = None
    personal: bool = False
    unit_columns: bool = False
    prior: str | None = None

    def __post_init__(self) -> None:
        if self.head is not None and self.head not in HEADS:
            raise Misuse(f"no head is called {self.head}: choose one of {', '.join(HEADS)}")
        if self.ridges and self.head in DERIVED:
            raise Misuse(f"a head of {self.head} has no λ: leave --ridge out")
        if (self.unit_columns or self.prior is not None) and not kind(self.question).has_head:
            raise Misuse(f"{self.head} ends in no head: leave --unit-columns and --prior out")
        if self.personal and (self.question != "ffc" or self.head in (*DERIVED, CENTRED)):
            raise Misuse(f"a personal head is one of ffc, not of {self.head}: leave --head out")
        if self.personal and not self.held_share:
            raise Misuse("--personal needs --held-out SHARE: records of your own choose how much they count")
        if self.report is not None and lacks("matplotlib", "torch"):
            raise Misuse("--report draws with the training extra: pip install 'veilsum[training]'")

    @property
    def question(self) -> str:
        """The question that its round asks."""
        return "ffc" if self.head is None or self.head in (*DERIVED, CENTRED) else self.head

    @property
    def chain(self) -> tuple[str, ...]:
        """The questions that lead to it from files, in order; Misuse for a head that exists under noise alone."""
        if self.head == CENTRED or not kind(self.question).exact:
            raise Misuse(f"{self.head} exists under noise alone: only a round ends in it")
        return chain(self.question, bias=self.bias)

    @property
    def asked(self) -> dict[str, Parameter]:
        """The last question's parameters, with what `head` and `bias` add to them."""
        given = dict(self.parameters)
        if self.head in DERIVED:
            given["publish"] = ",".join(filter(None, (str(given.get("publish", "")), self.head)))
        return given

    def check_output(self, files: Sequence[Path]) -> None:
        """Before the work, what would be lost by it, or lose it (Misuse)."""
        inputs = {path.resolve() for path in (*files, *filter(None, (self.held_file,)))}
        for name, output in (("--output", self.output), ("--report", self.report)):
            if output is None:
                continue
            if output.resolve() in inputs:
                raise Misuse(f"{name} {output} would replace the features: choose another file")
            if output.is_dir():
                raise Misuse(f"{name} {output} is a folder: name a file in it")
            above = next(each for each in output.absolute().parents if each.exists())
            if not above.is_dir():
                raise Misuse(f"{name} {output} is to lie in {above}, which is a file: choose another folder")
        if self.report is not None and self.report.resolve() == self.output.resolve():
            raise Misuse("--report and --output name the same file: choose another")


def held_out_from(given: str | None) -> dict[str, Any]:
    """What `--held-out` says: a share of the records, or a file of others; Misuse for a share that leaves no records."""
    if given is None:
        return {}
    try:
        share = float(given)
    except ValueError:
        return {"held_file": Path(given)}
    if not 0 < share < 1:
        raise Misuse(f"--held-out {given} is no share of the records: write one between 0 and 1, or a file")
    return {"held_share": share}


def changed(head: Calibrated, order: Order, counts: Integers, judging: Part | None) -> Calibrated:
    """The head with the columns and for the shares of classes that were asked for, its temperature not known any more.

    Args:
        head: as it was solved.
        order: what was asked for.
        counts: (C,) records of each class that it was fitted on.
        judging: records held out, which say at which temperature scores are log-odds; None for none.

    Raises:
        Misuse: a prior for scores that are no log-odds, without records held out; a file of no numbers.
        CalibrationError: as `Head.with_prior`.
    """
    found = head.head.with_unit_columns() if order.unit_columns else head.head
    if order.prior is not None:
        if judging is not None:
            temperature = judged(Calibrated(found), *judging).temperature
        elif order.head in LOG_ODDS and not order.unit_columns:
            temperature = 1.0
        else:
            raise Misuse(
                "--prior takes scores that are log-odds: pass --held-out, which finds the temperature at which these are"
            )
        prior = np.ones(len(counts)) if order.prior == "uniform" else _numbers(Path(order.prior))
        found = found.with_prior(counts, prior, temperature=temperature)
    return head if found is head.head else replace(head, head=found, temperature=None)


def _numbers(path: Path) -> Floats:
    try:
        return np.atleast_1d(np.loadtxt(path))
    except (OSError, ValueError) as error:
        raise Misuse(f"--prior {path} is neither uniform nor a text file of numbers: {error}") from error


def judged(head: Calibrated, features: Features, labels: Labels, without: Sequence[int] = ()) -> Reliability:
    """How often a head is right, and how sure, over records of classes that are not left out; CalibrationError as `Head.rows`."""
    asked = ~np.isin(labels, list(without))
    return Reliability.of(head.head, features[asked], labels[asked], normalise=head.head.scales)


def halves(records: Part) -> tuple[Part, Part]:
    """Every second record, and the others: what chooses among heads does not judge the one that was chosen."""
    features, labels = records
    return (features[::2], labels[::2]), (features[1::2], labels[1::2])


def records_of(path: Path, head: Calibrated, *, normalise: bool) -> Part:
    """Records that are only judged on; Misuse where they do not fit the head."""
    features, labels = checked_features(path, normalise=normalise, classes=head.head.classes)
    if features.shape[1] != head.head.dim:
        raise Misuse(f"{path}: features have shape {features.shape}, the head takes (n, {head.head.dim})")
    return features, labels
