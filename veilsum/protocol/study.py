"""The content of a study: the fields that define the sum, and the rules between them (wire: Studies).

The JSON encoding is canonical (RFC 8785), so equal contents have equal digests.
"""

import json
from collections.abc import Iterator
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Annotated, Any, Literal, Self

import rfc8785
from pydantic import (
    BaseModel,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)

from veilsum.protocol.causes import Cause
from veilsum.protocol.errors import PeerFault
from veilsum.protocol.forms import (
    CLASS_PATTERN,
    COLUMN_PATTERN,
    MEMBER_PATTERN,
    TEXT_PATTERN,
    Hex32,
    first_fault,
)
from veilsum.protocol.periods import PeriodKind, check_period_name, kind_of_period
from veilsum.protocol.sizing import Quorum, Sizes, size_cohort
from veilsum.protocol.statistics import STATISTICS_ORDER, Real, Statistic, StudyBlock
from veilsum.protocol.tags import Tag, hash_fields

DAY_S = 86_400
ROUND_LIFETIME_MAX_S = 90 * DAY_S
"""Maximum time until a study expires, by the member's clock."""
END_MAX_S = 30 * DAY_S
"""Maximum time until an attempt's latest end."""
SCALE_MIN, SCALE_MAX = 8, 40
ROWS_MIN = 50
"""Minimum rows of honest members in an exact sum, however short its vector."""
DIM_MAX = 65_536
ELEMENTS_MAX = 1 << 32
NORMALS_MAX = 1 << 27
NOISY_BITS = 48
"""Ring bits of every noisy study."""
NOISY_RECORDS_MAX = 1 << 22
"""Noisy sums of fewer rows than this fit that ring."""
NOISE_EPSILON_MAX, NOISE_DELTA_MAX = 10, 1e-5
HELD_OUT_SHARE = 0.1
"""The share of a member's records that is in no count and no sum, by default (member: Ids)."""
RECIPES: dict[str, tuple[tuple[str, float], ...]] = {
    "sum": (("sum", 1.0),),
    "mean+sum": (("mean", 0.1), ("sum", 0.9)),
    "mean+sum+6-gradients": (
        ("mean", 0.05),
        ("sum", 0.2),
        *((f"gradient-{step}", 0.125) for step in range(1, 7)),
    ),
    "mean+sum+16-gradients": (
        ("mean", 0.05),
        ("sum", 0.15),
        *((f"gradient-{step}", 0.05) for step in range(1, 17)),
    ),
}
"""The steps of each recipe of a noisy study, with their shares of μ²."""

COUNT_STEP, ROWS_STEP, SUM_STEP, MEAN_STEP, JUDGE_STEP = "count", "rows", "sum", "mean", "judge"
DISCLOSED_STEPS = frozenset({COUNT_STEP, ROWS_STEP})
"""Steps that count members. Their sums are disclosed."""
COUNT_BITS, JUDGE_BITS = 32, 48
"""Ring bits of the steps that count members, and of the judge's."""
ROWS_LEVELS = (1, 2, 3, 4, 6, 8, 12, 16)
"""The levels of the step `rows`, in quarters of `RecordRules.least`."""

Natural = Annotated[int, Field(ge=1, lt=1 << 32)]
Name = Annotated[str, Field(pattern=MEMBER_PATTERN)]
ClassKey = Annotated[str, Field(pattern=CLASS_PATTERN)]
ColumnName = Annotated[str, Field(max_length=64, pattern=COLUMN_PATTERN)]
Text = Annotated[str, Field(max_length=1024, pattern=TEXT_PATTERN)]
Epsilon = Annotated[Real, Field(gt=0, le=NOISE_EPSILON_MAX)]
Delta = Annotated[Real, Field(gt=0, le=NOISE_DELTA_MAX)]


class Notes(StudyBlock):
    """Texts for people, the version and the expiry. They do not affect the sum.

    Attributes:
        name: the study's name, for example "ct-2026".
        version: increases with every change.
        purpose: the use of the result, in the author's words.
        why_not_listable: why no list can hold every input, if the question says so; else empty.
        why_not_withheld: why an exact study publishes rare classes, if it does; else empty.
        display: display names of the classes, in the order of the question's classes; may be empty.
        expires: Unix time in seconds.
    """

    name: Name
    version: Natural
    purpose: Text
    why_not_listable: Text
    why_not_withheld: Text
    display: tuple[Annotated[str, Field(min_length=1, max_length=64, pattern=TEXT_PATTERN)], ...]
    expires: Annotated[int, Field(ge=0, lt=1 << 53)]


