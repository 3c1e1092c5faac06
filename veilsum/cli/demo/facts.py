"""The facts of a run, which table, summary and report show, and how they are worded."""

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np

from veilsum.calibration.rows import Floats
from veilsum.cli.demo.comparison import Comparison, Heads
from veilsum.cli.demo.consortium import DemoRun, KilledMember
from veilsum.cli.demo.learning import Learned
from veilsum.protocol.cost import cost_of

EXACT_ENOUGH = 1e-6
ROUND_PHASES = ("collecting", "checking", "freezing", "revealing", "recovered")


@dataclass(frozen=True, eq=False)
class Facts:
    """A finished demo.

    Attributes:
        label_counts: records of each class at each member, (K, C).
        mended: the member whose images were transposed in the first of two rehearsals.
        canaries: how its canaries differed then, for people.
        verified: the members with a result that was verified from disk.
        withheld: digits left out of the sum, because few members hold them.
        holders: for each digit, how many members hold it; empty if every digit is published.
        floor: holders below which a digit is withheld.
        accuracies: on the test records of the others, in 0..1.
        per_class: the same on each class, (C,).
        max_rel_diff: max|ΔW|/max|W| between masked and plain FFC.
        error_bound: the most that rounding may have moved a weight, as the record promises; None without a promise.
        upload_bytes: of each member: its announcement and its chunks, without HTTP's headers.
        names: other ids and digests, hexadecimal, to look the round up or to check it again.
    """

    seed: int
    members: tuple[str, ...]
    label_counts: np.ndarray[tuple[int, int], np.dtype[np.int64]]
    mended: str
    canaries: str
    survivors: tuple[str, ...]
    lost: tuple[KilledMember, ...]
    verified: tuple[str, ...]
    records: int
    withheld: tuple[int, ...]
    holders: tuple[int, ...]
    floor: int
    test_records: int
    accuracies: Heads[float]
    per_class: Heads[Floats]
    training: tuple[float, ...]
    max_rel_diff: float
    error_bound: float | None
    ridge: float
    grid: Floats
    gcv: Floats
    upload_bytes: int
    elements: int
    ring_bits: int
    chunks: int
    seconds: Mapping[str, float]
    survivors_min: int
    threshold: int
    colluders: int
    votes: int
    federation: str
    names: Mapping[str, str]
    versions: Mapping[str, str]

    @property
    def by_class(self) -> list[Heads[float]]:
        """The accuracies on each class."""
        return [Heads(*map(float, own)) for own in zip(*vars(self.per_class).values(), strict=True)]

    @property
    def faults(self) -> tuple[str, ...]:
        """What went wrong in this run, in words."""
        found = []
        if not self.max_rel_diff <= EXACT_ENOUGH:
            found.append(
                f"masked and plain weights differ by {self.max_rel_diff:.2g}, more than {EXACT_ENOUGH:g}"
            )
        if not self.accuracies.masked > self.accuracies.fedavg:
            found.append(
                f"the calibrated head is right on {self.accuracies.masked:.2%} of the test records, FedAvg's on {self.accuracies.fedavg:.2%}"
            )
        return tuple(found)

    def summary_values(self) -> dict[str, Any]:
        """What `summary.json` holds: counts, accuracies in 0 to 1, bytes, and seconds of each stage."""
        return {
            "members": len(self.members),
            "mended": {"member": self.mended, "canaries": self.canaries},
            "survivors": list(self.survivors),
            "withheld": list(self.withheld),
            "lost": [{"member": lost.member, "after": lost.after} for lost in self.lost],
            "accuracy_before": self.accuracies.before,
            "accuracy_masked": self.accuracies.masked,
            "accuracy_plain": self.accuracies.plain,
            "accuracy_fedavg": self.accuracies.fedavg,
            "accuracy_fedavg_plain": self.accuracies.fedavg_plain,
            "weights_max_rel_diff": self.max_rel_diff,
            "upload_bytes_per_member": self.upload_bytes,
            "vector_elements": self.elements,
            "seconds": {name: round(value, 3) for name, value in self.seconds.items()},
        }


