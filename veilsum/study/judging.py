"""The judge of a study: the heads that a run shows, a member's vector, and what the sum says (periods: Judgements)."""

import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from veilsum.calibration.ccvr_head import TukeyHead
from veilsum.calibration.errors import CalibrationError
from veilsum.calibration.head import Head, find_empty_classes
from veilsum.calibration.head_file import Calibrated
from veilsum.calibration.judge import Figure, expect_tables
from veilsum.calibration.judge_tables import JUDGE_LATTICE, ShownHeads, TableShapes, tabulate_records
from veilsum.calibration.privacy.mechanism import Mechanism
from veilsum.calibration.privacy.sampler import ByteSource
from veilsum.calibration.random_features import KernelHead
from veilsum.calibration.rows import Array, Floats, Integers
from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import Misuse, PeerFault
from veilsum.protocol.messages import Manifest
from veilsum.protocol.periods import PeriodKind, kind_of_period
from veilsum.protocol.study import HELD_OUT_SHARE, JUDGE_STEP, NOISY_BITS, Judge, Question, study_fault
from veilsum.study.promise import check_noise, study_mu
from veilsum.study.result_files import load_material, material_fault, material_file
from veilsum.study.scales import guess_scale
from veilsum.study.vectors import random_features

TEMPERATURE_MIN, TEMPERATURE_MAX = 1e-6, 1e6
_TEMPERATURE, _EDGES = "temperature", "edges"
_WEIGHTS, _BIAS, _ANSWERED, _CENTRE, _POWER = "weights", "bias", "answered", "centre", "power"


def judge_of(question: Question) -> Judge:
    """Return the question's judge. Raises Misuse without one."""
    if question.judge is None:
        raise Misuse("the study has no [question.judge], so its heads can't be judged over all members")
    return question.judge


def table_shapes(question: Question) -> TableShapes:
    """Return the sizes of the judge's tables, which follow from the question alone."""
    judge = judge_of(question)
    bins = judge.bins
    return TableShapes(
        judge.heads, len(question.classes), bins.confidence, bins.score, question.positive_class
    )


def judge_mechanism(question: Question, members: int, survivors_min: int) -> Mechanism:
    """Return the noise of a judgement in a cohort of this size.

    Raises:
        PeerFault: weak-parameters if the noise does not fit the steps of counts, or the ring.
    """
    try:
        mechanism = Mechanism(
            table_shapes(question).release,
            question.records.rows_per_id,
            study_mu(judge_of(question)),
            members,
            survivors_min,
            question.a,
            JUDGE_LATTICE,
        )
    except CalibrationError as error:
        raise PeerFault(Cause.WEAK_PARAMETERS, f"step judge: {error}", ["coordinator"]) from error
    bound = question.records_max * JUDGE_LATTICE.unit(1) + mechanism.noise_tail
    if bound >= 1 << NOISY_BITS - 1:
        raise PeerFault(
            Cause.WEAK_PARAMETERS,
            f"step judge: rows and noise reach 2^{math.log2(bound):.1f} steps, but the ring holds sums below 2^{NOISY_BITS - 1}: take a larger ε",
            ["coordinator"],
        )
    return mechanism


def check_cohort(question: Question, manifest: Manifest) -> None:
    """Refuse a cohort that the noise of its steps does not fit (weak-parameters): the judge's, or the study's (`check_noise`)."""
    judges = kind_of_period(manifest.period) is PeriodKind.JUDGE
    check = judge_mechanism if judges else check_noise
    check(question, len(manifest.members), manifest.survivors_min)


def judge_vector(
    question: Question,
    shown: ShownHeads,
    features: Array,
    labels: Integers,
    mechanism: Mechanism,
    random_bytes: ByteSource,
) -> Integers:
    """Return a member's vector, (elements,): the tables of its rows, clipped, with its share of the noise.

    Features are usable (n, dim) rows, at most `rows_per_id` of one id, and labels their (n,) classes.
    """
    flat = noiseless_tables(question, shown, features, labels)
    mechanism.add_noise(flat, random_bytes)
    return flat


def noiseless_tables(question: Question, shown: ShownHeads, features: Array, labels: Integers) -> Integers:
    """Return the clipped tables of a member's rows before its noise, (elements,)."""
    flat = tabulate_records(table_shapes(question), shown, features, labels)
    bound = question.records.most * JUDGE_LATTICE.unit(1)
    return np.clip(flat, -bound, bound, out=flat)


def show_heads(question: Question, heads: Sequence[Calibrated]) -> ShownHeads:
    """Return the heads of a run, the first one's tables on the scale that its file names, or else on a guess. Raises Misuse without a judge."""
    shapes, first = table_shapes(question), heads[0]
    scale = first.scale
    wanted = 0 if shapes.positive is None else shapes.score_bins - 1
    if scale is None or len(scale.edges) != wanted:
        scale = guess_scale(question, log_odds=first.temperature == 1)
    temperature = scale.temperature if first.temperature is None else first.temperature
    return ShownHeads(tuple(each.head for each in heads), temperature, scale.edges)