class RecordRules(StudyBlock):
    """Limits on a member's rows.

    Attributes:
        least: minimum rows of a member.
        most: maximum rows of a member.
        least_per_class: minimum rows of a class for a member to count as one of its holders.
        rows_per_id: maximum rows of one record id.
    """

    least: Natural
    most: Natural
    least_per_class: Natural
    rows_per_id: Natural


class Withhold(StudyBlock):
    """Withhold classes with fewer holders than `Question.class_floor`, which is at least a + h_min + margin."""

    margin: Annotated[int, Field(ge=0, le=10_000)]


class Noise(StudyBlock):
    """Differential privacy: one budget for all steps of the recipe.

    Attributes:
        epsilon, delta: the privacy budget of the whole study for one unit.
        unit: one record, or all records of one member.
        recipe: the steps, a key of `RECIPES`.
    """

    epsilon: Epsilon
    delta: Delta
    unit: Literal["record", "member"]
    recipe: Literal["sum", "mean+sum", "mean+sum+6-gradients", "mean+sum+16-gradients"]


class JudgeBins(StudyBlock):
    """Bins of the judge's tables: of confidence, and of the scores of two classes."""

    confidence: Annotated[int, Field(ge=2, le=20)]
    score: Annotated[int, Field(ge=2, le=32)]


class Judge(StudyBlock):
    """Noisy counts of how heads do on held-out records.

    Attributes:
        epsilon, delta: the privacy budget of one judgement for one record.
        heads: maximum heads that are judged together.
        positive: the class whose scores are counted; None counts scores of studies of two classes alone.
    """

    epsilon: Epsilon
    delta: Delta
    heads: Annotated[int, Field(ge=1, le=3)]
    positive: ClassKey | None
    bins: JudgeBins

    def elements_for(self, classes: int) -> int:
        """Return the length of the vector: right and wrong of all heads together, by class, by confidence, and by score (periods: Judgements)."""
        has_scores = self.positive is not None or classes == 2
        return (
            (1 << self.heads)
            + 2 * (classes + 1)
            + 3 * self.bins.confidence
            + 2 * has_scores * self.bins.score
        )


class Windows(StudyBlock):
    """Minimum times in seconds to enrol, to upload, and for each later answer."""

    enrol: Annotated[int, Field(ge=1, le=END_MAX_S)]
    upload: Annotated[int, Field(ge=1, le=END_MAX_S)]
    answer: Annotated[int, Field(ge=1, le=END_MAX_S)]

    @property
    def attempt_s(self) -> int:
        """Minimum seconds from an attempt's opening to its latest end."""
        return self.upload + 3 * self.answer