def gather_facts(seed: int, learned: Learned, held: DemoRun, comparison: Comparison, total_s: float) -> Facts:
    """Put together what a run found, after `total_s` seconds in all."""
    result, view = comparison.result, held.view
    record, attempt = result.record, result.evidence.attempt
    solution, spec = record.solution, attempt.spec
    assert solution.ridge is not None
    assert record.head is not None
    return Facts(
        seed=seed,
        members=learned.members,
        label_counts=learned.partition.label_counts,
        mended=held.rehearsals.mended,
        canaries=held.rehearsals.canaries,
        survivors=result.survivors,
        lost=held.lost,
        verified=comparison.verified,
        records=record.rows,
        withheld=record.withheld,
        holders=record.holders,
        floor=spec.question.class_floor if record.holders else 0,
        test_records=len(comparison.test),
        accuracies=comparison.accuracies,
        per_class=comparison.per_class,
        training=learned.accuracies,
        max_rel_diff=comparison.max_rel_diff,
        error_bound=record.error_bound,
        ridge=solution.ridge,
        grid=np.array(solution.grid),
        gcv=np.array([np.inf if error is None else error for error in solution.errors]),
        upload_bytes=cost_of(attempt).upload_bytes,
        elements=spec.elements,
        ring_bits=spec.ring_bits,
        chunks=attempt.chunk_count,
        seconds={
            "training": learned.seconds,
            "rehearsal": held.rehearsals.seconds,
            "enrolment": held.enrolment_s,
            **{name: view.phase_seconds[name] for name in ROUND_PHASES if name in view.phase_seconds},
            "total": total_s,
        },
        survivors_min=attempt.survivors_min,
        threshold=attempt.quorum.threshold,
        colluders=attempt.quorum.colluders,
        votes=len(result.certificate.votes),
        federation=record.federation,
        names={
            "round": record.round,
            "cohort": record.cohort,
            "context of every signature": record.context,
            "study": record.study,
            "extractor and preprocessing": spec.question.extractor,
            "head, SHA-256": record.head,
        },
        versions={
            "veilsum": version("veilsum"),
            "Python": platform.python_version(),
            "NumPy": version("numpy"),
            "PyTorch": version("torch"),
            "system": platform.platform(terse=True),
        },
    )


PHASE_NAMES = {
    "training": "training SphereFed",
    "rehearsal": "process starts and two rehearsals",
    "enrolment": "key cards and pairing",
    "collecting": "masked uploads",
    "checking": "receipts for sealed shares",
    "freezing": "votes on the survivors",
    "revealing": "shares of the masks",
    "recovered": "unmasking and solving",
    "total": "everything",
}
NUMBER_TO_BEAT = "The baseline is FedAvg's head. SphereFed trains under a fixed head, so its accuracy before calibration is not a fair one."
FATE_WORDS = {
    "pairing": "killed after its pairing: not in the sum",
    "upload": "killed after its upload: still in the sum",
}


def fate_of(facts: Facts, member: str) -> str:
    """What became of a member: in the sum or not, and why."""
    after = {lost.member: lost.after for lost in facts.lost}.get(member)
    if after is not None:
        return FATE_WORDS[after]
    return "in the sum" if member in facts.survivors else "too late: not in the sum"


def format_percent(value: float) -> str:
    """An accuracy in 0..1; – for a class without records."""
    return "–" if value != value else f"{100 * value:.1f} %"  # noqa: PLR0124 - NaN alone differs from itself


def format_seconds(value: float) -> str:
    """A duration in seconds, with two digits after the point below ten."""
    return f"{value:.2f} s" if value < 10 else f"{value:.1f} s"


def format_kibibytes(value: int) -> str:
    """A size of so many bytes, in KiB."""
    return f"{value / 1024:.1f} KiB"


def format_power(value: float) -> str:
    """A number as a multiple of a power of ten, such as 5.0·10⁻⁸."""
    if value == 0:
        return "0"
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}·10{str(int(exponent)).translate(_SUPERSCRIPT)}"


def rare_classes(facts: Facts) -> str:
    """Which digits were withheld, in a sentence."""
    if not facts.holders:
        return (
            "Every digit is published, even one that a single member holds: these digits are public already."
        )
    if not facts.withheld:
        return f"No digit is withheld: {facts.floor} members or more hold each."
    named = ", ".join(f"{label} (held by {facts.holders[label]})" for label in facts.withheld)
    return f"Withheld, because fewer than {facts.floor} members hold them: {named}."


_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