def encode_shown(question: Question, shown: ShownHeads) -> bytes:
    """Encode the heads of a run as a safetensors file of float64 tensors. The same heads give the same bytes.

    Raises:
        Misuse: a head is not of the study, or there are more than its judge takes.
    """
    arrays: dict[str, Floats] = {_TEMPERATURE: np.array([shown.temperature])}
    if table_shapes(question).positive is not None:
        arrays[_EDGES] = np.asarray(shown.edges, np.float64)
    for place, head in enumerate(shown.heads):
        prefix = f"{place}.{_kind_of(head)}."
        answered = np.ones(head.classes)
        answered[list(head.empty_classes)] = 0
        arrays[prefix + _WEIGHTS] = head.weights
        arrays[prefix + _BIAS] = np.zeros(head.classes) if head.bias is None else head.bias
        arrays[prefix + _ANSWERED] = answered
        if head.centre is not None:
            arrays[prefix + _CENTRE] = head.centre
        if isinstance(head, TukeyHead):
            arrays[prefix + _POWER] = np.array([1.0 if head.power is None else head.power])
    content = material_file(arrays)
    try:
        read_shown(question, content)
    except PeerFault as fault:
        raise Misuse(f"these heads can't be judged: {fault.detail}") from fault
    return content


def read_shown(question: Question, content: bytes) -> ShownHeads:
    """Read the heads of a run. The caller checks the digest in the terms.

    Raises:
        PeerFault: terms-refused if a tensor is missing, unknown, not finite, too large, or of a wrong shape or type.
    """
    arrays = load_material(JUDGE_STEP, content)
    shapes = table_shapes(question)
    temperature, edges = arrays.pop(_TEMPERATURE, np.zeros(0)), arrays.pop(_EDGES, np.zeros(0))
    if temperature.shape != (1,) or not TEMPERATURE_MIN <= temperature[0] <= TEMPERATURE_MAX:
        raise _shown_fault(f"temperature is one number from {TEMPERATURE_MIN:g} to {TEMPERATURE_MAX:g}")
    wanted = 0 if shapes.positive is None else shapes.score_bins - 1
    if edges.shape != (wanted,) or (np.diff(edges) <= 0).any():
        raise _shown_fault(f"edges are {wanted} ascending numbers")
    parts = dict[str, dict[str, Floats]]()
    for name, array in arrays.items():
        prefix, _, tensor = name.rpartition(".")
        parts.setdefault(prefix, {})[tensor] = array
    places = sorted(parts)
    if not 1 <= len(places) <= shapes.heads or [each.partition(".")[0] for each in places] != [
        str(place) for place in range(len(places))
    ]:
        raise _shown_fault(
            f"expected 1 to {shapes.heads} heads, numbered from 0; got {', '.join(places) or 'none'}"
        )
    heads = tuple(_read_head(question, each, parts[each]) for each in places)
    return ShownHeads(heads, float(temperature[0]), edges)


def _kind_of(head: Head) -> str:
    if isinstance(head, KernelHead):
        return "random-features"
    if isinstance(head, TukeyHead) and not head.unit:
        raise Misuse("a head of features that are not scaled to length 1 can't be judged")
    return "ccvr" if isinstance(head, TukeyHead) else "ffc"


def _read_head(question: Question, prefix: str, tensors: Mapping[str, Floats]) -> Head:
    kind, classes = prefix.partition(".")[2], len(question.classes)
    names = {_WEIGHTS, _BIAS, _ANSWERED, *({_POWER} if kind == "ccvr" else ())}
    if kind not in {"ffc", "random-features", "ccvr"} or {*tensors} - {_CENTRE} != names:
        raise _shown_fault(f"head {prefix} has the tensors {', '.join(sorted(tensors))}")
    weights, bias, answered = tensors[_WEIGHTS], tensors[_BIAS], tensors[_ANSWERED]
    phi = random_features(question) if kind == "random-features" else None
    widths = {question.dim} if phi is None else {*range(2, phi.size + 1, 2)}
    if kind == "random-features" and phi is None:
        raise _shown_fault(f"head {prefix}: the study has no random features")
    if (
        weights.ndim != 2
        or len(weights) not in widths
        or {weights.shape[1:], bias.shape, answered.shape} != {(classes,)}
    ):
        raise _shown_fault(
            f"head {prefix}: weights {weights.shape} and bias {bias.shape} do not fit the study"
        )
    if not ((answered == 0) | (answered == 1)).all() or not answered.any():
        raise _shown_fault(f"head {prefix}: answered holds 0 or 1 for each class, and 1 at least once")
    centre = tensors.get(_CENTRE)
    if centre is not None and centre.shape != (question.dim,):
        raise _shown_fault(f"head {prefix}: the centre has shape {centre.shape}")
    empty = find_empty_classes(answered)
    if phi is not None:
        smaller = type(phi)(phi.dim, len(weights), phi.bandwidth, phi.seed)
        return KernelHead(weights, bias, empty, smaller, centre=centre)
    if kind == "ccvr":
        power = tensors[_POWER]
        if power.shape != (1,) or not 0 < power[0] <= 1:
            raise _shown_fault(f"head {prefix}: power is one number above 0 and up to 1")
        return TukeyHead(weights, bias, empty, float(power[0]), True, centre=centre)
    return Head(weights, bias, empty, centre=centre)