class Question(StudyBlock):
    """Every field that a vector or a minimum depends on. The digest identifies the sum.

    Attributes:
        columns: names of the features; may be empty.
        constant: FFC's rows end in a constant, a tenth of their squared length.
        listable: a list of 10^12 rows could hold every input that a patient could have.
    """

    extractor: Hex32
    dim: Annotated[int, Field(ge=2, le=DIM_MAX)]
    columns: tuple[ColumnName, ...]
    classes: Annotated[tuple[ClassKey, ...], Field(min_length=2, max_length=10_000)]
    constant: bool
    listable: bool
    statistics: Annotated[tuple[Statistic, ...], Field(min_length=1, max_length=len(STATISTICS_ORDER))]
    ring_bits: Literal[32, 48]
    records: RecordRules
    members_min: Annotated[int, Field(ge=3, le=10_000)]
    members_max: Annotated[int, Field(ge=3, le=10_000)]
    a: Annotated[int, Field(ge=0, le=10_000)]
    h_min: Annotated[int, Field(ge=3, le=10_000)]
    loss: Annotated[int, Field(ge=0, le=374)]
    withhold: Withhold | None
    noise: Noise | None
    judge: Judge | None
    windows: Windows

    @cached_property
    def digest(self) -> bytes:
        """H("question", canonical JSON), 32 bytes."""
        return hash_fields(Tag.QUESTION, canonical_json(self))

    @property
    def positive_class(self) -> int | None:
        """The class whose detection is judged: the judge's `positive`, else the second of two; None without one."""
        if self.judge is not None and self.judge.positive is not None:
            return self.classes.index(self.judge.positive)
        return 1 if len(self.classes) == 2 else None

    @property
    def records_max(self) -> int:
        """N_max, the maximum rows in a sum."""
        return self.records.most * self.members_max

    @property
    def width(self) -> int:
        """The rows of the widest second moment."""
        return max(self.width_of(statistic) for statistic in self.statistics)

    def width_of(self, statistic: Statistic) -> int:
        """Return the rows of a statistic's second moments."""
        return statistic.width_for(self.dim, constant=self.constant)

    @property
    def rows_needed(self) -> int:
        """Minimum rows of honest members in an exact sum. Rows of one record count once, since they may be alike."""
        needed = count_rows_needed(self.elements, self.width, self.dim)
        return max(ROWS_MIN, self.records.rows_per_id * needed)

    @property
    def class_rows_needed(self) -> int:
        """Minimum rows of honest members in a published class."""
        widths = [width for _, width in self._class_blocks]
        return self.records.rows_per_id * count_rows_needed(self.class_elements, max(widths), self.dim)

    @property
    def class_elements(self) -> int:
        """Elements of an exact vector that the rows of one class alone feed."""
        return sum(numbers for numbers, _ in self._class_blocks)

    @property
    def _class_blocks(self) -> list[tuple[int, int]]:
        return [each.class_block_for(self.dim, constant=self.constant) for each in self.statistics]

    @property
    def elements(self) -> int:
        """Length of the vector of an exact sum."""
        return sum(self.elements_of_statistic(each) for each in self.statistics)

    def elements_of_statistic(self, statistic: Statistic) -> int:
        """Return the length of a statistic's part of an exact vector."""
        return statistic.elements_for(self.dim, len(self.classes), constant=self.constant)

    @property
    def scale(self) -> int:
        """s: exact sums are rounded to multiples of 2^−s; 0 if none fits the ring."""
        room = (1 << self.ring_bits - 1) - 1 - (self.members_max + 1) // 2
        return min(SCALE_MAX, max(0, (room // self.records_max).bit_length() - 1))

    def steps_in(self, period: str) -> tuple[str, ...]:
        """Return the steps of a run of a period, in order; `ROWS_STEP` is skipped if the count leaves no class out."""
        return (JUDGE_STEP,) if kind_of_period(period) is PeriodKind.JUDGE else self.steps

    @property
    def steps(self) -> tuple[str, ...]:
        """The steps of a run over data, in order."""
        if self.noise is not None:
            return tuple(step for step, _ in RECIPES[self.noise.recipe])
        return (COUNT_STEP, ROWS_STEP, SUM_STEP) if self.withhold is not None else (SUM_STEP,)

    def elements_of(self, step: str) -> int:
        """Return the length of a step's vector (member: Exact vectors, member: Noise)."""
        classes = len(self.classes)
        if step in DISCLOSED_STEPS:
            return classes if step == COUNT_STEP else len(ROWS_LEVELS)
        if step == JUDGE_STEP:
            assert self.judge is not None
            return self.judge.elements_for(classes)
        if self.noise is None:
            return self.elements
        if step == MEAN_STEP:
            return self.dim + 1
        (statistic,) = self.statistics
        if step != SUM_STEP:
            return self.width_of(statistic) * classes
        # Exact counts are left out of noisy sums; only CCVR sums counts, with noise.
        return self.elements - (0 if self.has_statistic("ccvr") else classes)

    def share_of(self, step: str) -> float:
        """Return the step's share of the study's μ²; 0 without noise (member: Noise)."""
        return 0.0 if self.noise is None else dict(RECIPES[self.noise.recipe])[step]

    @property
    def gradients(self) -> tuple[str, ...]:
        """The steps that sum gradients, in order."""
        return tuple(step for step in self.steps if step.startswith("gradient"))

    def step_before(self, step: str) -> str | None:
        """Return the step that has to be certified first; None for the first step."""
        if step == JUDGE_STEP:
            return None
        place = self.steps.index(step)
        return self.steps[place - 1] if place else None

    def takes_material(self, step: str) -> bool:
        """Whether the step needs the heads to judge, or an earlier step's result: a centre or a head (member: Noise)."""
        return step == JUDGE_STEP or (self.noise is not None and self.step_before(step) is not None)

    @cached_property
    def smallest(self) -> Sizes:
        """The sizes of the smallest cohort and roster. Raises PeerFault(cohort-too-small)."""
        return self.sizes_for(self.members_min, self.members_min)

    def sizes_for(self, members: int, roster: int) -> Sizes:
        """Return the sizes of a cohort of `members` from a roster of `roster` members, without nominees (analysis: Sizes)."""
        return size_cohort(
            members, None, roster=roster, colluders=self.a, honest_min=self.h_min, loss=self.loss
        )

    def least_rows(self, quorum: Quorum) -> int:
        """Return the minimum rows of honest members in any sum of a cohort."""
        return self.records.least * (quorum.survivors_min - self.a)

    @property
    def class_floor(self) -> int:
        """m, the minimum holders of a published class, for a study that withholds rare classes (member: Enough rows)."""
        assert self.withhold is not None
        beside = self.a + self.withhold.margin
        return beside + max(self.h_min, -(-self.class_rows_needed // self.records.least_per_class))

    def has_statistic(self, kind: str) -> bool:
        return any(statistic.kind == kind for statistic in self.statistics)


def _check_ridge(value: object, check: ValidatorFunctionWrapHandler) -> object:
    """Name all allowed values in the error; a union's own error names only one type."""
    try:
        return check(value)
    except ValidationError as error:
        raise ValueError('expected "gcv", or a number above 0') from error


class CCVRHead(StudyBlock):
    """Parameters for retraining the CCVR head: samples of each class, and the exponent of Tukey's transformation."""

    samples_per_class: Annotated[int, Field(ge=1, le=100_000)]
    power: Annotated[Real, Field(gt=0, le=1)]


class After(StudyBlock):
    """The use of the sums.

    Attributes:
        ridge: λ, or "gcv" to choose it by generalised cross-validation.
        publish: additional documents to publish.
        readers: who may read the head; only the roster's readers may read the sums.
        ccvr: parameters for retraining the CCVR head; None without CCVR.
    """

    ridge: Annotated[Literal["gcv"] | Annotated[Real, Field(gt=0)], WrapValidator(_check_ridge)]
    publish: tuple[Literal["lda", "ncm", "pooled", "posterior"], ...]
    readers: Literal["members", "anyone"]
    ccvr: CCVRHead | None


class Rehearsal(StudyBlock):
    """A pack of canaries, and how far a member's features may differ from its reference.

    Attributes:
        pack: the SHA-256 of the pack.
        tolerance: maximum difference of a row of length 1.
    """

    pack: Hex32
    tolerance: Annotated[Real, Field(gt=0, le=1)]


class Content(StudyBlock):
    """A whole study, before or after it is signed."""

    format: Literal["veilsum-study/2"] = "veilsum-study/2"
    notes: Notes
    question: Question
    after: After
    rehearsal: Rehearsal | None

    @model_validator(mode="after")
    def _check_rules(self) -> Self:
        if broken := next(list_broken_rules(self), None):
            raise ValueError(broken)
        return self

    @property
    def class_names(self) -> tuple[str, ...]:
        """The classes' names for people: those of the notes, or else the keys."""
        return self.notes.display or self.question.classes

    @cached_property
    def approval(self) -> bytes:
        """The digest that a member approves. It omits version and expiry, so a renewal needs no new approval."""
        values = self.model_dump(mode="json", exclude={"notes": {"version", "expires"}})
        return hash_fields(Tag.APPROVAL, rfc8785.dumps(values))

    def check_period(self, period: str, *, repeats: bool) -> PeriodKind:
        """Return a period's kind, if the study has such periods (CARDS-2). Raises PeerFault(terms-refused) otherwise."""
        kind = check_period_name(period)
        lacks = {
            PeriodKind.REHEARSAL: "rehearsal" if self.rehearsal is None else "",
            PeriodKind.JUDGE: "question.judge" if self.question.judge is None else "",
        }.get(kind)
        if lacks:
            raise PeerFault(
                Cause.TERMS_REFUSED,
                f"period {period}: study {self.notes.name} has no {lacks}; the admin signs a version that has one",
                ["coordinator"],
            )
        if repeats and kind is not PeriodKind.DATA:
            raise PeerFault(
                Cause.TERMS_REFUSED, f"period {period}: only sums over data are repeated", ["coordinator"]
            )
        return kind

    def to_bytes(self) -> bytes:
        """Encode as canonical JSON (RFC 8785) in UTF-8."""
        return canonical_json(self)

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Read a study's content.

        Raises:
            PeerFault: study-refused if a field is missing, unknown or invalid, a rule of CONTENT is broken, or the bytes are not the
                canonical encoding.
        """
        try:
            read = cls.model_validate(as_tuples(json.loads(content)))
        except ValidationError as error:
            raise study_fault(first_error(error)) from error
        except (ValueError, RecursionError) as error:
            raise study_fault(f"the content is not JSON: {error}") from error
        if read.to_bytes() != content:
            raise study_fault("the content is not canonical JSON (RFC 8785)")
        return read


@lru_cache(maxsize=64)
def read_content(content: bytes) -> Content:
    """Read a study's content as `Content.from_bytes` does, with a cache."""
    return Content.from_bytes(content)


def study_fault(detail: str) -> PeerFault:
    """Build the fault of a study that breaks a rule."""
    return PeerFault(Cause.STUDY_REFUSED, detail, ["admin"])


def canonical_json(block: BaseModel) -> bytes:
    """Encode as canonical JSON (RFC 8785)."""
    return rfc8785.dumps(block.model_dump(mode="json"))


def as_tuples(value: Any) -> Any:
    """Convert JSON arrays to tuples, because strict models refuse lists."""
    if isinstance(value, dict):
        return {name: as_tuples(inner) for name, inner in value.items()}
    return tuple(map(as_tuples, value)) if isinstance(value, list) else value


def first_error(error: ValidationError) -> str:
    """Describe the first error: its place, then the reason."""
    return first_fault(error, unnamed=STATISTICS_ORDER)


def count_rows_needed(numbers: int, width: int, dim: int) -> int:
    """Return the fewest rows behind `numbers` sums of them, whose widest second moment has `width` rows; 0 without one (member: Enough rows).

    A row of length 1 has dim − 1 unknowns. With two unknowns for each sum the sums can't be solved for the rows.
    """
    return max(2 * width, -(-2 * numbers // (dim - 1)))


def list_broken_rules(content: Content) -> Iterator[str]:
    """Yield the broken rules between fields, in the order of CONTENT-2 to CONTENT-21."""
    question, notes = content.question, content.notes
    classes, records = question.classes, question.records
    if len(set(classes)) != len(classes):
        yield "question.classes: a class key appears twice"
    if notes.display and len(notes.display) != len(classes):
        yield f"notes.display: {len(notes.display)} names for {len(classes)} classes; give one each, or none"
    yield from _broken_statistics(question)
    yield from _broken_columns(question)
    yield from _broken_reasons(content)
    yield from _broken_judge(question)
    for name in ("least", "least_per_class", "rows_per_id"):
        if (given := getattr(records, name)) > records.most:
            yield f"question.records: {name} is {given}, above most, {records.most}"
    if question.members_min > question.members_max:
        yield f"question.members_min is {question.members_min}, above members_max, {question.members_max}"
    if content.after.publish != tuple(sorted(set(content.after.publish))):
        yield "after.publish: give each document once, in alphabetical order"
    if (content.after.ccvr is None) == question.has_statistic("ccvr"):
        yield "after.ccvr goes with the statistic ccvr: give both or neither"
    yield from _unsafe_sizes(question)


def _broken_statistics(question: Question) -> Iterator[str]:
    kinds = [statistic.kind for statistic in question.statistics]
    if kinds != [kind for kind in STATISTICS_ORDER if kind in kinds]:
        yield f"question.statistics: give each kind at most once, in the order {', '.join(STATISTICS_ORDER)}"
    if "ccvr" in kinds and len(kinds) > 1:
        yield "question.statistics: ccvr is summed alone, because sums beside it would show the rows of withheld classes"
    if question.constant and "ffc" not in kinds:
        yield "question.constant goes with the statistic ffc: set it to false"


def _broken_columns(question: Question) -> Iterator[str]:
    columns = question.columns
    if columns and len(columns) != question.dim:
        yield f"question.columns: {len(columns)} names for {question.dim} features; give one each, or none"
    if len(set(columns)) != len(columns):
        yield "question.columns: a name appears twice"


def _broken_reasons(content: Content) -> Iterator[str]:
    """Yield the sentences of the author that are missing, and those that say why of what the study doesn't do."""
    question, notes = content.question, content.notes
    if not question.listable and not notes.why_not_listable:
        yield "notes.why_not_listable: say why no list of 10^12 rows can hold every input that a patient could have"
    if question.listable and notes.why_not_listable:
        yield "notes.why_not_listable goes with listable = false: leave it empty"
    publishes_all = question.noise is None and question.withhold is None
    if publishes_all and not notes.why_not_withheld:
        yield (
            "notes.why_not_withheld: without question.withhold a class that one record has shows that record; withhold rare classes, "
            "or say why not"
        )
    if not publishes_all and notes.why_not_withheld:
        yield "notes.why_not_withheld goes with an exact study that withholds no class: leave it empty"


def _broken_judge(question: Question) -> Iterator[str]:
    judge = question.judge
    if judge is None:
        return
    if judge.positive is not None and judge.positive not in question.classes:
        yield f"question.judge.positive is {judge.positive}, which is no class of the study"
    yield from _too_large_delta("question.judge.delta", judge.delta, question)


def _too_large_delta(name: str, delta: float, question: Question) -> Iterator[str]:
    if Fraction(delta) * question.records_max > 1:
        yield (
            f"{name} is {delta:g}: it must be at most 1 / (most · members_max) = {1 / question.records_max:.1g}, "
            "or the noise may give a record away"
        )


def _unsafe_sizes(question: Question) -> Iterator[str]:
    quarter = question.members_max // 4
    if question.a < quarter:
        yield f"question.a is {question.a}: with up to {question.members_max} members it must be at least {quarter}, a quarter rounded down"
    try:
        quorum = question.smallest.quorum
    except PeerFault as fault:
        yield f"question.members_min: {fault.detail}"
    else:
        yield from _unsafe_beside(question, quorum)


def _unsafe_beside(question: Question, quorum: Quorum) -> Iterator[str]:
    """Yield the unsafe settings of a study whose smallest cohort has a quorum."""
    margin = quorum.members_may_miss
    if question.withhold is not None and question.withhold.margin > margin:
        yield (
            f"question.withhold.margin is {question.withhold.margin}: of {question.members_min} members at most {margin} may be missing; lower it, or "
            "raise members_min"
        )
    windows = question.windows
    if (needed_s := windows.attempt_s) > END_MAX_S:
        yield f"question.windows: upload + 3 · answer is {needed_s:,} s, above 30 days ({END_MAX_S:,} s)"
    if question.elements > ELEMENTS_MAX:
        yield f"question: the vector has {question.elements:,} elements, at most {ELEMENTS_MAX:,} can be summed"
    if any(
        each.kind == "random-features" and each.size * question.dim > NORMALS_MAX
        for each in question.statistics
    ):
        yield f"question.statistics: random features take dim · size up to {NORMALS_MAX:,}"
    yield from (
        _broken_noise_rules(question) if question.noise is not None else _broken_exact_rules(question, quorum)
    )


def _broken_noise_rules(question: Question) -> Iterator[str]:
    assert question.noise is not None
    if question.withhold is not None:
        yield "question.noise and question.withhold exclude each other: counts of the classes' holders are exact"
    yield from _too_large_delta("question.noise.delta", question.noise.delta, question)
    if len(question.statistics) > 1:
        yield "question.statistics: a noisy study sums one statistic, so that its budget buys one answer"
    if question.has_statistic("ccvr") and question.noise.recipe not in {"sum", "mean+sum"}:
        yield f"question.noise.recipe is {question.noise.recipe}: CCVR takes sum or mean+sum"
    if question.ring_bits != NOISY_BITS or question.records_max >= NOISY_RECORDS_MAX:
        yield f"question.noise needs ring_bits = {NOISY_BITS} and most · members_max below {NOISY_RECORDS_MAX:,}"


def _broken_exact_rules(question: Question, quorum: Quorum) -> Iterator[str]:
    if question.scale < SCALE_MIN:
        yield (
            f"question.records.most: {question.records_max:,} rows do not fit a ring of {question.ring_bits} bits; "
            "take fewer rows, fewer members or 48 bits"
        )
    if question.listable:
        yield (
            "question.listable: an exact sum of inputs that can be listed gives records back; add noise, "
            "or set listable = false and say why in notes.why_not_listable"
        )
    if question.withhold is None and question.has_statistic("ccvr"):
        yield "question.withhold: the moments of a rare class show its rows; a study of ccvr withholds rare classes"
    rows, needed = question.least_rows(quorum), question.rows_needed
    if rows < needed:
        least = -(-needed // (quorum.survivors_min - question.a))
        yield (
            f"question.records.least is {question.records.least}: a sum could hold as few as {rows} rows of honest members, "
            f"and this study needs {needed}; take at least {least}"
        )
    if question.withhold is not None and question.class_floor > question.members_min:
        left = question.members_min - question.a - question.withhold.margin
        yield (
            f"question.records.least_per_class is {question.records.least_per_class}: this study publishes a class that "
            f"{question.class_floor} members hold, and a run may have {question.members_min}; take at least "
            f"{-(-question.class_rows_needed // left)}"
        )
