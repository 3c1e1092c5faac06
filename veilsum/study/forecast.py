"""Forecast the runs of a study for its author: what they need, what they spend, and what is withheld in likely splits of the data.

All numbers follow from the rules that members apply (member: Selection, member: Enough rows). Rows are taken to have all `dim` features, unless
a number says how many they have.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from statistics import median_low

import numpy as np

from veilsum.calibration.ridge import definite_ridge
from veilsum.calibration.sparse_columns import HOLDERS_MIN, entries_suffice
from veilsum.protocol.counting import CLASSES_MIN, check_counts, withheld_classes
from veilsum.protocol.errors import Misuse, PeerFault
from veilsum.protocol.study import (
    DIM_MAX,
    DISCLOSED_STEPS,
    ROWS_LEVELS,
    ROWS_STEP,
    Content,
    Question,
    list_broken_rules,
    study_fault,
)
from veilsum.study.explain import Section
from veilsum.study.judging import ExpectedJudgement, expect_judgements, explain_judgements
from veilsum.study.promise import study_mu
from veilsum.study.vectors import reaches_level

CONCENTRATIONS = (0.1, 0.3, 0.5)
"""α of the symmetric Dirichlet distributions from which members' label shares are drawn: from very uneven to uneven."""
_RUNS_MIN, _RUNS_MAX = 4, 100
_CELLS_MAX = 1 << 19
"""Label shares that are drawn for one split, over all its runs: about a tenth of a second."""
_ROWS_END = 1 << 32
"""The first number of rows that no study can ask for."""


@dataclass(frozen=True)
class StepCost:
    """What a step of a run spends.

    Attributes:
        step: its name.
        spends: "nothing", "records" (those of the members in its sum) or "noise".
        mu: μ that it charges to each record; 0 without noise.
        share: its share of the study's μ².
    """

    step: str
    spends: str
    mu: float
    share: float


@dataclass(frozen=True)
class Density:
    """How many features of a member's rows must not be zero, so that the rows may stand in an exact sum (SELECT-4).

    Attributes:
        features: mean non-zero features of a row with which `least` rows suffice, after sparse features were cleared.
        rows_at_half: rows that suffice with half as many non-zero features; None if no number does.
    """

    features: float
    rows_at_half: int | None


@dataclass(frozen=True)
class ClassNeeds:
    """What a class needs to be published, in a study that withholds rare classes (member: Count vectors, member: Enough rows).

    Attributes:
        holders: m, the minimum members that hold it.
        honest_holders: those left when a members collude and r drop out after the count: m − a − r.
        rows: minimum rows of it that honest members have in the sum.
        rows_of_holder: minimum rows of it with which a member holds it.
        features_of_holder: mean non-zero features of a row with which so many rows suffice.
        classes_of_least: the most classes that a member with `least` rows can hold.
    """

    holders: int
    honest_holders: int
    rows: int
    rows_of_holder: int
    features_of_holder: float
    classes_of_least: int


@dataclass(frozen=True)
class SimulatedSplit:
    """Simulated runs over one kind of split.

    Attributes:
        concentration: α. The label shares of each member are drawn from the symmetric Dirichlet distribution with this parameter.
        members: n, all of which are counted.
        rows: rows of each member.
        runs: simulated runs.
        sums: those that end in a sum.
        published: classes that the count allows to be published, the median over the runs.
    """

    concentration: float
    members: int
    rows: int
    runs: int
    sums: int
    published: int


@dataclass(frozen=True)
class Forecast:
    """What an author can expect of a study's runs.

    Attributes:
        steps: what each step spends, in order.
        dim_max: the largest `dim` that the study's rows allow, all else equal; None with noise.
        density: what members' rows need; None with noise.
        classes: what a class needs; None if the study withholds none.
        splits: simulated runs; empty if the study withholds none.
        judge: what the judge will be able to say with the fewest members, and with all; empty without a judge.
    """

    steps: tuple[StepCost, ...]
    dim_max: int | None
    density: Density | None
    classes: ClassNeeds | None
    splits: tuple[SimulatedSplit, ...]
    judge: tuple[ExpectedJudgement, ...]