def _shown_fault(detail: str) -> PeerFault:
    return material_fault(JUDGE_STEP, detail)


_JUDGED_SHARE = 0.5
"""The share of held-out records never judged that one run takes."""
_RECORDS_TRIED: list[int] = [step * 10**power for power in range(8) for step in range(10, 100)]
"""Numbers of two digits and zeros."""


@dataclass(frozen=True)
class ExpectedFigure:
    """What a run of the judge would say about one kind of figure.

    Attributes:
        name: in words.
        half_width: of its 95 % interval, if it would be stated; else None.
        records_needed: held-out records from which on it would be stated.
    """

    name: str
    half_width: float | None
    records_needed: int


@dataclass(frozen=True)
class ExpectedJudgement:
    """What the judge would say of a good head, with equal class shares.

    Attributes:
        members: in the run.
        records: held-out records that it judges.
        figures: by kind.
    """

    members: int
    records: int
    figures: tuple[ExpectedFigure, ...]


def expect_judgement(question: Question, members: int, records: float) -> ExpectedJudgement:
    """Return what a run of `members` members over so many held-out records would state."""
    survivors_min = question.sizes_for(members, members).quorum.survivors_min
    mechanism = judge_mechanism(question, members, survivors_min)
    variance = members * mechanism.largest / JUDGE_LATTICE.unit(2)

    @cache
    def figures_of(number: float) -> Mapping[str, Figure]:
        return _expect_figures(question, number, variance)

    def count_needed(name: str) -> int:
        tried = _RECORDS_TRIED[:-1]
        return _RECORDS_TRIED[bisect_left(tried, True, key=lambda number: figures_of(number)[name].is_stated)]

    return ExpectedJudgement(
        members,
        int(records),
        tuple(
            ExpectedFigure(
                name, (figure.high - figure.low) / 2 if figure.is_stated else None, count_needed(name)
            )
            for name, figure in figures_of(records).items()
        ),
    )


def _expect_figures(question: Question, records: float, variance: float) -> Mapping[str, Figure]:
    shapes = table_shapes(question)
    tables = expect_tables(shapes, records, variance, float(question.records.rows_per_id))
    seen = tables.judge(shapes.heads)
    [recall, *_] = [each for each in seen.recalls if each is not None]
    figures = {
        "accuracy": seen.accuracy,
        "balanced accuracy": seen.balanced_accuracy,
        "recall by class": recall,
        "calibration": seen.calibration.excess,
    }
    return figures if seen.score is None else {**figures, "AUROC": seen.score.auroc}


def expect_judgements(question: Question, rows: int | None = None) -> tuple[ExpectedJudgement, ...]:
    """Return what the first run of the judge would state with the fewest members and with all, whose other rows are `rows` each.

    Without `rows`, members have `least`, and twice as many in the run of all. Empty without a judge.
    """
    if question.judge is None:
        return ()
    least, most = question.records.least, question.records.most
    kept = _JUDGED_SHARE * HELD_OUT_SHARE / (1 - HELD_OUT_SHARE)
    return tuple(
        expect_judgement(question, members, kept * members * min(each, most))
        for members, each in (
            (question.members_min, rows or least),
            (question.members_max, rows or 2 * least),
        )
    )


def check_judge_possible(question: Question) -> None:
    """Refuse a judge whose tables could not be stated even if all members had `most` held-out rows (study-refused)."""
    if question.judge is None:
        return
    best = expect_judgement(question, question.members_max, question.records_max)
    never = [each for each in best.figures if each.half_width is None]
    if never:
        needed = max(each.records_needed for each in never)
        raise study_fault(
            f"question.judge could never state {' and '.join(each.name for each in never)}: that takes about {needed:,} held-out records, and "
            f"members_max · records.most is {question.records_max:,}; raise epsilon or records.most, merge classes, or leave the judge out"
        )


def explain_judgements(question: Question, expected: Sequence[ExpectedJudgement]) -> Iterator[str]:
    """Say what the judge will be able to say, for the study's author."""
    if not expected:
        return
    judge = judge_of(question)
    yield (
        f"The judge evaluates up to {judge.heads} heads on held-out records, with noise: ε = {judge.epsilon:g} at δ = {judge.delta:g} for one record, "
        "which is judged once in its life. A run uses half of the held-out records that were never judged."
    )
    for each in expected:
        said = [
            f"{one.name} ± {100 * one.half_width:.1f}" for one in each.figures if one.half_width is not None
        ]
        unsaid = [
            f"{one.name} (about {one.records_needed:,})" for one in each.figures if one.half_width is None
        ]
        yield (
            f"With {each.members:,} members it judges about {each.records:,} records."
            + (f" It can state, in points: {', '.join(said)}." if said else " It can state nothing.")
            + (f" Too few records for {', '.join(unsaid)}." if unsaid else "")
        )