def forecast_study(content: Content, rows: int | None = None) -> Forecast:
    """Forecast the runs of a study that passed `check_head_possible`. Equal studies have equal forecasts.

    Args:
        content: of the study.
        rows: that each member has beside its held-out ones; None for `least`, and twice as many in runs of all members.

    Raises:
        Misuse: with so few rows no member takes part.
    """
    question = content.question
    if rows is not None and question.withhold is None and question.judge is None:
        raise Misuse(
            "rows set the size of simulated runs and of the judge, and this study has neither: it withholds no rare class and has no judge"
        )
    if rows is not None and question.noise is None and rows < (least := question.records.least):
        raise Misuse(
            f"a member with {rows:,} rows does not take part: the study's records.least is {least:,}"
        )
    exact, withholds = question.noise is None, question.withhold is not None
    return Forecast(
        steps=tuple(_cost_of(question, step) for step in question.steps),
        dim_max=_find_largest_dim(content) if exact else None,
        density=_find_density(question) if exact else None,
        classes=_find_class_needs(question) if withholds else None,
        splits=tuple(_simulate_splits(question, rows)) if withholds else (),
        judge=expect_judgements(question, rows),
    )


def check_head_possible(content: Content) -> None:
    """Refuse an exact study no run of which can end in a head (study-refused).

    With a small records.most, no member's rows can pass SELECT-4, or all members together can't hold two classes often enough. With a small λ,
    rounding decides the head, and readers may refuse it (RESULT-10).
    """
    question = content.question
    if question.noise is not None:
        return
    _check_ridge_outweighs_rounding(content)
    most = question.records.most
    if (needed := _rows_of_member(question)) > most:
        raise study_fault(
            f"question.records.most is {most}: a member needs {needed} rows, or they could be read from the sum; take at least {needed}"
        )
    if question.withhold is None:
        return
    held, floor = _rows_of_holder(question), question.class_floor
    classes = -(-CLASSES_MIN * floor // question.members_max)  # of one member, if all hold as many
    if classes * held > most:
        raise study_fault(
            f"question.records.most is {most}: a head needs {CLASSES_MIN} classes, each held by {floor} members with {held} rows of it, and "
            f"there are at most {question.members_max} members; take at least {classes * held}"
        )


def _check_ridge_outweighs_rounding(content: Content) -> None:
    question, given = content.question, content.after.ridge
    if given == "gcv":
        return
    members, bits = question.members_max, question.scale
    for statistic in question.statistics:
        match statistic.kind:
            case "ffc":
                least = definite_ridge(question.dim + question.constant, members, bits)
            case "random-features":
                # Of a quarter of the features, rows are scaled to length 1, which scales their rounding as well.
                least = 4 * definite_ridge(statistic.size // 4, members, bits)
            case "ccvr":
                continue
        if given < least:
            raise study_fault(
                f"after.ridge is {given:g}: in a ring of {question.ring_bits} bits, rounding outweighs a λ below {least:.2g}; take a larger one, "
                'or "gcv"'
            )


def explain_forecast(content: Content, forecast: Forecast) -> Section:
    """Explain a forecast in plain words, for the study's author."""
    question, sentences = content.question, list[str]()
    sentences += _explain_steps(forecast.steps)
    if forecast.dim_max is not None:
        sentences.append(
            f"With these rows the study can have up to {forecast.dim_max:,} features (dim), everything else unchanged."
        )
    if forecast.density is not None:
        sentences += _explain_density(question, forecast.density)
    if forecast.classes is not None:
        sentences += _explain_class_needs(question, forecast.classes)
    if forecast.splits:
        sentences += _explain_splits(question, forecast.splits)
    sentences += explain_judgements(question, forecast.judge)
    return Section("What to expect", tuple(sentences))


def _cost_of(question: Question, step: str) -> StepCost:
    if question.noise is None:
        return StepCost(step, "nothing" if step in DISCLOSED_STEPS else "records", 0.0, 0.0)
    share = question.share_of(step)
    return StepCost(step, "noise", study_mu(question.noise) * math.sqrt(share), share)


def _find_largest_dim(content: Content) -> int:
    """Find the largest dim with which the study is still valid. The rows it needs are convex in dim, so all between are valid, too."""

    def is_dim_refused(dim: int) -> bool:
        question = content.question.model_copy(update={"dim": dim, "columns": ()})
        wider = content.model_copy(update={"question": question})
        if next(list_broken_rules(wider), None) is not None:
            return True
        try:
            check_head_possible(wider)
        except PeerFault:
            return True
        return False

    return content.question.dim + bisect_left(
        range(content.question.dim + 1, DIM_MAX + 1), True, key=is_dim_refused
    )


def _find_fewest(suffices: Callable[[int], bool], end: int) -> int:
    """Return the least number from 0 that suffices, or `end` if none below it does. What suffices, suffices for all larger ones."""
    return bisect_left(range(end), True, key=suffices)


def _honest_members(question: Question) -> int:
    return question.smallest.quorum.survivors_min - question.a


def _dense_entries(question: Question, rows: int) -> int:
    """Return the non-zero features of rows that have all, after sparse ones were cleared."""
    return rows * question.dim if rows >= HOLDERS_MIN else 0


def _rows_of_member(question: Question) -> int:
    """Return the fewest dense rows with which a member's answer can be yes (member: Selection)."""
    return _fewest_dense_rows(question, 1, question.elements, _honest_members(question))


def _rows_of_holder(question: Question) -> int:
    """Return the fewest dense rows of a class with which a member holds it (member: Count vectors)."""
    return _fewest_dense_rows(
        question, question.records.least_per_class, question.class_elements, question.h_min
    )


def _fewest_dense_rows(question: Question, least: int, elements: int, honest: int) -> int:
    """Return the fewest dense rows, from `least` on, that may stand in a sum of so many elements of `honest` honest members."""
    numbers = question.records.rows_per_id * elements
    return _find_fewest(
        lambda rows: (
            rows >= least
            and entries_suffice(rows, _dense_entries(question, rows), numbers, honest_members=honest)
        ),
        _ROWS_END,
    )


def _rows_of_level(question: Question, level: int) -> int:
    """Return the fewest dense rows that reach a level of the step `rows` (member: Count vectors)."""
    return _find_fewest(
        lambda rows: reaches_level(question, level, rows, _dense_entries(question, rows)), _ROWS_END
    )


def _find_density(question: Question) -> Density:
    records, honest = question.records, _honest_members(question)
    numbers, rows = records.rows_per_id * question.elements, max(records.least, _rows_of_member(question))

    def entries_bear_sum(rows: int, entries: int) -> bool:
        return entries_suffice(rows, entries, numbers, honest_members=honest)

    entries = _find_fewest(lambda entries: entries_bear_sum(rows, entries), rows * question.dim)
    at_half = _find_fewest(
        lambda more: more > 0 and entries_bear_sum(more, more * entries // (2 * rows)), _ROWS_END
    )
    return Density(entries / rows, at_half if at_half < _ROWS_END else None)


def _find_class_needs(question: Question) -> ClassNeeds:
    assert question.withhold is not None
    held, numbers = _rows_of_holder(question), question.records.rows_per_id * question.class_elements
    entries = _find_fewest(
        lambda entries: entries_suffice(held, entries, numbers, honest_members=question.h_min),
        held * question.dim,
    )
    return ClassNeeds(
        holders=question.class_floor,
        honest_holders=question.class_floor - question.a - question.withhold.margin,
        rows=question.class_rows_needed,
        rows_of_holder=held,
        features_of_holder=entries / held,
        classes_of_least=min(len(question.classes), question.records.least // held),
    )


def _simulate_splits(question: Question, expected: int | None) -> Iterator[SimulatedSplit]:
    """Simulate the smallest run, then the largest: with the expected rows, or with the fewest and twice as many."""
    records, rng = question.records, np.random.default_rng(0)
    for members, rows in (
        (question.members_min, expected or records.least),
        (question.members_max, expected or 2 * records.least),
    ):
        for concentration in CONCENTRATIONS:
            yield _simulate_split(question, concentration, members, min(rows, records.most), rng)


def _simulate_split(
    question: Question, concentration: float, members: int, rows: int, rng: np.random.Generator
) -> SimulatedSplit:
    """Simulate runs up to the rule of OPEN-24.

    Of many members and classes only some members are drawn. Members are alike, and so are classes: how many of all members hold a class is
    then binomial, and the levels of the step `rows` are scaled.
    """
    classes = len(question.classes)
    drawn = max(1, min(members, _CELLS_MAX // (_RUNS_MIN * classes)))
    runs = max(_RUNS_MIN, min(_RUNS_MAX, _CELLS_MAX // (drawn * classes)))
    holding = _rows_of_holder(question)
    reaching = [_rows_of_level(question, level) for level in ROWS_LEVELS]
    sums, published = 0, list[int]()
    for _ in range(runs):
        dealt = rng.multinomial(rows, rng.dirichlet(np.full(classes, concentration), drawn))
        held = dealt >= holding
        holders = held.sum(axis=0) if drawn == members else rng.binomial(members, held.mean(), classes)
        withheld = withheld_classes(question, holders.tolist())
        own = np.delete(dealt, withheld, axis=1).sum(axis=1)
        reached = [int((own >= fewest).sum()) * members // drawn for fewest in reaching]
        published.append(classes - len(withheld))
        sums += _allows_sum(question, holders.tolist(), reached if withheld else None)
    return SimulatedSplit(concentration, members, rows, runs, sums, median_low(published))


def _allows_sum(question: Question, holders: list[int], reached: list[int] | None) -> bool:
    try:
        check_counts(question, holders, reached)
    except PeerFault:
        return False
    return True


def _explain_steps(steps: tuple[StepCost, ...]) -> Iterator[str]:
    for (spends, mu, share), group in groupby(steps, lambda cost: (cost.spends, cost.mu, cost.share)):
        names = [cost.step for cost in group]
        if spends == "noise":
            between = " and " if len(names) == 2 else " to "
            charging = (
                f"Step {names[0]} charges"
                if len(names) == 1
                else f"Steps {names[0]}{between}{names[-1]} each charge"
            )
            yield f"{charging} μ = {mu:.3g} ({100 * share:g} % of the study's μ²) to each record."
        elif spends == "records":
            yield f"Step {names[0]} spends the records of the members in the sum."
        else:
            for name in names:
                when = "runs only if the count leaves a class out, and " if name == ROWS_STEP else ""
                yield f"Step {name} {when}spends nothing."
    if steps[0].spends == "noise":
        yield f"All steps together charge μ = {math.sqrt(math.fsum(cost.mu**2 for cost in steps)):.3g}."


def _explain_density(question: Question, density: Density) -> Iterator[str]:
    least, most = question.records.least, question.records.most
    share = _describe_share(density.features, question.dim)
    yield f"A member with {least:,} rows can take part if at least {share} of a row are not zero, on average."
    match density.rows_at_half:
        case None:
            yield "With half as many non-zero features a row, no number of rows is enough."
        case rows if rows > most:
            yield f"With half as many non-zero features a row, it would need {rows:,} rows, more than the {most:,} that it may use."
        case rows:
            yield f"With half as many non-zero features a row, it needs {max(least, rows):,} rows."


def _explain_class_needs(question: Question, needs: ClassNeeds) -> Iterator[str]:
    assert question.withhold is not None
    yield (
        f"A class is published if at least {needs.holders:,} members hold it: {question.a:,} that may collude, {question.withhold.margin:,} that "
        f"may drop out after the count, and {needs.honest_holders:,} honest members that remain."
    )
    yield (
        f"A member holds a class from {needs.rows_of_holder:,} rows on, if at least "
        f"{_describe_share(needs.features_of_holder, question.dim)} of these rows are not zero, on average. So a published class has at least "
        f"{needs.honest_holders * needs.rows_of_holder:,} rows of honest members; {needs.rows:,} are enough."
    )
    if needs.classes_of_least < len(question.classes):
        yield f"A member with {question.records.least:,} rows can hold {needs.classes_of_least:,} of the {len(question.classes):,} classes at most."


def _explain_splits(question: Question, splits: tuple[SimulatedSplit, ...]) -> Iterator[str]:
    yield (
        "Simulated runs with the fewest members and with all; `--rows` sets how many rows each has. Label shares are drawn from a Dirichlet "
        "distribution: the smaller its number, the more uneven."
    )
    for split in splits:
        yield (
            f"Dirichlet {split.concentration:g}, {split.members:,} members with {split.rows:,} rows each: {split.sums} of {split.runs} runs ended in a "
            f"sum; the median run publishes {split.published:,} of {len(question.classes):,} classes."
        )


def _describe_share(features: float, dim: int) -> str:
    return f"{math.ceil(features):,} of {dim:,} features ({math.ceil(100 * features / dim)} %)"
